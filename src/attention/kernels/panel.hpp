// Six queries against one tile of keys: which keys they may see, and how far apart they are.
#pragma once

#include "attention/kernels/kernels.hpp"
#include "phasor/attention/internal/kernels/exponential.hpp"

namespace {

using phasor::attention::kernels::Block;
using phasor::attention::kernels::BlockScratch;
using phasor::attention::kernels::Head;
using phasor::attention::kernels::HeadMask;
using phasor::attention::kernels::kBlockRows;
using phasor::attention::kernels::kStripPad;
using phasor::attention::kernels::kStripRow;
using phasor::attention::kernels::kTileKeys;
using phasor::attention::kernels::kWidest;
using phasor::attention::kernels::Relative;
using phasor::attention::kernels::rounded_up;
using phasor::attention::kernels::Taps;

constexpr float kHidden = -__builtin_inff();
constexpr float kLn2 = 0.693147180559945309F;

inline std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
inline std::int64_t most(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

inline void clear(float* row, std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = begin; t < end; t += kFloats) store(row + t, Float{});
}

// The first and the last key that a query at `position` may see.
inline std::int64_t first_key(const Head& head, std::int64_t position) {
  return head.window == 0 ? 0 : most(0, position - head.window + 1);
}
inline std::int64_t last_key(const Head& head, std::int64_t position) {
  std::int64_t last = head.keys - 1;
  if (head.causal != 0) last = least(last, position);
  if (head.window != 0) last = least(last, position + head.window - 1);
  return last;
}

// The distances between the queries of a block and the keys of a tile. Even: query i and key j of
// them are `distance` + i - j apart. Otherwise every pair has a distance of its own.
struct Spacing {
  std::int64_t distance;
  bool even;
};
inline Spacing spacing_of(const Head& head, std::int64_t query, std::int64_t count,
                          std::int64_t key) {
  if (head.key_places == nullptr) return {head.offset + head.shift + query - key, true};
  const std::int64_t keys = least(kTileKeys, head.keys - key);
  const std::int64_t distance = std::int64_t{head.query_places[query]} - head.key_places[key];
  bool even = head.query_runs[query] >= query + count && head.key_runs[key] >= key + keys;
  if (head.bias != nullptr) {
    even =
        even && -(distance + count - 1) >= head.bias_first && keys - 1 - distance <= head.bias_last;
  }
  return {distance, even};
}

// Six queries against the keys [key, key + kTileKeys): the columns [begin, end) of the tile are
// computed. begin is a multiple of the vector.
struct Panel {
  std::int64_t row;       // in the block
  std::int64_t position;  // of its first query
  std::int64_t rows;      // that are queries; the rest is padding
  std::int64_t key;
  Spacing spacing;  // of its first query and the tile
  std::int64_t begin, end;
};

// The columns that any query of the panel may see; begin >= end: none.
inline void bound_columns(const Head& head, Panel& panel) {
  const std::int64_t last_position = panel.position + panel.rows - 1;
  const std::int64_t first = head.visit_all != 0 ? 0 : first_key(head, panel.position);
  const std::int64_t last = head.visit_all != 0 ? head.keys - 1 : last_key(head, last_position);
  panel.begin = most(0, first - panel.key) / kFloats * kFloats;
  panel.end = least(kTileKeys, last + 1 - panel.key);
}

// Row `row` of a block of `count` queries, the first of them at `position`.
inline Panel panel_of(const Head& head, std::int64_t row, std::int64_t count, std::int64_t position,
                      std::int64_t key, const Spacing& spacing) {
  Panel panel{row,
              position + row,
              least(kRows, count - row),
              key,
              {spacing.distance + row, spacing.even},
              0,
              0};
  bound_columns(head, panel);
  return panel;
}

constexpr std::int64_t kPanels = kBlockRows / kRows;  // of a block

// The end of a panel's last vector.
inline std::int64_t vector_end(const Panel& panel) {
  return panel.begin + rounded_up(panel.end - panel.begin, kFloats);
}

// Keys that all panels of a block are multiplied with before the next ones: as columns they stay in
// the first cache.
constexpr std::int64_t kGroupKeys = kFloats == 16 ? 64 : 48;
static_assert(kTileKeys % kGroupKeys == 0 && kGroupKeys % kFloats == 0);

// The columns of a panel that are in the group from `first` on.
inline Panel part_of(const Panel& panel, std::int64_t first) {
  Panel part = panel;
  part.begin = most(panel.begin, first);
  part.end = least(panel.end, first + kGroupKeys);
  return part;
}

// Rows of queries that a relative table is multiplied with: the panel's first at `rows`, far[]
// their products with the table's ends.
struct RelativeRows {
  const float* rows;
  std::int64_t stride, depth;
  const float* far;
};

}  // namespace
