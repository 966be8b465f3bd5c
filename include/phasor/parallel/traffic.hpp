// What the ranks of a plan send and hold, as formulas. Without MPI. ring_bytes() is in shards.hpp.
#pragma once

#include <cstdint>

#include "phasor/attention/linear.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/parallel/shards.hpp"

namespace phasor::parallel {

// Bytes that one rank sends in one run.
struct RunBytes {
  std::int64_t forward = 0, backward = 0;
  std::int64_t log_sum_exp = 0;  // besides, of a forward run that is asked for it
};

// ParallelLinearPlan. With S = 8 batch key_heads (width value_dim + width + 1), width being that of phi, the
// bytes of the sums over keys (those over queries are as many), and P ranks:
//
//   not causal  forward about 2 S (P - 1) / P: a slice to every other rank, and the sum of the own slice to all
//   causal      forward S for each of the ranks r + 1, r + 2, r + 4, ... below P; backward: the same, and S for
//               each of the ranks r - 1, r - 2, r - 4, ... from 0 on
//   backward    twice as much, over all ranks
//
// Nothing depends on the number of tokens.
[[nodiscard]] RunBytes linear_bytes(const attention::LinearSizes& whole,
                                    const attention::LinearOptions& options, int ranks, int rank);
// What a ParallelLinearPlan holds besides the LinearPlan of its tokens: own sums, their total and (causal) two more,
// or a slice of each rank's; twice for backward. About 4 S or 3 S.
[[nodiscard]] std::int64_t linear_memory(const attention::LinearSizes& whole,
                                         const attention::LinearOptions& options,
                                         attention::AttentionPasses passes, int ranks, int rank);

// HeadsPlan. n and m: query and key tokens of the rank, N and M: of all; a and c: heads and key heads of a rank, H / P
// and max(1, key_heads / P); D = head_dim, V = value_dim; w: bytes of a number on the wire, l: of a log-sum-exp, 4 or
// (f64) 8.
//
//   forward      batch ((P - 1) (n a D + m c (D + V)) w + (N - n) a V w)
//   log_sum_exp  batch (N - n) a l
//   backward     batch ((P - 1) (n a ((D + 2 V) w + l) + m c (D + V) w) + ((N - n) a D + (M - m) c (D + V)) w)
//
// throws   Error as HeadsPlan for heads that cannot be divided
[[nodiscard]] RunBytes heads_bytes(const attention::AttentionSizes& whole,
                                   const ParallelOptions& parallel, int ranks, int rank);
// What a HeadsPlan holds after its runs besides the AttentionPlan: tensors with all tokens of its heads, and one
// message to and from every rank. Falls as 1 / P. Messages are rounded up to 64 bytes each.
//
//   gathered      batch (N a ((D + V) w + l) + M c (D + V) w); backward: and batch (N a + M c) (D + V) w
//   messages      the largest that is sent in one direction, and the largest that is received
[[nodiscard]] std::int64_t heads_memory(const attention::AttentionSizes& whole,
                                        const ParallelOptions& parallel,
                                        attention::AttentionPasses passes, int ranks, int rank);

// GridPlan: heads_bytes() among the tokens of the row, and ring_bytes() of the column's heads.
//
// throws   Error as GridPlan
[[nodiscard]] RunBytes grid_bytes(const attention::AttentionSizes& whole,
                                  const attention::AttentionOptions& options,
                                  const ParallelOptions& parallel, int ring_ranks, int heads_ranks,
                                  int rank);
// heads_memory() of a grid: what a GridPlan holds besides the RingPlan of its column.
[[nodiscard]] std::int64_t grid_memory(const attention::AttentionSizes& whole,
                                       const ParallelOptions& parallel,
                                       attention::AttentionPasses passes, int ring_ranks,
                                       int heads_ranks, int rank);

}  // namespace phasor::parallel
