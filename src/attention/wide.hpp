// Softmax attention over float64 views, in float64 throughout: plain loops, a row of scores per thread.
// Calls are checked like the float32 ones.
#pragma once

#include "attention/softmax/call.hpp"
#include "phasor/attention/softmax.hpp"

namespace phasor::attention {

// precondition  the call is f64 and checked; outputs are checked and hold zeros; extras hold the
//               values of pairs of different sequences
void attend_wide(const Call& call, const core::HeadsView& out, const AttentionExtras& extras);
void attend_backward_wide(const Call& call, const AttentionForward& forward,
                          const AttentionGradients& gradients);

}  // namespace phasor::attention
