#include "attention/softmax/wide_scores.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace phasor::attention {
namespace {

// x + bias, or x alone.
void sum_of(const double* x, const WideTable& bias, std::int64_t head, std::vector<double>& out) {
  const auto dim = static_cast<std::int64_t>(out.size());
  std::copy_n(x, dim, out.begin());
  if (bias.given()) wide_add(out.data(), 1.0, bias.row(head, 0), dim);
}

}  // namespace

WideTable::WideTable(const encodings::Table& table) : at_(table) {
  if (!table.given() || table.wide != nullptr) return;
  widened_.reserve(static_cast<std::size_t>(table.heads * table.rows * table.dim));
  for (std::int64_t head = 0; head < table.heads; ++head) {
    for (std::int64_t row = 0; row < table.rows; ++row) {
      const float* const from = table.row(head, row);
      widened_.insert(widened_.end(), from, from + table.dim);
    }
  }
  at_.row_stride = table.dim;
  at_.head_stride = table.rows * table.dim;
}

WideCall::WideCall(const Call& checked)
    : call(checked),
      terms(checked.terms),
      content_bias(terms.content_bias),
      position_bias(terms.position_bias),
      query_rows(terms.query_rows),
      key_rows(terms.key_rows),
      bias(terms.bias),
      extra_query(terms.extra_query),
      extra_key(terms.extra_key),
      first_row(terms.first_row),
      first_column(terms.first_column),
      segment_rows(terms.segment_rows),
      segment_bias(terms.segment_bias),
      value_rows(terms.value_rows) {
  if (call.query_rotator) {
    rotated_q_ = WideHeads::copy_of(call.q);
    call.query_rotator->rotate_all(rotated_q_.view(), call.options.threads);
  }
  if (call.key_rotator) {
    rotated_k_ = WideHeads::copy_of(call.k);
    call.key_rotator->rotate_all(rotated_k_.view(), call.options.threads);
  }
}

WideScores::WideScores(const WideCall& wide)
    : wide_(&wide),
      content_(static_cast<std::size_t>(wide.call.head_dim)),
      row_(static_cast<std::size_t>(wide.call.most_keys)) {
  if (wide.query_rows.given()) relative_.resize(content_.size());
  if (wide.segment_rows.given()) segment_query_.resize(content_.size());
}

void WideScores::begin(const WideQuery& query) noexcept {
  query_ = query;
  const std::int64_t b = query.sequence->batch, head = query.head;
  const double* const q_m = wide_row(wide_->call.q, b, query.token(), head);
  sum_of(wide_->rotated_query(b, query.token(), head), wide_->content_bias, head, content_);
  if (!relative_.empty()) sum_of(q_m, wide_->position_bias, head, relative_);
  if (segment_query_.empty()) return;
  sum_of(q_m, wide_->segment_bias, head, segment_query_);
  for (std::int64_t r = 0; r < 2; ++r) {
    segment_scores_[r] =
        wide_dot(segment_query_.data(), wide_->segment_rows.row(head, r), wide_->call.head_dim);
  }
}

KeyRange WideScores::reach() const noexcept {
  const AttentionOptions& options = wide_->call.options;
  const std::int64_t position = query_.position();
  KeyRange range{0, query_.sequence->keys};
  if (options.causality == Causality::bottom_right) range.last = std::min(range.last, position + 1);
  if (options.window) {
    // Limited to all keys and queries together, so that nothing overflows.
    const Call& call = wide_->call;
    const std::int64_t window = std::min(*options.window, call.q.tokens + call.k.tokens + 1);
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
  if (wide_->first_row.given() && query_.position() == 0) return WideFirstToken::query;
  if (wide_->first_column.given() && j == 0) return WideFirstToken::key;
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
  const std::int64_t dim = call.head_dim, distance = query_.distance(j);

  double scaled = wide_dot(content_.data(), wide_->rotated_key(s.batch, key, key_head), dim);
  if (terms.query_rows) {
    const std::int64_t r = terms.query_rows->map.row_of(distance);
    scaled += wide_dot(relative_.data(), wide_->query_rows.row(head, r), dim);
  }
  if (terms.key_rows) {
    const std::int64_t r = terms.key_rows->map.row_of(distance);
    scaled += wide_dot(wide_row(call.k, s.batch, key, key_head), wide_->key_rows.row(head, r), dim);
  }
  if (!segment_query_.empty()) scaled += segment_scores_[segment_row(j)];

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
        scaled += wide_dot(wide_->extra_query.row(head, query_.i), wide_->extra_key.row(head, j),
                           terms.extra_query.dim);
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
