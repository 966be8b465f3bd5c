// The two passes of a call: prepared once, run with the views that bind() gave it.
#pragma once

#include "attention/softmax/call.hpp"

namespace phasor::attention {

// Allocates the scratch of the forward pass (but for few_queries.cpp) and packs its tables.
//
// throws   std::bad_alloc
void prepare_forward(Call& call);
// throws   Error as AttentionPlan::run, before out is written; std::bad_alloc
void run_forward(Call& call, const core::HeadsView& out, const AttentionExtras& extras);

// The same for the backward pass.
void prepare_backward(Call& call);
void run_backward(Call& call, const AttentionForward& forward, const AttentionGradients& gradients);

// Packs the tables of each pass that is prepared.
void repack_tables(Call& call);

}  // namespace phasor::attention
