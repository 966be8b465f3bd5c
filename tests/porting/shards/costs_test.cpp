#include "phasor/porting/shard_costs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <vector>

#include "support/errors.hpp"

namespace phasor::porting {
namespace {

constexpr TokenOrder kOrders[] = {TokenOrder::contiguous, TokenOrder::zigzag, TokenOrder::striped};

std::vector<std::int64_t> tokens_of(TokenOrder order, std::int64_t tokens, int ranks, int rank) {
  std::vector<std::int64_t> held;
  for (const TokenRun& run : shard_runs(order, tokens, ranks, rank)) {
    for (std::int64_t i = 0; i < run.count; ++i) held.push_back(run.first + i * run.stride);
  }
  return held;
}

bool sees(const ShardedSizes& sizes, std::int64_t query, std::int64_t key) {
  if (sizes.sees == Sees::earlier && key > query) return false;
  return !sizes.window || std::abs(query - key) < *sizes.window;
}

std::vector<ShardedSizes> grid() {
  std::vector<ShardedSizes> cases;
  for (const TokenOrder order : kOrders) {
    for (const std::int64_t tokens : {0, 1, 3, 7, 16, 37}) {
      for (const Sees which : {Sees::all, Sees::earlier}) {
        for (const std::int64_t window : {0, 1, 2, 5, 100}) {
          ShardedSizes sizes;
          sizes.batch = 2;
          sizes.tokens = tokens;
          sizes.heads = 6;
          sizes.key_heads = 3;
          sizes.head_dim = 8;
          sizes.value_dim = 4;
          sizes.sees = which;
          if (window > 0) sizes.window = window;
          sizes.order = order;
          sizes.wire = tokens % 2 == 0 ? WireType::f32 : WireType::bf16;
          cases.push_back(sizes);
        }
      }
    }
  }
  return cases;
}

TEST(Shards, EveryTokenHasOneRank) {
  for (const TokenOrder order : kOrders) {
    for (const int ranks : {1, 2, 3, 4, 7}) {
      for (const std::int64_t tokens : {0, 1, 5, 14, 29}) {
        std::multiset<std::int64_t> all;
        std::int64_t least = tokens, most = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const auto held = tokens_of(order, tokens, ranks, rank);
          EXPECT_EQ(static_cast<std::int64_t>(held.size()),
                    shard_tokens(order, tokens, ranks, rank));
          all.insert(held.begin(), held.end());
          least = std::min(least, static_cast<std::int64_t>(held.size()));
          most = std::max(most, static_cast<std::int64_t>(held.size()));
        }
        EXPECT_EQ(static_cast<std::int64_t>(all.size()), tokens);
        for (std::int64_t token = 0; token < tokens; ++token) EXPECT_EQ(all.count(token), 1U);
        EXPECT_LE(most - least, order == TokenOrder::zigzag ? 2 : 1);
      }
    }
  }
  EXPECT_EQ(tokens_of(TokenOrder::zigzag, 8, 2, 0), (std::vector<std::int64_t>{0, 1, 6, 7}));
  EXPECT_EQ(tokens_of(TokenOrder::striped, 5, 2, 1), (std::vector<std::int64_t>{1, 3}));
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_EQ(shard_tokens(TokenOrder::contiguous, huge, 1024, 1023), huge / 1024);
}

// Pair by pair.
TEST(Shards, ReachAndPairsAreThoseOfTheTokens) {
  for (const ShardedSizes& sizes : grid()) {
    for (const int ranks : {1, 2, 3, 5}) {
      const std::vector<double> pairs = ring_pairs(sizes, ranks);
      for (int queries = 0; queries < ranks; ++queries) {
        double seen = 0.0;
        for (int keys = 0; keys < ranks; ++keys) {
          std::int64_t pieces = 0;
          for (const std::int64_t q : tokens_of(sizes.order, sizes.tokens, ranks, queries)) {
            for (const std::int64_t k : tokens_of(sizes.order, sizes.tokens, ranks, keys))
              pieces += sees(sizes, q, k) ? 1 : 0;
          }
          EXPECT_EQ(shard_in_reach(sizes, ranks, queries, keys), pieces > 0)
              << name_of(sizes.order) << ' ' << sizes.tokens << " tokens, ranks " << queries << ' '
              << keys << " of " << ranks;
          seen += static_cast<double>(pieces);
        }
        EXPECT_EQ(pairs[static_cast<std::size_t>(queries)], seen);
      }
    }
  }
}

// The messages of the ring, one after the other.
TEST(Shards, RingBytesAreThoseOfTheMessages) {
  for (const ShardedSizes& sizes : grid()) {
    for (const int ranks : {1, 2, 3, 5}) {
      std::vector<RankBytes> sent(static_cast<std::size_t>(ranks));
      for (int from = 0; from < ranks; ++from) {
        const auto rows =
            static_cast<std::int64_t>(tokens_of(sizes.order, sizes.tokens, ranks, from).size());
        const std::int64_t shard = 2 * rows * 3 * (8 + 4) * (sizes.wire == WireType::f32 ? 4 : 2);
        // Once around the ring: whoever needs the shard gets it from its neighbour if that one has it.
        bool before_has = true;
        for (int at = from + 1; at < from + ranks; ++at) {
          const bool wants = shard_in_reach(sizes, ranks, at % ranks, from);
          if (wants) {
            RankBytes& sender =
                sent[static_cast<std::size_t>(before_has ? (at - 1) % ranks : from)];
            sender.forward += shard;
            sender.backward += shard;
            sent[static_cast<std::size_t>(at % ranks)].backward += shard;  // gradients
          }
          before_has = wants;
        }
      }
      const std::vector<RankBytes> bytes = ring_bytes(sizes, ranks);
      for (std::size_t rank = 0; rank < sent.size(); ++rank) {
        EXPECT_EQ(bytes[rank].forward, sent[rank].forward);
        EXPECT_EQ(bytes[rank].backward, sent[rank].backward);
      }
    }
  }
}

// The first ranks have one head more.
int rank_of_head(std::int64_t head, int ranks) {
  int rank = 0;
  for (std::int64_t left = head; left >= 6 / ranks + (rank < 6 % ranks ? 1 : 0); ++rank)
    left -= 6 / ranks + (rank < 6 % ranks ? 1 : 0);
  return rank;
}

// Element by element: the owner of each token and the ranks of each head.
TEST(Shards, HeadsBytesAreThoseOfTheElements) {
  for (const ShardedSizes& sizes : grid()) {
    const std::int64_t wire = bytes_of(sizes.wire);
    for (const int ranks : {1, 2, 3, 4, 6, 7}) {
      std::vector<RankBytes> sent(static_cast<std::size_t>(ranks));
      for (int owner = 0; owner < ranks; ++owner) {
        const auto rows =
            static_cast<std::int64_t>(tokens_of(sizes.order, sizes.tokens, ranks, owner).size());
        for (int other = 0; other < ranks; ++other) {
          if (other == owner) continue;
          std::set<std::int64_t> keys;
          RankBytes& mine = sent[static_cast<std::size_t>(owner)];
          RankBytes& theirs = sent[static_cast<std::size_t>(other)];
          for (std::int64_t head = 0; head < 6; ++head) {
            if (rank_of_head(head, ranks) != other) continue;
            keys.insert(head / 2);
            mine.forward += 2 * rows * 8 * wire;
            theirs.forward += 2 * rows * (4 * wire + 4);
            mine.backward += 2 * rows * ((8 + 4 + 4) * wire + 4);
            theirs.backward += 2 * rows * 8 * wire;
          }
          const std::int64_t shared =
              2 * rows * static_cast<std::int64_t>(keys.size()) * (8 + 4) * wire;
          mine.forward += shared;
          mine.backward += shared;
          theirs.backward += shared;
        }
      }
      const std::vector<RankBytes> bytes = heads_bytes(sizes, ranks);
      for (std::size_t rank = 0; rank < sent.size(); ++rank) {
        EXPECT_EQ(bytes[rank].forward, sent[rank].forward) << ranks;
        EXPECT_EQ(bytes[rank].backward, sent[rank].backward) << ranks;
      }
    }
  }
}

TEST(Shards, GridsOfOneSideAreTheRingAndTheHeads) {
  for (ShardedSizes sizes : grid()) {
    const std::vector<RankBytes> ring = grid_bytes(sizes, 3, 1), plain = ring_bytes(sizes, 3);
    sizes.order = TokenOrder::contiguous;
    const std::vector<RankBytes> heads = grid_bytes(sizes, 1, 3), all = heads_bytes(sizes, 3);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(ring[rank].forward, plain[rank].forward);
      EXPECT_EQ(ring[rank].backward, plain[rank].backward);
      EXPECT_EQ(heads[rank].forward, all[rank].forward);
      EXPECT_EQ(heads[rank].backward, all[rank].backward);
    }
  }
}

TEST(Shards, Refusals) {
  using tests::expect_error;
  expect_error(ErrorCode::out_of_range, {"-1"},
               [] { return shard_runs(TokenOrder::zigzag, -1, 2, 0); });
  expect_error(ErrorCode::out_of_range, {"0"},
               [] { return shard_runs(TokenOrder::zigzag, 4, 0, 0); });
  expect_error(ErrorCode::out_of_range, {"2"},
               [] { return shard_runs(TokenOrder::zigzag, 4, 2, 2); });
  ShardedSizes sizes = grid().back();
  sizes.key_heads = 4;
  expect_error(ErrorCode::invalid_argument, {"4", "6"}, [&] { return ring_bytes(sizes, 2); });
  sizes.key_heads = 3;
  sizes.window = 0;
  expect_error(ErrorCode::out_of_range, {"window", "0"}, [&] { return ring_pairs(sizes, 2); });
}

}  // namespace
}  // namespace phasor::porting
