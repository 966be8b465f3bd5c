#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "attention/reference/problem.hpp"
#include "phasor/attention/internal/reference.hpp"
#include "phasor/core/error.hpp"

namespace phasor::attention {
namespace {

using encodings::RelativeRows;
using encodings::ScoreTerms;
using encodings::Table;
using reference::Dense;
using reference::FirstToken;
using reference::for_each_meeting;
using reference::Meeting;
using reference::Problem;
using reference::TableRow;

// C[r(m - n)], or none.
std::optional<TableRow> value_row(const Problem& problem, const Meeting& at) {
  const auto& rows = problem.terms.value_rows;
  if (!rows) return std::nullopt;
  return TableRow(rows->table, at.head, rows->map.row_of(at.distance()));
}

ReferenceResult attend(const Problem& problem) {
  const auto [batch, queries, heads] =
      std::tuple(problem.q.batch, problem.q.tokens, problem.q.heads);
  const std::int64_t keys = problem.k.tokens, value_dim = problem.v.dim;
  const auto rows = static_cast<std::size_t>(batch * heads * queries);
  const std::size_t pairs = rows * static_cast<std::size_t>(keys);

  ReferenceResult result;
  // Tokens of different packed sequences have no score.
  result.scores.assign(pairs, reference::kHidden);
  result.capped_scores.assign(pairs, reference::kHidden);
  result.masked_scores.assign(pairs, reference::kHidden);
  result.probabilities.assign(pairs, 0.0);
  result.log_sum_exp.assign(rows, reference::kHidden);
  for_each_meeting(problem, [&](const Meeting& at) {
    const std::size_t index = problem.index(at);
    result.scores[index] = problem.score(at);
    result.capped_scores[index] = problem.capped(result.scores[index]);
    result.masked_scores[index] = problem.masked(at, result.capped_scores[index]);
  });

  for (std::size_t row = 0; row < rows; ++row) {
    const double* scores = result.masked_scores.data() + row * static_cast<std::size_t>(keys);
    double* probabilities = result.probabilities.data() + row * static_cast<std::size_t>(keys);
    double largest = reference::kHidden;
    for (std::int64_t j = 0; j < keys; ++j) largest = std::max(largest, scores[j]);
    double sum = 0.0;
    bool sees_a_key = false;
    for (std::int64_t j = 0; j < keys; ++j) {
      if (scores[j] == reference::kHidden) continue;
      sees_a_key = true;
      probabilities[j] = std::exp(scores[j] - largest);
      sum += probabilities[j];
    }
    if (!sees_a_key) continue;
    result.log_sum_exp[row] = largest + std::log(sum);
    for (std::int64_t j = 0; j < keys; ++j) {
      if (scores[j] != reference::kHidden)
        probabilities[j] /= sum;  // a hidden key's stays 0, even of a NaN
    }
  }

  Dense out(batch, queries, heads, value_dim);
  for_each_meeting(problem, [&](const Meeting& at) {
    const std::size_t index = problem.index(at);
    if (result.masked_scores[index] == reference::kHidden) return;
    const std::int64_t b = at.sequence.batch;
    const double* v_n = problem.v.row(b, at.key(), problem.key_head(at.head));
    const std::optional<TableRow> c = value_row(problem, at);
    double* o = out.row(b, at.query(), at.head);
    for (std::int64_t d = 0; d < value_dim; ++d) {
      o[d] += result.probabilities[index] * (v_n[d] + (c ? (*c)[d] : 0.0));
    }
  });
  result.out = std::move(out.values);
  return result;
}

// A table's gradient, dense [heads, rows, dim]; no values where there is no table.
struct TableSum {
  std::int64_t heads = 0, rows = 0, dim = 0;
  std::vector<double> values;

  explicit TableSum(const Table& table) {
    if (!table.given()) return;
    heads = table.heads, rows = table.rows, dim = table.dim;
    values.assign(static_cast<std::size_t>(heads * rows * dim), 0.0);
  }
  explicit TableSum(const std::optional<RelativeRows>& rows)
      : TableSum(rows ? rows->table : Table{}) {}

  [[nodiscard]] double* row(std::int64_t head, std::int64_t row) noexcept {
    return values.data() + ((heads == 1 ? 0 : head) * rows + row) * dim;
  }
};

template <class Row>
void add(double* sum, double factor, const Row& x, std::int64_t dim) {
  for (std::int64_t d = 0; d < dim; ++d) sum[d] += factor * x[d];
}

// The sums that make up the gradients, one meeting of a query and a key after the other.
struct ReferenceBackward {
  const Problem& problem;
  const ScoreTerms& terms;
  Dense d_q, d_k, d_v;
  Dense d_rotated_q, d_rotated_k;
  TableSum content_bias{terms.content_bias}, position_bias{terms.position_bias};
  TableSum query_rows{terms.query_rows}, key_rows{terms.key_rows}, bias{terms.bias};
  TableSum extra_query{terms.extra_query}, extra_key{terms.extra_key};
  TableSum first_row{terms.first_row}, first_column{terms.first_column};
  TableSum segment_rows{terms.segment_rows}, segment_bias{terms.segment_bias};
  TableSum value_rows{terms.value_rows};

  explicit ReferenceBackward(const Problem& problem)
      : problem(problem),
        terms(problem.terms),
        d_q(problem.q.batch, problem.q.tokens, problem.q.heads, problem.q.dim),
        d_k(problem.k.batch, problem.k.tokens, problem.k.heads, problem.k.dim),
        d_v(problem.v.batch, problem.v.tokens, problem.v.heads, problem.v.dim),
        d_rotated_q(d_q),
        d_rotated_k(d_k) {}

  // Of o_m = sum_n P (v_n + C), times d_out.
  void value(const Meeting& at, double probability, const double* d_out) {
    const std::int64_t dim = problem.v.dim;
    add(d_v.row(at.sequence.batch, at.key(), problem.key_head(at.head)), probability, d_out, dim);
    if (terms.value_rows) {
      add(value_rows.row(at.head, terms.value_rows->map.row_of(at.distance())), probability, d_out,
          dim);
    }
  }

  // The derivative of each term of s(m, n), times ds; in the order of Problem::score.
  void score(const Meeting& at, double ds) {
    const std::int64_t b = at.sequence.batch, head = at.head, d = problem.q.dim;
    const std::int64_t key_head = problem.key_head(head), distance = at.distance();
    const double* q_m = problem.q.row(b, at.query(), head);
    const double* k_n = problem.k.row(b, at.key(), key_head);
    const double* rotated_q_m = problem.rotated_q.row(b, at.query(), head);
    const double* rotated_k_n = problem.rotated_k.row(b, at.key(), key_head);
    double* d_q_m = d_q.row(b, at.query(), head);
    double* d_rotated_k_n = d_rotated_k.row(b, at.key(), key_head);
    const double g = problem.scale * ds;

    add(d_rotated_q.row(b, at.query(), head), g, rotated_k_n, d);
    add(d_rotated_k_n, g, rotated_q_m, d);
    if (terms.content_bias.given()) {
      add(content_bias.row(head, 0), g, rotated_k_n, d);
      add(d_rotated_k_n, g, TableRow(terms.content_bias, head, 0), d);
    }
    if (terms.query_rows) {
      const std::int64_t r = terms.query_rows->map.row_of(distance);
      const TableRow row(terms.query_rows->table, head, r);
      add(d_q_m, g, row, d);
      add(query_rows.row(head, r), g, q_m, d);
      if (terms.position_bias.given()) {
        add(position_bias.row(head, 0), g, row, d);
        add(query_rows.row(head, r), g, TableRow(terms.position_bias, head, 0), d);
      }
    }
    if (terms.key_rows) {
      const std::int64_t r = terms.key_rows->map.row_of(distance);
      add(d_k.row(b, at.key(), key_head), g, TableRow(terms.key_rows->table, head, r), d);
      add(key_rows.row(head, r), g, k_n, d);
    }
    if (terms.segment_rows.given()) {
      const std::int64_t r = problem.segment_row(at);
      const TableRow row(terms.segment_rows, head, r);
      add(d_q_m, g, row, d);
      add(segment_rows.row(head, r), g, q_m, d);
      if (terms.segment_bias.given()) {
        add(segment_bias.row(head, 0), g, row, d);
        add(segment_rows.row(head, r), g, TableRow(terms.segment_bias, head, 0), d);
      }
    }
    switch (problem.first_token(at)) {
      case FirstToken::query:
        *first_row.row(head, 0) += ds;
        break;
      case FirstToken::key:
        *first_column.row(head, 0) += ds;
        break;
      case FirstToken::neither:
        if (terms.extra_query.given()) {
          const std::int64_t dim = terms.extra_query.dim;
          add(extra_query.row(head, at.i), g, TableRow(terms.extra_key, head, at.j), dim);
          add(extra_key.row(head, at.j), g, TableRow(terms.extra_query, head, at.i), dim);
        }
        if (terms.bias) *bias.row(head, terms.bias->map.row_of(distance)) += ds;
        break;
    }
  }

  ReferenceGradients finish() {
    if (terms.rotation) {  // d(T x) = T^T d
      problem.rotate(d_rotated_q, core::Role::query, core::Direction::transpose);
      problem.rotate(d_rotated_k, core::Role::key, core::Direction::transpose);
    }
    for (std::size_t i = 0; i < d_q.values.size(); ++i) d_q.values[i] += d_rotated_q.values[i];
    for (std::size_t i = 0; i < d_k.values.size(); ++i) d_k.values[i] += d_rotated_k.values[i];
    return {d_q.values,           d_k.values,          d_v.values,       content_bias.values,
            position_bias.values, query_rows.values,   key_rows.values,  bias.values,
            extra_query.values,   extra_key.values,    first_row.values, first_column.values,
            segment_rows.values,  segment_bias.values, value_rows.values};
  }
};

}  // namespace

ReferenceResult attend_reference(const ScoreTerms& terms, core::ConstHeadsView q,
                                 core::ConstHeadsView k, core::ConstHeadsView v,
                                 const AttentionOptions& options) {
  return attend(Problem("attend_reference", terms, q, k, v, options));
}

ReferenceGradients attend_backward_reference(const ScoreTerms& terms, core::ConstHeadsView q,
                                             core::ConstHeadsView k, core::ConstHeadsView v,
                                             core::ConstHeadsView d_out,
                                             const AttentionOptions& options) {
  const char* where = "attend_backward_reference";
  if (terms.rotation && options.keys == KeyState::rotated) {
    throw Error(ErrorCode::unsupported,
                message(where, ": keys must be raw where the terms turn them, got turned keys"));
  }
  const Problem problem(where, terms, q, k, v, options);
  if (d_out.batch != q.batch || d_out.tokens != q.tokens || d_out.heads != q.heads ||
      d_out.head_dim != v.head_dim) {
    throw Error(ErrorCode::shape_mismatch,
                message(where, ": d_out must be [", q.batch, ", ", q.tokens, ", ", q.heads, ", ",
                        v.head_dim, "], got [", d_out.batch, ", ", d_out.tokens, ", ", d_out.heads,
                        ", ", d_out.head_dim, "]"));
  }
  const ReferenceResult forward = attend(problem);
  const Dense d_o = reference::dense_of(d_out);
  const std::int64_t value_dim = problem.v.dim;

  // dP(m, n) = d_out_m . (v_n + C), and D_m = sum_n P(m, n) dP(m, n).
  std::vector<double> d_probabilities(forward.probabilities.size(), 0.0);
  std::vector<double> means(forward.log_sum_exp.size(), 0.0);
  const auto row_of = [&](const Meeting& at) {
    return problem.index(at) / static_cast<std::size_t>(problem.k.tokens);
  };
  for_each_meeting(problem, [&](const Meeting& at) {
    const std::size_t index = problem.index(at);
    if (forward.masked_scores[index] == reference::kHidden) return;
    const std::int64_t b = at.sequence.batch;
    const double* v_n = problem.v.row(b, at.key(), problem.key_head(at.head));
    const double* d_o_m = d_o.row(b, at.query(), at.head);
    const std::optional<TableRow> c = value_row(problem, at);
    for (std::int64_t d = 0; d < value_dim; ++d) {
      d_probabilities[index] += d_o_m[d] * (v_n[d] + (c ? (*c)[d] : 0.0));
    }
    means[row_of(at)] += forward.probabilities[index] * d_probabilities[index];
  });

  ReferenceBackward backward(problem);
  for_each_meeting(problem, [&](const Meeting& at) {
    const std::size_t index = problem.index(at);
    if (forward.masked_scores[index] == reference::kHidden) return;
    const double probability = forward.probabilities[index];
    backward.value(at, probability, d_o.row(at.sequence.batch, at.query(), at.head));
    const double d_capped = probability * (d_probabilities[index] - means[row_of(at)]);
    // d (c tanh(s/c)) / ds = 1 - tanh(s/c)^2
    const double cap = options.soft_cap;
    const double tanh = cap > 0.0 ? forward.capped_scores[index] / cap : 0.0;
    backward.score(at, d_capped * (1.0 - tanh * tanh));
  });
  return backward.finish();
}

}  // namespace phasor::attention
