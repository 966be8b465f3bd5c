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

}  // namespace phasor::parallel
