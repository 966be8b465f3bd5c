// The backward pass of one head: key tiles outside, query blocks inside; the weights of a tile are
// recomputed from the log-sum, and every gradient is a product with P or dS, read along its rows,
// its columns or its diagonals.
//
//   dP = d_out . (v + C)      dS = P (dP - delta)      delta = d_out . out
#pragma once

#include "attention/kernels/softmax.hpp"

namespace {

using phasor::attention::kernels::BackwardHead;
using phasor::attention::kernels::BackwardScratch;
using phasor::attention::kernels::kGuardRows;

// P and dS of one block of queries against one tile of keys.
struct Tile {
  float* weights;            // row 0, key 0
  float* d_scores;           // the same
  std::int64_t query;        // of row 0
  std::int64_t position;     // of row 0
  std::int64_t first, last;  // rows that see any key of the tile
  std::int64_t key, keys;
  Spacing spacing;
};

// Terms of a relative table may have been written outside their rows' columns, where products along
// the diagonals read zeros.
inline void clear_margins(float* strip) {
  for (std::int64_t r = 0; r < kRows; ++r) {
    clear(strip + r * kStripRow, -kStripPad, 0);
    clear(strip + r * kStripRow, kTileKeys, kTileKeys + kStripPad);
  }
}

// What the table of the values adds to the products d_out . v of a panel.
inline Addend value_addend(const Head& head, const BackwardHead& backward, const Tile& tile,
                           const Panel& panel, float* strip) {
  Addend addend{nullptr, 0, {}};
  if (head.value_rows.count == 0) return addend;
  const std::int64_t query = tile.query + panel.row;
  const float* const far = backward.value_far + query * 2;
  const Near near = near_columns(head.value_rows, panel);
  const bool left = all_left(near, panel);
  if (panel.spacing.even && (left || all_right(near, panel))) {
    for (std::int64_t r = 0; r < kRows; ++r) addend.shift[r] = far[r * 2 + (left ? 0 : 1)];
    return addend;
  }
  const float* const d_out = backward.d_out + query * head.value_stride;
  any_relative_terms(head, head.value_rows, {d_out, head.value_stride, head.value_dim, far}, query,
                     panel, strip);
  clear_margins(strip);
  addend.add = strip;
  addend.row = kStripRow;
  return addend;
}

// dP of a panel, written to the strip that will hold dS.
inline void weight_gradients(const Head& head, const BackwardHead& backward, const Tile& tile,
                             const Panel& panel, const Addend& addend, float* strip) {
  const Product p{backward.d_out + (tile.query + panel.row) * head.value_stride,
                  head.value_stride,
                  1,
                  backward.value_columns + (panel.key + panel.begin) * head.value_dim,
                  kFloats,
                  head.value_dim * kFloats,
                  strip + panel.begin,
                  kStripRow,
                  head.value_dim};
  wide_product<Start::zero, Walk::packed>(
      p, (panel.end - panel.begin + kFloats - 1) / kFloats, nullptr,
      addend.add == nullptr ? nullptr : addend.add + panel.begin, addend.row);
}

// P = 2^(s - log_sum) and dS = P (dP - delta), times the slope of the soft cap. shift[] and
// value_shift[] are still to be added to each row of s and of dP.
template <bool kPlain>
inline void score_gradients(const Head& head, const BackwardHead& backward, const Tile& tile,
                            const Panel& panel, const float* shift, const float* value_shift,
                            const float* slopes) {
  const std::int64_t end = vector_end(panel);
  constexpr int kAtOnce = 3;  // rows
  PHASOR_UNROLL
  for (int first = 0; first < kRows; first += kAtOnce) {
    float* const weights = tile.weights + (panel.row + first) * kStripRow;
    float* const d_scores = tile.d_scores + (panel.row + first) * kStripRow;
    Float base[kAtOnce], delta[kAtOnce];
    PHASOR_UNROLL
    for (int r = 0; r < kAtOnce; ++r) {
      const std::int64_t query = tile.query + panel.row + first + r;
      base[r] = splat(backward.log_sum[query] - shift[first + r]);
      delta[r] = splat(backward.delta[query] - value_shift[first + r]);
    }
    for (std::int64_t t = panel.begin; t < end; t += kFloats) {
      Float weight[kAtOnce];
      PHASOR_UNROLL
      for (int r = 0; r < kAtOnce; ++r) {
        // No weight is above 1: of large scores log_sum has an error of many units.
        const Float exponent = load<Float>(weights + r * kStripRow + t) - base[r];
        weight[r] = exponent > Float{} ? Float{} : exponent;
      }
      exp2_of_each<kAtOnce>(weight);
      PHASOR_UNROLL
      for (int r = 0; r < kAtOnce; ++r) {
        float* const to = d_scores + r * kStripRow + t;
        Float gradient = weight[r] * (load<Float>(to) - delta[r]);
        if constexpr (!kPlain) {
          if (head.soft_cap != 0.0F) gradient *= load<Float>(slopes + (first + r) * kStripRow + t);
        }
        // A hidden key has no weight; its gradient is zero, whatever its value is.
        store(to, weight[r] == Float{} ? Float{} : gradient);
        store(weights + r * kStripRow + t, weight[r]);
      }
    }
  }
  for (std::int64_t r = panel.rows; r < kRows; ++r) {
    clear(tile.weights + (panel.row + r) * kStripRow, panel.begin, end);
    clear(tile.d_scores + (panel.row + r) * kStripRow, panel.begin, end);
  }
}

inline std::int64_t vectors_of(std::int64_t dim) { return (dim + kFloats - 1) / kFloats; }

// d rows of keys += W^T A, W being P or dS and A the block's rows of d_out or of q: dV and dK. One
// after the other, so that A stays in the first cache.
inline void add_key_rows(const Head& head, const Tile& tile, const float* weights,
                         const float* rows, std::int64_t stride, std::int64_t dim, float* to) {
  for (std::int64_t j = 0; j < tile.keys; j += kRows) {
    // Queries before the key do not see it.
    const std::int64_t first =
        head.causal != 0 ? most(tile.first, tile.key + j - tile.position) : tile.first;
    if (first >= tile.last) break;
    const Product p{weights + first * kStripRow + j,      1,      kStripRow,
                    rows + (tile.query + first) * stride, stride, kFloats,
                    to + (tile.key + j) * stride,         stride, tile.last - first};
    wide_product<Start::sum, Walk::fixed>(p, vectors_of(dim));
  }
}

// dq += dS K.
inline void query_gradients(const Head& head, const BackwardHead& backward, const Tile& tile,
                            const Panel& panel) {
  const Product p{tile.d_scores + panel.row * kStripRow + panel.begin,
                  kStripRow,
                  1,
                  backward.key_rows + (tile.key + panel.begin) * head.content_stride,
                  head.content_stride,
                  kFloats,
                  backward.d_content + (tile.query + panel.row) * head.content_stride,
                  head.content_stride,
                  panel.end - panel.begin};
  wide_product<Start::sum, Walk::fixed>(p, vectors_of(head.depth));
}

// b[c] belongs to a diagonal: each row is added one column further left.
inline void bias_gradients(const Head& head, const BackwardHead& backward, const Tile& tile,
                           const Panel& panel) {
  if (!panel.spacing.even) {
    return scatter_bias(head, tile.query + panel.row, panel, tile.d_scores + panel.row * kStripRow,
                        backward.d_bias);
  }
  for (std::int64_t r = 0; r < panel.rows; ++r) {
    const float* const row = tile.d_scores + (panel.row + r) * kStripRow;
    float* const sums = backward.d_bias - (panel.spacing.distance + r);
    std::int64_t t = panel.begin;
    for (; t + kFloats <= panel.end; t += kFloats)
      store(sums + t, load<Float>(sums + t) + load<Float>(row + t));
    for (; t < panel.end; ++t) sums[t] += row[t];
  }
}

// Sums of a row outside a table's columns, for every row of the panel.
inline void add_outside(const Relative& relative, const Panel& panel, const float* rows,
                        float* outside) {
  const Near near = near_columns(relative, panel);
  for (std::int64_t r = 0; r < panel.rows; ++r) {
    const float* const row = rows + r * kStripRow;
    outside[r * 2] += sum_of(row, panel.begin, least(near.begin + r, panel.end));
    outside[r * 2 + 1] += sum_of(row, most(panel.begin, near.end + r), panel.end);
  }
}

// d rows += W A along the diagonals: element (r, x) of W is its row r, r columns further right.
inline void add_relative_rows(const Relative& relative, const Panel& panel, const float* weights,
                              float* rows, std::int64_t stride, std::int64_t dim) {
  const Near near = near_columns(relative, panel);
  const std::int64_t from = most(0, panel.begin - (kRows - 1) - near.begin);
  const std::int64_t to = least(relative.count, panel.end - near.begin);
  if (from >= to) return;
  const Product p{weights + near.begin + from,
                  kStripRow + 1,
                  1,
                  relative.rows + from * relative.row_stride,
                  relative.row_stride,
                  kFloats,
                  rows,
                  stride,
                  to - from};
  wide_product<Start::sum, Walk::fixed>(p, vectors_of(dim));
}

// d A[x] += W^T rows along the diagonals of the block: six columns x against every query.
inline void add_table_gradient(const Relative& relative, const Tile& tile, const float* weights,
                               const float* rows, std::int64_t stride, std::int64_t dim,
                               float* gradient) {
  const std::int64_t begin = relative.first + tile.spacing.distance;  // of row 0
  const std::int64_t from = most(0, -begin - (tile.last - 1));
  const std::int64_t to = least(relative.count, tile.keys - begin - tile.first);
  for (std::int64_t x = from; x < to; x += kRows) {
    const std::int64_t first = most(tile.first, -(begin + x + kRows - 1));
    const std::int64_t last = least(tile.last, tile.keys - begin - x);
    if (first >= last) continue;
    const Product p{weights + begin + x + first * (kStripRow + 1),
                    1,
                    kStripRow + 1,
                    rows + first * stride,
                    stride,
                    kFloats,
                    gradient + x * stride,
                    stride,
                    last - first};
    wide_product<Start::sum, Walk::fixed>(p, vectors_of(dim));
  }
}

// The k . B term: its rows are keys, its diagonals run the other way.
inline void key_row_gradients(const Head& head, const BackwardHead& backward, const Tile& tile) {
  const Relative& relative = head.key_rows;
  const std::int64_t stride = head.relative_stride;
  const std::int64_t vectors = vectors_of(head.relative_depth);
  // Key j of the tile uses row x with query j + middle - x.
  const std::int64_t middle = -relative.first - tile.spacing.distance;
  for (std::int64_t j = 0; j < tile.keys; j += kRows) {
    const std::int64_t from = most(0, j + middle - (tile.last - 1));
    const std::int64_t to = least(relative.count, j + kRows - 1 + middle - tile.first + 1);
    if (from >= to) continue;
    const Product p{tile.d_scores + (j + middle - from) * kStripRow + j,
                    kStripRow + 1,
                    -kStripRow,
                    relative.rows + from * relative.row_stride,
                    relative.row_stride,
                    kFloats,
                    backward.d_raw_keys + (tile.key + j) * stride,
                    stride,
                    to - from};
    wide_product<Start::sum, Walk::fixed>(p, vectors);
  }
  const std::int64_t from = most(0, middle - (tile.last - 1));
  const std::int64_t to = least(relative.count, tile.keys - 1 + middle - tile.first + 1);
  for (std::int64_t x = from; x < to; x += kRows) {
    const std::int64_t first = most(0, tile.first + x - middle);
    const std::int64_t last = least(tile.keys, tile.last + x + kRows - 1 - middle);
    if (first >= last) continue;
    const Product p{tile.d_scores + (first + middle - x) * kStripRow + first,
                    -kStripRow,
                    kStripRow + 1,
                    head.raw_keys + (tile.key + first) * stride,
                    stride,
                    kFloats,
                    backward.d_key_rows + x * stride,
                    stride,
                    last - first};
    wide_product<Start::sum, Walk::fixed>(p, vectors);
  }
  for (std::int64_t row = tile.first; row < tile.last; ++row) {
    const std::int64_t begin = relative.first + tile.spacing.distance + row;
    const float* const d_scores = tile.d_scores + row * kStripRow;
    float* const left = backward.key_outside + tile.key;
    float* const right = left + backward.key_outside_side;
    for (std::int64_t t = 0; t < least(begin, tile.keys); ++t) left[t] += d_scores[t];
    for (std::int64_t t = most(0, begin + relative.count); t < tile.keys; ++t)
      right[t] += d_scores[t];
  }
}

// What an evenly spaced panel gives to the rows of its queries; the tables get theirs from the tile.
inline void add_panel_rows(const Head& head, const BackwardHead& backward, const Tile& tile,
                           const Panel& panel) {
  const std::int64_t query = tile.query + panel.row;
  if (head.query_rows.count != 0) {
    const float* const d_scores = tile.d_scores + panel.row * kStripRow;
    add_relative_rows(head.query_rows, panel, d_scores,
                      backward.d_position + query * head.relative_stride, head.relative_stride,
                      head.relative_depth);
    add_outside(head.query_rows, panel, d_scores, backward.query_outside + query * 2);
  }
  if (head.value_rows.count != 0) {
    add_outside(head.value_rows, panel, tile.weights + panel.row * kStripRow,
                backward.value_outside + query * 2);
  }
}

// What any other panel gives to rows, keys and tables.
inline void scatter_panel(const Head& head, const BackwardHead& backward, const Tile& tile,
                          const Panel& panel) {
  const std::int64_t query = tile.query + panel.row;
  const float* const d_scores = tile.d_scores + panel.row * kStripRow;
  if (head.query_rows.count != 0) {
    const std::int64_t row = query * head.relative_stride;
    scatter_rows(head, head.query_rows,
                 {backward.position + row, head.relative_stride, head.relative_depth, nullptr},
                 query, panel, d_scores, backward.d_position + row, backward.d_query_rows,
                 backward.query_outside + query * 2);
  }
  if (head.key_rows.count != 0) {
    scatter_key_rows(head, query, panel, d_scores,
                     backward.d_raw_keys + tile.key * head.relative_stride, backward.d_key_rows,
                     backward.key_outside + tile.key, backward.key_outside_side);
  }
  if (head.value_rows.count != 0) {
    scatter_rows(
        head, head.value_rows,
        {backward.d_out + query * head.value_stride, head.value_stride, head.value_dim, nullptr},
        query, panel, tile.weights + panel.row * kStripRow, nullptr, backward.d_value_rows,
        backward.value_outside + query * 2);
  }
}

inline void segment_gradients(const Head& head, const BackwardHead& backward, const Tile& tile,
                              const Panel& panel) {
  for (std::int64_t r = 0; r < panel.rows; ++r) {
    const std::int64_t query = tile.query + panel.row + r;
    const float* const row = tile.d_scores + (panel.row + r) * kStripRow;
    const auto segment = static_cast<std::uint32_t>(head.query_segments[query]);
    const std::int32_t* const keys = head.key_segments + tile.key;
    Float all{}, same{};
    // dS is zero after the last visible column.
    for (std::int64_t t = panel.begin; t < panel.end; t += kFloats) {
      const Float value = load<Float>(row + t);
      all += value;
      same += load<Bits>(keys + t) == segment ? value : Float{};
    }
    const float of_same = sum_of_lanes(same);
    backward.d_segments[query * 2] += of_same;
    backward.d_segments[query * 2 + 1] += sum_of_lanes(all - same);
  }
}

// Zeros where the panel has no columns.
inline void clear_outside(const Panel& panel, float* strip) {
  const std::int64_t end = vector_end(panel);
  for (std::int64_t r = 0; r < kRows; ++r) {
    clear(strip + r * kStripRow, 0, panel.begin);
    clear(strip + r * kStripRow, end, kTileKeys);
  }
}

template <bool kPlain>
inline void backward_tile(const Head& head, const BackwardHead& backward,
                          const BackwardScratch& scratch, Tile& tile, std::int64_t count) {
  const Block block{tile.query, count, backward.content + tile.query * head.content_stride,
                    backward.position == nullptr
                        ? nullptr
                        : backward.position + tile.query * head.relative_stride,
                    backward.segments == nullptr ? nullptr : backward.segments + tile.query * 2};
  BlockScratch own = scratch.block;
  own.far = backward.query_far == nullptr ? nullptr : backward.query_far + tile.query * 2;
  float* const slopes = scratch.block.strip + kStripPad;
  const auto strips = [&](float* of, std::int64_t panel) { return of + panel * kRows * kStripRow; };
  Panel panels[kPanels];
  Addend addends[kPanels], value_addends[kPanels];
  tile.first = kBlockRows;
  tile.last = 0;
  for (std::int64_t i = 0; i < kPanels; ++i) {
    const std::int64_t row = i * kRows;
    panels[i] = row < count ? panel_of(head, row, count, tile.position, tile.key, tile.spacing)
                            : Panel{row, 0, 0, 0, {0, true}, 0, 0};
    if (panels[i].begin >= panels[i].end) panels[i].begin = panels[i].end = 0;
    float* const strip = strips(tile.weights, i);
    float* const d_strip = strips(tile.d_scores, i);
    if (panels[i].end == 0) {
      clear_outside(panels[i], strip);
      clear_outside(panels[i], d_strip);
      continue;
    }
    tile.first = least(tile.first, row);
    tile.last = row + kRows;
    if constexpr (!kPlain) {
      // Terms are made where the scores will be.
      own.terms = strip - kStripPad;
      addends[i] = addend_of(head, block, own, panels[i]);
      if (addends[i].add == strip) clear_margins(strip);
    }
    value_addends[i] = value_addend(head, backward, tile, panels[i], d_strip);
    clear_outside(panels[i], strip);  // after the terms, which may be wider
    clear_outside(panels[i], d_strip);
  }
  for (std::int64_t group = 0; group < tile.keys; group += kGroupKeys) {
    for (std::int64_t i = 0; i < kPanels; ++i) {
      const Panel part = part_of(panels[i], group);
      if (part.begin >= part.end) continue;
      float shift[kRows];
      score_panel<kPlain>(head, block, Taps{}, own, part, strips(tile.weights, i), shift, slopes,
                          &addends[i]);
      weight_gradients(head, backward, tile, part, value_addends[i], strips(tile.d_scores, i));
      score_gradients<kPlain>(head, backward, tile, part, shift, value_addends[i].shift, slopes);
    }
  }
  for (const Panel& panel : panels) {
    if (panel.end == 0) continue;
    query_gradients(head, backward, tile, panel);
    if (backward.d_bias != nullptr) bias_gradients(head, backward, tile, panel);
    if (tile.spacing.even) {
      add_panel_rows(head, backward, tile, panel);
    } else {
      scatter_panel(head, backward, tile, panel);
    }
    if (head.key_segments != nullptr) segment_gradients(head, backward, tile, panel);
  }
  if (tile.first >= tile.last) return;
  add_key_rows(head, tile, tile.weights, backward.d_out, head.value_stride, head.value_dim,
               backward.d_values);
  add_key_rows(head, tile, tile.d_scores, backward.content, head.content_stride, head.depth,
               backward.d_keys);
  if (!tile.spacing.even) return;
  if (head.query_rows.count != 0) {
    add_table_gradient(head.query_rows, tile, tile.d_scores, block.position, head.relative_stride,
                       head.relative_depth, backward.d_query_rows);
  }
  if (head.value_rows.count != 0) {
    add_table_gradient(head.value_rows, tile, tile.weights,
                       backward.d_out + tile.query * head.value_stride, head.value_stride,
                       head.value_dim, backward.d_value_rows);
  }
  if (head.key_rows.count != 0) key_row_gradients(head, backward, tile);
}

template <bool kPlain>
void backward_head_of(const Head& head, const BackwardHead& backward,
                      const BackwardScratch& scratch) {
  const std::int64_t guard = kGuardRows * kStripRow + kStripPad;
  for (std::int64_t key = 0; key < head.keys; key += kTileKeys) {
    for (std::int64_t query = 0; query < head.queries; query += kBlockRows) {
      const std::int64_t count = least(kBlockRows, head.queries - query);
      const std::int64_t position = head.offset + query;
      Tile tile{scratch.weights + guard,
                scratch.d_scores + guard,
                query,
                position,
                0,
                0,
                key,
                least(kTileKeys, head.keys - key),
                spacing_of(head, query, count, key)};
      if (last_key(head, position + count - 1) < key ||
          first_key(head, position) >= key + kTileKeys) {
        continue;
      }
      if (head.is_cancelled()) return;
      if (head.key_rows.count != 0 && meets_key_rows(head, count, tile.spacing))
        fill_key_terms(head, count, scratch.block, key, tile.spacing);
      backward_tile<kPlain>(head, backward, scratch, tile, count);
    }
  }
}

void backward_far(const Head& head, const BackwardHead& backward) {
  const std::int64_t rows = rounded_up(head.queries, kRows);
  if (head.query_rows.count != 0) {
    far_scores(head, head.query_rows, backward.position, head.relative_stride, head.relative_depth,
               rows, backward.query_far);
  }
  if (head.value_rows.count != 0) {
    far_scores(head, head.value_rows, backward.d_out, head.value_stride, head.value_dim, rows,
               backward.value_far);
  }
}

void backward_head(const Head& head, const BackwardHead& backward, const BackwardScratch& scratch) {
  if (is_plain(head, Taps{})) {
    backward_head_of<true>(head, backward, scratch);
  } else {
    backward_head_of<false>(head, backward, scratch);
  }
}

}  // namespace
