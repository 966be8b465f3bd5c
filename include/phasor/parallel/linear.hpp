// Linear attention over a sequence whose tokens are divided between the ranks of MPI.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "phasor/attention/linear.hpp"
#include "phasor/core/view.hpp"
#include "phasor/parallel/communicator.hpp"
#include "phasor/parallel/shards.hpp"

namespace phasor::parallel {

// RoFormer (17)-(19) over ranks: no key and no value travels, only sums of fixed size, whatever the number of
// tokens. Rank r holds a contiguous part of the tokens, Shards(contiguous, tokens, ranks).
//
//   not causal  the sums over keys of all ranks are added: each rank adds one slice of them and sends it to all
//   causal      a rank needs the sums of the ranks before it: an exclusive prefix sum in ceil(log2 ranks) steps,
//               rank r sending to r + 1, r + 2, r + 4, ... what it has so far
//   backward    the sums over keys again for d_q; those over queries (attention/linear.hpp) from all ranks, or
//               causal: from the ranks after this one, by the mirrored prefix sum, for d_k and d_v
//
// Planned once, run many times:
//
//   ParallelLinearPlan plan(ranks, rotary, {.queries = n, .keys = n, ...}, {.causality = ...});
//   plan.run(q, k, v, out);   // on every rank, with the rows of its tokens
//
// `whole` and `options` describe the whole sequence on every rank: key_padding and positions are those of all
// tokens; they are copied.
//
// error    as attention::linear_attend, kLinearError, for any number of ranks: sums travel and are added in
//          float64
// memory   attention::LinearPlan of the rank's tokens, and linear_memory()
class ParallelLinearPlan {
 public:
  // Collective. All ranks must give the same rotary, sizes and options; threads and isa may differ.
  //
  // throws   Error(invalid_argument | shape_mismatch | out_of_range) as attention::LinearPlan, and if ranks
  //          disagree; Error(unsupported) for f64; Error(shape_mismatch): causal with queries that are not as
  //          many as the keys
  ParallelLinearPlan(Communicator& ranks, const std::optional<core::Rotary>& rotary,
                     const attention::LinearSizes& whole,
                     const attention::LinearOptions& options = {},
                     attention::AttentionPasses passes = attention::AttentionPasses::forward);
  ~ParallelLinearPlan();
  ParallelLinearPlan(ParallelLinearPlan&&) noexcept;
  ParallelLinearPlan& operator=(ParallelLinearPlan&&) noexcept;

  // Collective: attention::linear_attend and linear_attend_backward.
  //
  // shape    q [batch, queries().count(rank), heads, head_dim], k and v with keys().count(rank) tokens, out and
  //          gradients likewise
  // throws   Error as attention::LinearPlan for views that do not fit, Error(io) if a rank stops: every rank
  //          throws. Outputs may hold any numbers then
  void run(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
           const core::ConstHeadsView& v, const core::HeadsView& out);
  void run_backward(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                    const core::ConstHeadsView& v, const core::ConstHeadsView& d_out,
                    const core::HeadsView& d_q, const core::HeadsView& d_k,
                    const core::HeadsView& d_v);

  // Which tokens the rows of q and out, and of k and v, are.
  [[nodiscard]] const Shards& queries() const noexcept;
  [[nodiscard]] const Shards& keys() const noexcept;
  // What this rank has sent in all runs of the plan, in bytes: see linear_bytes().
  [[nodiscard]] std::int64_t bytes_sent() const noexcept;
  // Memory that the plan holds, in bytes; and that of sums alone, see linear_memory().
  [[nodiscard]] std::int64_t bytes() const noexcept;
  [[nodiscard]] std::int64_t sum_bytes() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace phasor::parallel
