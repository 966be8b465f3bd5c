#include "phasor/porting/shard_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "phasor/io/internal/json.hpp"
#include "support/errors.hpp"

namespace phasor::porting {
namespace {

using io::Json;
using tests::expect_error;

// Sizes of Llama 3.1 8B.
Json llama() {
  return {
      {"model_type", "llama"},       {"hidden_size", 4096},     {"intermediate_size", 14336},
      {"vocab_size", 128256},        {"num_hidden_layers", 32}, {"num_attention_heads", 32},
      {"num_key_value_heads", 8},    {"rope_theta", 500000.0},  {"max_position_embeddings", 131072},
      {"tie_word_embeddings", false}};
}

Result<ShardPlan> try_plan(const Json& config, const ShardPlanOptions& options) {
  return shard_plan(parse_readable_config(config.dump()).value_or_throw(), options);
}

ShardPlan shards_of(const Json& config, const ShardPlanOptions& options) {
  return try_plan(config, options).value_or_throw();
}

const ShardStrategy& strategy_of(const ShardPlan& plan, std::string_view name) {
  const auto found = std::find_if(plan.strategies.begin(), plan.strategies.end(),
                                  [&](const ShardStrategy& one) { return one.name == name; });
  EXPECT_NE(found, plan.strategies.end()) << name;
  return *found;
}

ShardPlanOptions on(int ranks, int nodes, std::int64_t tokens) {
  ShardPlanOptions options;
  options.ranks = ranks;
  options.nodes = nodes;
  options.tokens = tokens;
  return options;
}

// Numbers that can be checked by hand: 4 ranks, 4096 tokens, 8 key heads of 128, bf16.
TEST(ShardPlan, RingByHand) {
  const ShardPlan plan = shards_of(llama(), on(4, 4, 4096));
  const ShardStrategy& ring = strategy_of(plan, "ring zigzag");
  const double shard = 1024.0 * 8 * 2 * 128 * 2;
  EXPECT_EQ(ring.forward_bytes, 3 * shard);
  EXPECT_EQ(ring.backward_bytes, 6 * shard);
  EXPECT_EQ(ring.cache_bytes, 32 * shard);
  EXPECT_EQ(ring.balance, 1.0);
  EXPECT_DOUBLE_EQ(ring.transfer_seconds, 3 * shard * 8 / 100e9);
  const double pairs = 4096.0 * 4097 / 2 / 4;
  EXPECT_DOUBLE_EQ(ring.compute_seconds, pairs * 32 * 4 * 128 / (kRankGflops * 1e9));
  EXPECT_DOUBLE_EQ(ring.compute_backward_seconds, kBackwardWork * ring.compute_seconds);
  // q and out of 32 heads, k and v of 8, log-sum-exp; the plan's own q and out, and three shards.
  EXPECT_EQ(ring.attention_bytes, 1024.0 * (40 * 256 + 32 + 32 * 256) * 4 + 3 * shard);
  // All tokens of 8 heads and 2 key heads as bf16, their log-sum-exp, and what is sent and received.
  EXPECT_EQ(
      strategy_of(plan, "heads").attention_bytes,
      1024.0 * (40 * 256 + 32) * 4 + 4096.0 * ((10 * 256 + 2 * (8 * 128 + 2 * 256)) * 2 + 8 * 4));
  // The last of four contiguous ranks has 7 of 16 parts of the triangle.
  EXPECT_NEAR(strategy_of(plan, "ring contiguous").balance, 7.0 / 4.0, 1e-3);
  EXPECT_EQ(plan.parameters, 8'029'995'008);
  EXPECT_EQ(plan.layers, 32);
}

TEST(ShardPlan, TransferIsHiddenOrNot) {
  // Fast ranks and a slow link: the ring waits for its messages after the first tiles.
  ShardPlanOptions options = on(4, 4, 4096);
  options.gflops = 1e6;
  options.bandwidth = 1.0;
  const ShardPlan slow = shards_of(llama(), options);
  const ShardStrategy& waits = strategy_of(slow, "ring zigzag");
  EXPECT_DOUBLE_EQ(waits.forward_seconds, waits.compute_seconds / 4 + waits.transfer_seconds);
  // The exchange of heads is never hidden.
  const ShardStrategy& heads = strategy_of(slow, "heads");
  EXPECT_DOUBLE_EQ(heads.forward_seconds, heads.compute_seconds + heads.transfer_seconds);
  options.gflops = 1.0;
  options.bandwidth = 1000.0;
  const ShardPlan fast = shards_of(llama(), options);
  const ShardStrategy& hidden = strategy_of(fast, "ring zigzag");
  EXPECT_DOUBLE_EQ(hidden.forward_seconds, hidden.compute_seconds);
  EXPECT_EQ(fast.recommended, "ring zigzag");
}

// A ring crosses each border of nodes once, whatever the number of ranks of a node.
TEST(ShardPlan, NodesShareTheirLink) {
  ShardPlanOptions options = on(8, 2, 8192);
  options.node_bandwidth = 1e6;
  const ShardStrategy ring = strategy_of(shards_of(llama(), options), "ring zigzag");
  EXPECT_DOUBLE_EQ(ring.transfer_seconds, ring.forward_bytes * 8 / 100e9);
  const ShardStrategy heads = strategy_of(shards_of(llama(), options), "heads");
  // Four ranks send 4 of 7 parts to the other node through one link.
  EXPECT_NEAR(heads.transfer_seconds, 4 * heads.forward_bytes * 4 / 7 * 8 / 100e9,
              1e-9 * heads.transfer_seconds);
  options.nodes = 1;
  const ShardStrategy inside = strategy_of(shards_of(llama(), options), "heads");
  EXPECT_DOUBLE_EQ(inside.transfer_seconds, inside.forward_bytes * 8 / (1e6 * 1e9));
}

TEST(ShardPlan, SaysWhyAStrategyIsImpossible) {
  const ShardPlan plan = shards_of(llama(), on(24, 24, 4096));
  EXPECT_NE(strategy_of(plan, "heads").problem.find("24"), std::string::npos);
  EXPECT_EQ(strategy_of(plan, "grid 3 x 8").problem, "");
  EXPECT_NE(strategy_of(plan, "grid 8 x 3").problem.find('3'), std::string::npos);
  EXPECT_NE(strategy_of(plan, "data").problem.find("batch of 1"), std::string::npos);
  ShardPlanOptions rows = on(2, 1, 4096);
  rows.batch = 4;
  const ShardPlan data = shards_of(llama(), rows);
  EXPECT_EQ(data.recommended, "data");
  EXPECT_EQ(strategy_of(data, "data").forward_bytes, 0.0);
  EXPECT_EQ(strategy_of(data, "data").cache_bytes, strategy_of(data, "ring zigzag").cache_bytes);
}

// Layers with a window keep their keys near.
TEST(ShardPlan, WindowsSendLess) {
  Json config = llama();
  config["model_type"] = "mistral";
  config["sliding_window"] = 256;
  const ShardPlan plan = shards_of(config, on(8, 8, 8192));
  EXPECT_EQ(plan.windows.size(), 32U);
  const double shard = 1024.0 * 8 * 2 * 128 * 2;
  EXPECT_EQ(strategy_of(plan, "ring contiguous").forward_bytes, shard);
  EXPECT_EQ(strategy_of(plan, "ring striped").forward_bytes, 7 * shard);
  // RingPlan refuses this.
  ShardPlanOptions options = on(8, 8, 8192);
  options.sees = Sees::all;
  EXPECT_NE(strategy_of(shards_of(config, options), "ring striped").problem.find("256"),
            std::string::npos);
}

TEST(ShardPlan, TokensComeFromTheConfig) {
  EXPECT_EQ(shards_of(llama(), on(2, 1, 0)).options.tokens, 131072);
  EXPECT_EQ(shards_of(llama(), on(2, 0, 0)).options.nodes, 2);
}

TEST(ShardPlan, Refusals) {
  const auto refused = [](const ShardPlanOptions& options) { return try_plan(llama(), options); };
  expect_error(ErrorCode::out_of_range, {"0"}, refused(on(0, 1, 64)));
  expect_error(ErrorCode::out_of_range, {"5000", "4096"}, refused(on(5000, 1, 64)));
  expect_error(ErrorCode::out_of_range, {"6", "4"}, refused(on(6, 4, 64)));
  expect_error(ErrorCode::out_of_range, {"-3"}, refused(on(2, 1, -3)));
  ShardPlanOptions options = on(2, 1, 64);
  options.bandwidth = -1.0;
  expect_error(ErrorCode::out_of_range, {"bandwidth", "-1"}, refused(options));
  const Json plain = {{"head_dim", 8}, {"layout", "half"}};
  expect_error(ErrorCode::invalid_argument, {"num_attention_heads"}, try_plan(plain, on(2, 1, 64)));
  expect_error(ErrorCode::invalid_argument, {"tokens"}, try_plan(plain, on(2, 1, 0)));
}

}  // namespace
}  // namespace phasor::porting
