#include "attention/reference/problem.hpp"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "phasor/core/error.hpp"
#include "phasor/core/internal/reference.hpp"

namespace phasor::attention::reference {
namespace {

using core::ConstHeadsView;
using encodings::RelativeMap;
using encodings::RelativeRows;

template <class X, class Y>
double dot(const X& x, const Y& y, std::int64_t dim) {
  double sum = 0.0;
  for (std::int64_t d = 0; d < dim; ++d) sum += x[d] * y[d];
  return sum;
}

void expect(bool holds, const char* where, const std::string& what) {
  if (!holds) throw Error(ErrorCode::shape_mismatch, message(where, ": ", what));
}

void check_shapes(const char* where, const Dense& q, const Dense& k, const Dense& v,
                  const AttentionOptions& options) {
  expect(q.batch == k.batch && k.batch == v.batch, where,
         message("q, k and v must have one batch, got ", q.batch, ", ", k.batch, " and ", v.batch));
  expect(k.tokens == v.tokens, where,
         message("k and v must have as many tokens, got ", k.tokens, " and ", v.tokens));
  expect(q.dim == k.dim, where,
         message("q and k must have one head_dim, got ", q.dim, " and ", k.dim));
  expect(k.heads > 0 && k.heads == v.heads && q.heads % k.heads == 0, where,
         message("query heads must be a multiple of the heads that k and v share, got ", q.heads,
                 ", ", k.heads, " and ", v.heads));
  const auto fits = [&](const char* name, std::size_t size, std::int64_t wanted) {
    expect(size == 0 || static_cast<std::int64_t>(size) == wanted, where,
           message(name, " must have ", wanted, " entries, got ", size));
  };
  fits("key_lengths", options.key_lengths.size(), q.batch);
  fits("key_padding", options.key_padding.size(), k.batch * k.tokens);
  fits("query_segments", options.query_segments.size(), q.batch * q.tokens);
  fits("key_segments", options.key_segments.size(), k.batch * k.tokens);
  expect(options.query_boundaries.size() == options.key_boundaries.size(), where,
         message("query and key boundaries must be as many, got ", options.query_boundaries.size(),
                 " and ", options.key_boundaries.size()));
  if (!options.query_boundaries.empty()) {
    expect(q.batch == 1 && options.query_boundaries.back() == q.tokens &&
               options.key_boundaries.back() == k.tokens,
           where,
           message("boundaries must end at the tokens of one batch row, got ",
                   options.query_boundaries.back(), " and ", options.key_boundaries.back(), " for ",
                   q.batch, " rows of ", q.tokens, " queries and ", k.tokens, " keys"));
  }
}

std::vector<Sequence> sequences_of(const Dense& q, const Dense& k,
                                   const AttentionOptions& options) {
  std::vector<Sequence> sequences;
  const auto queries = options.query_boundaries, keys = options.key_boundaries;
  for (std::size_t s = 0; s + 1 < queries.size(); ++s) {
    const std::int64_t length = keys[s + 1] - keys[s];
    sequences.push_back({0, queries[s], queries[s + 1] - queries[s], keys[s], length, length});
  }
  if (!queries.empty()) return sequences;
  for (std::int64_t b = 0; b < q.batch; ++b) {
    const bool all = options.key_lengths.empty();
    const std::int64_t counted = all ? k.tokens : options.key_lengths[static_cast<std::size_t>(b)];
    sequences.push_back({b, 0, q.tokens, 0, k.tokens, counted});
  }
  return sequences;
}

}  // namespace

Dense dense_of(const ConstHeadsView& view) {
  Dense dense(view.batch, view.tokens, view.heads, view.head_dim);
  for (std::int64_t b = 0; b < view.batch; ++b) {
    for (std::int64_t t = 0; t < view.tokens; ++t) {
      for (std::int64_t h = 0; h < view.heads; ++h) {
        const std::int64_t at =
            b * view.batch_stride + t * view.token_stride + h * view.head_stride;
        for (std::int64_t d = 0; d < view.head_dim; ++d) {
          dense.row(b, t, h)[d] = core::element_of(view, at + d);
        }
      }
    }
  }
  return dense;
}

Problem::Problem(const char* where, const encodings::ScoreTerms& terms, ConstHeadsView q_view,
                 ConstHeadsView k_view, ConstHeadsView v_view, const AttentionOptions& options)
    : terms(terms),
      options(options),
      q(dense_of(q_view)),
      k(dense_of(k_view)),
      v(dense_of(v_view)),
      rotated_q(q),
      rotated_k(k),
      scale(options.scale.value_or(terms.scale)) {
  check_shapes(where, q, k, v, options);
  sequences = sequences_of(q, k, options);
  check_distances(where);
  if (!terms.rotation) return;
  rotate(rotated_q, core::Role::query, core::Direction::forward);
  if (options.keys == KeyState::raw) {
    rotate(rotated_k, core::Role::key, core::Direction::forward);
  }
}

void Problem::check_distances(const char* where) const {
  const auto check = [&](const char* name, const std::optional<RelativeRows>& rows) {
    if (!rows || rows->map.outside == RelativeMap::Outside::clamp) return;
    for_each_meeting(*this, [&](const Meeting& at) {
      const std::int64_t distance = at.distance();
      if (within_reach(at) && (distance < rows->map.first || distance > rows->map.last())) {
        throw Error(ErrorCode::out_of_range,
                    message(where, ": ", name, " must have a row for the distance ", distance,
                            ", got rows for ", rows->map.first, " .. ", rows->map.last()));
      }
    });
  };
  check("query_rows", terms.query_rows);
  check("key_rows", terms.key_rows);
  check("bias", terms.bias);
  check("value_rows", terms.value_rows);
}

void Problem::rotate(Dense& x, core::Role role, core::Direction direction) const {
  const bool is_query = role == core::Role::query;
  const int axes = terms.rotation->frequencies.axis_count();
  std::vector<std::int64_t> ids(static_cast<std::size_t>(axes * x.batch * x.tokens));
  for (int axis = 0; axis < axes; ++axis) {
    for (const Sequence& sequence : sequences) {
      const std::int64_t first = is_query ? sequence.first_query : sequence.first_key;
      const std::int64_t count = is_query ? sequence.queries : sequence.keys;
      for (std::int64_t t = 0; t < count; ++t) {
        ids[static_cast<std::size_t>((axis * x.batch + sequence.batch) * x.tokens + first + t)] =
            is_query ? sequence.query_position(t) : t;
      }
    }
  }
  const auto& given = is_query ? options.query_positions : options.key_positions;
  const core::Positions positions =
      given ? *given : core::positions_per_row(ids.data(), axes, x.batch, x.tokens);
  const core::HeadsView view = core::heads_view(x.values.data(), x.batch, x.tokens, x.heads, x.dim);
  if (x.values.empty()) return;
  if (options.angles == core::AngleMode::exact) {
    core::reference::rotate(*terms.rotation, positions, view, view, direction, role);
  } else {
    const core::Rotation in_place{view, view, role};
    core::rotate(*terms.rotation, positions, {&in_place, 1},
                 {.direction = direction, .angles = options.angles});
  }
}

FirstToken Problem::first_token(const Meeting& at) const noexcept {
  if (terms.first_row.given() && at.sequence.query_position(at.i) == 0) return FirstToken::query;
  if (terms.first_column.given() && at.j == 0) return FirstToken::key;
  return FirstToken::neither;
}

std::int64_t Problem::segment_row(const Meeting& at) const noexcept {
  const std::int64_t b = at.sequence.batch;
  const auto query = static_cast<std::size_t>(b * q.tokens + at.query());
  const auto key = static_cast<std::size_t>(b * k.tokens + at.key());
  return options.query_segments[query] == options.key_segments[key] ? 0 : 1;
}

double Problem::score(const Meeting& at) const noexcept {
  const auto [sequence, head, i, j] = at;
  const std::int64_t d = q.dim;
  const double* q_m = q.row(sequence.batch, at.query(), head);
  const double* k_n = k.row(sequence.batch, at.key(), key_head(head));
  const double* rotated_q_m = rotated_q.row(sequence.batch, at.query(), head);
  const double* rotated_k_n = rotated_k.row(sequence.batch, at.key(), key_head(head));
  const std::int64_t distance = at.distance();

  // (T_m q_m + u) . (T_n k_n)
  double scaled = dot(rotated_q_m, rotated_k_n, d);
  if (terms.content_bias.given())
    scaled += dot(rotated_k_n, TableRow(terms.content_bias, head, 0), d);
  // (q_m + v) . A[r(m - n)]
  if (terms.query_rows) {
    const TableRow row(terms.query_rows->table, head, terms.query_rows->map.row_of(distance));
    scaled += dot(q_m, row, d);
    if (terms.position_bias.given()) scaled += dot(row, TableRow(terms.position_bias, head, 0), d);
  }
  // k_n . B[r(m - n)]
  if (terms.key_rows) {
    scaled +=
        dot(k_n, TableRow(terms.key_rows->table, head, terms.key_rows->map.row_of(distance)), d);
  }
  // (q_m + w) . E[segments differ]
  if (terms.segment_rows.given()) {
    const TableRow row(terms.segment_rows, head, segment_row(at));
    scaled += dot(q_m, row, d);
    if (terms.segment_bias.given()) scaled += dot(row, TableRow(terms.segment_bias, head, 0), d);
  }

  // a_m . c_n and b[r(m - n)]: the position part, which TUPE's first tokens replace.
  double added = 0.0;
  switch (first_token(at)) {
    case FirstToken::query:
      added = TableRow(terms.first_row, head, 0)[0];
      break;
    case FirstToken::key:
      added = TableRow(terms.first_column, head, 0)[0];
      break;
    case FirstToken::neither:
      if (terms.extra_query.given()) {
        scaled += dot(TableRow(terms.extra_query, head, i), TableRow(terms.extra_key, head, j),
                      terms.extra_query.dim);
      }
      if (terms.bias)
        added = TableRow(terms.bias->table, head, terms.bias->map.row_of(distance))[0];
      break;
  }
  if (!terms.slopes.empty()) {
    added -=
        terms.slopes[static_cast<std::size_t>(head)] * std::fabs(static_cast<double>(distance));
  }
  return scale * scaled + added;
}

double Problem::capped(double score) const noexcept {
  const double cap = options.soft_cap;
  return cap > 0.0 ? cap * std::tanh(score / cap) : score;
}

bool Problem::within_reach(const Meeting& at) const noexcept {
  if (at.j >= at.sequence.counted_keys) return false;
  if (options.causality == Causality::bottom_right && at.distance() < 0) return false;
  return !options.window || std::abs(at.distance()) < *options.window;
}

double Problem::masked(const Meeting& at, double capped_score) const noexcept {
  if (!within_reach(at)) return kHidden;
  const std::int64_t b = at.sequence.batch;
  if (!options.key_padding.empty() &&
      options.key_padding[static_cast<std::size_t>(b * k.tokens + at.key())] == 0) {
    return kHidden;
  }
  const Mask& mask = options.mask;
  if (mask.kind == Mask::Kind::none) return capped_score;
  if (at.key() >= mask.keys) return kHidden;
  const std::int64_t index = b * mask.batch_stride + at.head * mask.head_stride +
                             at.query() * mask.query_stride + at.key() * mask.key_stride;
  if (mask.kind == Mask::Kind::boolean) {
    return static_cast<const std::uint8_t*>(mask.data)[index] == 0 ? kHidden : capped_score;
  }
  const double value = mask.kind == Mask::Kind::additive
                           ? static_cast<const float*>(mask.data)[index]
                           : static_cast<const double*>(mask.data)[index];
  return value == kHidden ? kHidden : capped_score + value;  // hides a NaN too
}

}  // namespace phasor::attention::reference
