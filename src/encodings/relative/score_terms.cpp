#include "phasor/encodings/score_terms.hpp"

#include <algorithm>
#include <limits>

#include "encodings/relative/terms.hpp"
#include "phasor/core/internal/extent.hpp"

namespace phasor::encodings {
namespace {

constexpr std::string_view kWhere = "attention";

void require_count(std::string_view name, std::int64_t value, std::int64_t least) {
  if (value >= least) return;
  refuse(message("attention: ", name, " must be at least ", least, ", got ", value));
}

void check_rows(std::string_view name, const std::optional<RelativeRows>& rows,
                const AttentionShape& shape, std::int64_t dim) {
  if (!rows) return;
  require_table(kWhere, name, rows->table, shape, 1, dim, RowCount::at_least);
  if (rows->map.rows.empty()) {
    refuse(message("attention: ", name, "'s map is empty: it needs at least one distance"));
  }
  const auto [least, most] = std::minmax_element(rows->map.rows.begin(), rows->map.rows.end());
  if (*least < 0 || *most >= rows->table.rows) {
    refuse(ErrorCode::out_of_range,
           message("attention: ", name, " must map distances to rows 0 to ", rows->table.rows - 1,
                   ", got row ", *least < 0 ? *least : *most));
  }
}

// v is added to the query of q_m . A, w to that of E: a bias without its rows has no effect.
void check_owner(std::string_view name, const Table& bias, std::string_view rows_name,
                 bool rows_given) {
  if (!bias.given() || rows_given) return;
  refuse(message("attention: ", name, " needs ", rows_name, ", which is missing"));
}

void check_extra(const ScoreTerms& terms, const AttentionShape& shape) {
  if (!terms.extra_query.given() && !terms.extra_key.given()) return;
  const std::int64_t dim = terms.extra_query.given() ? terms.extra_query.dim : terms.extra_key.dim;
  require_count("dim of extra_query", dim, 1);
  require_table(kWhere, "extra_query", terms.extra_query, shape, shape.query_tokens, dim,
                RowCount::at_least);
  require_table(kWhere, "extra_key", terms.extra_key, shape, shape.key_tokens, dim,
                RowCount::at_least);
}

void check_slopes(const std::vector<double>& slopes, const AttentionShape& shape) {
  if (slopes.empty()) return;
  if (static_cast<std::int64_t>(slopes.size()) != shape.heads) {
    refuse(ErrorCode::shape_mismatch, message("attention: slopes must be one per head, ",
                                              shape.heads, ", got ", slopes.size()));
  }
  for (const double slope : slopes) {
    if (!std::isfinite(slope)) refuse(message("attention: slopes must be finite, got ", slope));
  }
}

}  // namespace

Distances distances_of(const AttentionShape& shape) noexcept {
  const Distances of =
      shape.distances.value_or(Distances{1 - shape.query_tokens, shape.key_tokens - 1});
  return {std::min<std::int64_t>(0, of.first), std::max<std::int64_t>(0, of.last)};
}

void require_distance(std::string_view where, std::string_view name, std::int64_t value,
                      std::int64_t least) {
  if (least <= value && value <= kMaxDistance) return;
  refuse(message(where, ": ", name, " must be from ", least, " to 2^40, got ", value));
}

void require_table(std::string_view where, std::string_view name, const Table& table,
                   const AttentionShape& shape, std::int64_t rows, std::int64_t dim,
                   RowCount count) {
  const auto mismatch = [&](const std::string& text) {
    refuse(ErrorCode::shape_mismatch, message(where, ": ", name, " must ", text));
  };
  if (!table.given()) refuse(ErrorCode::shape_mismatch, message(where, ": ", name, " is missing"));
  if (table.heads != 1 && table.heads != shape.heads) {
    mismatch(message("have heads 1 or ", shape.heads, ", got ", table.heads));
  }
  const bool fits = count == RowCount::exactly ? table.rows == rows : table.rows >= rows;
  if (!fits) {
    mismatch(message("have ", count == RowCount::exactly ? "" : "at least ", rows,
                     rows == 1 ? " row, got " : " rows, got ", table.rows));
  }
  if (table.rows > std::numeric_limits<std::int32_t>::max()) {
    mismatch(message("have at most ", std::numeric_limits<std::int32_t>::max(), " rows, got ",
                     table.rows));
  }
  if (table.dim != dim) mismatch(message("have dim ", dim, ", got ", table.dim));
  const core::Dimension dimensions[] = {
      {table.heads, table.head_stride}, {table.rows, table.row_stride}, {table.dim, 1}};
  if (!core::is_addressable(dimensions, sizeof(double))) {
    refuse(ErrorCode::out_of_range,
           message(where, ": ", name, " must lie within 2^56 bytes, got the strides ",
                   table.head_stride, " of ", table.heads, " heads and ", table.row_stride, " of ",
                   table.rows, " rows"));
  }
}

void check_table(std::string_view where, std::string_view name, const Table& table,
                 const AttentionShape& shape, std::int64_t rows, std::int64_t dim) {
  if (table.given()) require_table(where, name, table, shape, rows, dim);
}

void validate_shape(const AttentionShape& shape) {
  require_count("heads", shape.heads, 1);
  require_count("key_heads", shape.key_heads, 1);
  require_count("head_dim", shape.head_dim, 1);
  require_count("value_dim", shape.value_dim, 1);
  require_count("query_tokens", shape.query_tokens, 0);
  require_count("key_tokens", shape.key_tokens, 0);
  if (shape.heads % shape.key_heads != 0) {
    refuse(message("attention: heads must be a multiple of key_heads, got ", shape.heads, " and ",
                   shape.key_heads));
  }
}

void validate(const ScoreTerms& terms, const AttentionShape& shape) {
  validate_shape(shape);
  if (terms.rotation) {
    core::validate(*terms.rotation);
    if (terms.rotation->head_dim != shape.head_dim) {
      refuse(ErrorCode::shape_mismatch,
             message("attention: rotation must have head_dim ", shape.head_dim, ", got ",
                     terms.rotation->head_dim));
    }
  }
  check_table(kWhere, "content_bias", terms.content_bias, shape, 1, shape.head_dim);
  check_table(kWhere, "position_bias", terms.position_bias, shape, 1, shape.head_dim);
  check_owner("position_bias", terms.position_bias, "query_rows", terms.query_rows.has_value());
  check_rows("query_rows", terms.query_rows, shape, shape.head_dim);
  check_rows("key_rows", terms.key_rows, shape, shape.head_dim);
  check_rows("bias", terms.bias, shape, 1);
  check_rows("value_rows", terms.value_rows, shape, shape.value_dim);
  check_slopes(terms.slopes, shape);
  check_extra(terms, shape);
  check_table(kWhere, "first_row", terms.first_row, shape, 1, 1);
  check_table(kWhere, "first_column", terms.first_column, shape, 1, 1);
  check_table(kWhere, "segment_rows", terms.segment_rows, shape, 2, shape.head_dim);
  check_table(kWhere, "segment_bias", terms.segment_bias, shape, 1, shape.head_dim);
  check_owner("segment_bias", terms.segment_bias, "segment_rows", terms.segment_rows.given());
  if (!std::isfinite(terms.scale)) {
    refuse(message("attention: scale must be finite, got ", terms.scale));
  }
}

}  // namespace phasor::encodings
