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

// What a run does of a part of a sequence; `whole` is all of it, with sums of its own.
struct LinearStep {
  enum class What : std::uint8_t {
    whole,
    sum_keys,  // forward: the sums over keys leave
    queries,  // outputs or gradients of queries: the sums over keys enter; backward: those over queries leave
    keys,  // backward: gradients of keys and values: the sums over queries enter
  };
  What what = What::whole;
  const PartSums* enters = nullptr;
  PartSums* leaves = nullptr;
};

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
                        const core::HeadsView& out, LinearState* state,
                        const LinearStep& step = {});

// A chunk of a key head as the first pass of backward cut it, for the second pass.
struct LinearCut {
  std::int64_t count;
  float exponent;
};
enum class LinearExtent : std::uint8_t { whole, part };
struct LinearBackwardMemory {
  LinearExtent extent = LinearExtent::whole;
  int threads = 1;
  std::int64_t slots = 0;  // key heads that a thread works on at once
  Scratch scratch;
  std::vector<float> inverses, d_denominators;  // [batch, heads, queries], causal only
  // [threads, slots, keys], or [batch, key heads, keys] for a part, whose passes are runs of their own;
  // not initialised: as many chunks as keys only if no key is finite.
  std::unique_ptr<LinearCut[]> cuts;
  std::int64_t cut_room = 0;
  std::vector<std::int64_t> cut_counts;  // [threads, slots], or [batch, key heads]
};
[[nodiscard]] LinearBackwardMemory make_linear_backward_memory(const LinearCall& call,
                                                               LinearExtent extent);
void run_linear_backward(const LinearCall& call, LinearBackwardMemory& memory,
                         const core::ConstHeadsView& d_out, const core::HeadsView& d_q,
                         const core::HeadsView& d_k, const core::HeadsView& d_v,
                         const LinearStep& step = {});

struct LinearPlanParts {
  LinearPlanParts(const std::optional<core::Rotary>& rotary, const LinearSizes& sizes,
                  const LinearOptions& options, LinearUse use,
                  LinearExtent extent = LinearExtent::whole);
  LinearPlanParts(const LinearPlanParts&) = delete;  // call points to its neighbours
  LinearPlanParts& operator=(const LinearPlanParts&) = delete;

  // Gives the call the views of a run.
  //
  // throws   Error unless they have the plan's sizes
  void bind(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
            const core::ConstHeadsView& v);
  // throws   Error unless outputs have the sizes of the plan and overlap nothing
  void check_out(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                 const core::ConstHeadsView& v, const core::HeadsView& out) const;
  void check_gradients(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                       const core::ConstHeadsView& v, const core::ConstHeadsView& d_out,
                       const core::HeadsView& d_q, const core::HeadsView& d_k,
                       const core::HeadsView& d_v) const;
  // Memory held.
  [[nodiscard]] std::int64_t bytes() const noexcept;

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
