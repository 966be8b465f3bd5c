// What each encoding provides to encoding.cpp: it checks its own tables and fills terms of the
// score.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include "phasor/core/error.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::encodings {

// precondition  the shape passed validate_shape(); each throws Error naming the table and the sizes
[[nodiscard]] ScoreTerms terms_of(const NoEncoding& encoding, const AttentionShape& shape);
[[nodiscard]] ScoreTerms terms_of(const RopeSpec& encoding, const AttentionShape& shape);
[[nodiscard]] ScoreTerms terms_of(const Shaw& encoding, const AttentionShape& shape);
[[nodiscard]] ScoreTerms terms_of(const BertRelative& encoding, const AttentionShape& shape);
[[nodiscard]] ScoreTerms terms_of(const TransformerXl& encoding, const AttentionShape& shape);
[[nodiscard]] ScoreTerms terms_of(const Xlnet& encoding, const AttentionShape& shape);
[[nodiscard]] ScoreTerms terms_of(const T5& encoding, const AttentionShape& shape);
[[nodiscard]] ScoreTerms terms_of(const Tupe& encoding, const AttentionShape& shape);
[[nodiscard]] ScoreTerms terms_of(const Deberta& encoding, const AttentionShape& shape);
[[nodiscard]] ScoreTerms terms_of(const Alibi& encoding, const AttentionShape& shape);
[[nodiscard]] ScoreTerms terms_of(const Kerple& encoding, const AttentionShape& shape);

// `where` starts the messages: an encoding inside another reports errors under the outer name.
[[nodiscard]] ScoreTerms transformer_xl_terms(std::string_view where, const TransformerXl& encoding,
                                              const AttentionShape& shape);
[[nodiscard]] RelativeRows t5_rows(std::string_view where, const T5& encoding,
                                   const AttentionShape& shape);

// No table is longer, and sums of two distances cannot overflow.
inline constexpr std::int64_t kMaxDistance = std::int64_t{1} << 40;
// throws   Error(invalid_argument) unless least <= value <= kMaxDistance
void require_distance(std::string_view where, std::string_view name, std::int64_t value,
                      std::int64_t least);

// throws   Error(invalid_argument)
void validate_shape(const AttentionShape& shape);

// RoFormer (2): q.k / sqrt(d)
[[nodiscard]] inline double plain_scale(const AttentionShape& shape) {
  return 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
}

enum class RowCount : std::uint8_t { exactly, at_least };
// throws   Error(shape_mismatch): no table, heads neither 1 nor the shape's, other rows, another
//          dim
void require_table(std::string_view where, std::string_view name, const Table& table,
                   const AttentionShape& shape, std::int64_t rows, std::int64_t dim,
                   RowCount count = RowCount::exactly);
// The same, or none.
void check_table(std::string_view where, std::string_view name, const Table& table,
                 const AttentionShape& shape, std::int64_t rows, std::int64_t dim);

template <class RowOf>
[[nodiscard]] RelativeMap map_over(Distances distances, RelativeMap::Outside outside,
                                   const RowOf& row_of) {
  RelativeMap map{distances.first, {}, outside};
  map.rows.reserve(static_cast<std::size_t>(distances.count()));
  for (std::int64_t distance = distances.first; distance <= distances.last; ++distance) {
    map.rows.push_back(static_cast<std::int32_t>(row_of(distance)));
  }
  return map;
}

// The distances that have a row, as far as the shape has them; the others are refused.
//
// precondition  `given` includes distance 0
template <class RowOf>
[[nodiscard]] RelativeMap refusing_map(Distances given, const AttentionShape& shape,
                                       const RowOf& row_of) {
  const Distances needed = distances_of(shape);
  const Distances kept{std::max(given.first, needed.first), std::min(given.last, needed.last)};
  return map_over(kept, RelativeMap::Outside::refuse, row_of);
}

// A map whose row is constant before varying.first and after varying.last. The cost in attention
// grows with the length of the map, so the shorter of two is made: the varying part, clamped
// outside, which works for every shape; or only the distances of this shape, which refuses larger
// ones.
template <class RowOf>
[[nodiscard]] RelativeMap clamping_map(Distances varying, const AttentionShape& shape,
                                       const RowOf& row_of) {
  const Distances needed = distances_of(shape);
  if (needed.count() < varying.count()) return refusing_map(needed, shape, row_of);
  const std::int64_t before = row_of(varying.first), after = row_of(varying.last);
  while (varying.first < varying.last && row_of(varying.first + 1) == before) ++varying.first;
  while (varying.first < varying.last && row_of(varying.last - 1) == after) --varying.last;
  return map_over(varying, RelativeMap::Outside::clamp, row_of);
}

}  // namespace phasor::encodings
