// Keys rotated under one scheme, rotated again as if under another: k_B = R_B R_A^-1 k_A.
#pragma once

#include "phasor/core/rotate.hpp"
#include "phasor/export.h"

namespace phasor::attention {

// A scheme and the positions of its tokens.
struct RotaryAt {
  const core::Rotary& rotary;
  core::Positions positions;
};

// If both schemes pair features in the same way, this is one rotation by the difference of the exact
// angles, times b/a for the amplitudes; otherwise the inverse under `from`, then the rotation under
// `to`, without rounding in between.
//
// shape    keys as core::rotate; both schemes have its head_dim
// throws   as core::rotate, before keys are written
PHASOR_API void rerotate(const RotaryAt& from, const RotaryAt& to, core::HeadsView keys,
                         int threads = 0);

}  // namespace phasor::attention
