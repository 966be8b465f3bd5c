#include "parallel/attention/pieces.hpp"

#include <algorithm>

#include "phasor/core/error.hpp"

namespace phasor::parallel {
namespace {

// Farther than any two tokens.
constexpr std::int64_t kFar = std::int64_t{1} << 60;

std::int64_t floor_of(std::int64_t value, std::int64_t by) noexcept {
  return value / by - (value % by < 0 ? 1 : 0);
}

std::vector<std::int64_t> bounds_of(const char* name, std::span<const std::int64_t> given,
                                    bool packed, std::int64_t tokens) {
  if (!packed) return {0, tokens};
  const bool fits = given.size() >= 2 && given.front() == 0 && given.back() == tokens &&
                    std::is_sorted(given.begin(), given.end());
  if (!fits) {
    refuse(message("ring attention: ", name, " must rise from 0 to the ", tokens, " tokens, got ",
                   given.size(), " values from ", given.empty() ? 0 : given.front(), " to ",
                   given.empty() ? 0 : given.back()));
  }
  return {given.begin(), given.end()};
}

// The part of a run inside the tokens [first, last).
TokenRun inside(const TokenRun& run, std::int64_t first, std::int64_t last) noexcept {
  const auto row_at = [&](std::int64_t token) {  // the first row at or after it
    return std::clamp<std::int64_t>(-floor_of(run.first_token - token, run.stride), 0, run.count);
  };
  const std::int64_t begin = row_at(first), end = row_at(last);
  return {run.first_row + begin, run.first_token + begin * run.stride, end - begin, run.stride};
}

}  // namespace

Layout::Layout(const attention::AttentionSizes& whole, const attention::AttentionOptions& options,
               TokenOrder order, int ranks)
    : queries_(order, whole.queries, ranks),
      keys_(order, whole.keys, ranks),
      causal_(options.causality == attention::Causality::bottom_right),
      window_(options.window) {
  const bool packed = !options.query_boundaries.empty() || !options.key_boundaries.empty();
  query_bounds_ = bounds_of("query_boundaries", options.query_boundaries, packed, whole.queries);
  key_bounds_ = bounds_of("key_boundaries", options.key_boundaries, packed, whole.keys);
  if (query_bounds_.size() != key_bounds_.size()) {
    refuse(ErrorCode::shape_mismatch,
           message("ring attention: query_boundaries and key_boundaries must have the same length, "
                   "got ",
                   query_bounds_.size(), " and ", key_bounds_.size()));
  }
  if (window_ && *window_ < 1)
    refuse(message("ring attention: window must be at least 1, got ", *window_));
  if (window_ && !causal_ && order == TokenOrder::striped && ranks > 1) {
    refuse(
        ErrorCode::unsupported,
        message("ring attention: the window ", *window_,
                " without causality is not supported in striped order; use contiguous or zigzag"));
  }
}

// distance: from the first key to the first query, in tokens.
std::optional<Piece> Layout::trimmed(Piece piece, std::int64_t distance) const {
  const std::int64_t step = piece.stride;
  std::int64_t offset = floor_of(distance, step);
  const std::int64_t queries = piece.queries, keys = piece.keys;
  // Query i sees key n if offset + i - n < window: with strides as many rows as W tokens reach back.
  std::optional<std::int64_t> window;
  if (window_) {
    const std::int64_t most = keys + queries + std::abs(offset) + 1;  // reaches every row
    const std::int64_t rows =
        step == 1 ? *window_ : floor_of(std::min(*window_, kFar) - 1 - distance, step) + 1 + offset;
    window = std::min(rows, most);
    if (*window < 1) return std::nullopt;
  }
  std::int64_t first_query = 0, last_query = queries - 1, first_key = 0, last_key = keys - 1;
  if (window) {
    if (!causal_) first_query = std::max<std::int64_t>(0, 1 - *window - offset);
    last_query = std::min(last_query, keys + *window - 2 - offset);
  }
  if (causal_) first_query = std::max(first_query, -offset);
  if (first_query > last_query) return std::nullopt;
  if (window) {
    first_key = std::max(first_key, offset + first_query - *window + 1);
    if (!causal_) last_key = std::min(last_key, offset + last_query + *window - 1);
  }
  if (causal_) last_key = std::min(last_key, offset + last_query);
  if (first_key > last_key) return std::nullopt;
  piece.causal = causal_ && last_key > offset + first_query;
  if (window) {
    const bool hides = offset + last_query - first_key >= *window ||
                       (!causal_ && last_key - offset - first_query >= *window);
    if (hides) piece.window = window;
  }
  piece.first_query += first_query;
  piece.queries = last_query - first_query + 1;
  piece.query_position += first_query * step;
  piece.query_token += first_query * step;
  piece.first_key += first_key;
  piece.keys = last_key - first_key + 1;
  piece.key_position += first_key * step;
  piece.key_token += first_key * step;
  piece.offset = offset + first_query - first_key;
  return piece;
}

template <class Visit>
void Layout::visit_pieces(int query_rank, int key_rank, const Visit& visit) const {
  for (const TokenRun& queries : queries_.runs(query_rank)) {
    // The sequence of the first query; those before it have none of them.
    const auto found =
        std::upper_bound(query_bounds_.begin(), query_bounds_.end(), queries.first_token);
    const auto first = static_cast<std::size_t>(found - query_bounds_.begin()) - 1;
    const std::int64_t last_token = queries.first_token + (queries.count - 1) * queries.stride;
    for (const TokenRun& keys : keys_.runs(key_rank)) {
      const std::int64_t last_key = keys.first_token + (keys.count - 1) * keys.stride;
      for (std::size_t s = first; s + 1 < query_bounds_.size(); ++s) {
        if (query_bounds_[s] > last_token || key_bounds_[s] > last_key) break;
        if (key_bounds_[s + 1] <= keys.first_token) continue;
        const TokenRun q = inside(queries, query_bounds_[s], query_bounds_[s + 1]);
        const TokenRun k = inside(keys, key_bounds_[s], key_bounds_[s + 1]);
        if (q.count <= 0 || k.count <= 0) continue;
        const std::int64_t ahead =
            (key_bounds_[s + 1] - key_bounds_[s]) - (query_bounds_[s + 1] - query_bounds_[s]);
        Piece piece{.first_query = q.first_row,
                    .queries = q.count,
                    .first_key = k.first_row,
                    .keys = k.count,
                    .stride = q.stride};
        piece.query_position = q.first_token - query_bounds_[s] + ahead;
        piece.key_position = k.first_token - key_bounds_[s];
        piece.query_token = q.first_token;
        piece.key_token = k.first_token;
        if (const auto seen = trimmed(piece, piece.query_position - piece.key_position)) {
          if (!visit(*seen)) return;
        }
      }
    }
  }
}

std::vector<Piece> Layout::pieces(int query_rank, int key_rank) const {
  std::vector<Piece> pieces;
  visit_pieces(query_rank, key_rank, [&](const Piece& piece) {
    pieces.push_back(piece);
    return true;
  });
  return pieces;
}

bool Layout::needs(int query_rank, int key_rank) const {
  bool found = false;
  visit_pieces(query_rank, key_rank, [&](const Piece&) {
    found = true;
    return false;
  });
  return found;
}

Schedule::Schedule(const Layout& layout)
    : ranks_(layout.ranks()), needs_(static_cast<std::size_t>(ranks_ * ranks_)) {
  for (int rank = 0; rank < ranks_; ++rank) {
    for (int home = 0; home < ranks_; ++home) {
      if (rank != home)
        needs_[static_cast<std::size_t>(rank * ranks_ + home)] = layout.needs(rank, home) ? 1 : 0;
    }
  }
}

RingBytes ring_bytes(const attention::AttentionSizes& whole,
                     const attention::AttentionOptions& options, const ParallelOptions& parallel,
                     int ranks, int rank) {
  const Layout layout(whole, options, parallel.order, ranks);
  const Schedule schedule(layout);
  const std::int64_t number = parallel.wire == WireType::bf16        ? 2
                              : whole.arithmetic == core::DType::f64 ? 8
                                                                     : 4;
  const auto shard_bytes = [&](int home) {
    return whole.batch * layout.keys().count(home) * whole.key_heads *
           (whole.head_dim + whole.value_dim) * number;
  };
  RingBytes bytes;
  for (int home = 0; home < ranks; ++home) {
    for (int to = 0; to < ranks; ++to) {
      if (schedule.needs(to, home) && schedule.source(to, home) == rank)
        bytes.keys_and_values += shard_bytes(home);
    }
    if (schedule.needs(rank, home)) bytes.gradients += shard_bytes(home);
  }
  return bytes;
}

}  // namespace phasor::parallel
