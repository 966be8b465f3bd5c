#include <algorithm>
#include <cmath>

#include "attention/softmax/wide_scores.hpp"
#include "attention/wide.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/cpu.hpp"

namespace phasor::attention {
namespace {

using encodings::TableGradient;

// The gradient of a table from the query heads of one key head: dense [group or 1, rows, dim].
class WideTableSum {
 public:
  WideTableSum() = default;
  WideTableSum(const TableGradient& to, double* values) noexcept : to_(to), values_(values) {}

  [[nodiscard]] bool is_wanted() const noexcept { return to_.given() || to_.wide != nullptr; }
  [[nodiscard]] std::int64_t count(std::int64_t group) const noexcept {
    return is_wanted() ? (to_.heads == 1 ? 1 : group) * to_.rows * to_.dim : 0;
  }
  // `step` counts the query heads of the key head.
  [[nodiscard]] double* row(std::int64_t step, std::int64_t row) const noexcept {
    return values_ + ((to_.heads == 1 ? 0 : step) * to_.rows + row) * to_.dim;
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
    std::fill_n(values_, count(group), 0.0);
  }

 private:
  TableGradient to_;
  double* values_ = nullptr;
};

// The sums of every table, in the memory of one thread.
struct TableSums : PerTable<WideTableSum> {
  TableSums(const encodings::ScoreTermGradients& to, std::int64_t group, WideThread& memory) {
    double* next = memory.table_sums.data();
    PerTable<WideTableSum>& here = *this;
    for_each_table(
        [&](WideTableSum& sum, const TableGradient& table) {
          sum = WideTableSum(table, next);
          next += sum.count(group);
        },
        here, to);
  }
};

// One key head of one sequence, in the memory of one thread. Table gradients are added after each
// wave of units, in the order of the units, so that they do not depend on the threads.
struct WideUnit {
  WideThread& memory;
  WideScores scores;
  TableSums tables;
  const Sequence* sequence;
  std::int64_t key_head;
};

class WideBackward {
 public:
  WideBackward(const WideCall& wide, const AttentionForward& forward,
               const AttentionGradients& gradients)
      : wide_(wide),
        call_(wide.call),
        memory_(call_.memory.wide),
        forward_(forward),
        gradients_(gradients) {
    memory_.raw_q.clear();
    memory_.raw_k.clear();
    for (WideThread& thread : memory_.threads)
      std::fill(thread.table_sums.begin(), thread.table_sums.end(), 0.0);
  }

  void run() {
    const std::int64_t units = wide_items(call_, Pass::backward);
    const std::int64_t at_once = wide_threads(call_, Pass::backward);
    for (first_ = 0; first_ < units; first_ += at_once) {
      const std::int64_t used = std::min(at_once, units - first_);
      core::run_parts(
          static_cast<int>(used),
          [](void* context, int part, int) {
            auto& self = *static_cast<WideBackward*>(context);
            self.run_unit(self.unit_of(part));
          },
          this);
      for (std::int64_t part = 0; part < used; ++part) {
        WideUnit unit = unit_of(part);
        PerTable<WideTableSum>& sums = unit.tables;
        for_each_table(
            [&](WideTableSum& sum) { sum.flush(unit.key_head * call_.group, call_.group); }, sums);
      }
    }
    rotate_back();
  }

 private:
  // The unit that thread `part` has in this wave.
  [[nodiscard]] WideUnit unit_of(std::int64_t part) noexcept {
    WideThread& thread = memory_.threads[static_cast<std::size_t>(part)];
    const std::int64_t unit = first_ + part;
    return {thread, WideScores(wide_, thread), TableSums(gradients_.terms, call_.group, thread),
            &call_.sequences[static_cast<std::size_t>(unit / call_.key_heads)],
            unit % call_.key_heads};
  }

  void run_unit(WideUnit unit) {
    for (std::int64_t step = 0; step < call_.group; ++step) {
      for (std::int64_t i = 0; i < unit.sequence->queries; ++i) {
        core::throw_if_cancelled();
        run_query(unit, {unit.sequence, unit.key_head * call_.group + step, i}, step);
      }
    }
  }

  [[nodiscard]] double* d_raw_query(std::int64_t b, std::int64_t t, std::int64_t h) noexcept {
    const core::HeadsView& raw = memory_.raw_q.view();
    return wide_row(raw.data != nullptr ? raw : gradients_.d_q, b, t, h);
  }
  [[nodiscard]] double* d_raw_key(std::int64_t b, std::int64_t t, std::int64_t h) noexcept {
    const core::HeadsView& raw = memory_.raw_k.view();
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
    std::fill(unit.memory.by_relative.begin(), unit.memory.by_relative.end(), 0.0);
    std::fill(unit.memory.by_segment.begin(), unit.memory.by_segment.end(), 0.0);
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
        const std::int64_t distance = wide_.distance(query, j);
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
    const std::int64_t dim = call_.head_dim, head = query.head;
    const std::int64_t distance = wide_.distance(query, j);
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
      wide_add(unit.memory.by_relative.data(), g, wide_.query_rows.row(head, r), dim);
      tables.query_rows.add(step, r, g, scores.relative());
    }
    if (terms.key_rows) {
      const std::int64_t r = terms.key_rows->map.row_of(distance);
      wide_add(d_raw_key(b, key, unit.key_head), g, wide_.key_rows.row(head, r), dim);
      tables.key_rows.add(step, r, g, wide_row(call_.k, b, key, unit.key_head));
    }
    if (terms.segment_rows.given()) {
      const std::int64_t r = scores.segment_row(j);
      wide_add(unit.memory.by_segment.data(), g, wide_.segment_rows.row(head, r), dim);
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
          const std::int64_t m = call_.query_row(s, query.i), n = call_.key_row(s, j);
          tables.extra_query.add(step, m, g, wide_.extra_key.row(head, n));
          tables.extra_key.add(step, n, g, wide_.extra_query.row(head, m));
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
      wide_add(d_raw, 1.0, unit.memory.by_relative.data(), dim);
      unit.tables.position_bias.add(step, 0, 1.0, unit.memory.by_relative.data());
    }
    if (call_.terms.segment_rows.given()) {
      wide_add(d_raw, 1.0, unit.memory.by_segment.data(), dim);
      unit.tables.segment_bias.add(step, 0, 1.0, unit.memory.by_segment.data());
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
    finish(*call_.query_rotator, gradients_.d_q, memory_.raw_q);
    finish(*call_.key_rotator, gradients_.d_k, memory_.raw_k);
  }

  const WideCall& wide_;
  const Call& call_;
  WideMemory& memory_;
  const AttentionForward& forward_;
  const AttentionGradients& gradients_;
  std::int64_t first_ = 0;  // unit of the present wave
};

}  // namespace

void attend_backward_wide(const Call& call, const AttentionForward& forward,
                          const AttentionGradients& gradients) {
  const WideCall wide(call);
  WideBackward(wide, forward, gradients).run();
}

}  // namespace phasor::attention
