// How to divide a sequence over ranks: every strategy with its bytes, memory, balance and time, and the
// one that takes least time. A calculation; shard_costs.hpp has the formulas of the bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/export.h"
#include "phasor/porting/config_reports.hpp"
#include "phasor/porting/shard_costs.hpp"

namespace phasor::porting {

// Constants of docs/scale.md; options replace them.
//
// Measured: GFLOP/s, by CPU time, of attention on a rank of one thread: causal, 8192 tokens, 8 heads of 64, float32.
inline constexpr double kRankGflops = 50.0;
// Assumed: Gb/s from one rank to another of the same machine.
inline constexpr double kNodeGbits = 40.0;
// Products of a backward tile (s, dp, dv, dk, dq) over those of a forward tile (s, o).
inline constexpr double kBackwardWork = 2.5;

struct ShardPlanOptions {
  int ranks = 1;
  int nodes =
      0;  // 0: every rank is a node; else a divisor of ranks, consecutive ranks share a node
  std::int64_t tokens = 0;  // 0: the config's largest length
  std::int64_t batch = 1;
  double bandwidth = 100.0;  // Gb/s that a node sends to others, full duplex, shared by its ranks
  double node_bandwidth = kNodeGbits;  // Gb/s that a rank sends inside its node
  double gflops = kRankGflops;         // of a rank
  WireType wire = WireType::bf16;
  Sees sees = Sees::earlier;
};

// One strategy. Bytes, seconds and `attention_bytes` are those of the rank that has most, of one layer (the
// mean of all layers, if their windows differ).
struct ShardStrategy {
  std::string name;     // "ring zigzag", "heads", "grid 4 x 2 zigzag", "data"
  std::string problem;  // why it is impossible; empty: it is possible
  int ring = 1, heads = 1;
  TokenOrder order = TokenOrder::contiguous;         // of the ring
  double forward_bytes = 0.0, backward_bytes = 0.0;  // sent
  // Forward: q, k, v, out and log-sum-exp of the rank in float32, and what the plan holds: its own q and out,
  // keys and values that travel, or the exchanged heads. Without the scratch of one tile.
  double attention_bytes = 0.0;
  double cache_bytes = 0.0;  // keys and values of all layers, in the type of the wire
  double balance = 1.0;      // pairs of the rank that has most / mean
  double compute_seconds = 0.0, compute_backward_seconds = 0.0;
  double transfer_seconds = 0.0, transfer_backward_seconds = 0.0;
  // With what overlaps: keys travel around a ring while tiles are computed, an exchange of heads waits.
  double forward_seconds = 0.0, backward_seconds = 0.0;
};

struct ShardPlan {
  std::string model_type;
  ShardPlanOptions options;  // with the tokens and nodes that were used
  std::int64_t heads = 0, key_heads = 0, head_dim = 0, layers = 1;
  bool layers_known = false;
  std::vector<std::int64_t> windows;  // of each layer that has one
  // Parameters of a decoder with gated feed-forward layers; none: the config lacks a size, or has experts.
  std::optional<std::int64_t> parameters = std::nullopt;
  std::vector<ShardStrategy> strategies;
  std::string recommended;  // the name of a strategy
  std::string reason;
  std::vector<std::string> assumptions;
};

// error    ranks, tokens, batch, bandwidths or gflops that are not positive; ranks > kMaxRanks; nodes that do
//          not divide ranks; tokens unknown or >= 2^40; a config without a number of heads
// cost     O(ranks^2) per strategy and window
[[nodiscard]] PHASOR_API Result<ShardPlan> shard_plan(const ReadableConfig& config,
                                                      const ShardPlanOptions& options);
inline constexpr int kMaxRanks = 4096;

[[nodiscard]] PHASOR_API std::string shard_plan_json(const ShardPlan& plan);

}  // namespace phasor::porting
