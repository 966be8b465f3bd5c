// The interface between encodings and attention: what an encoding adds to a score or a value.
// Attention knows only these terms, not the encodings.
//
//   s(m, n) = scale * ( (T_m q_m + u) . (T_n k_n)             rotation, content_bias
//                     + (q_m + v) . A[r(m - n)]               query_rows, position_bias
//                     + k_n . B[r(m - n)]                     key_rows
//                     + a_m . c_n                             extra_query, extra_key
//                     + (q_m + w) . E[segments differ] )      segment_rows, segment_bias
//           + b[r(m - n)] - slope |m - n|                     bias, slopes
//   o(m)    = sum_n softmax_n(s(m, n)) (v_n + C[r(m - n)])    value_rows
//
// m and n are the position ids of query and key. Without ids they count tokens: key n is at n, query i
// of Nq at Nk - Nq + i (aligned bottom-right: the last query is at the last key).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "phasor/core/rotate.hpp"

namespace phasor::encodings {

// Views of the trained numbers of an encoding. They own nothing: a table is the caller's parameter
// tensor, read in place.

// shape  [heads, rows, dim]; heads = 1 serves every head. Strides count elements;
//        dim is contiguous.
template <class T>
struct BasicTable {
  using Wide = std::conditional_t<std::is_const_v<T>, const double, double>;

  T* data = nullptr;  // null: no table
  std::int64_t heads = 1, rows = 0, dim = 0;
  std::int64_t head_stride = 0, row_stride = 0;
  // The same numbers in float64 with the same strides; null: none. Attention in float64 reads them
  // instead of `data` when they are given, and writes gradients there.
  Wide* wide = nullptr;

  [[nodiscard]] bool given() const noexcept { return data != nullptr; }
  // precondition  row < rows; head is any head of the attention when heads = 1
  [[nodiscard]] T* row(std::int64_t head, std::int64_t row) const noexcept {
    return data + offset(head, row);
  }
  [[nodiscard]] std::int64_t offset(std::int64_t head, std::int64_t row) const noexcept {
    return (heads == 1 ? 0 : head) * head_stride + row * row_stride;
  }
};
using Table = BasicTable<const float>;
using TableGradient = BasicTable<float>;

// A dense [rows, dim] table that all heads share.
template <class T>
[[nodiscard]] BasicTable<T> shared_rows(T* data, std::int64_t rows, std::int64_t dim) noexcept {
  return {data, 1, rows, dim, 0, dim};
}
// A dense [heads, rows, dim] table.
template <class T>
[[nodiscard]] BasicTable<T> heads_then_rows(T* data, std::int64_t heads, std::int64_t rows,
                                            std::int64_t dim) noexcept {
  return {data, heads, rows, dim, rows * dim, dim};
}
// A dense [rows, heads, dim] table; with dim = 1, the [buckets, heads] of T5.
template <class T>
[[nodiscard]] BasicTable<T> rows_then_heads(T* data, std::int64_t rows, std::int64_t heads,
                                            std::int64_t dim) noexcept {
  return {data, heads, rows, dim, dim, heads * dim};
}
// A dense [heads, dim] table: one row for each head.
template <class T>
[[nodiscard]] BasicTable<T> row_per_head(T* data, std::int64_t heads, std::int64_t dim) noexcept {
  return {data, heads, 1, dim, dim, dim};
}

// The row that a distance m - n reads.
struct RelativeMap {
  enum class Outside : std::uint8_t {
    clamp,   // distances outside read the row of the nearest one inside
    refuse,  // attention over such distances is an error
  };
  std::int64_t first = 0;          // the smallest distance with an entry
  std::vector<std::int32_t> rows;  // the row of distance first + i
  Outside outside = Outside::clamp;

  [[nodiscard]] std::int64_t last() const noexcept {
    return first + static_cast<std::int64_t>(rows.size()) - 1;
  }
  // precondition  rows is not empty
  [[nodiscard]] std::int32_t row_of(std::int64_t distance) const noexcept {
    const std::int64_t inside = distance < first ? first : distance > last() ? last() : distance;
    return rows[static_cast<std::size_t>(inside - first)];
  }
};

struct RelativeRows {
  Table table;
  RelativeMap map;
  // Keeps the numbers of `table` if the encoding computed them; null: they are the caller's.
  std::shared_ptr<const void> computed = nullptr;
};

struct ScoreTerms {
  std::optional<core::Rotary> rotation = std::nullopt;    // RoFormer (14), (34)
  Table content_bias;                                     // u: [heads, 1, head_dim]
  Table position_bias;                                    // v: [heads, 1, head_dim]
  std::optional<RelativeRows> query_rows = std::nullopt;  // A: dim = head_dim
  std::optional<RelativeRows> key_rows = std::nullopt;    // B: dim = head_dim
  std::optional<RelativeRows> bias = std::nullopt;        // b: dim = 1; not scaled
  std::vector<double> slopes;                             // one per head, or empty
  // a and c: [heads, tokens, any dim], a row per token of the call; with position ids a row per
  // position.
  Table extra_query, extra_key;
  // TUPE: the whole position part (extra features and bias) of the query at position 0 becomes
  // first_row, that of the key at 0 (for the other queries) first_column. [heads, 1, 1]; not scaled.
  Table first_row, first_column;
  Table segment_rows;  // E: [heads, 2, head_dim]: same, different
  Table segment_bias;  // w: [heads, 1, head_dim]
  std::optional<RelativeRows> value_rows = std::nullopt;  // C: dim = value_dim
  double scale = 1.0;  // the encoding's own; callers may override
};

// Where the gradients of the tables go; each has the shape of its table, null: not wanted.
// Gradients are added to what is there, so that a table used twice gets the sum.
struct ScoreTermGradients {
  TableGradient content_bias, position_bias;
  TableGradient query_rows, key_rows, bias;
  TableGradient extra_query, extra_key;
  TableGradient first_row, first_column;
  TableGradient segment_rows, segment_bias;
  TableGradient value_rows;
};

}  // namespace phasor::encodings
