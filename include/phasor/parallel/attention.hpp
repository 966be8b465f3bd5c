// Softmax attention over a sequence whose tokens are divided between the ranks of MPI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "phasor/attention/softmax.hpp"
#include "phasor/core/view.hpp"
#include "phasor/encodings/score_terms.hpp"
#include "phasor/parallel/communicator.hpp"
#include "phasor/parallel/shards.hpp"

namespace phasor::parallel {

// Ring attention: a rank keeps its queries; keys and values travel from rank to rank while the ranks compute.
// Partial outputs are merged by their log-sum-exp; in the backward pass the gradients of keys and values travel
// with them. Planned once, run many times:
//
//   RingPlan plan(ranks, terms, {.queries = n, .keys = n, ...}, {.causality = Causality::bottom_right},
//                 {.order = TokenOrder::zigzag});
//   plan.run(q, k, v, out);   // on every rank, with the rows of its tokens
//
// The queries and the keys of a call may differ in number; each are divided as Shards(order, number, ranks).
// `whole`, `terms` and `options` describe the whole sequence on every rank: tables are resolved for it, and
// boundaries, key_padding, segments and position ids are those of all tokens. They are copied, with the
// exception of the numbers of the tables, which must outlive the plan.
//
// error    f32: as attention::attend, and kRingError for the merge. bf16: as attention::attend over keys and
//          values rounded to bf16 (after the rotation), on every rank and for any number of ranks; gradients of
//          keys and values are rounded once more for each rank that they pass
// memory   k and v of this rank once more, and q if it is rotated; two shards under way; one output of a piece and the
//          scratch of the largest piece; backward: two more shards, and d_k and d_v of a piece
class RingPlan {
 public:
  // Collective. All ranks must give the same sizes, terms and options; threads and isa may differ.
  //
  // options  workspace and rotations are not read
  // throws   Error(invalid_argument | shape_mismatch | out_of_range) as attention::AttentionPlan, and if ranks
  //          disagree; Error(unsupported) for a mask, key_lengths, query_offset, bf16 on the wire with f64
  //          arithmetic, a window without causality in striped order, and extra features that are counted by
  //          token if a sequence has not as many queries as keys. All before anything is sent
  RingPlan(Communicator& ranks, encodings::ScoreTerms terms, const attention::AttentionSizes& whole,
           const attention::AttentionOptions& options = {}, const ParallelOptions& parallel = {},
           attention::AttentionPasses passes = attention::AttentionPasses::forward);
  ~RingPlan();
  RingPlan(RingPlan&&) noexcept;
  RingPlan& operator=(RingPlan&&) noexcept;

  // Collective: attention::attend. Rows are the tokens of this rank in the order of its shard.
  //
  // shape    q [batch, queries().count(rank), heads, head_dim], k, v and out likewise; log_sum_exp [batch,
  //          heads, queries().count(rank)] of all keys, or null; wide_log_sum_exp in its place for f64
  // throws   Error as attention::AttentionPlan::run for views that do not fit, Error(io) if a rank stops: every
  //          rank throws. out may hold any numbers then
  void run(core::ConstHeadsView q, core::ConstHeadsView k, core::ConstHeadsView v,
           core::HeadsView out, float* log_sum_exp = nullptr, double* wide_log_sum_exp = nullptr);
  // Collective: attention::attend_backward. `forward` is what run() gave on this rank, and its gradient.
  // Gradients of tables are summed over ranks, and added on every rank.
  //
  // throws   as run(); Error(invalid_argument) for a plan of AttentionPasses::forward
  void run_backward(core::ConstHeadsView q, core::ConstHeadsView k, core::ConstHeadsView v,
                    const attention::AttentionForward& forward,
                    const attention::AttentionGradients& gradients);

  // Reads the tables again, after their numbers have changed; every rank does so before its next run.
  void update_tables();

  // Which tokens the rows of q and out, and of k and v, are.
  [[nodiscard]] const Shards& queries() const noexcept;
  [[nodiscard]] const Shards& keys() const noexcept;
  // Keys, values and gradients that this rank has sent in all runs of the plan, in bytes: see ring_bytes().
  [[nodiscard]] std::int64_t bytes_sent() const noexcept;
  // Memory that the plan holds, in bytes.
  [[nodiscard]] std::size_t bytes() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// |merged - exact| <= kRingError * pieces * epsilon(f32) * (1 + |log-sum-exp|) * (the largest |v + C|), pieces
// being those that a query meets: the float32 log-sum-exp of each piece rounds by epsilon/2 of its size, twice for a
// piece (its own and that of the sum so far), which is the relative error of the weights; then two products and a
// sum.
inline constexpr double kRingError = 2.0;

}  // namespace phasor::parallel
