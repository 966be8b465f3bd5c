// rerotate() from one block of keys to another.
#pragma once

#include "phasor/attention/kv_cache.hpp"

namespace phasor::attention {

// in and out have the same shape and dtype, and are the same view or do not overlap.
//
// throws   as rerotate(), before out is written
void rerotate_into(const RotaryAt& from, const RotaryAt& to, core::ConstHeadsView in,
                   core::HeadsView out, int threads);

}  // namespace phasor::attention
