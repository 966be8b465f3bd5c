#include "phasor/parallel/shards.hpp"

#include <algorithm>

#include "phasor/core/error.hpp"

namespace phasor::parallel {

Shards::Shards(TokenOrder order, std::int64_t tokens, int ranks)
    : order_(order), tokens_(tokens), ranks_(ranks) {
  if (tokens < 0) refuse(message("shards: tokens must not be negative, got ", tokens));
  if (ranks < 1) refuse(message("shards: ranks must be at least 1, got ", ranks));
}

std::int64_t Shards::chunk_start(std::int64_t chunk, std::int64_t chunks) const noexcept {
  return tokens_ / chunks * chunk + std::min(chunk, tokens_ % chunks);
}

std::vector<TokenRun> Shards::runs(int rank) const {
  std::vector<TokenRun> runs;
  const auto add = [&](std::int64_t first, std::int64_t last, std::int64_t stride) {
    const std::int64_t count = (last - first + stride - 1) / stride;
    if (count <= 0) return;
    const std::int64_t row = runs.empty() ? 0 : runs.back().count;
    if (!runs.empty() && runs.back().first_token + runs.back().count == first) {
      runs.back().count += count;
    } else {
      runs.push_back({row, first, count, stride});
    }
  };
  switch (order_) {
    case TokenOrder::contiguous:
      add(chunk_start(rank, ranks_), chunk_start(rank + 1, ranks_), 1);
      break;
    case TokenOrder::zigzag:
      for (const std::int64_t chunk : {std::int64_t{rank}, std::int64_t{2} * ranks_ - 1 - rank})
        add(chunk_start(chunk, 2 * ranks_), chunk_start(chunk + 1, 2 * ranks_), 1);
      break;
    case TokenOrder::striped:
      add(rank, tokens_, ranks_);
      break;
  }
  return runs;
}

std::int64_t Shards::count(int rank) const {
  std::int64_t count = 0;
  for (const TokenRun& run : runs(rank)) count += run.count;
  return count;
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
