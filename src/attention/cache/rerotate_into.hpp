// rerotate() from one block of keys to another.
#pragma once

#include "phasor/attention/rerotate.hpp"

namespace phasor::attention {

// in and out have one shape and one dtype, and are the same view or lie apart.
//
// throws   as rerotate(), before out is touched
void rerotate_into(const RotaryAt& from, const RotaryAt& to, core::ConstHeadsView in,
                   core::HeadsView out, int threads);

}  // namespace phasor::attention
