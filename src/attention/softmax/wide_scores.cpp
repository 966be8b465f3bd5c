#include "attention/softmax/wide_scores.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "attention/wide.hpp"

namespace phasor::attention {
namespace {

using kernels::rounded_up;

// x + bias, or x alone.
void sum_of(const double* x, const WideTable& bias, std::int64_t head, std::vector<double>& out) {
  const auto dim = static_cast<std::int64_t>(out.size());
  std::copy_n(x, dim, out.begin());
  if (bias.given()) wide_add(out.data(), 1.0, bias.row(head, 0), dim);
}

}  // namespace

std::int64_t wide_items(const Call& call, Pass pass) noexcept {
  const auto sequences = static_cast<std::int64_t>(call.sequences.size());
  if (pass == Pass::backward) return sequences * call.key_heads;
  return sequences * call.heads * rounded_up(call.most_queries, kWideQueries) / kWideQueries;
}

std::int64_t wide_threads(const Call& call, Pass pass) noexcept {
  return std::clamp<std::int64_t>(wide_items(call, pass), 1, call.threads);
}

void widen_tables(const Call& call) {
  const PerTable<encodings::Table> tables = tables_of(call.terms);
  for_each_table(
      [](const encodings::Table& table, std::vector<double>& copy) {
        copy.clear();
        if (!table.given() || table.wide != nullptr) return;
        copy.reserve(static_cast<std::size_t>(table.heads * table.rows * table.dim));
        for (std::int64_t head = 0; head < table.heads; ++head) {
          for (std::int64_t row = 0; row < table.rows; ++row) {
            const float* const from = table.row(head, row);
            copy.insert(copy.end(), from, from + table.dim);
          }
        }
      },
      tables, call.memory.wide.tables);
}

void prepare_wide(Call& call, Pass pass) {
  WideMemory& memory = call.memory.wide;
  const encodings::ScoreTerms& terms = call.terms;
  widen_tables(call);
  if (call.query_rotator) memory.rotated_q.reset(call.q);
  if (call.key_rotator) memory.rotated_k.reset(call.k);
  const auto threads = static_cast<std::size_t>(wide_threads(call, pass));
  memory.threads.resize(std::max(memory.threads.size(), threads));
  const auto dim = static_cast<std::size_t>(call.head_dim);
  for (WideThread& thread : memory.threads) {
    thread.content.resize(dim);
    thread.relative.resize(terms.query_rows ? dim : 0);
    thread.segment_query.resize(terms.segment_rows.given() ? dim : 0);
    thread.row.resize(
        static_cast<std::size_t>(std::max(call.most_keys, call.memory.room_for_keys)));
  }
  if (pass == Pass::forward) {
    call.has_forward = true;
    return;
  }
  // Gradients of products with tables belong to q and k before the rotation.
  if (terms.rotation && (terms.query_rows || terms.segment_rows.given()))
    memory.raw_q.reset(call.q);
  if (terms.rotation && terms.key_rows) memory.raw_k.reset(call.k);
  std::int64_t sums = 0;
  const PerTable<encodings::Table> tables = tables_of(terms);
  for_each_table(
      [&](const encodings::Table& table) {
        if (table.given()) sums += (table.heads == 1 ? 1 : call.group) * table.rows * table.dim;
      },
      tables);
  for (WideThread& thread : memory.threads) {
    thread.by_relative.resize(dim);
    thread.by_segment.resize(dim);
    thread.table_sums.resize(static_cast<std::size_t>(sums));
  }
  call.has_backward = true;
}

WideCall::WideCall(const Call& prepared) : call(prepared), terms(prepared.terms) {
  WideMemory& memory = call.memory.wide;
  const PerTable<encodings::Table> tables = tables_of(terms);
  PerTable<WideTable>& here = *this;
  for_each_table([](WideTable& to, const encodings::Table& table,
                    const std::vector<double>& copy) { to = WideTable(table, copy); },
                 here, tables, memory.tables);
  const auto rotate = [&](const Rotator& rotator, const core::ConstHeadsView& from, WideHeads& to) {
    to.assign(from);
    rotator.rotate_all(to.view(), call.options.threads);
  };
  if (call.query_rotator) rotate(*call.query_rotator, call.q, memory.rotated_q);
  if (call.key_rotator) rotate(*call.key_rotator, call.k, memory.rotated_k);
}

void WideScores::begin(const WideQuery& query) noexcept {
  query_ = query;
  const std::int64_t b = query.sequence->batch, head = query.head;
  const double* const q_m = wide_row(wide_->call.q, b, query.token(), head);
  sum_of(wide_->rotated_query(b, query.token(), head), wide_->content_bias, head, memory_->content);
  if (!memory_->relative.empty()) sum_of(q_m, wide_->position_bias, head, memory_->relative);
  if (memory_->segment_query.empty()) return;
  sum_of(q_m, wide_->segment_bias, head, memory_->segment_query);
  for (std::int64_t r = 0; r < 2; ++r) {
    segment_scores_[r] =
        wide_dot(segment_query(), wide_->segment_rows.row(head, r), wide_->call.head_dim);
  }
}

KeyRange WideScores::reach() const noexcept {
  const AttentionOptions& options = wide_->call.options;
  const std::int64_t position = query_.position();
  KeyRange range{0, query_.sequence->keys};
  if (options.causality == Causality::bottom_right) range.last = std::min(range.last, position + 1);
  if (options.window) {
    // Limited to what reaches every key, so that nothing overflows.
    const std::int64_t window =
        std::min(*options.window, std::abs(position) + query_.sequence->keys + 1);
    range.first = std::max(range.first, position - window + 1);
    range.last = std::min(range.last, position + window);
  }
  range.last = std::max(range.first, range.last);
  return range;
}

bool WideScores::is_padding(std::int64_t j) const noexcept {
  const auto padding = wide_->call.options.key_padding;
  const Sequence& s = *query_.sequence;
  return !padding.empty() &&
         padding[static_cast<std::size_t>(s.batch * wide_->call.k.tokens + s.first_key + j)] == 0;
}

WideFirstToken WideScores::first_token(std::int64_t j) const noexcept {
  const Call& call = wide_->call;
  const Sequence& s = *query_.sequence;
  if (wide_->first_row.given() && call.query_position(s, query_.i) == 0)
    return WideFirstToken::query;
  if (wide_->first_column.given() && call.key_position(s, j) == 0) return WideFirstToken::key;
  return WideFirstToken::neither;
}

std::int64_t WideScores::segment_row(std::int64_t j) const noexcept {
  const Call& call = wide_->call;
  const Sequence& s = *query_.sequence;
  const auto query = static_cast<std::size_t>(s.batch * call.q.tokens + query_.token());
  const auto key = static_cast<std::size_t>(s.batch * call.k.tokens + s.first_key + j);
  return call.options.query_segments[query] == call.options.key_segments[key] ? 0 : 1;
}

double WideScores::score(std::int64_t j) const noexcept {
  const Call& call = wide_->call;
  const encodings::ScoreTerms& terms = wide_->terms;
  const Sequence& s = *query_.sequence;
  const std::int64_t head = query_.head, key_head = head / call.group, key = s.first_key + j;
  const std::int64_t dim = call.head_dim, distance = wide_->distance(query_, j);

  double scaled = wide_dot(content(), wide_->rotated_key(s.batch, key, key_head), dim);
  if (terms.query_rows) {
    const std::int64_t r = terms.query_rows->map.row_of(distance);
    scaled += wide_dot(relative(), wide_->query_rows.row(head, r), dim);
  }
  if (terms.key_rows) {
    const std::int64_t r = terms.key_rows->map.row_of(distance);
    scaled += wide_dot(wide_row(call.k, s.batch, key, key_head), wide_->key_rows.row(head, r), dim);
  }
  if (!memory_->segment_query.empty()) scaled += segment_scores_[segment_row(j)];

  double added = 0.0;
  switch (first_token(j)) {
    case WideFirstToken::query:
      added = *wide_->first_row.row(head, 0);
      break;
    case WideFirstToken::key:
      added = *wide_->first_column.row(head, 0);
      break;
    case WideFirstToken::neither:
      if (wide_->extra_query.given()) {
        scaled += wide_dot(wide_->extra_query.row(head, call.query_row(s, query_.i)),
                           wide_->extra_key.row(head, call.key_row(s, j)), terms.extra_query.dim);
      }
      if (terms.bias) added = *wide_->bias.row(head, terms.bias->map.row_of(distance));
      break;
  }
  if (!terms.slopes.empty()) {
    added -= terms.slopes[static_cast<std::size_t>(head)] * static_cast<double>(std::abs(distance));
  }
  return call.scale * scaled + added;
}

double WideScores::capped(double score) const noexcept {
  const double cap = wide_->call.options.soft_cap;
  return cap > 0.0 ? cap * std::tanh(score / cap) : score;
}

double WideScores::masked(std::int64_t j, double capped_score) const noexcept {
  const Mask& mask = wide_->call.options.mask;
  if (mask.kind == Mask::Kind::none) return capped_score;
  const Sequence& s = *query_.sequence;
  const std::int64_t key = s.first_key + j;
  if (key >= mask.keys) return kWideHidden;
  const std::int64_t index = s.batch * mask.batch_stride + query_.head * mask.head_stride +
                             query_.token() * mask.query_stride + key * mask.key_stride;
  if (mask.kind == Mask::Kind::boolean) {
    return static_cast<const std::uint8_t*>(mask.data)[index] == 0 ? kWideHidden : capped_score;
  }
  const double value = mask.kind == Mask::Kind::additive
                           ? static_cast<const float*>(mask.data)[index]
                           : static_cast<const double*>(mask.data)[index];
  return value == kWideHidden ? kWideHidden : capped_score + value;  // a NaN is hidden too
}

}  // namespace phasor::attention
