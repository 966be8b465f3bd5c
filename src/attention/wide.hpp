// Attention over float64 views, in float64 throughout: plain loops, a row of scores per thread. For
// gradients that are checked by differences, and wherever float32 is in doubt; calls are checked as
// the float32 ones are.
#pragma once

#include <optional>

#include "attention/linear/linear_call.hpp"
#include "attention/softmax/call.hpp"
#include "phasor/attention/linear.hpp"
#include "phasor/attention/softmax.hpp"

namespace phasor::attention {

// precondition  the call is wide and checked, and so are the outputs, which hold zeros; extras hold
//               what pairs that never meet have
void attend_wide(const Call& call, const core::HeadsView& out, const AttentionExtras& extras);
void attend_backward_wide(const Call& call, const AttentionForward& forward,
                          const AttentionGradients& gradients);

// precondition  as above, but the outputs may hold anything
void linear_attend_wide(const std::optional<core::Rotary>& rotary, const LinearCall& call,
                        const core::HeadsView& out);
void linear_attend_backward_wide(const std::optional<core::Rotary>& rotary, const LinearCall& call,
                                 const core::ConstHeadsView& d_out, const core::HeadsView& d_q,
                                 const core::HeadsView& d_k, const core::HeadsView& d_v);

}  // namespace phasor::attention
