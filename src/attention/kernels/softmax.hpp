// The forward pass of one block of queries: one pass over the keys, in tiles, with a running
// maximum and sum for each query.
#pragma once

#include "attention/kernels/scores.hpp"

namespace {

// What is known of the panels of a block while one tile of keys is worked on. Each step is done for
// several panels before the next one begins: keys, scores and values together do not fit the first
// cache. Row r of panel i is at i * kRows + r.
struct TilePanels {
  Panel panel[kPanels];
  Addend addend[kPanels];
  alignas(64) float shift[kPanels * kRows];    // to be added to the scores
  alignas(64) float factors[kPanels * kRows];  // by which earlier sums must shrink
  alignas(64) float row_sums[kPanels * kRows];
  std::int64_t count;
};

inline float* strip_of(const BlockScratch& scratch, const Panel& panel) {
  return scratch.strip + kStripPad + panel.row * kStripRow;
}

// Panels whose rows fill whole vectors: their maxima and sums are joined over the lanes together.
constexpr int kJoined = kFloats / 2;
constexpr int kJoinedRows = kJoined * kRows;
static_assert(kJoinedRows % kFloats == 0 && kPanels % kJoined == 0);

template <class Join>
inline void join_rows(Float* rows, float* to, Join join) {
  for (int first = 0; first < kJoinedRows; first += kFloats) store(to + first, join(rows + first));
}

// The largest scores of each row, in any lane.
inline void largest_scores(const Panel& panel, const float* strip, Float* largest) {
  Float of_row[kRows];
  PHASOR_UNROLL
  for (int r = 0; r < kRows; ++r) of_row[r] = load<Float>(strip + r * kStripRow + panel.begin);
  for (std::int64_t t = panel.begin + kFloats; t < vector_end(panel); t += kFloats) {
    PHASOR_UNROLL
    for (int r = 0; r < kRows; ++r)
      of_row[r] = larger(of_row[r], load<Float>(strip + r * kStripRow + t));
  }
  PHASOR_UNROLL
  for (int r = 0; r < kRows; ++r) largest[r] = of_row[r];
}

// Weights of a panel: vector t of row r at data + t * step + r * row.
struct Weights {
  float* data;
  std::int64_t step, row;
};

// Writes the weights 2^(s - base) of the scores of a panel, and their sums over vectors.
PHASOR_IN_PLACE void weigh_panel(const Panel& panel, const float* strip, const float* base,
                                 const Weights& to, Float* sums) {
  constexpr int kAtOnce = 3;  // rows
  const std::int64_t end = vector_end(panel);
  PHASOR_UNROLL
  for (int first = 0; first < kRows; first += kAtOnce) {
    Float reference[kAtOnce], sum[kAtOnce];
    PHASOR_UNROLL
    for (int r = 0; r < kAtOnce; ++r) {
      reference[r] = splat(base[first + r]);
      sum[r] = Float{};
    }
    const float* const rows = strip + first * kStripRow;
    float* const out = to.data + first * to.row;
    for (std::int64_t t = panel.begin; t < end; t += kFloats) {
      Float weights[kAtOnce];
      PHASOR_UNROLL
      for (int r = 0; r < kAtOnce; ++r)
        weights[r] = load<Float>(rows + r * kStripRow + t) - reference[r];
      exp2_of_each<kAtOnce>(weights);
      PHASOR_UNROLL
      for (int r = 0; r < kAtOnce; ++r) {
        store(out + r * to.row + t * to.step, weights[r]);
        sum[r] += weights[r];
      }
    }
    PHASOR_UNROLL
    for (int r = 0; r < kAtOnce; ++r) sums[first + r] = sum[r];
  }
}

// Scores of `count` panels from `first` on to weights: in blocks of six rows, which a product reads
// best, or in place. Updates maximum and sum of each row.
template <bool kInPlace>
inline void weigh_panels(const BlockScratch& scratch, std::int64_t first, std::int64_t count,
                         TilePanels& tile) {
  Float rows[kJoinedRows];
  alignas(64) float top[kJoinedRows], base[kJoinedRows], maximum[kJoinedRows] = {};
  float* const factors = tile.factors + first * kRows;
  float* const row_sums = tile.row_sums + first * kRows;
  for (Float& row : rows) row = splat(kHidden);
  for (std::int64_t i = 0; i < count; ++i) {
    const Panel& panel = tile.panel[first + i];
    largest_scores(panel, strip_of(scratch, panel), rows + i * kRows);
    for (int r = 0; r < kRows; ++r) maximum[i * kRows + r] = scratch.maximum[panel.row + r];
  }
  join_rows(rows, top, [](Float* some) { return largest_of_lanes(some); });
  for (int r = 0; r < kJoinedRows; r += kFloats) {
    const Float before = load<Float>(maximum + r);
    const Float shift = load<Float>(tile.shift + first * kRows + r);
    const Float after = larger(before, load<Float>(top + r) + shift);
    // A row that has seen no key keeps -infinity, and its weights 2^(-infinity - 0) are zeros.
    const Float reference = after == splat(kHidden) ? Float{} : after;
    store(factors + r, exp2_of(before - reference));
    store(maximum + r, after);
    store(base + r, reference - shift);
  }
  for (Float& row : rows) row = Float{};
  for (std::int64_t i = 0; i < count; ++i) {
    const Panel& panel = tile.panel[first + i];
    float* const strip = strip_of(scratch, panel);
    const Weights in_blocks{scratch.weights + panel.row * kTileKeys, kRows, kFloats};
    const Weights in_rows{strip, 1, kStripRow};
    weigh_panel(panel, strip, base + i * kRows, kInPlace ? in_rows : in_blocks, rows + i * kRows);
  }
  join_rows(rows, row_sums, [](Float* some) { return sums_of_lanes(some); });
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = tile.panel[first + i].row;
    for (std::int64_t r = 0; r < kRows; ++r) {
      const std::int64_t at = i * kRows + r;
      scratch.maximum[row + r] = maximum[at];
      scratch.sum[row + r] = scratch.sum[row + r] * factors[at] + row_sums[at];
    }
  }
}

// RoFormer (5), values: the weights of keys with rows of their own are kept by column, those of the
// keys outside are summed; one product at the end of the block adds both to the output.
inline void keep_weights(const Head& head, const Block& block, const BlockScratch& scratch,
                         const Panel& panel, const float* strip, const float* factors,
                         const float* row_sums) {
  const bool even = panel.spacing.even;
  // Keys of several tiles may meet in one column.
  const bool scattered = head.key_places != nullptr;
  const Near near = near_columns(head.value_rows, panel);
  const bool left = even && all_left(near, panel);
  const bool right = even && all_right(near, panel);
  KeptPairs pairs;
  for (std::int64_t r = 0; r < panel.rows; ++r) {
    float* const outside = scratch.outside + (panel.row + r) * 2;
    float* const kept = scratch.near + (panel.row + r) * scratch.near_stride;
    const float* const row = strip + r * kStripRow;
    const std::int64_t begin = near.begin + r;
    outside[0] *= factors[r];
    outside[1] *= factors[r];
    if (factors[r] != 1.0F && (scattered || begin < panel.begin)) {
      for (std::int64_t x = 0; x < scratch.near_stride; x += kFloats)
        store(kept + x, load<Float>(kept + x) * splat(factors[r]));
    }
    if (left || right) {
      outside[left ? 0 : 1] += row_sums[r];
      continue;
    }
    if (!even) {
      keep_pairs(head, head.value_rows, block.first + panel.row + r, panel, row, pairs);
      outside[0] += pairs.outside[0];
      outside[1] += pairs.outside[1];
      for (std::int64_t i = 0; i < pairs.count; ++i) kept[pairs.x[i]] += pairs.weight[i];
      continue;
    }
    const std::int64_t left_end = least(most(panel.begin, begin), panel.end);
    const std::int64_t near_end = least(most(panel.begin, near.end + r), panel.end);
    outside[0] += sum_of(row, panel.begin, left_end);
    for (std::int64_t t = left_end; t < near_end; ++t)
      kept[t - begin] = scattered ? kept[t - begin] + row[t] : row[t];
    outside[1] += sum_of(row, near_end, panel.end);
  }
}

inline void add_value_rows(const Head& head, const Block& block, const BlockScratch& scratch) {
  const Relative& relative = head.value_rows;
  const float* const first = relative.rows;
  const float* const last = relative.rows + (relative.count - 1) * relative.row_stride;
  for (std::int64_t row = 0; row < block.count; row += kRows) {
    float* const out = scratch.out + row * head.value_stride;
    const Product p{scratch.near + row * scratch.near_stride,
                    scratch.near_stride,
                    1,
                    relative.rows,
                    relative.row_stride,
                    kFloats,
                    out,
                    head.value_stride,
                    relative.count};
    wide_product<Start::sum>(p, (head.value_dim + kFloats - 1) / kFloats);
    for (std::int64_t r = 0; r < kRows; ++r) {
      const float* const outside = scratch.outside + (row + r) * 2;
      for (std::int64_t i = 0; i < head.value_dim; ++i)
        out[r * head.value_stride + i] += outside[0] * first[i] + outside[1] * last[i];
    }
  }
}

// Six rows as columns [depth][kPitch], the walk of the product that reads them for every tile. What
// a vector writes after its six is written again by the next.
inline void pack_panel(const float* rows, std::int64_t stride, std::int64_t depth, float* columns) {
  for (std::int64_t k = 0; k < depth; k += kFloats) {
    PHASOR_UNROLL
    for (int first = 0; first < kPitch; first += kFloats) {
      Float square[kFloats];
      PHASOR_UNROLL
      for (int r = 0; r < kFloats; ++r)
        square[r] = first + r < kRows ? load<Float>(rows + (first + r) * stride + k) : Float{};
      transpose_square(square);
      PHASOR_UNROLL
      for (int i = 0; i < kFloats; ++i) store(columns + (k + i) * kPitch + first, square[i]);
    }
  }
}

// The scores of all panels, each in its strip.
template <bool kPlain>
inline void score_tile(const Head& head, const Block& block, const Taps& taps,
                       const BlockScratch& scratch, Carried* carried, TilePanels& tile) {
  if constexpr (!kPlain) {
    for (std::int64_t i = 0; i < tile.count; ++i) {
      // The terms are made in the strip itself.
      BlockScratch own = scratch;
      own.terms = scratch.strip + tile.panel[i].row * kStripRow;
      tile.addend[i] =
          addend_of(head, block, own, tile.panel[i], carried + tile.panel[i].row / kRows);
    }
  }
  for (std::int64_t first = 0; first < kTileKeys; first += kGroupKeys) {
    for (std::int64_t i = 0; i < tile.count; ++i) {
      const Panel part = part_of(tile.panel[i], first);
      if (part.begin >= part.end) continue;
      score_panel<kPlain, true>(head, block, taps, scratch, part, strip_of(scratch, part),
                                tile.shift + i * kRows, nullptr, &tile.addend[i]);
    }
  }
}

// The scores of all panels to weights, and those to the output.
inline void weigh_tile(const Head& head, const Block& block, const BlockScratch& scratch,
                       TilePanels& tile) {
  const bool has_rows = head.value_rows.count != 0;
  for (std::int64_t first = 0; first < tile.count; first += kJoined) {
    const std::int64_t count = least(kJoined, tile.count - first);
    if (!has_rows) {
      weigh_panels<false>(scratch, first, count, tile);
      continue;
    }
    weigh_panels<true>(scratch, first, count, tile);
    for (std::int64_t i = first; i < first + count; ++i)
      keep_weights(head, block, scratch, tile.panel[i], strip_of(scratch, tile.panel[i]),
                   tile.factors + i * kRows, tile.row_sums + i * kRows);
  }
  const std::int64_t vectors = (head.value_dim + kFloats - 1) / kFloats;
  for (std::int64_t i = 0; i < tile.count; ++i) {
    const Panel& panel = tile.panel[i];
    Product p{scratch.weights + panel.row * kTileKeys + panel.begin * kRows,
              kStripRow,
              1,
              head.values + panel.key * head.value_stride + panel.begin * kFloats,
              kFloats,
              kTileKeys * kFloats,
              scratch.out + panel.row * head.value_stride,
              head.value_stride,
              panel.end - panel.begin};
    const float* const factors = tile.factors + i * kRows;
    if (has_rows) {
      p.a = strip_of(scratch, panel) + panel.begin;
      wide_product<Start::scaled, Walk::packed>(p, vectors, factors);
    } else {
      wide_product<Start::scaled, Walk::blocks>(p, vectors, factors);
    }
  }
}

inline void begin_block(const Head& head, const Block& block, const BlockScratch& scratch) {
  const std::int64_t rows = rounded_up(block.count, kRows);
  for (std::int64_t r = 0; r < rows; ++r) {
    scratch.maximum[r] = kHidden;
    scratch.sum[r] = 0.0F;
  }
  clear(scratch.out, 0, rows * head.value_stride);
  if (head.query_rows.count != 0) {
    far_scores(head, head.query_rows, block.position, head.relative_stride, head.relative_depth,
               rows, scratch.far);
  }
  if (head.value_rows.count != 0) {
    clear(scratch.near, 0, rows * scratch.near_stride);
    for (std::int64_t r = 0; r < rows * 2; ++r) scratch.outside[r] = 0.0F;
  }
  for (std::int64_t row = 0; row < rows; row += kRows)
    pack_panel(block.content + row * head.content_stride, head.content_stride, head.depth,
               scratch.panels + row / kRows * head.content_stride * kPitch);
}

template <bool kPlain>
void attend_block_of(const Head& head, const Block& block, const Taps& taps,
                     const BlockScratch& scratch) {
  begin_block(head, block, scratch);
  const std::int64_t position = head.offset + block.first;
  const std::int64_t last_position = position + block.count - 1;
  const std::int64_t first = head.visit_all != 0 ? 0 : first_key(head, position);
  const std::int64_t last = head.visit_all != 0 ? head.keys - 1 : last_key(head, last_position);
  TilePanels tile;
  for (float& shift : tile.shift) shift = 0.0F;
  Carried carried[kPanels];
  for (Carried& none : carried) none = {-1, 0, 0};
  for (std::int64_t key = first / kTileKeys * kTileKeys; key <= last; key += kTileKeys) {
    if (head.is_cancelled()) return;
    const Spacing spacing = spacing_of(head, block.first, block.count, key);
    if (head.key_rows.count != 0 && meets_key_rows(head, block.count, spacing))
      fill_key_terms(head, block.count, scratch, key, spacing);
    tile.count = 0;
    for (std::int64_t row = 0; row < block.count; row += kRows) {
      const Panel panel = panel_of(head, row, block.count, position, key, spacing);
      if (panel.begin < panel.end) tile.panel[tile.count++] = panel;
    }
    score_tile<kPlain>(head, block, taps, scratch, carried, tile);
    weigh_tile(head, block, scratch, tile);
  }
  if (head.value_rows.count != 0) add_value_rows(head, block, scratch);
  for (std::int64_t r = 0; r < block.count; ++r) {
    const float sum = scratch.sum[r];
    if (sum == 0.0F) continue;  // no key: the row stays zero
    float* const out = scratch.out + r * head.value_stride;
    for (std::int64_t i = 0; i < head.value_stride; i += kFloats)
      store(out + i, load<Float>(out + i) / splat(sum));
  }
}

void attend_block(const Head& head, const Block& block, const Taps& taps,
                  const BlockScratch& scratch) {
  if (is_plain(head, taps)) {
    attend_block_of<true>(head, block, taps, scratch);
  } else {
    attend_block_of<false>(head, block, taps, scratch);
  }
}

}  // namespace
