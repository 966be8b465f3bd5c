// Softmax attention over float64 views, in float64 throughout: plain loops, a row of scores per thread.
// Calls are checked like the float32 ones.
#pragma once

#include "attention/softmax/call.hpp"
#include "attention/softmax/packed_tables.hpp"
#include "phasor/attention/softmax.hpp"

namespace phasor::attention {

// Prepares memory.wide for the pass, and reads the tables.
//
// throws   std::bad_alloc
void prepare_wide(Call& call, Pass pass);
// Reads the tables again.
void widen_tables(const Call& call);

// precondition  the call is f64, checked and prepared; outputs are checked and hold zeros; extras
//               hold the values of pairs of different sequences
void attend_wide(const Call& call, const core::HeadsView& out, const AttentionExtras& extras);
void attend_backward_wide(const Call& call, const AttentionForward& forward,
                          const AttentionGradients& gradients);

}  // namespace phasor::attention
