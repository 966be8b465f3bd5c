// What one head needs before its blocks run: keys packed, values as rows, tables spread over
// columns. The two sides are filled in parts, by several threads.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/floats.hpp"
#include "attention/kernels/kernels.hpp"
#include "attention/softmax/call.hpp"

namespace phasor::attention {

// Rows and columns as the kernels want them.
struct Strides {
  std::int64_t depth, content;  // of a row of content
  std::int64_t relative;        // of a row of head_dim
  std::int64_t value;
};
[[nodiscard]] Strides strides_of(const Call& call) noexcept;

enum class Pass : std::uint8_t { forward, backward };

// Keys and values of one key head of one sequence (or, where extra features differ by query head,
// of one query head).
struct KeySide {
  const Sequence* sequence = nullptr;
  std::int64_t key_head = 0;
  std::int64_t first_head = 0;  // of the query heads that read it
  Floats columns, values;
  Floats raw;            // untouched keys, for key_rows
  Floats rows;           // backward: what columns was packed from
  Floats value_columns;  // backward
  Floats padding;        // 0 or -infinity for each key
  std::vector<std::int32_t> segments;
};
[[nodiscard]] KeySide make_key_side(const Call& call, Pass pass);
// Fills keys [first, last) of the tile grid; `scratch` has kTileKeys content rows.
void fill_keys(const Call& call, KeySide& side, std::int64_t first, std::int64_t last,
               float* scratch);

// A relative table over the columns of a call.
struct Spread {
  std::int64_t first = 0, count = 0;  // of columns
  Floats columns, rows;
};
// Tables and vectors of one query head.
struct QuerySide {
  std::int64_t head = 0;
  Floats bias_memory;
  const float* bias = nullptr;  // bias[c]
  Spread query_rows, key_rows, value_rows;
  Floats far_left, far_right;
};
[[nodiscard]] QuerySide make_query_side(const Call& call, Pass pass);
void fill_tables(const Call& call, QuerySide& side, std::int64_t head);
// k_j . first and last row of key_rows: needs keys and tables.
void fill_far_keys(const Call& call, const KeySide& keys, QuerySide& side);

// Both sides as the kernels take them.
[[nodiscard]] kernels::Head head_of(const Call& call, const KeySide& keys, const QuerySide& side);

// The rows of queries [first, first + count) of a sequence, rounded up to whole panels.
struct QueryRows {
  float* content;   // [rows][content]: (T q + u, extra) scale log2(e)
  float* position;  // [rows][relative]: (q + v) scale log2(e); may be null
  float* segments;  // [rows][2]; may be null
  float* raw;       // [rows][relative]: q as float32; scratch
};
void fill_queries(const Call& call, const Sequence& sequence, const QuerySide& side,
                  std::int64_t first, std::int64_t count, const QueryRows& rows);

}  // namespace phasor::attention
