// Whether two rotations are one: a cache's and the one that it is asked to attend with.
#pragma once

#include <string>

#include "phasor/core/rotary.hpp"

namespace phasor::attention {

// The first member in which they differ, as text "layout half, got interleaved"; empty if both turn
// every key alike.
[[nodiscard]] std::string difference_of(const core::Rotary& expected, const core::Rotary& got);

}  // namespace phasor::attention
