// The scores of six queries against one tile of keys, with every term and every mask.
#pragma once

#include "attention/kernels/key_terms.hpp"
#include "attention/kernels/scattered.hpp"

namespace {

// q . first and last row of a relative table, for every query of the block: what columns outside
// the table read.
inline void far_scores(const Head& head, const Relative& relative, const float* rows,
                       std::int64_t stride, std::int64_t depth, std::int64_t count, float* far) {
  alignas(64) float sums[kRows * kFloats];
  const std::int64_t last = relative.count - 1;
  const std::int64_t ends[2] = {0, last};
  // Whether any key of the sequence is left or right of the table's columns for any query.
  const bool scattered = head.key_places != nullptr;
  const std::int64_t right = head.causal != 0 ? 0 : head.keys - 1 - head.offset;
  const bool exists[2] = {
      scattered || relative.first > -(head.offset + head.shift + head.queries - 1),
      scattered || right - head.shift > relative.first + last};
  for (std::int64_t row = 0; row < count; row += kRows) {
    for (int side = 0; side < 2; ++side) {
      if (!exists[side]) {
        for (int r = 0; r < kRows; ++r) far[(row + r) * 2 + side] = 0.0F;
        continue;
      }
      const std::int64_t vector = ends[side] / kFloats;
      const Product p{rows + row * stride,
                      stride,
                      1,
                      relative.columns + vector * kFloats * depth,
                      kFloats,
                      0,
                      sums,
                      kFloats,
                      depth};
      product<1, Start::zero, Walk::packed>(p, nullptr, nullptr, 0);
      for (int r = 0; r < kRows; ++r)
        far[(row + r) * 2 + side] = sums[r * kFloats + ends[side] % kFloats];
    }
  }
}

// The columns of a tile on which a relative term reads rows of its own, for row 0 of the panel; row
// r has them r further right.
struct Near {
  std::int64_t begin, end;
};
inline Near near_columns(const Relative& relative, const Panel& panel) {
  const std::int64_t begin = relative.first + panel.spacing.distance;
  return {begin, begin + relative.count};
}
// All columns of the panel left of the near ones, for every row; or right of them.
inline bool all_left(const Near& near, const Panel& panel) { return panel.end <= near.begin; }
inline bool all_right(const Near& near, const Panel& panel) {
  return panel.begin >= near.end + kRows - 1;
}

// What the product of a panel's last tile left right of its strip: the columns of the table before
// `to`, for the keys from `key` on, if they go on counting: the first is then `distance` away.
struct Carried {
  std::int64_t key, distance, to;
};

// Sets terms[r][t] = row r . A[c] for the columns [begin, end), or adds it (Start::sum): the table's
// columns times the panel, stored with a leading dimension one longer than the strip's, so that
// column x of row r lands on its key. What falls outside lands in the padding of the strip: the next
// tile begins with it, if `carried` says where it ends.
template <Start kStart>
inline void relative_terms(const Relative& relative, const RelativeRows& queries,
                           const Panel& panel, float* terms, Carried* carried = nullptr) {
  const Near near = near_columns(relative, panel);
  std::int64_t from = most(0, panel.begin - (kRows - 1) - near.begin) / kFloats * kFloats;
  const std::int64_t to = least(relative.count, panel.end - near.begin);
  if (carried != nullptr) {
    if (carried->key == panel.key && carried->distance == panel.spacing.distance &&
        carried->to > from && panel.begin == 0) {
      for (int r = 0; r < kRows; ++r) {
        float* const row = terms + r * kStripRow;
        for (std::int64_t t = 0; t < kStripPad; t += kFloats)
          store(row + t, load<Float>(row + kTileKeys + t));
      }
      from = carried->to;
    }
    *carried = {panel.key + kTileKeys, panel.spacing.distance - kTileKeys,
                panel.end == kTileKeys ? most(from, rounded_up(to, kFloats)) : 0};
  }
  if (from < to) {
    const Product p{queries.rows,
                    queries.stride,
                    1,
                    relative.columns + from * queries.depth,
                    kFloats,
                    queries.depth * kFloats,
                    terms + near.begin + from,
                    kStripRow + 1,
                    queries.depth};
    wide_product<kStart, Walk::packed>(p, (to - from + kFloats - 1) / kFloats);
  }
  const std::int64_t end = rounded_up(panel.end, kFloats);
  for (int r = 0; r < kRows; ++r) {
    float* const row = terms + r * kStripRow;
    const auto fill = [row](std::int64_t first, std::int64_t last, float value) {
      for (std::int64_t t = first; t < last; ++t)
        row[t] = kStart == Start::zero ? value : row[t] + value;
    };
    fill(panel.begin, least(near.begin + r, end), queries.far[r * 2]);
    fill(most(panel.begin, near.end + r), end, queries.far[r * 2 + 1]);
  }
}

// The same for any spacing; `query` is the panel's first.
inline void any_relative_terms(const Head& head, const Relative& relative,
                               const RelativeRows& queries, std::int64_t query, const Panel& panel,
                               float* terms, Carried* carried = nullptr) {
  if (panel.spacing.even) {
    relative_terms<Start::zero>(relative, queries, panel, terms, carried);
  } else {
    gather_terms(head, relative, queries, query, panel, terms);
  }
}

// Adds the score of the segments to terms, or to the rows' shifts if all keys are of one.
inline void segment_terms(const Head& head, const Block& block, const Panel& panel, float* terms,
                          float* shift) {
  const std::int32_t* const keys = head.key_segments + panel.key;
  const std::int64_t end = rounded_up(panel.end, kFloats);
  const Bits first = Bits{} + static_cast<std::uint32_t>(keys[panel.begin]);
  Bits differing{};
  for (std::int64_t t = panel.begin; t < end; t += kFloats)
    differing |= load<Bits>(keys + t) ^ first;
  bool is_one = true;
  for (int lane = 0; lane < kFloats; ++lane) is_one = is_one && differing[lane] == 0;
  for (int r = 0; r < kRows; ++r) {
    float* const row = terms + r * kStripRow;
    const float same = block.segments[(panel.row + r) * 2];
    const float other = block.segments[(panel.row + r) * 2 + 1];
    const auto segment = static_cast<std::uint32_t>(
        r < panel.rows ? head.query_segments[block.first + panel.row + r] : 0);
    if (is_one) {
      shift[r] += segment == first[0] ? same : other;
      continue;
    }
    for (std::int64_t t = panel.begin; t < end; t += kFloats) {
      const auto equal = load<Bits>(keys + t) == segment;
      store(row + t, load<Float>(row + t) + (equal ? splat(same) : splat(other)));
    }
  }
}

// What is added to the product q . k of a panel: row r at add + r * row, and `shift` of each row.
struct Addend {
  const float* add;
  std::int64_t row;
  float shift[kRows];
};

inline Addend addend_of(const Head& head, const Block& block, const BlockScratch& scratch,
                        const Panel& panel, Carried* carried = nullptr) {
  Addend addend{nullptr, 0, {}};
  const bool has_queries = head.query_rows.count != 0;
  const bool has_keys = head.key_rows.count != 0;
  const bool even = panel.spacing.even;
  const float* const bias =
      head.bias == nullptr ? nullptr : head.bias - (even ? panel.spacing.distance : 0);
  bool mixed = head.key_segments != nullptr || !even;
  bool far_queries = false;
  if (has_queries && even) {
    const Near near = near_columns(head.query_rows, panel);
    const bool left = all_left(near, panel);
    far_queries = left || all_right(near, panel);
    if (far_queries) {
      // One constant for each row: no pass over the scores.
      for (int r = 0; r < kRows; ++r)
        addend.shift[r] = scratch.far[(panel.row + r) * 2 + (left ? 0 : 1)];
    } else {
      mixed = true;
    }
  }
  // Those of the tile, made for the whole block; or far ones, the same for every row.
  const Spacing tile{panel.spacing.distance - panel.row, even};
  const bool near_keys = has_keys && meets_key_rows(head, block.count, tile);
  const float* const far_keys =
      has_keys && even && !near_keys ? far_key_terms(head, tile, panel.key) : nullptr;
  mixed = mixed || near_keys || (far_keys != nullptr && bias != nullptr);
  if (!mixed) {
    addend.add = far_keys;
    if (bias != nullptr) {
      addend.add = bias;
      addend.row = -1;  // one query further, one column back
    }
    return addend;
  }
  float* const terms =
      kStripPad + (near_keys ? scratch.key_terms + panel.row * kStripRow : scratch.terms);
  const std::int64_t end = rounded_up(panel.end, kFloats);
  const std::int64_t query = block.first + panel.row;
  const RelativeRows queries{block.position + panel.row * head.relative_stride,
                             head.relative_stride, head.relative_depth,
                             scratch.far + panel.row * 2};
  if (near_keys && has_queries && !far_queries) {
    relative_terms<Start::sum>(head.query_rows, queries, panel, terms);
  } else if (!near_keys && has_queries) {
    any_relative_terms(head, head.query_rows, queries, query, panel, terms, carried);
    for (float& shift : addend.shift) shift = 0.0F;
  } else if (!near_keys) {
    for (int r = 0; r < kRows; ++r) clear(terms + r * kStripRow, panel.begin, end);
  }
  if (far_keys != nullptr) {
    for (int r = 0; r < kRows; ++r) {
      float* const row = terms + r * kStripRow;
      for (std::int64_t t = panel.begin; t < end; t += kFloats)
        store(row + t, load<Float>(row + t) + load<Float>(far_keys + t));
    }
  }
  if (has_keys && !even) gather_key_terms(head, query, panel, terms);
  if (bias != nullptr && !even) gather_bias(head, query, panel, terms);
  if (bias != nullptr && even) {
    for (int r = 0; r < kRows; ++r) {
      float* const row = terms + r * kStripRow;
      for (std::int64_t t = panel.begin; t < end; t += kFloats)
        store(row + t, load<Float>(row + t) + load<Float>(bias + t - r));
    }
  }
  if (head.key_segments != nullptr) segment_terms(head, block, panel, terms, addend.shift);
  addend.add = terms;
  addend.row = kStripRow;
  return addend;
}

// Applies the caller's mask to one row of scores: hides keys or adds values.
inline void apply_mask(const HeadMask& mask, std::int64_t query, const Panel& panel, float* row) {
  const std::int64_t end = least(panel.end, mask.keys - panel.key);
  const std::int64_t offset = query * mask.query_stride + panel.key * mask.key_stride;
  std::int64_t t = panel.begin;
  if (mask.kind == HeadMask::Kind::boolean) {
    const auto* const keep = static_cast<const std::uint8_t*>(mask.data) + offset;
    if (mask.key_stride == 1) {
      using Bytes = std::uint8_t __attribute__((vector_size(kFloats)));
      for (; t + kFloats <= end; t += kFloats) {
        const Bits shown = __builtin_convertvector(load<Bytes>(keep + t), Bits);
        store(row + t, shown == 0U ? splat(kHidden) : load<Float>(row + t));
      }
    }
    for (; t < end; ++t) row[t] = keep[t * mask.key_stride] == 0 ? kHidden : row[t];
  } else {
    constexpr float kLog2e = 1.44269504088896341F;
    const auto* const add = static_cast<const float*>(mask.data) + offset;
    if (mask.key_stride == 1) {
      for (; t + kFloats <= end; t += kFloats) {
        const Float value = load<Float>(add + t);
        const Float sum = mul_add(value, splat(kLog2e), load<Float>(row + t));
        // -infinity hides the key, whatever its score is.
        store(row + t, value == splat(kHidden) ? value : sum);
      }
    }
    for (; t < end; ++t) {
      const float value = add[t * mask.key_stride];
      row[t] = value == kHidden ? kHidden : row[t] + value * kLog2e;
    }
  }
  for (t = most(t, end); t < panel.end; ++t) row[t] = kHidden;
}

inline void tap(float* to, const Taps& taps, const Block& block, const Panel& panel,
                const float* strip) {
  if (to == nullptr) return;
  for (std::int64_t r = 0; r < panel.rows; ++r) {
    float* const out = to + (block.first + panel.row + r) * taps.row + panel.key;
    for (std::int64_t t = panel.begin; t < panel.end; ++t) out[t] = strip[r * kStripRow + t] * kLn2;
  }
}

// Fills the strip with the scores of the panel, hidden keys as -infinity, and shift[] with what is
// still to be added to each row. Backward also needs the slopes of the soft cap, from before the masks.
// kPacked: the queries are read from scratch.panels. `made`: the addend, if it was made before.
template <bool kPlain, bool kPacked = false>
inline void score_panel(const Head& head, const Block& block, const Taps& taps,
                        const BlockScratch& scratch, const Panel& panel, float* strip, float* shift,
                        float* slopes = nullptr, const Addend* made = nullptr) {
  const std::int64_t first = panel.key + panel.begin;
  const std::int64_t vectors = (panel.end - panel.begin + kFloats - 1) / kFloats;
  Product p{block.content + panel.row * head.content_stride,
            head.content_stride,
            1,
            head.key_columns + first * head.depth,
            kFloats,
            head.depth * kFloats,
            strip + panel.begin,
            kStripRow,
            head.depth};
  const auto multiply = [&](const float* add, std::int64_t add_row) {
    if constexpr (kPacked) {
      p.a = scratch.panels + panel.row / kRows * head.content_stride * kPitch;
      wide_product<Start::zero, Walk::panels>(p, vectors, nullptr, add, add_row);
    } else {
      wide_product<Start::zero, Walk::packed>(p, vectors, nullptr, add, add_row);
    }
  };
  if constexpr (kPlain) {
    const float* const bias = head.bias == nullptr ? nullptr : head.bias - panel.spacing.distance;
    multiply(bias == nullptr ? nullptr : bias + panel.begin, -1);
    for (int r = 0; r < kRows; ++r) shift[r] = 0.0F;
  } else {
    const Addend addend = made != nullptr ? *made : addend_of(head, block, scratch, panel);
    multiply(addend.add == nullptr ? nullptr : addend.add + panel.begin, addend.row);
    for (int r = 0; r < kRows; ++r) shift[r] = addend.shift[r];
    const bool taps_wanted =
        taps.scores != nullptr || taps.capped != nullptr || taps.masked != nullptr;
    if (taps_wanted || head.soft_cap != 0.0F) {
      // What follows is not invariant to a constant shift of a row: it is added here.
      for (int r = 0; r < kRows; ++r) {
        float* const row = strip + r * kStripRow;
        for (std::int64_t v = 0; v < vectors; ++v) {
          float* const at = row + panel.begin + v * kFloats;
          store(at, load<Float>(at) + splat(shift[r]));
        }
        shift[r] = 0.0F;
      }
      tap(taps.scores, taps, block, panel, strip);
    }
    if (head.soft_cap != 0.0F) {
      for (int r = 0; r < kRows; ++r) {
        float* const row = strip + r * kStripRow + panel.begin;
        for (std::int64_t v = 0; v < vectors; ++v) {
          const Float capped = soft_capped(load<Float>(row + v * kFloats), head.soft_cap);
          store(row + v * kFloats, capped);
          if (slopes == nullptr) continue;
          const Float part = capped * splat(1.0F / head.soft_cap);
          store(slopes + r * kStripRow + panel.begin + v * kFloats, splat(1.0F) - part * part);
        }
      }
    }
    tap(taps.capped, taps, block, panel, strip);
    if (head.mask.kind != HeadMask::Kind::none) {
      for (std::int64_t r = 0; r < panel.rows; ++r)
        apply_mask(head.mask, block.first + panel.row + r, panel, strip + r * kStripRow);
    }
    if (head.key_padding != nullptr) {
      const float* const padding = head.key_padding + panel.key;
      for (int r = 0; r < kRows; ++r) {
        float* const row = strip + r * kStripRow;
        for (std::int64_t t = panel.begin; t < panel.end; t += kFloats) {
          const Float hidden = load<Float>(padding + t);
          store(row + t, hidden < Float{} ? hidden : load<Float>(row + t));
        }
      }
    }
  }
  // The edges: keys after the last one, and keys that a query of the panel may not see.
  const std::int64_t end = panel.begin + vectors * kFloats;
  const std::int64_t last_row = panel.position + panel.rows - 1;
  const bool all_shown = first_key(head, last_row) <= panel.key + panel.begin &&
                         last_key(head, panel.position) >= panel.key + end - 1;
  for (std::int64_t r = 0; r < kRows && !all_shown; ++r) {
    const std::int64_t position = panel.position + least(r, panel.rows - 1);
    float* const row = strip + r * kStripRow;
    const std::int64_t shown = least(end, first_key(head, position) - panel.key);
    for (std::int64_t t = panel.begin; t < shown; ++t) row[t] = kHidden;
    for (std::int64_t t = most(panel.begin, last_key(head, position) + 1 - panel.key); t < end; ++t)
      row[t] = kHidden;
  }
  if constexpr (!kPlain) tap(taps.masked, taps, block, panel, strip);
}

// Whether the scores of a head need nothing but products, a bias and the edges.
inline bool is_plain(const Head& head, const Taps& taps) {
  return head.query_rows.count == 0 && head.key_rows.count == 0 && head.key_segments == nullptr &&
         (head.bias == nullptr || head.key_places == nullptr) && head.soft_cap == 0.0F &&
         head.mask.kind == HeadMask::Kind::none && head.key_padding == nullptr &&
         taps.scores == nullptr && taps.capped == nullptr && taps.masked == nullptr;
}

}  // namespace
