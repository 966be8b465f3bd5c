// Views of the trained numbers of an encoding. They own nothing: a table is the caller's parameter
// tensor, read in place.
#pragma once

#include <cstdint>
#include <type_traits>

namespace phasor::encodings {

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

}  // namespace phasor::encodings
