// Vectors of the level this file is compiled for. Included by kernels.cpp alone; everything has
// internal linkage.
#pragma once

#include <cstddef>
#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
constexpr int kFloats = kVectorBytes / 4;
constexpr int kDoubles = kVectorBytes / 8;

using Float = float __attribute__((vector_size(kVectorBytes)));
using Bits = std::uint32_t __attribute__((vector_size(kVectorBytes)));
using Double = double __attribute__((vector_size(kVectorBytes)));
using Long = std::int64_t __attribute__((vector_size(kVectorBytes)));
using HalfFloat = float __attribute__((vector_size(kVectorBytes / 2)));       // kDoubles of them
using Shorts = std::uint16_t __attribute__((vector_size(kVectorBytes / 2)));  // kFloats of them

// An unaligned vector in memory, of whatever type the caller's memory has.
template <class Vector>
struct __attribute__((packed, may_alias)) Unaligned {
  Vector value;
};
template <class Vector>
inline Vector load(const void* address) {
  return static_cast<const Unaligned<Vector>*>(address)->value;
}
template <class Vector>
inline void store(void* address, Vector value) {
  static_cast<Unaligned<Vector>*>(address)->value = value;
}

// a b + c, rounded once where the level can and twice where it cannot. Explicit, since what
// the compiler fuses depends on the surrounding code, and every variant of a kernel must give the
// same bits.
inline Float mul_add(Float a, Float b, Float c) {
#if defined(__AVX512F__)
  return reinterpret_cast<Float>(_mm512_fmadd_ps(
      reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
#elif defined(__FMA__)
  return reinterpret_cast<Float>(_mm256_fmadd_ps(
      reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
#elif defined(__aarch64__)
  return reinterpret_cast<Float>(vfmaq_f32(reinterpret_cast<float32x4_t>(c),
                                           reinterpret_cast<float32x4_t>(a),
                                           reinterpret_cast<float32x4_t>(b)));
#else
  return a * b + c;
#endif
}
inline Double mul_add(Double a, Double b, Double c) {
#if defined(__AVX512F__)
  return reinterpret_cast<Double>(_mm512_fmadd_pd(
      reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(b), reinterpret_cast<__m512d>(c)));
#elif defined(__FMA__)
  return reinterpret_cast<Double>(_mm256_fmadd_pd(
      reinterpret_cast<__m256d>(a), reinterpret_cast<__m256d>(b), reinterpret_cast<__m256d>(c)));
#elif defined(__aarch64__)
  return reinterpret_cast<Double>(vfmaq_f64(reinterpret_cast<float64x2_t>(c),
                                            reinterpret_cast<float64x2_t>(a),
                                            reinterpret_cast<float64x2_t>(b)));
#else
  return a * b + c;
#endif
}

// A value that is used twice, loaded once: GCC would rather fold the load into both uses.
template <class Vector>
inline Vector in_register(Vector value) {
#if defined(__x86_64__)
  asm("" : "+v"(value));
#elif defined(__aarch64__)
  asm("" : "+w"(value));
#endif
  return value;
}

// A store past the caches; `address` is aligned to the vector.
template <class Vector>
inline void stream(void* address, Vector value) {
  static_assert(sizeof(Vector) == kVectorBytes || sizeof(Vector) == kVectorBytes / 2);
#if defined(__AVX512F__)
  if constexpr (sizeof(Vector) == 64) {
    _mm512_stream_si512(static_cast<__m512i*>(address), reinterpret_cast<__m512i>(value));
    return;
  }
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(Vector) == 32) {
    _mm256_stream_si256(static_cast<__m256i*>(address), reinterpret_cast<__m256i>(value));
    return;
  }
#endif
#if defined(__x86_64__)
  if constexpr (sizeof(Vector) == 16) {
    _mm_stream_si128(static_cast<__m128i*>(address), reinterpret_cast<__m128i>(value));
    return;
  }
#endif
  store(address, value);
}

inline void stream_bytes(void* to, const void* from, std::int64_t bytes) {
  char* out = static_cast<char*>(to);
  const char* in = static_cast<const char*>(from);
  // Lines that belong to this copy in part are left to the caches: a streamed part of a line costs
  // a whole one.
  const std::int64_t before = -reinterpret_cast<std::intptr_t>(out) & 63;
  const std::int64_t first = before < bytes ? before : bytes;
  __builtin_memcpy(out, in, static_cast<std::size_t>(first));
  const std::int64_t end = first + (bytes - first) / 64 * 64;
  for (std::int64_t at = first; at < end; at += kVectorBytes) stream(out + at, load<Bits>(in + at));
  __builtin_memcpy(out + end, in + end, static_cast<std::size_t>(bytes - end));
}

inline void fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

template <int... Lane>
struct Lanes {};
template <int Count, int... Lane>
struct MakeLanes : MakeLanes<Count - 1, Count - 1, Lane...> {};
template <int... Lane>
struct MakeLanes<0, Lane...> {
  using Type = Lanes<Lane...>;
};
using FloatLanes = MakeLanes<kFloats>::Type;

// (a b c d ...) -> (b a d c ...): the other feature of each interleaved pair.
template <int... Lane>
inline Float swap_pairs(Float x, Lanes<Lane...>) {
  return __builtin_shufflevector(x, x, (Lane ^ 1)...);
}
inline Float swap_pairs(Float x) { return swap_pairs(x, FloatLanes{}); }

// The storage types: how a vector of floats is read and written, and how a tail of fewer is.
struct F32 {
  using Element = float;
  static Float read(const Element* at) { return load<Float>(at); }
  template <bool kStream>
  static void write(Element* at, Float value) {
    if constexpr (kStream) {
      stream(at, value);
    } else {
      store(at, value);
    }
  }
};

#if defined(__AVX512F__)
// GCC 12 warns about its own header in the unmasked forms; a full mask costs nothing.
constexpr __mmask16 kAllLanes = 0xffff;
#endif

// IEEE half. Hardware conversion where the level has it; GCC 12 would convert one at a time.
struct F16 {
  using Element = std::uint16_t;
  static Float read(const Element* at) {
#if defined(__AVX512F__)
    return reinterpret_cast<Float>(_mm512_maskz_cvtph_ps(kAllLanes, load<__m256i>(at)));
#elif defined(__F16C__)
    return reinterpret_cast<Float>(_mm256_cvtph_ps(load<__m128i>(at)));
#elif defined(__aarch64__)
    return reinterpret_cast<Float>(vcvt_f32_f16(load<float16x4_t>(at)));
#else
    const Bits half = __builtin_convertvector(load<Shorts>(at), Bits);
    const Bits magnitude = half & 0x7fffU;
    // The exponent is off by 112 after the shift; the product corrects it, subnormal halves included.
    const Bits finite = reinterpret_cast<Bits>(reinterpret_cast<Float>(magnitude << 13) * 0x1p112F);
    const Bits special = (magnitude << 13) | 0x7f800000U;
    const Bits is_special = reinterpret_cast<Bits>(magnitude >= 0x7c00U);
    return reinterpret_cast<Float>(((half & 0x8000U) << 16) | (special & is_special) |
                                   (finite & ~is_special));
#endif
  }
  template <bool kStream>
  static void write(Element* at, Float value) {
#if defined(__AVX512F__)
    const __m256i half = _mm512_maskz_cvtps_ph(kAllLanes, reinterpret_cast<__m512>(value),
                                               _MM_FROUND_TO_NEAREST_INT);
#elif defined(__F16C__)
    const __m128i half =
        _mm256_cvtps_ph(reinterpret_cast<__m256>(value), _MM_FROUND_TO_NEAREST_INT);
#elif defined(__aarch64__)
    const float16x4_t half = vcvt_f16_f32(reinterpret_cast<float32x4_t>(value));
#else
    const Bits bits = reinterpret_cast<Bits>(value);
    const Bits magnitude = bits & 0x7fffffffU;
    const Bits is_nan = reinterpret_cast<Bits>(magnitude > 0x7f800000U);
    const Bits is_large = reinterpret_cast<Bits>(magnitude >= 0x477ff000U);  // rounds to infinity
    const Bits is_small = reinterpret_cast<Bits>(magnitude < 0x38800000U);   // subnormal half
    const Bits normal = (magnitude + 0xfffU + ((magnitude >> 13) & 1U) - (112U << 23)) >> 13;
    // Adding 0.5 aligns a subnormal half's last bit with float's.
    const Bits small =
        reinterpret_cast<Bits>(reinterpret_cast<Float>(magnitude) + 0.5F) - 0x3f000000U;
    const Bits nan = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
    Bits rest = (small & is_small) | (normal & ~is_small);
    rest = (0x7c00U & is_large) | (rest & ~is_large);
    rest = (nan & is_nan) | (rest & ~is_nan);
    const Shorts half = __builtin_convertvector(((bits >> 16) & 0x8000U) | rest, Shorts);
#endif
    if constexpr (kStream) {
      stream_half(at, half);
    } else {
      store(at, half);
    }
  }

 private:
  template <class Vector>
  static void stream_half(void* at, Vector value) {
    if constexpr (sizeof(Vector) >= 16) {
      stream(at, value);
    } else {
      store(at, value);
    }
  }
};

// bf16 is the upper half of a float: two of them share a 32-bit lane, taken apart and joined by
// shift and mask.
inline Float low_bf16(Bits lanes) { return reinterpret_cast<Float>(lanes << 16); }
inline Float high_bf16(Bits lanes) { return reinterpret_cast<Float>(lanes & 0xffff0000U); }
// Round to nearest, ties to even. A NaN stays one: its lower half is zero here, since it came from
// bf16.
inline Bits rounded_bf16(Float value) {
  const Bits bits = reinterpret_cast<Bits>(value);
  return bits + 0x7fffU + ((bits >> 16) & 1U);
}
inline Bits join_bf16(Float low, Float high) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  // The same on all halves at once, in 9 instructions, not 11: the upper halves, plus the carry of the
  // lower ones. vpavgw is (x + y + 1) / 2 without overflow: the carry is its highest bit.
  const auto a = reinterpret_cast<__m256i>(low), b = reinterpret_cast<__m256i>(high);
  const __m256i upper = _mm256_blend_epi16(_mm256_srli_epi32(a, 16), b, 0xaa);
  const __m256i lower = _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi16(1));
  const __m256i sum = _mm256_avg_epu16(lower, _mm256_or_si256(odd, _mm256_set1_epi16(0x7ffe)));
  return reinterpret_cast<Bits>(_mm256_add_epi16(upper, _mm256_srli_epi16(sum, 15)));
#else
  return (rounded_bf16(low) >> 16) | (rounded_bf16(high) & 0xffff0000U);
#endif
}

// A vector of bf16, one in each lane.
struct Bf16 {
  using Element = std::uint16_t;
  static Float read(const Element* at) {
    // GCC 12 would widen the halves of a vector one by one.
#if defined(__AVX512F__)
    const Bits wide =
        reinterpret_cast<Bits>(_mm512_maskz_cvtepu16_epi32(kAllLanes, load<__m256i>(at)));
#elif defined(__AVX2__)
    const Bits wide = reinterpret_cast<Bits>(_mm256_cvtepu16_epi32(load<__m128i>(at)));
#else
    const Bits wide = __builtin_convertvector(load<Shorts>(at), Bits);
#endif
    return reinterpret_cast<Float>(wide << 16);
  }
  template <bool kStream>
  static void write(Element* at, Float value) {
    const Bits bits = reinterpret_cast<Bits>(value);
    // Rounding up a NaN may carry into infinity: a NaN is cut and made quiet instead.
    const Bits is_nan = reinterpret_cast<Bits>(value != value);
    const Bits half = ((rounded_bf16(value) >> 16) & ~is_nan) | (((bits >> 16) | 0x40U) & is_nan);
    store(at, __builtin_convertvector(half, Shorts));
  }
};

}  // namespace
