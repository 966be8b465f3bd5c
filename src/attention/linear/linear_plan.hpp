// What a LinearPlan owns, and its passes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "attention/linear/linear_call.hpp"
#include "attention/linear/wide_linear.hpp"
#include "phasor/attention/linear.hpp"

namespace phasor::attention {

struct LinearForwardMemory {
  int threads = 1;
  std::int64_t shares = 1;  // units of a key head
  std::int64_t slots = 0;   // states that a thread needs of its own
  Scratch scratch;
  // Streams of several chunks, or whose key heads are divided between threads: the state after the
  // run.
  std::vector<float> next_sums, next_exponents;
};
enum class StateUse : std::uint8_t { none, given };
[[nodiscard]] LinearForwardMemory make_linear_forward_memory(const LinearCall& call,
                                                             StateUse state);
// precondition  the call has checked views and is not empty; out and state are checked
void run_linear_forward(const LinearCall& call, LinearForwardMemory& memory,
                        const core::HeadsView& out, LinearState* state);

// A chunk of a key head as the first pass of backward cut it, for the second pass.
struct LinearCut {
  std::int64_t count;
  float exponent;
};
struct LinearBackwardMemory {
  int threads = 1;
  std::int64_t slots = 0;  // key heads that a thread works on at once
  Scratch scratch;
  std::vector<float> inverses, d_denominators;  // [batch, heads, queries], causal only
  // [threads, slots, keys], not initialised: as many chunks as keys only if no key is finite.
  std::unique_ptr<LinearCut[]> cuts;
  std::int64_t cut_room = 0;
  std::vector<std::int64_t> cut_counts;  // [threads, slots]
};
[[nodiscard]] LinearBackwardMemory make_linear_backward_memory(const LinearCall& call);
void run_linear_backward(const LinearCall& call, LinearBackwardMemory& memory,
                         const core::ConstHeadsView& d_out, const core::HeadsView& d_q,
                         const core::HeadsView& d_k, const core::HeadsView& d_v);

struct LinearPlanParts {
  LinearPlanParts(const std::optional<core::Rotary>& rotary, const LinearSizes& sizes,
                  const LinearOptions& options, LinearUse use);
  LinearPlanParts(const LinearPlanParts&) = delete;  // call points to its neighbours
  LinearPlanParts& operator=(const LinearPlanParts&) = delete;

  // Gives the call the views of a run.
  //
  // throws   Error unless they have the plan's sizes
  void bind(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
            const core::ConstHeadsView& v);

  std::optional<core::Rotary> rotary;
  LinearSizes sizes;
  LinearOptions options;
  LinearUse use;
  LinearCall call;
  std::vector<double> query_ids, key_ids;  // of lists of positions
  std::vector<float> rows;                 // of KeptRows
  LinearForwardMemory forward;
  LinearBackwardMemory backward;
  std::unique_ptr<WideLinearMemory> wide;  // f64 only
};

}  // namespace phasor::attention
