#include "phasor/parallel/shards.hpp"

#include <algorithm>

#include "phasor/core/error.hpp"

namespace phasor::parallel {

Shards::Shards(TokenOrder order, std::int64_t tokens, int ranks)
    : order_(order), tokens_(tokens), ranks_(ranks) {
  if (tokens < 0) refuse(message("shards: tokens must not be negative, got ", tokens));
  if (ranks < 1) refuse(message("shards: ranks must be at least 1, got ", ranks));
}

std::vector<TokenRun> Shards::runs(int rank) const {
  std::vector<TokenRun> runs;
  for (const porting::TokenRun& run : porting::shard_runs(order_, tokens_, ranks_, rank)) {
    if (run.count == 0) continue;
    if (!runs.empty() && runs.back().first_token + runs.back().count == run.first) {
      runs.back().count += run.count;
    } else {
      runs.push_back({runs.empty() ? 0 : runs.back().count, run.first, run.count, run.stride});
    }
  }
  return runs;
}

std::int64_t Shards::count(int rank) const {
  return porting::shard_tokens(order_, tokens_, ranks_, rank);
}

std::int64_t Shards::largest_count() const {
  std::int64_t largest = 0;
  for (int rank = 0; rank < ranks_; ++rank) largest = std::max(largest, count(rank));
  return largest;
}

std::int64_t Shards::token(int rank, std::int64_t row) const {
  const std::vector<TokenRun> all = runs(rank);
  const TokenRun& run = row < all.front().count ? all.front() : all.back();
  return run.first_token + (row - run.first_row) * run.stride;
}

std::vector<std::int64_t> Shards::tokens_of(int rank) const {
  std::vector<std::int64_t> tokens;
  for (const TokenRun& run : runs(rank))
    for (std::int64_t i = 0; i < run.count; ++i) tokens.push_back(run.first_token + i * run.stride);
  return tokens;
}

}  // namespace phasor::parallel
