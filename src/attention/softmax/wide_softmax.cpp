#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>

#include "attention/softmax/wide_scores.hpp"
#include "attention/wide.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/cpu.hpp"

namespace phasor::attention {
namespace {

struct WideForward {
  const WideCall& wide;
  core::HeadsView out;
  const AttentionExtras& extras;
  std::atomic<std::int64_t> next{0};
};

// Scores after masks into scores.row(), and into the extras on the way.
void fill_row(const WideForward& forward, const WideQuery& query, std::int64_t pairs_before,
              KeyRange visited, WideScores& scores) {
  const AttentionExtras& extras = forward.extras;
  const KeyRange reach = scores.reach();
  for (std::int64_t j = visited.first; j < visited.last; ++j) {
    const std::int64_t pair = pairs_before + query.sequence->first_key + j;
    scores.row()[j] = kWideHidden;
    if (scores.is_padding(j)) continue;  // whatever it holds
    const double score = scores.score(j);
    const double capped = scores.capped(score);
    if (extras.scores != nullptr) extras.scores[pair] = static_cast<float>(score);
    if (extras.capped_scores != nullptr) extras.capped_scores[pair] = static_cast<float>(capped);
    if (reach.first <= j && j < reach.last) scores.row()[j] = scores.masked(j, capped);
    if (extras.masked_scores != nullptr) {
      extras.masked_scores[pair] = static_cast<float>(scores.row()[j]);
    }
  }
}

// RoFormer (2): o_m = sum_n exp(s(m, n)) (v_n + C) / sum_n exp(s(m, n)).
void attend_query(const WideForward& forward, const WideQuery& query, WideScores& scores) {
  const WideCall& wide = forward.wide;
  const Call& call = wide.call;
  const Sequence& s = *query.sequence;
  const AttentionExtras& extras = forward.extras;
  scores.begin(query);
  const bool shows_all = extras.scores != nullptr || extras.capped_scores != nullptr;
  const KeyRange visited = shows_all ? KeyRange{0, s.keys} : scores.reach();
  const std::int64_t row_index =
      (s.batch * call.heads + query.head) * call.q.tokens + query.token();
  const std::int64_t pairs_before = row_index * call.k.tokens;
  fill_row(forward, query, pairs_before, visited, scores);

  double* const row = scores.row();
  double largest = kWideHidden, sum = 0.0;
  for (std::int64_t j = visited.first; j < visited.last; ++j) largest = std::max(largest, row[j]);
  bool sees_a_key = false;
  for (std::int64_t j = visited.first; j < visited.last; ++j) {
    if (row[j] == kWideHidden) continue;
    sees_a_key = true;
    row[j] = std::exp(row[j] - largest);
    sum += row[j];
  }
  if (!sees_a_key) return;
  const double log_sum = largest + std::log(sum);
  if (extras.wide_log_sum_exp != nullptr) extras.wide_log_sum_exp[row_index] = log_sum;
  if (extras.log_sum_exp != nullptr) extras.log_sum_exp[row_index] = static_cast<float>(log_sum);

  double* const o = wide_row(forward.out, s.batch, query.token(), query.head);
  for (std::int64_t j = visited.first; j < visited.last; ++j) {
    if (row[j] == kWideHidden) continue;
    const double probability = row[j] / sum;
    wide_add(o, probability, wide_row(call.v, s.batch, s.first_key + j, query.head / call.group),
             call.value_dim);
    if (wide.value_rows.given()) {
      wide_add(o, probability, wide.value_row(query.head, wide.distance(query, j)), call.value_dim);
    }
    if (extras.probabilities != nullptr) {
      extras.probabilities[pairs_before + s.first_key + j] = static_cast<float>(probability);
    }
  }
}

void run_wide_part(void* context, int part, int) {
  WideForward& forward = *static_cast<WideForward*>(context);
  const Call& call = forward.wide.call;
  WideScores scores(forward.wide, call.memory.wide.threads[static_cast<std::size_t>(part)]);
  const std::int64_t items = wide_items(call, Pass::forward);
  const std::int64_t blocks = (call.most_queries + kWideQueries - 1) / kWideQueries;
  for (std::int64_t item = forward.next++; item < items; item = forward.next++) {
    const std::int64_t first = item % blocks * kWideQueries;
    const Sequence& s = call.sequences[static_cast<std::size_t>(item / blocks / call.heads)];
    for (std::int64_t i = first; i < std::min(first + kWideQueries, s.queries); ++i) {
      core::throw_if_cancelled();
      attend_query(forward, {&s, item / blocks % call.heads, i}, scores);
    }
  }
}

}  // namespace

void attend_wide(const Call& call, const core::HeadsView& out, const AttentionExtras& extras) {
  const WideCall wide(call);
  WideForward forward{wide, out, extras};
  core::run_parts(static_cast<int>(wide_threads(call, Pass::forward)), run_wide_part, &forward);
}

}  // namespace phasor::attention
