// Keys that were turned under one scheme, turned again to stand as if under another: k_B = R_B
// R_A^-1 k_A.
#pragma once

#include "phasor/core/rotate.hpp"
#include "phasor/export.h"

namespace phasor::attention {

// A scheme and where its tokens stand.
struct RotaryAt {
  const core::Rotary& rotary;
  core::Positions positions;
};

// Where both schemes pair features alike this is one turn by the difference of the exact angles,
// the amplitude changed by b/a once; otherwise the inverse under `from`, then the turn under `to`,
// without rounding between.
//
// shape    keys as core::rotate; both schemes have its head_dim
// throws   as core::rotate, before keys are touched
PHASOR_API void rerotate(const RotaryAt& from, const RotaryAt& to, core::HeadsView keys,
                         int threads = 0);

}  // namespace phasor::attention
