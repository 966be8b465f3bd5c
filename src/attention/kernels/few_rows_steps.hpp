// How rows that are not packed are read: a vector of float32 numbers at a time, or a step of 16-bit ones; in
// which turns queries meet them.
#pragma once

#include "attention/kernels/pack.hpp"
#include "phasor/attention/internal/kernels/exponential.hpp"

namespace {

// kPart features of a row, as often as they fit a vector.
template <class Type, int kPart>
inline Float read_repeated(const typename Type::Element* at) {
  if constexpr (kPart == kFloats) {
    return Type::read(at);
  } else {
#if defined(__AVX512F__)
    return reinterpret_cast<Float>(_mm512_maskz_broadcast_f32x8(kAllLanes, load<__m256>(at)));
#elif defined(__AVX2__)
    return reinterpret_cast<Float>(_mm256_broadcast_ps(reinterpret_cast<const __m128*>(at)));
#endif
  }
}

// The features of a row that are read at once: kPart of them in one vector, or, of bf16, two in each
// lane of 32 bits, which a shift and a mask take apart into two vectors.
template <class Type, int kPart>
struct Step {
  static constexpr int kVectors = 1, kFeatures = kPart;
  static Float read(const typename Type::Element* at) { return read_repeated<Type, kPart>(at); }
  static Float vector(Float features, int) { return features; }
};
template <int kPart>
struct Step<Bf16, kPart> {
  static_assert(kPart == kFloats);
  static constexpr int kVectors = 2, kFeatures = 2 * kPart;
  static Bits read(const Bf16::Element* at) { return load<Bits>(at); }
  static Float vector(Bits features, int which) {
    return which == 0 ? low_bf16(features) : high_bf16(features);
  }
};

// The lanes 2 i + kOdd of a, then those of b.
template <int kOdd, int... Lane>
inline Float every_other(Float a, Float b, Lanes<Lane...>) {
  return __builtin_shufflevector(a, b, (2 * Lane + kOdd)...);
}

// Rows that are read more than once while they are in the first cache.
constexpr std::int64_t kRowsInCache = 48;

// kTogether queries meet a row at once; more take turns over blocks of kRowsInCache rows. Calls
// act<kCount>(query, first, count) for each turn: kCount queries from `query` on, of which the last ones may
// be spare if there are eight, and rows [first, first + count).
template <int kTogether, class Act>
PHASOR_IN_PLACE void for_each_turn(std::int64_t queries, std::int64_t rows, const Act& act) {
  const std::int64_t block = queries <= kTogether ? rows : kRowsInCache;
  for (std::int64_t first = 0, count = 0; first < rows; first += count) {
    // A short rest belongs to the block before it.
    count = rows - first < block + phasor::attention::kernels::kWidest ? rows - first : block;
    for (std::int64_t query = 0; query < queries; query += kTogether) {
      const std::int64_t left = queries - query;
      if (left == 1) {
        act.template operator()<1>(query, first, count);
      } else if (left == 2) {
        act.template operator()<2>(query, first, count);
      } else if (left == 3) {
        act.template operator()<3>(query, first, count);
      } else if (left == 4 || kTogether == 4) {
        act.template operator()<4>(query, first, count);
      } else if constexpr (kTogether == 8) {
        act.template operator()<8>(query, first, count);
      }
    }
  }
}

}  // namespace
