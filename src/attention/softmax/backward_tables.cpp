#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "attention/softmax/backward_unit.hpp"

namespace phasor::attention {
namespace {

// Whether no row serves two distances.
bool is_one_to_one(const encodings::RelativeMap& map) {
  return std::adjacent_find(map.rows.begin(), map.rows.end(), std::less_equal<>()) ==
             map.rows.end() ||
         std::adjacent_find(map.rows.begin(), map.rows.end(), std::greater_equal<>()) ==
             map.rows.end();
}

// The first `count` of the memory's row_sums, set to zero.
double* cleared(std::vector<double>& sums, std::int64_t count) {
  std::fill_n(sums.begin(), count, 0.0);
  return sums.data();
}

// table[row of column x] += factor * rows[x]: several columns may read one row, and are then summed
// in double; a table as long as the sequence has one row for each and needs no such sums.
void add_to_table(const Call& call, const encodings::RelativeRows& relative, const Spread& spread,
                  const Slice& rows, std::int64_t stride, std::int64_t head, double factor,
                  std::vector<double>& row_sums, GradientSums& to) {
  if (!to.wanted()) return;
  if (is_one_to_one(relative.map)) {
    for (std::int64_t x = 0; x < spread.count; ++x) {
      to.add_row(call.kernels, head, relative.map.row_of(-(spread.first + x)),
                 rows.data() + x * stride, factor);
    }
    return;
  }
  const std::int64_t dim = relative.table.dim;
  double* const sums = cleared(row_sums, relative.table.rows * dim);
  for (std::int64_t x = 0; x < spread.count; ++x) {
    const std::int64_t row = relative.map.row_of(-(spread.first + x));
    call.kernels.sum_rows(rows.data() + x * stride, 0, nullptr, 1, dim, sums + row * dim);
  }
  for (std::int64_t i = 0; i < relative.table.rows * dim; ++i)
    to.add(head, i / dim, i % dim, factor * sums[i]);
}

// The one row of a table += factor * the sum of `count` rows' first head_dim features.
void add_column_sums(const Call& call, const Slice& rows, std::int64_t stride, std::int64_t count,
                     std::int64_t head, double factor, std::vector<double>& row_sums,
                     GradientSums& to) {
  if (!to.wanted()) return;
  const std::int64_t dim = call.head_dim;
  double* const sums = cleared(row_sums, dim);
  call.kernels.sum_rows(rows.data(), stride, nullptr, count, dim, sums);
  for (std::int64_t e = 0; e < dim; ++e) to.add(head, 0, e, factor * sums[e]);
}

void add_bias(const Call& call, const Unit& unit, std::vector<double>& row_sums, GradientSums& to) {
  if (!to.wanted() || !call.terms.bias) return;
  const encodings::RelativeRows& bias = *call.terms.bias;
  const Sequence& s = *unit.keys.sequence;
  double* const sums = cleared(row_sums, bias.table.rows);
  const auto add = [&](std::int64_t distance, float value) {
    sums[bias.map.row_of(distance)] += static_cast<double>(value);
  };
  for (std::int64_t c = call.bias_first; c <= call.bias_last; ++c) add(-c, unit.bias_gradient[c]);
  if (call.has_first_token()) {
    // The first token's features hold the bias with a minus sign.
    const Strides strides = strides_of(call);
    const std::int64_t feature = call.depth() - 2;
    for (std::int64_t j = 0; j < s.keys && call.terms.first_row.given(); ++j)
      add(-call.key_position(s, j), -unit.d_keys.data()[j * strides.content + feature]);
    for (std::int64_t i = 0; i < s.queries && call.terms.first_column.given(); ++i) {
      const std::int64_t position = call.query_position(s, i);
      if (position == 0 && call.terms.first_row.given()) continue;
      add(position, -unit.d_content.data()[i * strides.content + feature + 1]);
    }
  }
  for (std::int64_t row = 0; row < bias.table.rows; ++row)
    to.add(unit.side.head, row, 0, sums[row]);
}

void add_features(const Call& call, const Unit& unit, AllSums& to) {
  const Strides strides = strides_of(call);
  const Sequence& s = *unit.keys.sequence;
  const std::int64_t head = unit.side.head;
  const auto query = [&](std::int64_t i, std::int64_t feature) {
    return static_cast<double>(unit.d_content.data()[i * strides.content + feature]);
  };
  const auto key = [&](std::int64_t j, std::int64_t feature) {
    return static_cast<double>(unit.d_keys.data()[j * strides.content + feature]);
  };
  const auto is_first = [&](std::int64_t i) {
    return call.query_position(s, i) == 0 && call.terms.first_row.given();
  };
  for (std::int64_t i = 0; i < s.queries && to.extra_query.wanted(); ++i) {
    if (is_first(i)) continue;
    to.extra_query.add_row(call.kernels, head, call.query_row(s, i),
                           unit.d_content.data() + i * strides.content + call.head_dim, call.scale);
  }
  for (std::int64_t j = 0; j < s.keys && to.extra_key.wanted(); ++j) {
    if (call.key_position(s, j) == 0 && call.terms.first_column.given()) continue;
    to.extra_key.add_row(call.kernels, head, call.key_row(s, j),
                         unit.d_keys.data() + j * strides.content + call.head_dim,
                         static_cast<double>(kNatural));
  }
  const std::int64_t feature = call.depth() - 2;
  for (std::int64_t j = 0; j < s.keys && to.first_row.wanted(); ++j)
    to.first_row.add(head, 0, 0, key(j, feature));
  for (std::int64_t i = 0; i < s.queries && to.first_column.wanted(); ++i)
    if (!is_first(i)) to.first_column.add(head, 0, 0, query(i, feature + 1));
}

void add_segments(Backward& backward, const Unit& unit) {
  const Call& call = backward.call;
  const Sequence& s = *unit.keys.sequence;
  const std::int64_t head = unit.side.head;
  float* const q = unit.block.data();
  double* const rows = cleared(backward.memory.row_sums, 2 * call.head_dim);
  double sums[2] = {0.0, 0.0};
  for (std::int64_t first = 0; first < s.queries; first += kernels::kBlockRows) {
    const std::int64_t count = std::min(kernels::kBlockRows, s.queries - first);
    call.kernels.read_rows(rows_of(call.q, s.batch, head, s.first_query + first), count,
                           call.head_dim, q, call.head_dim);
    for (int different = 0; different < 2; ++different) {
      const float* const weights = unit.d_segments.data() + first * 2 + different;
      call.kernels.sum_rows(q, call.head_dim, weights, count, call.head_dim,
                            rows + different * call.head_dim);
      for (std::int64_t i = 0; i < count; ++i)
        sums[different] += static_cast<double>(weights[i * 2]);
    }
  }
  AllSums& to = backward.sums;
  for (int different = 0; different < 2; ++different) {
    for (std::int64_t e = 0; e < call.head_dim; ++e) {
      const double bias = call.terms.segment_bias.given()
                              ? static_cast<double>(call.terms.segment_bias.row(head, 0)[e])
                              : 0.0;
      const double row = rows[different * call.head_dim + e];
      if (to.segment_rows.wanted())
        to.segment_rows.add(head, different, e, call.scale * (row + sums[different] * bias));
      if (to.segment_bias.wanted()) {
        const auto value = static_cast<double>(call.terms.segment_rows.row(head, different)[e]);
        to.segment_bias.add(head, 0, e, call.scale * sums[different] * value);
      }
    }
  }
}

}  // namespace

void resize_table_sums(const Call& call) {
  std::int64_t shared = 0, rows = 0;
  const PerTable<encodings::Table> tables = tables_of(call.terms);
  for_each_table(
      [&](const encodings::Table& table) {
        if (table.given() && table.heads == 1) shared += call.group * table.rows * table.dim;
      },
      tables);
  const encodings::ScoreTerms& terms = call.terms;
  for (const auto* relative : {&terms.query_rows, &terms.key_rows, &terms.value_rows}) {
    if (*relative && !is_one_to_one((*relative)->map))
      rows = std::max(rows, (*relative)->table.rows * (*relative)->table.dim);
  }
  if (terms.bias) rows = std::max(rows, terms.bias->table.rows);
  if (terms.content_bias.given() || terms.position_bias.given())
    rows = std::max(rows, call.head_dim);
  if (terms.segment_rows.given()) rows = std::max(rows, 2 * call.head_dim);
  call.memory.backward.shared_sums.resize(static_cast<std::size_t>(shared));
  call.memory.backward.row_sums.resize(static_cast<std::size_t>(rows));
}

void add_tables(Backward& backward, const Unit& unit) {
  const Call& call = backward.call;
  AllSums& to = backward.sums;
  std::vector<double>& row_sums = backward.memory.row_sums;
  const Strides strides = strides_of(call);
  const Sequence& s = *unit.keys.sequence;
  const std::int64_t head = unit.side.head;
  if (call.terms.query_rows) {
    add_to_table(call, *call.terms.query_rows, unit.side.query_rows, unit.d_query_rows,
                 strides.relative, head, static_cast<double>(kNatural), row_sums, to.query_rows);
  }
  if (call.terms.key_rows) {
    add_to_table(call, *call.terms.key_rows, unit.side.key_rows, unit.d_key_rows, strides.relative,
                 head, call.scale, row_sums, to.key_rows);
  }
  if (call.terms.value_rows) {
    add_to_table(call, *call.terms.value_rows, unit.side.value_rows, unit.d_value_rows,
                 strides.value, head, 1.0, row_sums, to.value_rows);
  }
  add_bias(call, unit, row_sums, to.bias);
  add_column_sums(call, unit.d_content, strides.content, s.queries, head, call.scale, row_sums,
                  to.content_bias);
  add_column_sums(call, unit.d_position, strides.relative, s.queries, head, call.scale, row_sums,
                  to.position_bias);
  if (call.extra_dim != 0) add_features(call, unit, to);
  if (call.terms.segment_rows.given()) add_segments(backward, unit);
}

}  // namespace phasor::attention
