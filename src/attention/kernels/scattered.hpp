// Relative terms of a panel whose queries and keys are not evenly spaced: every pair reads the column
// of its own distance. Rows are read one by one, so that the cost does not depend on how far apart
// the positions are.
//
// Rows are padded with zeros to whole vectors.
#pragma once

#include "attention/kernels/panel.hpp"
#include "phasor/attention/internal/kernels/product.hpp"

namespace {

using Ints = std::int32_t __attribute__((vector_size(kVectorBytes)));

// The rows of a table that one query and some keys read: column first + x, x below 0 and above the
// last being those of the ends.
struct PickedRows {
  alignas(64) std::int32_t x[kFloats];
  bool all_left, all_right;  // no key has a row between the ends
};
inline PickedRows pick_rows(const Head& head, const Relative& relative, std::int64_t query,
                            std::int64_t key) {
  const auto origin = static_cast<std::int32_t>(head.query_places[query] + relative.first);
  const auto last = static_cast<std::int32_t>(relative.count - 1);
  const Ints x = load<Ints>(head.key_places + key) - origin;
  PickedRows picked;
  const Ints raised = x < 0 ? Ints{} : x;
  store(picked.x, raised > last ? Ints{} + last : raised);
  std::int32_t low = picked.x[0], high = picked.x[0];
  for (int lane = 1; lane < kFloats; ++lane) {
    low = picked.x[lane] < low ? picked.x[lane] : low;
    high = picked.x[lane] > high ? picked.x[lane] : high;
  }
  picked.all_left = high == 0;
  picked.all_right = low == last;
  return picked;
}

// Sets terms[r][t] = row r . A[c] for the columns [begin, end); `query` is the panel's first.
inline void gather_terms(const Head& head, const Relative& relative, const RelativeRows& queries,
                         std::int64_t query, const Panel& panel, float* terms) {
  const std::int64_t end = rounded_up(panel.end, kFloats);
  for (std::int64_t r = 0; r < kRows; ++r) {
    float* const row = terms + r * kStripRow;
    if (r >= panel.rows) {
      clear(row, panel.begin, end);
      continue;
    }
    const float* const vector = queries.rows + r * queries.stride;
    for (std::int64_t t = panel.begin; t < end; t += kFloats) {
      const PickedRows picked = pick_rows(head, relative, query + r, panel.key + t);
      if (picked.all_left || picked.all_right) {
        store(row + t, splat(queries.far[r * 2 + (picked.all_left ? 0 : 1)]));
        continue;
      }
      Float sums[kFloats];
      PHASOR_UNROLL
      for (int lane = 0; lane < kFloats; ++lane) sums[lane] = Float{};
      for (std::int64_t i = 0; i < queries.depth; i += kFloats) {
        const Float part = load<Float>(vector + i);
        PHASOR_UNROLL
        for (int lane = 0; lane < kFloats; ++lane) {
          const float* const from = relative.rows + picked.x[lane] * relative.row_stride + i;
          sums[lane] = mul_add(part, load<Float>(from), sums[lane]);
        }
      }
      store(row + t, sums_of_lanes(sums));
    }
  }
}

// terms += k_j . B[c].
inline void gather_key_terms(const Head& head, std::int64_t query, const Panel& panel,
                             float* terms) {
  const Relative& relative = head.key_rows;
  const std::int64_t end = rounded_up(panel.end, kFloats);
  for (std::int64_t r = 0; r < panel.rows; ++r) {
    float* const row = terms + r * kStripRow;
    for (std::int64_t t = panel.begin; t < end; t += kFloats) {
      const std::int64_t key = panel.key + t;
      const PickedRows picked = pick_rows(head, relative, query + r, key);
      if (picked.all_left || picked.all_right) {
        const float* const far = picked.all_left ? head.key_far_left : head.key_far_right;
        store(row + t, load<Float>(row + t) + load<Float>(far + key));
        continue;
      }
      Float sums[kFloats];
      PHASOR_UNROLL
      for (int lane = 0; lane < kFloats; ++lane) sums[lane] = Float{};
      for (std::int64_t i = 0; i < head.relative_depth; i += kFloats) {
        PHASOR_UNROLL
        for (int lane = 0; lane < kFloats; ++lane) {
          const Float part = load<Float>(head.raw_keys + (key + lane) * head.relative_stride + i);
          const float* const from = relative.rows + picked.x[lane] * relative.row_stride + i;
          sums[lane] = mul_add(part, load<Float>(from), sums[lane]);
        }
      }
      store(row + t, mul_add(sums_of_lanes(sums), splat(head.key_factor), load<Float>(row + t)));
    }
  }
}

// The columns of one query and the keys from `key` on, limited to those of the bias, and how much
// farther from 0 they are.
struct BiasColumns {
  alignas(64) std::int32_t at[kFloats];
  Float beyond;
};
inline BiasColumns bias_columns(const Head& head, std::int64_t query, std::int64_t key) {
  const auto first = static_cast<std::int32_t>(head.bias_first);
  const auto last = static_cast<std::int32_t>(head.bias_last);
  const Ints c = load<Ints>(head.key_places + key) - head.query_places[query];
  const Ints raised = c < first ? Ints{} + first : c;
  const Ints inside = raised > last ? Ints{} + last : raised;
  BiasColumns columns;
  store(columns.at, inside);
  columns.beyond =
      __builtin_convertvector((c < 0 ? -c : c) - (inside < 0 ? -inside : inside), Float);
  return columns;
}

// terms += b[c].
inline void gather_bias(const Head& head, std::int64_t query, const Panel& panel, float* terms) {
  const std::int64_t end = rounded_up(panel.end, kFloats);
  for (std::int64_t r = 0; r < panel.rows; ++r) {
    float* const row = terms + r * kStripRow;
    for (std::int64_t t = panel.begin; t < end; t += kFloats) {
      const BiasColumns columns = bias_columns(head, query + r, panel.key + t);
      alignas(64) float values[kFloats];
      for (int lane = 0; lane < kFloats; ++lane) values[lane] = head.bias[columns.at[lane]];
      const Float bias = mul_add(columns.beyond, splat(-head.slope), load<Float>(values));
      store(row + t, load<Float>(row + t) + bias);
    }
  }
}

inline void scatter_bias(const Head& head, std::int64_t query, const Panel& panel,
                         const float* weights, float* d_bias) {
  for (std::int64_t r = 0; r < panel.rows; ++r) {
    const float* const row = weights + r * kStripRow;
    for (std::int64_t t = panel.begin; t < panel.end; t += kFloats) {
      const BiasColumns columns = bias_columns(head, query + r, panel.key + t);
      const std::int64_t lanes = least(kFloats, panel.end - t);
      for (std::int64_t lane = 0; lane < lanes; ++lane) d_bias[columns.at[lane]] += row[t + lane];
    }
  }
}

// The keys of one query that have rows between the ends, and the sums of the weights of the others.
struct KeptPairs {
  std::int64_t count;
  float outside[2];
  alignas(64) std::int32_t x[kTileKeys];
  std::int32_t t[kTileKeys];
  float weight[kTileKeys];
};
inline void keep_pairs(const Head& head, const Relative& relative, std::int64_t query,
                       const Panel& panel, const float* row, KeptPairs& kept) {
  const auto last = static_cast<std::int32_t>(relative.count - 1);
  kept.count = 0;
  Float left{}, right{};
  for (std::int64_t t = panel.begin; t < panel.end; t += kFloats) {
    const PickedRows picked = pick_rows(head, relative, query, panel.key + t);
    // Weights after the last key are zeros.
    const Float weight = load<Float>(row + t);
    const Ints x = load<Ints>(picked.x);
    const Float of_left = x == 0 ? weight : Float{};
    left += of_left;
    right += x == last ? weight - of_left : Float{};
    if (picked.all_left || picked.all_right) continue;
    for (std::int32_t lane = 0; lane < kFloats; ++lane) {
      if (picked.x[lane] == 0 || picked.x[lane] == last) continue;
      kept.x[kept.count] = picked.x[lane];
      kept.t[kept.count] = static_cast<std::int32_t>(t) + lane;
      kept.weight[kept.count] = row[t + lane];
      ++kept.count;
    }
  }
  kept.outside[0] = sum_of_lanes(left);
  kept.outside[1] = sum_of_lanes(right);
}

// Features [i, i + kCount vectors) of one query: d row += W A and d A[x] += W^T row. d_row may be null.
template <int kCount>
inline void scatter_part(const Relative& relative, const KeptPairs& kept, std::int64_t i,
                         const float* row, float* d_row, float* d_table) {
  Float sum[kCount], part[kCount];
  PHASOR_UNROLL
  for (int v = 0; v < kCount; ++v) {
    sum[v] = Float{};
    part[v] = load<Float>(row + i + v * kFloats);
  }
  for (std::int64_t pair = 0; pair < kept.count; ++pair) {
    const Float weight = splat(kept.weight[pair]);
    const std::int64_t at = kept.x[pair] * relative.row_stride + i;
    PHASOR_UNROLL
    for (int v = 0; v < kCount; ++v) {
      float* const to = d_table + at + v * kFloats;
      sum[v] = mul_add(weight, load<Float>(relative.rows + at + v * kFloats), sum[v]);
      store(to, mul_add(weight, part[v], load<Float>(to)));
    }
  }
  if (d_row == nullptr) return;
  PHASOR_UNROLL
  for (int v = 0; v < kCount; ++v) {
    float* const to = d_row + i + v * kFloats;
    store(to, load<Float>(to) + sum[v]);
  }
}

// d rows += W A and d A[x] += W^T rows, with the weights of the ends summed in `outside`. d_rows may
// be null.
inline void scatter_rows(const Head& head, const Relative& relative, const RelativeRows& queries,
                         std::int64_t query, const Panel& panel, const float* weights,
                         float* d_rows, float* d_table, float* outside) {
  constexpr int kAtOnce = 4;
  KeptPairs kept;
  for (std::int64_t r = 0; r < panel.rows; ++r) {
    keep_pairs(head, relative, query + r, panel, weights + r * kStripRow, kept);
    outside[r * 2] += kept.outside[0];
    outside[r * 2 + 1] += kept.outside[1];
    const float* const row = queries.rows + r * queries.stride;
    float* const d_row = d_rows == nullptr ? nullptr : d_rows + r * queries.stride;
    std::int64_t i = 0;
    for (; i + kAtOnce * kFloats <= queries.depth; i += kAtOnce * kFloats)
      scatter_part<kAtOnce>(relative, kept, i, row, d_row, d_table);
    for (; i < queries.depth; i += kFloats) scatter_part<1>(relative, kept, i, row, d_row, d_table);
  }
}

// The same of the k . B term: its rows are keys. `outside` has the sums of the left ends for each key
// of the tile, and those of the right ends `side` floats after.
inline void scatter_key_rows(const Head& head, std::int64_t query, const Panel& panel,
                             const float* weights, float* d_keys, float* d_table, float* outside,
                             std::int64_t side) {
  const Relative& relative = head.key_rows;
  const auto last = static_cast<std::int32_t>(relative.count - 1);
  KeptPairs kept;
  for (std::int64_t r = 0; r < panel.rows; ++r) {
    const float* const row = weights + r * kStripRow;
    for (std::int64_t t = panel.begin; t < panel.end; t += kFloats) {
      const Ints x = load<Ints>(pick_rows(head, relative, query + r, panel.key + t).x);
      const Float weight = load<Float>(row + t);
      const Float left = x == 0 ? weight : Float{};
      store(outside + t, load<Float>(outside + t) + left);
      const Float right = x == last ? weight - left : Float{};
      store(outside + side + t, load<Float>(outside + side + t) + right);
    }
    keep_pairs(head, relative, query + r, panel, row, kept);
    for (std::int64_t pair = 0; pair < kept.count; ++pair) {
      const Float weight = splat(kept.weight[pair]);
      const std::int64_t row_at = kept.x[pair] * relative.row_stride;
      const std::int64_t key_at = kept.t[pair] * head.relative_stride;
      const float* const key = head.raw_keys + panel.key * head.relative_stride + key_at;
      for (std::int64_t i = 0; i < head.relative_depth; i += kFloats) {
        float* const of_table = d_table + row_at + i;
        float* const of_key = d_keys + key_at + i;
        const Float from = load<Float>(relative.rows + row_at + i);
        store(of_table, mul_add(weight, load<Float>(key + i), load<Float>(of_table)));
        store(of_key, mul_add(weight, from, load<Float>(of_key)));
      }
    }
  }
}

}  // namespace
