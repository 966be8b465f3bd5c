// The bytes that `phasor plan --ranks` shows are those that the plans of this room send.
#include <gtest/gtest.h>

#include "phasor/parallel/shards.hpp"
#include "phasor/parallel/traffic.hpp"
#include "phasor/porting/shard_costs.hpp"

namespace phasor::parallel {
namespace {

TEST(PlannedBytes, AreThoseOfTheRing) {
  for (const TokenOrder order : {TokenOrder::contiguous, TokenOrder::zigzag, TokenOrder::striped}) {
    for (const std::int64_t tokens : {0, 1, 5, 24, 61}) {
      for (const std::int64_t window : {0, 1, 3, 20}) {
        for (const bool causal : {false, true}) {
          if (order == TokenOrder::striped && !causal && window > 0) continue;  // refused
          porting::ShardedSizes sizes{.batch = 2,
                                      .tokens = tokens,
                                      .heads = 6,
                                      .key_heads = 3,
                                      .head_dim = 8,
                                      .value_dim = 4,
                                      .sees = causal ? porting::Sees::earlier : porting::Sees::all,
                                      .order = order,
                                      .wire = porting::WireType::bf16};
          attention::AttentionOptions options;
          if (causal) options.causality = attention::Causality::bottom_right;
          if (window > 0) options.window = sizes.window = window;
          const attention::AttentionSizes whole{.batch = 2,
                                                .queries = tokens,
                                                .keys = tokens,
                                                .heads = 6,
                                                .key_heads = 3,
                                                .head_dim = 8,
                                                .value_dim = 4};
          for (const int ranks : {1, 2, 3, 5}) {
            const auto planned = porting::ring_bytes(sizes, ranks);
            for (int rank = 0; rank < ranks; ++rank) {
              const RingBytes sent =
                  ring_bytes(whole, options, {order, WireType::bf16}, ranks, rank);
              const porting::RankBytes& bytes = planned[static_cast<std::size_t>(rank)];
              EXPECT_EQ(bytes.forward, sent.keys_and_values)
                  << name_of(order) << ", " << tokens << " tokens, window " << window << ", rank "
                  << rank << " of " << ranks;
              EXPECT_EQ(bytes.backward, sent.keys_and_values + sent.gradients);
              EXPECT_EQ(porting::shard_tokens(order, tokens, ranks, rank),
                        Shards(order, tokens, ranks).count(rank));
            }
          }
        }
      }
    }
  }
}

TEST(PlannedBytes, AreThoseOfHeadsAndGrids) {
  for (const TokenOrder order : {TokenOrder::contiguous, TokenOrder::zigzag, TokenOrder::striped}) {
    for (const std::int64_t tokens : {0, 5, 61}) {
      const porting::ShardedSizes sizes{.batch = 2,
                                        .tokens = tokens,
                                        .heads = 12,
                                        .key_heads = 3,
                                        .head_dim = 8,
                                        .value_dim = 4,
                                        .order = order};
      const attention::AttentionSizes whole{.batch = 2,
                                            .queries = tokens,
                                            .keys = tokens,
                                            .heads = 12,
                                            .key_heads = 3,
                                            .head_dim = 8,
                                            .value_dim = 4};
      const attention::AttentionOptions causal{.causality = attention::Causality::bottom_right};
      const ParallelOptions options{order, WireType::f32};
      for (const int ranks : {1, 3, 6}) {
        const auto planned = porting::heads_bytes(sizes, ranks);
        for (int rank = 0; rank < ranks; ++rank) {
          const RunBytes sent = heads_bytes(whole, options, ranks, rank);
          EXPECT_EQ(planned[static_cast<std::size_t>(rank)].forward,
                    sent.forward + sent.log_sum_exp);
          EXPECT_EQ(planned[static_cast<std::size_t>(rank)].backward, sent.backward);
        }
        const auto grid = porting::grid_bytes(sizes, 2, ranks);
        for (int rank = 0; rank < 2 * ranks; ++rank) {
          const RunBytes sent = grid_bytes(whole, causal, options, 2, ranks, rank);
          EXPECT_EQ(grid[static_cast<std::size_t>(rank)].forward, sent.forward + sent.log_sum_exp);
          EXPECT_EQ(grid[static_cast<std::size_t>(rank)].backward, sent.backward);
        }
      }
    }
  }
}

}  // namespace
}  // namespace phasor::parallel
