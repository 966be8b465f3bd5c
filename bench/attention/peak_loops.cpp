// Compiled once per instruction set with PHASOR_LIMIT_LEVEL as its name; no standard templates here.
#include "attention/peak_loops.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

// Two units that take four cycles each need eight products under way; more, so that a late start of
// one does not show. AVX2 has sixteen registers, and the two factors take two of them.
#if defined(__AVX512F__)
constexpr std::int64_t kFloats = 16, kChains = 24;
#elif defined(__AVX2__)
constexpr std::int64_t kFloats = 8, kChains = 12;
#else
constexpr std::int64_t kFloats = 4, kChains = 10;
#endif
using Vector = float __attribute__((vector_size(kFloats * 4)));

inline Vector fused(Vector a, Vector b, Vector c) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vector>(_mm512_fmadd_ps(
      reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
#elif defined(__AVX2__) && defined(__FMA__)
  return reinterpret_cast<Vector>(_mm256_fmadd_ps(
      reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
#else
  return a * b + c;
#endif
}

inline float total(Vector x) {
  float sum = 0.0F;
  for (std::int64_t lane = 0; lane < kFloats; ++lane) sum += x[lane];
  return sum;
}

// Hides where a value comes from: chains with equal starts would be computed once.
inline void hide(Vector& x) {
#if defined(__AVX512F__)
  asm volatile("" : "+v"(x));
#elif defined(__x86_64__)
  asm volatile("" : "+x"(x));
#else
  asm volatile("" : "+w"(x));
#endif
}

float multiply_add(std::int64_t floats) {
  Vector chain[kChains];
#pragma GCC unroll 32
  for (std::int64_t i = 0; i < kChains; ++i) {
    chain[i] = Vector{} + static_cast<float>(i);
    hide(chain[i]);
  }
  Vector a = Vector{} + 1.5F, b = Vector{} + 0.25F;
  hide(a);
  hide(b);
  for (std::int64_t done = 0; done < floats; done += kFloats * kChains) {
#pragma GCC unroll 32
    for (std::int64_t i = 0; i < kChains; ++i) chain[i] = fused(a, b, chain[i]);
  }
  Vector sum{};
#pragma GCC unroll 32
  for (std::int64_t i = 0; i < kChains; ++i) sum += chain[i];
  return total(sum);
}

// Prefetches kAhead bytes ahead; 0: nothing. Reads kPlaces equal parts in turn.
template <std::size_t kAhead, std::size_t kPlaces = 1>
float sum(const float* x, std::size_t count) {
  constexpr std::size_t kSums = 8 / kPlaces, kStep = kSums * static_cast<std::size_t>(kFloats);
  Vector sums[kPlaces][kSums] = {};
  const std::size_t part = count / kPlaces / kStep * kStep;
  for (std::size_t i = 0; i < part; i += kStep) {
    if constexpr (kAhead > 0) {
#pragma GCC unroll 32
      for (std::size_t line = 0; line < kStep; line += 16)
        __builtin_prefetch(x + i + line + kAhead / sizeof(float));
    }
#pragma GCC unroll 32
    for (std::size_t place = 0; place < kPlaces; ++place) {
#pragma GCC unroll 32
      for (std::size_t v = 0; v < kSums; ++v) {
        sums[place][v] += *reinterpret_cast<const Vector*>(x + place * part + i +
                                                           v * static_cast<std::size_t>(kFloats));
      }
    }
  }
  Vector all{};
#pragma GCC unroll 32
  for (std::size_t place = 0; place < kPlaces; ++place) {
#pragma GCC unroll 32
    for (std::size_t v = 0; v < kSums; ++v) all += sums[place][v];
  }
  float result = total(all);
  for (std::size_t i = kPlaces * part; i < count; ++i) result += x[i];
  return result;
}

}  // namespace

#define PHASOR_JOIN2(a, b) a##b
#define PHASOR_JOIN(a, b) PHASOR_JOIN2(a, b)

namespace phasor::bench {

extern const PeakLoops PHASOR_JOIN(peaks_, PHASOR_LIMIT_LEVEL);
const PeakLoops PHASOR_JOIN(peaks_, PHASOR_LIMIT_LEVEL) = {
    multiply_add, {sum<0>, sum<4096>, sum<16384>, sum<0, 2>, sum<0, 4>}};

}  // namespace phasor::bench
