// Products of bytes, summed in 32-bit lanes: the only file of these kernels that uses
// intrinsics (docs/adr/0008-integer-dots.md). Included by kernels.cpp alone.
#pragma once

#include "phasor/attention/internal/kernels/product.hpp"

namespace {

using Ints = std::int32_t __attribute__((vector_size(kVectorBytes)));

inline Ints splat_int(std::int32_t value) { return value - Ints{}; }
inline Float to_float(Ints x) { return __builtin_convertvector(x, Float); }

#if defined(__AVX512VNNI__)
#define PHASOR_DOTS_VNNI 1
#elif defined(__SSSE3__)
#define PHASOR_DOTS_PAIRS 1
// u8 times s8, neighbours added into 16 bits; and products of 16 bits, neighbours added into 32.
inline Ints multiply_pairs(Ints codes, Ints x) {
#if defined(__AVX512BW__)
  return reinterpret_cast<Ints>(
      _mm512_maddubs_epi16(reinterpret_cast<__m512i>(codes), reinterpret_cast<__m512i>(x)));
#elif defined(__AVX2__)
  return reinterpret_cast<Ints>(
      _mm256_maddubs_epi16(reinterpret_cast<__m256i>(codes), reinterpret_cast<__m256i>(x)));
#else
  return reinterpret_cast<Ints>(
      _mm_maddubs_epi16(reinterpret_cast<__m128i>(codes), reinterpret_cast<__m128i>(x)));
#endif
}
inline Ints multiply_shorts(Ints a, Ints b) {
#if defined(__AVX512BW__)
  return reinterpret_cast<Ints>(
      _mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Ints>(
      _mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return reinterpret_cast<Ints>(
      _mm_madd_epi16(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#endif
}
inline Ints add_pairs(Ints pairs) { return multiply_shorts(pairs, splat_int(0x00010001)); }
// |weight|, and x with the sign of the weight: s8 times s8 as u8 times s8.
inline Ints magnitude(Ints weights) {
#if defined(__AVX512BW__)
  return reinterpret_cast<Ints>(_mm512_abs_epi8(reinterpret_cast<__m512i>(weights)));
#elif defined(__AVX2__)
  return reinterpret_cast<Ints>(_mm256_abs_epi8(reinterpret_cast<__m256i>(weights)));
#else
  return reinterpret_cast<Ints>(_mm_abs_epi8(reinterpret_cast<__m128i>(weights)));
#endif
}
inline Ints signed_like(Ints x, Ints weights) {
#if defined(__AVX512BW__)
  const __m512i value = reinterpret_cast<__m512i>(x);
  return reinterpret_cast<Ints>(
      _mm512_mask_sub_epi8(value, _mm512_movepi8_mask(reinterpret_cast<__m512i>(weights)),
                           reinterpret_cast<__m512i>(Ints{}), value));
#elif defined(__AVX2__)
  return reinterpret_cast<Ints>(
      _mm256_sign_epi8(reinterpret_cast<__m256i>(x), reinterpret_cast<__m256i>(weights)));
#else
  return reinterpret_cast<Ints>(
      _mm_sign_epi8(reinterpret_cast<__m128i>(x), reinterpret_cast<__m128i>(weights)));
#endif
}
using Pairs = std::int16_t __attribute__((vector_size(kVectorBytes)));
#else
// Not inlined: four emulated products, a few hundred times over, would take a minute to compile.
__attribute__((noinline)) Ints plain_dot(Ints sum, Ints codes, Ints x) {
  for (int byte = 0; byte < 4; ++byte)
    sum += ((codes >> (8 * byte)) & 255) * ((x << (24 - 8 * byte)) >> 24);
  return sum;
}
#endif

// The values of IQ4_NL's codes, plus 128, once for each 16 bytes of a vector.
#define PHASOR_TABLE 1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241
alignas(64) constexpr std::uint8_t kTable[64] = {PHASOR_TABLE, PHASOR_TABLE, PHASOR_TABLE,
                                                 PHASOR_TABLE};
#undef PHASOR_TABLE
// Every byte of `codes`, below 16, as its value.
inline Ints from_table(Ints codes) {
#if defined(__AVX512BW__)
  return reinterpret_cast<Ints>(_mm512_shuffle_epi8(reinterpret_cast<__m512i>(load<Ints>(kTable)),
                                                    reinterpret_cast<__m512i>(codes)));
#elif defined(__AVX2__)
  return reinterpret_cast<Ints>(_mm256_shuffle_epi8(reinterpret_cast<__m256i>(load<Ints>(kTable)),
                                                    reinterpret_cast<__m256i>(codes)));
#elif defined(__SSSE3__)
  return reinterpret_cast<Ints>(_mm_shuffle_epi8(reinterpret_cast<__m128i>(load<Ints>(kTable)),
                                                 reinterpret_cast<__m128i>(codes)));
#elif defined(__aarch64__)
  return reinterpret_cast<Ints>(vqtbl1q_u8(vld1q_u8(kTable), reinterpret_cast<uint8x16_t>(codes)));
#else
  std::uint8_t bytes[sizeof(Ints)];
  __builtin_memcpy(bytes, &codes, sizeof(codes));
  for (std::uint8_t& byte : bytes) byte = kTable[byte & 15];
  __builtin_memcpy(&codes, bytes, sizeof(codes));
  return codes;
#endif
}

// sum += codes . x over the four bytes of each lane; codes below 2^kBits, unsigned; x in [-127,
// 127]. If kSigned, eight-bit codes are read as their value minus 128.
template <int kBits>
class DotSum {
 public:
#if defined(PHASOR_DOTS_PAIRS)
  static constexpr bool kSigned = kBits == 8;
#else
  static constexpr bool kSigned = false;
#endif

  DotSum() : sum_{} {}
  explicit DotSum(std::int32_t start) : sum_(splat_int(start)) {}

  // `index` counts the words added so far and must be a constant after unrolling.
  PHASOR_IN_PLACE void add(Ints codes, Ints x, int index) {
#if defined(PHASOR_DOTS_VNNI)
    (void)index;
    sum_ = reinterpret_cast<Ints>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum_),
                                                      reinterpret_cast<__m512i>(codes),
                                                      reinterpret_cast<__m512i>(x)));
#elif defined(PHASOR_DOTS_PAIRS)
    if constexpr (kSigned) {
      (void)index;
      const Ints weights = codes ^ splat_int(static_cast<std::int32_t>(0x80808080U));
      sum_ = in_register(sum_ +
                         add_pairs(multiply_pairs(magnitude(weights), signed_like(x, weights))));
    } else {
      // 2 (2^bits - 1) 127 a pair: so many fit into 16 bits with their sign.
      constexpr int kFit = kBits == 4 ? 8 : kBits == 5 ? 4 : 2;
      static_assert(kFit * 2 * ((1 << kBits) - 1) * 127 < 32768);
      const Ints pairs = multiply_pairs(codes, x);
      pending_ = index % kFit == 0 ? pairs
                                   : reinterpret_cast<Ints>(reinterpret_cast<Pairs>(pending_) +
                                                            reinterpret_cast<Pairs>(pairs));
      // Otherwise GCC 12 computes all the products first and spills them.
      pending_ = in_register(pending_);
      if (index % kFit == kFit - 1) sum_ += add_pairs(pending_);
    }
#else
    (void)index;
    sum_ = plain_dot(sum_, codes, x);
#endif
  }

  [[nodiscard]] Ints value() const { return sum_; }

 private:
  Ints sum_;
#if defined(PHASOR_DOTS_PAIRS)
  Ints pending_{};
#endif
};

// Not with AVX-512, whose CPUs without VNNI give the same bits as those with it.
#if defined(PHASOR_DOTS_PAIRS) && !defined(__AVX512F__)
#define PHASOR_PAIR_DOTS 1
// The three steps of an exact activation times codes of kBits, as two sums: that of steps 0 and 1 in
// units of step 1, and that of step 2. |first| <= 32 255 32385 < 2^31.
template <int kBits>
class PairDots {
 public:
  // Word number `index` of the kCount words of a sum, a constant after unrolling. `x` are the words
  // of the steps, `pairs` the words of the two numbers: even columns, then odd ones.
  template <int kCount>
  PHASOR_IN_PLACE void add(Ints codes, const Ints (&x)[3], const Ints (&pairs)[2][2], int index) {
    if constexpr (kBits == 8) {  // no room for sums of products in 16 bits: 16 times 16 bits
      (void)x;
      const Ints even = codes & splat_int(0x00ff00ff);
      const Ints odd = reinterpret_cast<Ints>(reinterpret_cast<Words16>(codes) >> 8);
      const Ints first = multiply_shorts(even, pairs[0][0]) + multiply_shorts(odd, pairs[0][1]);
      const Ints second = multiply_shorts(even, pairs[1][0]) + multiply_shorts(odd, pairs[1][1]);
      first_ = in_register(index == 0 ? first : first_ + first);
      second_ = in_register(index == 0 ? second : second_ + second);
    } else {
      (void)pairs;
      constexpr int kFit = kBits == 4 ? 8 : kBits == 5 ? 4 : 2;
      static_assert(kFit * 2 * ((1 << kBits) - 1) * 127 < 32768);
      PHASOR_UNROLL
      for (int s = 0; s < 3; ++s) {
        const Ints products = multiply_pairs(codes, x[s]);
        pending_[s] = in_register(
            index % kFit == 0 ? products
                              : reinterpret_cast<Ints>(reinterpret_cast<Pairs>(pending_[s]) +
                                                       reinterpret_cast<Pairs>(products)));
      }
      if (index % kFit != kFit - 1 && index != kCount - 1) return;
      const Ints first =
          multiply_shorts(pending_[0],
                          splat_int(phasor::models::kernels::kStepInverse * 0x00010001)) +
          add_pairs(pending_[1]);
      const Ints second = add_pairs(pending_[2]);
      first_ = index < kFit ? first : first_ + first;
      second_ = index < kFit ? second : second_ + second;
    }
  }
  [[nodiscard]] Ints first() const { return first_; }
  [[nodiscard]] Ints second() const { return second_; }

 private:
  using Words16 = std::uint16_t __attribute__((vector_size(kVectorBytes)));
  Ints first_, second_;
  Ints pending_[3];
};
#endif

}  // namespace
