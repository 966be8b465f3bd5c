#include "attention/reference/attend_reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "attention/reference/dual.hpp"

namespace phasor::attention::tests {
namespace {

using core::ConstHeadsView;
using encodings::RelativeRows;
using encodings::ScoreTerms;
using encodings::Table;
using Side = RelativeRotation::Side;

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

template <class T>
struct Rows {
  Table table;
  std::vector<T> values;  // [heads, rows, dim], dense; empty: no table

  Rows(const Table& from, const Direction& direction) : table(from) {
    if (!table.given()) return;
    for (std::int64_t h = 0; h < table.heads; ++h) {
      for (std::int64_t r = 0; r < table.rows; ++r) {
        for (std::int64_t d = 0; d < table.dim; ++d) {
          const std::int64_t at = table.offset(h, r) + d;
          values.push_back(table.wide != nullptr ? table.wide[at] : double{table.data[at]});
        }
      }
    }
    if constexpr (!std::is_same_v<T, double>) {
      if (direction.of != table.data) return;
      for (std::size_t i = 0; i < values.size(); ++i) values[i].d = direction.values[i];
    }
  }
  Rows(const std::optional<RelativeRows>& rows, const Direction& direction)
      : Rows(rows ? rows->table : Table{}, direction) {}

  [[nodiscard]] bool given() const { return !values.empty(); }
  [[nodiscard]] const T* row(std::int64_t head, std::int64_t row) const {
    return values.data() + ((table.heads == 1 ? 0 : head) * table.rows + row) * table.dim;
  }
};

// Keys [first_key, first_key + keys) are what queries [first_query, ...) may see; query i is at
// offset + i.
struct Block {
  std::int64_t batch, first_query, queries, first_key, keys, offset;
};
std::vector<Block> blocks_of(const ConstHeadsView& q, const ConstHeadsView& k,
                             const AttentionOptions& options) {
  std::vector<Block> blocks;
  const auto queries = options.query_boundaries, keys = options.key_boundaries;
  for (std::size_t s = 0; s + 1 < queries.size(); ++s) {
    const std::int64_t query_count = queries[s + 1] - queries[s], key_count = keys[s + 1] - keys[s];
    blocks.push_back({0, queries[s], query_count, keys[s], key_count, key_count - query_count});
  }
  for (std::int64_t b = 0; b < q.batch && queries.empty(); ++b) {
    const auto index = static_cast<std::size_t>(b);
    const std::int64_t length = options.key_lengths.empty() ? k.tokens : options.key_lengths[index];
    blocks.push_back({b, 0, q.tokens, 0, length, options.query_offset.value_or(length - q.tokens)});
  }
  return blocks;
}

template <class T>
class FullMatrix {
 public:
  FullMatrix(const ScoreTerms& terms, const ConstHeadsView& q, const ConstHeadsView& k,
             const ConstHeadsView& v, const AttentionOptions& options, const Direction& direction)
      : terms_(terms),
        options_(options),
        q_(q, direction),
        k_(k, direction),
        v_(v, direction),
        content_bias_(terms.content_bias, direction),
        position_bias_(terms.position_bias, direction),
        query_rows_(terms.query_rows, direction),
        key_rows_(terms.key_rows, direction),
        bias_(terms.bias, direction),
        extra_query_(terms.extra_query, direction),
        extra_key_(terms.extra_key, direction),
        first_row_(terms.first_row, direction),
        first_column_(terms.first_column, direction),
        segment_rows_(terms.segment_rows, direction),
        segment_bias_(terms.segment_bias, direction),
        value_rows_(terms.value_rows, direction),
        scale_(options.scale.value_or(terms.scale)),
        group_(q.heads / k.heads),
        blocks_(blocks_of(q, k, options)) {
    const auto pairs = static_cast<std::size_t>(q_.batch * q_.heads * q_.tokens * k_.tokens);
    result.scores.assign(pairs, 0.0);
    result.capped_scores.assign(pairs, 0.0);
    result.masked_scores.assign(pairs, kMinusInfinity);
    result.probabilities.assign(pairs, 0.0);
    result.log_sum_exp.assign(static_cast<std::size_t>(q_.batch * q_.heads * q_.tokens),
                              kMinusInfinity);
    out.assign(static_cast<std::size_t>(q_.batch * q_.tokens * q_.heads * v_.dim), T(0.0));
    make_places();
    if (terms.rotation) make_ids();
    for (const Block& block : blocks_) {
      for (std::int64_t head = 0; head < q_.heads; ++head) {
        for (std::int64_t i = 0; i < block.queries; ++i) attend(block, head, i);
      }
    }
    for (const T& x : out) result.out.push_back(value_of(x));
  }

  ReferenceResult result;
  std::vector<T> out;

 private:
  // The ids of every token on every axis, the caller's or counted.
  [[nodiscard]] std::vector<std::vector<double>> all_ids(
      int axes, const std::optional<core::Positions>& given, const Tokens<T>& x, core::Role role) {
    if (given) return ids_of(*given, axes, x.batch, x.tokens);
    std::vector<std::vector<double>> ids(static_cast<std::size_t>(x.batch * x.tokens),
                                         std::vector<double>(static_cast<std::size_t>(axes)));
    for (const Block& s : blocks_) {
      const bool is_query = role == core::Role::query;
      const std::int64_t first = s.batch * x.tokens + (is_query ? s.first_query : s.first_key);
      for (std::int64_t t = 0; t < (is_query ? s.queries : s.keys); ++t) {
        std::fill_n(ids[static_cast<std::size_t>(first + t)].begin(), axes,
                    static_cast<double>(is_query ? s.offset + t : t));
      }
    }
    return ids;
  }
  void make_ids() {
    rotation_.emplace(*terms_.rotation);
    const int axes = terms_.rotation->frequencies.axis_count();
    query_ids_ = all_ids(axes, options_.query_positions, q_, core::Role::query);
    key_ids_ = all_ids(axes, options_.key_positions, k_, core::Role::key);
  }
  // What terms other than the rotation read: the first axis.
  void make_places() {
    for (const auto& id : all_ids(1, options_.query_positions, q_, core::Role::query))
      query_places_.push_back(static_cast<std::int64_t>(id[0]));
    for (const auto& id : all_ids(1, options_.key_positions, k_, core::Role::key))
      key_places_.push_back(static_cast<std::int64_t>(id[0]));
  }
  [[nodiscard]] std::int64_t query_place(const Block& s, std::int64_t i) const {
    return query_places_[static_cast<std::size_t>(s.batch * q_.tokens + s.first_query + i)];
  }
  [[nodiscard]] std::int64_t key_place(const Block& s, std::int64_t j) const {
    return key_places_[static_cast<std::size_t>(s.batch * k_.tokens + s.first_key + j)];
  }

  // (T_m q_m + u) . (T_n k_n)
  [[nodiscard]] T content(const Block& s, std::int64_t head, std::int64_t i, std::int64_t j) {
    const T* const q = q_.row(s.batch, s.first_query + i, head);
    const T* const k = k_.row(s.batch, s.first_key + j, head / group_);
    const T* const u = content_bias_.given() ? content_bias_.row(head, 0) : nullptr;
    const T none = 0.0;
    if (!rotation_) return dot(q, k, q_.dim) + (u != nullptr ? dot(u, k, q_.dim) : none);
    const auto& m = query_ids_[static_cast<std::size_t>(s.batch * q_.tokens + s.first_query + i)];
    if (options_.keys == KeyState::rotated) {
      return rotation_->product(q, Side::raw, k, Side::rotated, rotation_->of_query(m)) +
             (u != nullptr ? dot(u, k, q_.dim) : none);
    }
    const auto& n = key_ids_[static_cast<std::size_t>(s.batch * k_.tokens + s.first_key + j)];
    const T rotated = rotation_->product(q, Side::raw, k, Side::raw, rotation_->between(m, n));
    if (u == nullptr) return rotated;
    return rotated + rotation_->product(u, Side::rotated, k, Side::raw, rotation_->of_key(n));
  }

  // s(m, n) of encodings/score_terms.hpp.
  [[nodiscard]] T score(const Block& s, std::int64_t head, std::int64_t i, std::int64_t j) {
    const std::int64_t m = query_place(s, i), n = key_place(s, j), distance = m - n, dim = q_.dim;
    const T* const q = q_.row(s.batch, s.first_query + i, head);
    const T* const k = k_.row(s.batch, s.first_key + j, head / group_);
    T scaled = content(s, head, i, j), added = 0.0;
    if (query_rows_.given()) {
      const T* const a = query_rows_.row(head, terms_.query_rows->map.row_of(distance));
      scaled += dot(q, a, dim);
      if (position_bias_.given()) scaled += dot(position_bias_.row(head, 0), a, dim);
    }
    if (key_rows_.given()) {
      scaled += dot(k, key_rows_.row(head, terms_.key_rows->map.row_of(distance)), dim);
    }
    if (segment_rows_.given()) {
      const auto query = static_cast<std::size_t>(s.batch * q_.tokens + s.first_query + i);
      const auto key = static_cast<std::size_t>(s.batch * k_.tokens + s.first_key + j);
      const bool same = options_.query_segments[query] == options_.key_segments[key];
      const T* const e = segment_rows_.row(head, same ? 0 : 1);
      scaled += dot(q, e, dim);
      if (segment_bias_.given()) scaled += dot(segment_bias_.row(head, 0), e, dim);
    }
    if (first_row_.given() && m == 0) {
      added = *first_row_.row(head, 0);
    } else if (first_column_.given() && n == 0) {
      added = *first_column_.row(head, 0);
    } else {
      if (extra_query_.given()) {
        scaled += dot(extra_query_.row(head, options_.query_positions ? m : i),
                      extra_key_.row(head, options_.key_positions ? n : j), extra_key_.table.dim);
      }
      if (bias_.given()) added = *bias_.row(head, terms_.bias->map.row_of(distance));
    }
    if (!terms_.slopes.empty()) {
      const double slope = terms_.slopes[static_cast<std::size_t>(head)];
      added += T(-slope * static_cast<double>(std::abs(distance)));
    }
    return T(scale_) * scaled + added;
  }

  [[nodiscard]] bool is_padding(const Block& s, std::int64_t j) const {
    return !options_.key_padding.empty() &&
           options_.key_padding[static_cast<std::size_t>(s.batch * k_.tokens + s.first_key + j)] ==
               0;
  }
  // What masks add: -infinity hides the key.
  [[nodiscard]] double mask_of(const Block& s, std::int64_t head, std::int64_t i,
                               std::int64_t j) const {
    const std::int64_t distance = s.offset + i - j;
    if (options_.causality == Causality::bottom_right && distance < 0) return kMinusInfinity;
    if (options_.window && std::abs(distance) >= *options_.window) return kMinusInfinity;
    const Mask& mask = options_.mask;
    if (mask.kind == Mask::Kind::none) return 0.0;
    const std::int64_t key = s.first_key + j;
    if (key >= mask.keys) return kMinusInfinity;
    const std::int64_t at = s.batch * mask.batch_stride + head * mask.head_stride +
                            (s.first_query + i) * mask.query_stride + key * mask.key_stride;
    switch (mask.kind) {
      case Mask::Kind::boolean:
        return static_cast<const std::uint8_t*>(mask.data)[at] == 0 ? kMinusInfinity : 0.0;
      case Mask::Kind::additive:
        return double{static_cast<const float*>(mask.data)[at]};
      default:
        return static_cast<const double*>(mask.data)[at];
    }
  }

  // A row of the matrix: softmax, then the values.
  void attend(const Block& s, std::int64_t head, std::int64_t i) {
    using std::exp;
    using std::tanh;
    const std::int64_t row = (s.batch * q_.heads + head) * q_.tokens + s.first_query + i;
    struct Seen {
      std::int64_t j;
      T score;
    };
    std::vector<Seen> seen;
    double largest = kMinusInfinity;
    for (std::int64_t j = 0; j < s.keys; ++j) {
      if (is_padding(s, j)) continue;
      const auto at = static_cast<std::size_t>(row * k_.tokens + s.first_key + j);
      T x = score(s, head, i, j);
      result.scores[at] = value_of(x);
      if (options_.soft_cap > 0.0) x = T(options_.soft_cap) * tanh(x / T(options_.soft_cap));
      result.capped_scores[at] = value_of(x);
      const double mask = mask_of(s, head, i, j);
      if (mask == kMinusInfinity) continue;
      x += T(mask);
      result.masked_scores[at] = value_of(x);
      if (value_of(x) == kMinusInfinity) continue;
      largest = std::max(largest, value_of(x));
      seen.push_back({j, x});
    }
    if (seen.empty()) return;
    T sum = 0.0;
    for (const Seen& pair : seen) sum += exp(pair.score - T(largest));
    result.log_sum_exp[static_cast<std::size_t>(row)] = largest + std::log(value_of(sum));
    T* const o =
        out.data() + ((s.batch * q_.tokens + s.first_query + i) * q_.heads + head) * v_.dim;
    for (const Seen& pair : seen) {
      const T probability = exp(pair.score - T(largest)) / sum;
      result.probabilities[static_cast<std::size_t>(row * k_.tokens + s.first_key + pair.j)] =
          value_of(probability);
      const T* const v = v_.row(s.batch, s.first_key + pair.j, head / group_);
      const std::int64_t distance = query_place(s, i) - key_place(s, pair.j);
      const T* const c = value_rows_.given()
                             ? value_rows_.row(head, terms_.value_rows->map.row_of(distance))
                             : nullptr;
      for (std::int64_t d = 0; d < v_.dim; ++d) {
        o[d] += probability * (c != nullptr ? v[d] + c[d] : v[d]);
      }
    }
  }

  const ScoreTerms& terms_;
  const AttentionOptions& options_;
  Tokens<T> q_, k_, v_;
  Rows<T> content_bias_, position_bias_, query_rows_, key_rows_, bias_, extra_query_, extra_key_,
      first_row_, first_column_, segment_rows_, segment_bias_, value_rows_;
  double scale_;
  std::int64_t group_;
  std::vector<Block> blocks_;
  std::optional<RelativeRotation> rotation_;
  std::vector<std::vector<double>> query_ids_, key_ids_;
  std::vector<std::int64_t> query_places_, key_places_;
};

}  // namespace

ReferenceResult attend_reference(const ScoreTerms& terms, const ConstHeadsView& q,
                                 const ConstHeadsView& k, const ConstHeadsView& v,
                                 const AttentionOptions& options) {
  return FullMatrix<double>(terms, q, k, v, options, {}).result;
}

double attend_reference_slope(const ScoreTerms& terms, const ConstHeadsView& q,
                              const ConstHeadsView& k, const ConstHeadsView& v,
                              const std::vector<double>& d_out, const AttentionOptions& options,
                              const Direction& direction) {
  const std::vector<Dual> out = FullMatrix<Dual>(terms, q, k, v, options, direction).out;
  double slope = 0.0;
  for (std::size_t i = 0; i < out.size(); ++i) slope += slope_of(out[i]) * d_out[i];
  return slope;
}

ReferenceGradients attend_backward_reference(const ScoreTerms& terms, const ConstHeadsView& q,
                                             const ConstHeadsView& k, const ConstHeadsView& v,
                                             const ConstHeadsView& d_out,
                                             const AttentionOptions& options) {
  const auto wide = [](const Tokens<double>& x) {
    return core::heads_view(x.values.data(), x.batch, x.tokens, x.heads, x.dim);
  };
  const Tokens<double> wide_q(q, {}), wide_k(k, {}), wide_v(v, {}), wide_d_out(d_out, {});
  std::vector<double> out(wide_d_out.values.size());
  std::vector<double> log_sum_exp(static_cast<std::size_t>(q.batch * q.heads * q.tokens));
  const auto out_view = core::heads_view(out.data(), q.batch, q.tokens, q.heads, v.head_dim);
  attend(terms, wide(wide_q), wide(wide_k), wide(wide_v), out_view, options,
         {.wide_log_sum_exp = log_sum_exp.data()});

  ReferenceGradients to;
  const auto like = [](const Tokens<double>& x, std::vector<double>& values) {
    values.resize(x.values.size());
    return core::heads_view(values.data(), x.batch, x.tokens, x.heads, x.dim);
  };
  const auto table = [](const Table& t, std::vector<double>& values) {
    if (!t.given()) return encodings::TableGradient{};
    values.resize(static_cast<std::size_t>(t.heads * t.rows * t.dim));
    return encodings::TableGradient{nullptr,        t.heads, t.rows,       t.dim,
                                    t.rows * t.dim, t.dim,   values.data()};
  };
  const auto rows = [&](const std::optional<RelativeRows>& r, std::vector<double>& values) {
    return table(r ? r->table : Table{}, values);
  };
  attend_backward(
      terms, wide(wide_q), wide(wide_k), wide(wide_v),
      {.out = out_view, .d_out = wide(wide_d_out), .wide_log_sum_exp = log_sum_exp.data()},
      {like(wide_q, to.d_q),
       like(wide_k, to.d_k),
       like(wide_v, to.d_v),
       {.content_bias = table(terms.content_bias, to.content_bias),
        .position_bias = table(terms.position_bias, to.position_bias),
        .query_rows = rows(terms.query_rows, to.query_rows),
        .key_rows = rows(terms.key_rows, to.key_rows),
        .bias = rows(terms.bias, to.bias),
        .extra_query = table(terms.extra_query, to.extra_query),
        .extra_key = table(terms.extra_key, to.extra_key),
        .first_row = table(terms.first_row, to.first_row),
        .first_column = table(terms.first_column, to.first_column),
        .segment_rows = table(terms.segment_rows, to.segment_rows),
        .segment_bias = table(terms.segment_bias, to.segment_bias),
        .value_rows = rows(terms.value_rows, to.value_rows)}},
      options);
  return to;
}

}  // namespace phasor::attention::tests
