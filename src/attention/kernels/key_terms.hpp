// The k . B term of one block of queries and one tile of keys. Its rows are keys: products give a
// vector of columns for each key, which is transposed to a vector of keys for each query.
#pragma once

#include "attention/kernels/panel.hpp"
#include "phasor/attention/internal/kernels/product.hpp"

namespace {

using phasor::attention::kernels::kKeyGroup;

// Whether any of `count` queries has a row of its own for any key of a tile.
inline bool meets_key_rows(const Head& head, std::int64_t count, const Spacing& spacing) {
  const std::int64_t begin = head.key_rows.first + spacing.distance;
  return spacing.even && begin < kTileKeys && begin + head.key_rows.count + count - 1 > 0;
}

// What all queries read of a tile that meets none of the rows.
inline const float* far_key_terms(const Head& head, const Spacing& spacing, std::int64_t key) {
  const bool left = head.key_rows.first + spacing.distance >= kTileKeys;
  return (left ? head.key_far_left : head.key_far_right) + key;
}

// Sets key_terms[i][t] = k_t . B[c] for `count` queries and the keys from `key` on, which are
// `spacing` from them.
inline void fill_key_terms(const Head& head, std::int64_t count, const BlockScratch& scratch,
                           std::int64_t key, const Spacing& spacing) {
  const Relative& relative = head.key_rows;
  const std::int64_t depth = head.relative_depth;
  const std::int64_t keys = least(kTileKeys, head.keys - key);
  const std::int64_t rows = rounded_up(count, kFloats);
  // Query i reads row x = t - begin - i for key t.
  const std::int64_t begin = relative.first + spacing.distance;
  constexpr std::int64_t kGroup = kKeyGroup * kFloats;
  constexpr std::int64_t kWidth = kBlockRows + kGroup + 2 * kFloats;
  const auto rounded_down = [](std::int64_t value) { return value & -std::int64_t{kFloats}; };
  float* const terms = scratch.key_terms + kStripPad;
  for (std::int64_t group = 0; group < keys; group += kGroup) {
    const std::int64_t low = rounded_down(group - begin - (rows - 1));
    float* const sums = scratch.key_sums - low;  // of the group's first key, x = 0
    for (std::int64_t t = group; t < least(group + kGroup, keys); t += kRows) {
      const std::int64_t from = most(0, rounded_down(t - begin - (count - 1)));
      const std::int64_t to = least(relative.count, t + kRows - begin);
      if (from >= to) continue;
      const Product p{head.raw_keys + (key + t) * head.relative_stride,
                      head.relative_stride,
                      1,
                      relative.columns + from * depth,
                      kFloats,
                      depth * kFloats,
                      sums + (t - group) * kWidth + from,
                      kWidth,
                      depth};
      wide_product<Start::zero, Walk::packed>(p, (to - from + kFloats - 1) / kFloats);
    }
    for (std::int64_t t = group; t < least(group + kGroup, keys); t += kFloats) {
      for (std::int64_t i = 0; i < rows; i += kFloats) {
        const std::int64_t x = t - begin - (i + kFloats - 1);  // of the last query and key t
        if (x + 2 * (kFloats - 1) < 0 || x >= relative.count) continue;
        Float square[kFloats];
        PHASOR_UNROLL
        for (int lane = 0; lane < kFloats; ++lane)
          square[lane] = load<Float>(sums + (t - group + lane) * kWidth + x + lane);
        transpose_square(square);
        // Columns fall as queries rise.
        PHASOR_UNROLL
        for (int lane = 0; lane < kFloats; ++lane)
          store(terms + (i + kFloats - 1 - lane) * kStripRow + t, square[lane]);
      }
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    float* const row = terms + i * kStripRow;
    const float* const left = head.key_far_left + key;
    const float* const right = head.key_far_right + key;
    const std::int64_t near_end = most(0, begin + relative.count + i);
    for (std::int64_t t = 0; t < least(begin + i, keys); ++t) row[t] = left[t];
    for (std::int64_t t = near_end; t < keys; ++t) row[t] = right[t];
  }
}

}  // namespace
