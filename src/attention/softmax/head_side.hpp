// What one head needs before its blocks run: keys packed into columns, values as rows, vectors of the
// queries. The two sides are filled in parts, by several threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/kernels/kernels.hpp"
#include "attention/softmax/call.hpp"
#include "attention/softmax/packed_tables.hpp"

namespace phasor::attention {

// Whether backward fills keys and works on them tile by tile: a tile's memory stays in the caches.
[[nodiscard]] bool is_backward_by_tile(const Call& call) noexcept;
// Memory for one key side, without segments.
void cut_key_side(const Call& call, Pass pass, SliceCutter& cutter, KeySide& side);
// Memory for the segments of `sides` key sides, if the call has segments, and the part of one side.
//
// throws   std::bad_alloc
void resize_segments(const Call& call, std::int64_t sides, std::vector<std::int32_t>& memory);
[[nodiscard]] std::span<std::int32_t> segments_of(const Call& call, std::int64_t side,
                                                  std::vector<std::int32_t>& memory);
// Fills keys [first, last) of the tile grid, after side.origin; `scratch` has kTileKeys content rows.
void fill_keys(const Call& call, KeySide& side, std::int64_t first, std::int64_t last,
               float* scratch);

// Memory for one query side, without the tables that `tables` share.
void cut_query_side(const Call& call, Pass pass, const PackedTables& tables, SliceCutter& cutter,
                    QuerySide& side);
// k_j . first and last row of key_rows: needs keys and tables.
void fill_far_keys(const Call& call, const KeySide& keys, QuerySide& side);

// Both sides as the kernels take them.
[[nodiscard]] kernels::Head head_of(const Call& call, const KeySide& keys, const QuerySide& side);

// The rows of queries [first, first + count) of a sequence, rounded up to whole panels.
struct QueryRows {
  float* content;        // [rows][content]: (T q + u, extra) scale log2(e)
  float* position;       // [rows][relative]: (q + v) scale log2(e); may be null
  float* segments;       // [rows][2]; may be null
  float* raw;            // [rows][relative]: q as float32; scratch
  float* segment_query;  // [relative]: scratch, if there are segments
};
void fill_queries(const Call& call, const Sequence& sequence, const QuerySide& side,
                  std::int64_t first, std::int64_t count, const QueryRows& rows);

}  // namespace phasor::attention
