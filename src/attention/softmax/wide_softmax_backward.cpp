#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/softmax/wide_scores.hpp"
#include "attention/wide.hpp"
#include "phasor/core/threads.hpp"

namespace phasor::attention {
namespace {

using encodings::TableGradient;

// The gradient of a table from the query heads of one key head: dense [group or 1, rows, dim].
class WideTableSum {
 public:
  WideTableSum(const TableGradient& to, std::int64_t group)
      : to_(to),
        values_(is_wanted()
                    ? static_cast<std::size_t>((to.heads == 1 ? 1 : group) * to.rows * to.dim)
                    : 0) {}

  [[nodiscard]] bool is_wanted() const noexcept { return to_.given() || to_.wide != nullptr; }
  // `step` counts the query heads of the key head.
  [[nodiscard]] double* row(std::int64_t step, std::int64_t row) noexcept {
    return values_.data() + ((to_.heads == 1 ? 0 : step) * to_.rows + row) * to_.dim;
  }
  // Adds factor * x to a row, if the gradient is wanted.
  void add(std::int64_t step, std::int64_t at, double factor, const double* x) noexcept {
    if (is_wanted()) wide_add(row(step, at), factor, x, to_.dim);
  }
  void add(std::int64_t step, std::int64_t at, double value) noexcept {
    if (is_wanted()) *row(step, at) += value;
  }

  // Adds the sums to the caller's gradient and sets them to zero.
  void flush(std::int64_t first_head, std::int64_t group) noexcept {
    if (!is_wanted()) return;
    for (std::int64_t step = 0; step < (to_.heads == 1 ? 1 : group); ++step) {
      for (std::int64_t r = 0; r < to_.rows; ++r) {
        const double* const from = row(step, r);
        const std::int64_t at = to_.offset(first_head + step, r);
        for (std::int64_t d = 0; d < to_.dim; ++d) {
          if (to_.wide != nullptr) {
            to_.wide[at + d] += from[d];
          } else {
            to_.data[at + d] += static_cast<float>(from[d]);
          }
        }
      }
    }
    std::fill(values_.begin(), values_.end(), 0.0);
  }

 private:
  TableGradient to_;
  std::vector<double> values_;
};

struct TableSums {
  TableSums(const encodings::ScoreTermGradients& to, std::int64_t group)
      : content_bias(to.content_bias, group),
        position_bias(to.position_bias, group),
        query_rows(to.query_rows, group),
        key_rows(to.key_rows, group),
        bias(to.bias, group),
        extra_query(to.extra_query, group),
        extra_key(to.extra_key, group),
        first_row(to.first_row, group),
        first_column(to.first_column, group),
        segment_rows(to.segment_rows, group),
        segment_bias(to.segment_bias, group),
        value_rows(to.value_rows, group) {}
  WideTableSum content_bias, position_bias, query_rows, key_rows, bias, extra_query, extra_key,
      first_row, first_column, segment_rows, segment_bias, value_rows;

  void flush(std::int64_t first_head, std::int64_t group) noexcept {
    for (WideTableSum* sum :
         {&content_bias, &position_bias, &query_rows, &key_rows, &bias, &extra_query, &extra_key,
          &first_row, &first_column, &segment_rows, &segment_bias, &value_rows}) {
      sum->flush(first_head, group);
    }
  }
};

// The memory of one thread, for one key head of one sequence. Table gradients are added after each
// wave of units, in the order of the units, so that they do not depend on the threads.
struct WideUnit {
  WideUnit(const WideCall& wide, const AttentionGradients& gradients)
      : scores(wide),
        tables(gradients.terms, wide.call.group),
        by_relative(static_cast<std::size_t>(wide.call.head_dim)),
        by_segment(by_relative) {}
  WideScores scores;
  TableSums tables;
  // d of q_m from query_rows and from segment_rows.
  std::vector<double> by_relative, by_segment;
  const Sequence* sequence = nullptr;
  std::int64_t key_head = 0;
};

class WideBackward {
 public:
  WideBackward(const WideCall& wide, const AttentionForward& forward,
               const AttentionGradients& gradients)
      : wide_(wide), call_(wide.call), forward_(forward), gradients_(gradients) {
    // Gradients of products with tables belong to q and k before the rotation.
    const bool rotations = call_.terms.rotation.has_value();
    if (rotations && (call_.terms.query_rows || call_.terms.segment_rows.given())) {
      raw_q_ = WideHeads(call_.q);
    }
    if (rotations && call_.terms.key_rows) raw_k_ = WideHeads(call_.k);
  }

  void run() {
    const std::int64_t units = static_cast<std::int64_t>(call_.sequences.size()) * call_.key_heads;
    const std::int64_t at_once = std::min<std::int64_t>(units, call_.threads);
    for (std::int64_t i = 0; i < at_once; ++i) units_.emplace_back(wide_, gradients_);
    for (std::int64_t first = 0; first < units; first += at_once) {
      const std::int64_t used = std::min(at_once, units - first);
      for (std::int64_t i = 0; i < used; ++i) {
        WideUnit& unit = units_[static_cast<std::size_t>(i)];
        unit.sequence = &call_.sequences[static_cast<std::size_t>((first + i) / call_.key_heads)];
        unit.key_head = (first + i) % call_.key_heads;
      }
      core::run_parts(
          static_cast<int>(used),
          [](void* context, int part, int) {
            auto& self = *static_cast<WideBackward*>(context);
            self.run_unit(self.units_[static_cast<std::size_t>(part)]);
          },
          this);
      for (std::int64_t i = 0; i < used; ++i) {
        WideUnit& unit = units_[static_cast<std::size_t>(i)];
        unit.tables.flush(unit.key_head * call_.group, call_.group);
      }
    }
    rotate_back();
  }

 private:
  void run_unit(WideUnit& unit) noexcept {
    for (std::int64_t step = 0; step < call_.group; ++step) {
      for (std::int64_t i = 0; i < unit.sequence->queries; ++i) {
        run_query(unit, {unit.sequence, unit.key_head * call_.group + step, i}, step);
      }
    }
  }

  [[nodiscard]] double* d_raw_query(std::int64_t b, std::int64_t t, std::int64_t h) noexcept {
    const core::HeadsView& raw = raw_q_.view();
    return wide_row(raw.data != nullptr ? raw : gradients_.d_q, b, t, h);
  }
  [[nodiscard]] double* d_raw_key(std::int64_t b, std::int64_t t, std::int64_t h) noexcept {
    const core::HeadsView& raw = raw_k_.view();
    return wide_row(raw.data != nullptr ? raw : gradients_.d_k, b, t, h);
  }

  // dP(m, n) = d_out_m . (v_n + C), D_m = d_out_m . out_m, dS = P (dP - D), and through the soft
  // cap d (c tanh(s / c)) / ds = 1 - tanh(s / c)^2.
  void run_query(WideUnit& unit, const WideQuery& query, std::int64_t step) noexcept {
    const Sequence& s = *query.sequence;
    const std::int64_t value_dim = call_.value_dim, head = query.head;
    const double log_sum =
        forward_.wide_log_sum_exp[(s.batch * call_.heads + head) * call_.q.tokens + query.token()];
    if (log_sum == kWideHidden) return;  // it saw no key
    const double* const d_o = wide_row(forward_.d_out, s.batch, query.token(), head);
    const double mean =
        wide_dot(d_o, wide_row(forward_.out, s.batch, query.token(), head), value_dim);
    WideScores& scores = unit.scores;
    scores.begin(query);
    std::fill(unit.by_relative.begin(), unit.by_relative.end(), 0.0);
    std::fill(unit.by_segment.begin(), unit.by_segment.end(), 0.0);
    const double cap = call_.options.soft_cap;
    const KeyRange reach = scores.reach();
    for (std::int64_t j = reach.first; j < reach.last; ++j) {
      if (scores.is_padding(j)) continue;
      const double capped = scores.capped(scores.score(j));
      const double masked = scores.masked(j, capped);
      if (masked == kWideHidden) continue;
      const double probability = std::exp(masked - log_sum);
      const std::int64_t key = s.first_key + j;
      double d_probability =
          wide_dot(d_o, wide_row(call_.v, s.batch, key, unit.key_head), value_dim);
      wide_add(wide_row(gradients_.d_v, s.batch, key, unit.key_head), probability, d_o, value_dim);
      if (call_.terms.value_rows) {
        const std::int64_t distance = query.distance(j);
        d_probability += wide_dot(d_o, wide_.value_row(head, distance), value_dim);
        unit.tables.value_rows.add(step, call_.terms.value_rows->map.row_of(distance), probability,
                                   d_o);
      }
      const double tanh = cap > 0.0 ? capped / cap : 0.0;
      add_score(unit, query, step, j, probability * (d_probability - mean) * (1.0 - tanh * tanh));
    }
    add_query(unit, query, step);
  }

  // The derivative of each term of s(m, n), times ds, but for what is the same for every key.
  void add_score(WideUnit& unit, const WideQuery& query, std::int64_t step, std::int64_t j,
                 double ds) noexcept {
    const encodings::ScoreTerms& terms = call_.terms;
    const Sequence& s = *query.sequence;
    const std::int64_t dim = call_.head_dim, head = query.head, distance = query.distance(j);
    const std::int64_t b = s.batch, key = s.first_key + j;
    const double g = call_.scale * ds;
    WideScores& scores = unit.scores;
    TableSums& tables = unit.tables;

    wide_add(wide_row(gradients_.d_q, b, query.token(), head), g,
             wide_.rotated_key(b, key, unit.key_head), dim);
    wide_add(wide_row(gradients_.d_k, b, key, unit.key_head), g, scores.content(), dim);
    tables.content_bias.add(step, 0, g, wide_.rotated_key(b, key, unit.key_head));
    if (terms.query_rows) {
      const std::int64_t r = terms.query_rows->map.row_of(distance);
      wide_add(unit.by_relative.data(), g, wide_.query_rows.row(head, r), dim);
      tables.query_rows.add(step, r, g, scores.relative());
    }
    if (terms.key_rows) {
      const std::int64_t r = terms.key_rows->map.row_of(distance);
      wide_add(d_raw_key(b, key, unit.key_head), g, wide_.key_rows.row(head, r), dim);
      tables.key_rows.add(step, r, g, wide_row(call_.k, b, key, unit.key_head));
    }
    if (terms.segment_rows.given()) {
      const std::int64_t r = scores.segment_row(j);
      wide_add(unit.by_segment.data(), g, wide_.segment_rows.row(head, r), dim);
      tables.segment_rows.add(step, r, g, scores.segment_query());
    }
    switch (scores.first_token(j)) {
      case WideFirstToken::query:
        tables.first_row.add(step, 0, ds);
        break;
      case WideFirstToken::key:
        tables.first_column.add(step, 0, ds);
        break;
      case WideFirstToken::neither:
        if (terms.extra_query.given()) {
          tables.extra_query.add(step, query.i, g, wide_.extra_key.row(head, j));
          tables.extra_key.add(step, j, g, wide_.extra_query.row(head, query.i));
        }
        if (terms.bias) tables.bias.add(step, terms.bias->map.row_of(distance), ds);
        break;
    }
  }

  // q_m, v and w have the same derivative.
  void add_query(WideUnit& unit, const WideQuery& query, std::int64_t step) noexcept {
    const std::int64_t dim = call_.head_dim;
    double* const d_raw = d_raw_query(query.sequence->batch, query.token(), query.head);
    if (call_.terms.query_rows) {
      wide_add(d_raw, 1.0, unit.by_relative.data(), dim);
      unit.tables.position_bias.add(step, 0, 1.0, unit.by_relative.data());
    }
    if (call_.terms.segment_rows.given()) {
      wide_add(d_raw, 1.0, unit.by_segment.data(), dim);
      unit.tables.segment_bias.add(step, 0, 1.0, unit.by_segment.data());
    }
  }

  // d q = T^T d(T q), plus the gradient of q before the rotation.
  void rotate_back() {
    if (!call_.terms.rotation) return;
    const auto finish = [&](const Rotator& rotator, const core::HeadsView& d,
                            const WideHeads& raw) {
      rotator.rotate_all(d, call_.options.threads, core::Direction::transpose);
      raw.for_each_row([&](std::int64_t b, std::int64_t t, std::int64_t h, const double* row) {
        wide_add(wide_row(d, b, t, h), 1.0, row, d.head_dim);
      });
    };
    finish(*call_.query_rotator, gradients_.d_q, raw_q_);
    finish(*call_.key_rotator, gradients_.d_k, raw_k_);
  }

  const WideCall& wide_;
  const Call& call_;
  const AttentionForward& forward_;
  const AttentionGradients& gradients_;
  WideHeads raw_q_, raw_k_;  // empty: d_q and d_k are used
  std::vector<WideUnit> units_;
};

}  // namespace

void attend_backward_wide(const Call& call, const AttentionForward& forward,
                          const AttentionGradients& gradients) {
  const WideCall wide(call);
  WideBackward(wide, forward, gradients).run();
}

}  // namespace phasor::attention
