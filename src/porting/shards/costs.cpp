#include "phasor/porting/shard_costs.hpp"

#include <algorithm>

#include "phasor/core/error.hpp"
#include "porting/number_text.hpp"

namespace phasor::porting {
namespace {

constexpr std::int64_t kLogSumExpBytes = 4;

[[nodiscard]] std::int64_t chunk_begin(std::int64_t tokens, std::int64_t chunks,
                                       std::int64_t chunk) {
  return tokens / chunks * chunk + std::min(chunk, tokens % chunks);
}
[[nodiscard]] TokenRun chunk_run(std::int64_t tokens, std::int64_t chunks, std::int64_t chunk) {
  const std::int64_t begin = chunk_begin(tokens, chunks, chunk);
  return {begin, chunk_begin(tokens, chunks, chunk + 1) - begin, 1};
}

void check_ranks(int ranks) {
  if (ranks < 1)
    throw Error(ErrorCode::out_of_range, message("ranks must be 1 or more, got ", ranks));
}
void check_sizes(const ShardedSizes& sizes, int ranks) {
  check_ranks(ranks);
  for (const auto& [name, value] :
       {std::pair("batch", sizes.batch), std::pair("heads", sizes.heads),
        std::pair("key_heads", sizes.key_heads), std::pair("head_dim", sizes.head_dim),
        std::pair("value_dim", sizes.value_dim), std::pair("window", sizes.window.value_or(1))}) {
    if (value < 1)
      throw Error(ErrorCode::out_of_range, message(name, " must be 1 or more, got ", value));
  }
  if (sizes.tokens < 0)
    throw Error(ErrorCode::out_of_range, message("tokens must be 0 or more, got ", sizes.tokens));
  if (sizes.heads % sizes.key_heads != 0) {
    throw Error(ErrorCode::invalid_argument, message("heads must be a multiple of key_heads ",
                                                     sizes.key_heads, ", got ", sizes.heads));
  }
}

// Some token of the first run is `least` to `most` after some token of the second.
[[nodiscard]] bool meet(const TokenRun& queries, const TokenRun& keys, std::int64_t least,
                        std::int64_t most) {
  if (queries.count == 0 || keys.count == 0) return false;
  const std::int64_t last_query = queries.first + (queries.count - 1) * queries.stride;
  const std::int64_t last_key = keys.first + (keys.count - 1) * keys.stride;
  // All distances are those between the ends, in steps of the common stride.
  const std::int64_t smallest = queries.first - last_key, largest = last_query - keys.first;
  const std::int64_t from = std::max(least, smallest), to = std::min(most, largest);
  if (from > to) return false;
  const std::int64_t stride = queries.stride;
  if (stride == 1) return true;
  const std::int64_t steps = (from - smallest + stride - 1) / stride;
  return smallest + steps * stride <= to;
}

[[nodiscard]] bool in_reach(const ShardedSizes& sizes, const std::array<TokenRun, 2>& queries,
                            const std::array<TokenRun, 2>& keys) {
  const std::int64_t reach = sizes.window.value_or(sizes.tokens + 1) - 1;
  for (const TokenRun& query : queries) {
    for (const TokenRun& key : keys) {
      if (meet(query, key, sizes.sees == Sees::earlier ? 0 : -reach, reach)) return true;
    }
  }
  return false;
}

// Bytes of heads_bytes() for a rank that holds `mine` of `all` tokens.
[[nodiscard]] RankBytes exchanged(const ShardedSizes& sizes, int ranks, int rank, std::int64_t mine,
                                  std::int64_t all) {
  const std::int64_t wire = bytes_of(sizes.wire), dims = sizes.head_dim, values = sizes.value_dim;
  std::int64_t there = 0, there_backward = 0;
  for (int other = 0; other < ranks; ++other) {
    if (other == rank) continue;
    const HeadRange heads = shard_heads(sizes, ranks, other);
    const std::int64_t keys = heads.key_count * (dims + values) * wire;
    there += heads.count * dims * wire + keys;
    there_backward += heads.count * ((dims + 2 * values) * wire + kLogSumExpBytes) + keys;
  }
  const HeadRange own = shard_heads(sizes, ranks, rank);
  const std::int64_t heads = own.count, keys = own.key_count * (dims + values) * wire;
  return {sizes.batch * (mine * there + (all - mine) * heads * (values * wire + kLogSumExpBytes)),
          sizes.batch * (mine * there_backward + (all - mine) * (heads * dims * wire + keys))};
}

// Sum of min(first + stride i, most) over i in [0, count). stride > 0.
[[nodiscard]] double capped_sum(std::int64_t first, std::int64_t stride, std::int64_t count,
                                std::int64_t most) {
  const std::int64_t below = first > most ? 0 : std::min(count, (most - first) / stride + 1);
  const auto n = static_cast<double>(below);
  return n * static_cast<double>(first) + static_cast<double>(stride) * n * (n - 1) / 2 +
         static_cast<double>(count - below) * static_cast<double>(most);
}

}  // namespace

std::string_view name_of(WireType wire) noexcept { return wire == WireType::f32 ? "f32" : "bf16"; }
std::int64_t bytes_of(WireType wire) noexcept { return wire == WireType::f32 ? 4 : 2; }

std::array<TokenRun, 2> shard_runs(TokenOrder order, std::int64_t tokens, int ranks, int rank) {
  check_ranks(ranks);
  if (tokens < 0)
    throw Error(ErrorCode::out_of_range, message("tokens must be 0 or more, got ", tokens));
  if (rank < 0 || rank >= ranks) {
    throw Error(ErrorCode::out_of_range, message("rank must be 0 to ", ranks - 1, ", got ", rank));
  }
  const std::int64_t chunks = 2 * static_cast<std::int64_t>(ranks);
  switch (order) {
    case TokenOrder::contiguous:
      return {chunk_run(tokens, ranks, rank), TokenRun{}};
    case TokenOrder::zigzag:
      return {chunk_run(tokens, chunks, rank), chunk_run(tokens, chunks, chunks - 1 - rank)};
    case TokenOrder::striped:
      break;
  }
  return {TokenRun{rank, tokens > rank ? (tokens - rank - 1) / ranks + 1 : 0, ranks}, TokenRun{}};
}

std::int64_t shard_tokens(TokenOrder order, std::int64_t tokens, int ranks, int rank) {
  const std::array<TokenRun, 2> runs = shard_runs(order, tokens, ranks, rank);
  return runs[0].count + runs[1].count;
}

bool shard_in_reach(const ShardedSizes& sizes, int ranks, int queries, int keys) {
  return in_reach(sizes, shard_runs(sizes.order, sizes.tokens, ranks, queries),
                  shard_runs(sizes.order, sizes.tokens, ranks, keys));
}

HeadRange shard_heads(const ShardedSizes& sizes, int ranks, int rank) {
  const TokenRun heads = chunk_run(sizes.heads, ranks, rank);
  if (heads.count == 0) return {heads.first, 0, 0, 0};
  const std::int64_t group = sizes.heads / sizes.key_heads, first_key = heads.first / group;
  return {heads.first, heads.count, first_key,
          (heads.first + heads.count - 1) / group - first_key + 1};
}

std::vector<RankBytes> ring_bytes(const ShardedSizes& sizes, int ranks) {
  check_sizes(sizes, ranks);
  std::vector<RankBytes> bytes(static_cast<std::size_t>(ranks));
  std::vector<std::array<TokenRun, 2>> runs;
  for (int rank = 0; rank < ranks; ++rank)
    runs.push_back(shard_runs(sizes.order, sizes.tokens, ranks, rank));
  std::vector<char> needs(static_cast<std::size_t>(ranks));  // the shard of one rank
  for (int home = 0; home < ranks; ++home) {
    for (int rank = 0; rank < ranks; ++rank) {
      needs[static_cast<std::size_t>(rank)] =
          rank != home && in_reach(sizes, runs[static_cast<std::size_t>(rank)],
                                   runs[static_cast<std::size_t>(home)])
              ? 1
              : 0;
    }
    const std::int64_t shard = sizes.batch * shard_tokens(sizes.order, sizes.tokens, ranks, home) *
                               sizes.key_heads * (sizes.head_dim + sizes.value_dim) *
                               bytes_of(sizes.wire);
    for (int rank = 0; rank < ranks; ++rank) {
      if (needs[static_cast<std::size_t>(rank)] == 0) continue;
      const int before = (rank + ranks - 1) % ranks;
      const int source = needs[static_cast<std::size_t>(before)] != 0 ? before : home;
      bytes[static_cast<std::size_t>(source)].forward += shard;
      bytes[static_cast<std::size_t>(source)].backward += shard;
      bytes[static_cast<std::size_t>(rank)].backward += shard;
    }
  }
  return bytes;
}

std::vector<RankBytes> heads_bytes(const ShardedSizes& sizes, int ranks) {
  check_sizes(sizes, ranks);
  std::vector<RankBytes> bytes;
  for (int rank = 0; rank < ranks; ++rank) {
    bytes.push_back(exchanged(sizes, ranks, rank,
                              shard_tokens(sizes.order, sizes.tokens, ranks, rank), sizes.tokens));
  }
  return bytes;
}

std::vector<RankBytes> grid_bytes(const ShardedSizes& sizes, int ring_ranks, int heads_ranks) {
  check_sizes(sizes, ring_ranks);
  check_ranks(heads_ranks);
  // Per byte of one key head: the ring's bytes do not depend on which heads travel.
  ShardedSizes one = sizes;
  one.heads = one.key_heads = 1;
  const std::vector<RankBytes> ring = ring_bytes(one, ring_ranks);
  std::vector<RankBytes> bytes;
  for (int index = 0; index < ring_ranks; ++index) {
    const std::int64_t held = shard_tokens(sizes.order, sizes.tokens, ring_ranks, index);
    for (int part = 0; part < heads_ranks; ++part) {
      RankBytes rank =
          exchanged(sizes, heads_ranks, part, chunk_run(held, heads_ranks, part).count, held);
      const std::int64_t keys = shard_heads(sizes, heads_ranks, part).key_count;
      rank.forward += keys * ring[static_cast<std::size_t>(index)].forward;
      rank.backward += keys * ring[static_cast<std::size_t>(index)].backward;
      bytes.push_back(rank);
    }
  }
  return bytes;
}

std::vector<double> ring_pairs(const ShardedSizes& sizes, int ranks) {
  check_sizes(sizes, ranks);
  const std::int64_t most = std::min(sizes.window.value_or(sizes.tokens), sizes.tokens);
  std::vector<double> pairs;
  for (int rank = 0; rank < ranks; ++rank) {
    double sum = 0.0;
    for (const TokenRun& run : shard_runs(sizes.order, sizes.tokens, ranks, rank)) {
      if (run.count == 0) continue;
      // Query q sees min(q + 1, window) keys up to itself, and min(T - q, window) from itself on.
      sum += capped_sum(run.first + 1, run.stride, run.count, most);
      if (sizes.sees == Sees::earlier) continue;
      const std::int64_t last = run.first + (run.count - 1) * run.stride;
      sum += capped_sum(sizes.tokens - last, run.stride, run.count, most) -
             static_cast<double>(run.count);
    }
    pairs.push_back(sum);
  }
  return pairs;
}

}  // namespace phasor::porting
