// Compiled once per instruction set with PHASOR_LIMIT_LEVEL as its name; no standard templates
// here.
#include "core/limit_loops.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr std::size_t kFloats = 16;
#elif defined(__AVX2__)
constexpr std::size_t kFloats = 8;
#else
constexpr std::size_t kFloats = 4;
#endif
using Vector = float __attribute__((vector_size(kFloats * 4), aligned(4)));

void scale(float* x, std::size_t count, float factor) {
  std::size_t i = 0;
  for (; i + 4 * kFloats <= count; i += 4 * kFloats) {
    for (std::size_t v = 0; v < 4; ++v) *reinterpret_cast<Vector*>(x + i + v * kFloats) *= factor;
  }
  for (; i < count; ++i) x[i] *= factor;
}

void stream_copy(const float* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 16) {
#if defined(__AVX512F__)
    _mm512_stream_ps(to + i, _mm512_load_ps(from + i));
#elif defined(__AVX2__)
    _mm256_stream_ps(to + i, _mm256_load_ps(from + i));
    _mm256_stream_ps(to + i + 8, _mm256_load_ps(from + i + 8));
#elif defined(__x86_64__)
    for (std::size_t v = 0; v < 16; v += 4) _mm_stream_ps(to + i + v, _mm_load_ps(from + i + v));
#else
    for (std::size_t v = 0; v < 16; ++v) to[i + v] = from[i + v];
#endif
  }
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace

#define PHASOR_JOIN2(a, b) a##b
#define PHASOR_JOIN(a, b) PHASOR_JOIN2(a, b)

namespace phasor::bench {

extern const LimitLoops PHASOR_JOIN(limits_, PHASOR_LIMIT_LEVEL);
const LimitLoops PHASOR_JOIN(limits_, PHASOR_LIMIT_LEVEL) = {scale, stream_copy};

}  // namespace phasor::bench
