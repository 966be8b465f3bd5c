// Compares the rotation of a cache with the one of the terms it attends with.
#pragma once

#include <string>

#include "phasor/core/rotate.hpp"

namespace phasor::attention {

// The first member in which they differ, as text "layout half, got interleaved"; empty if both rotate
// every key in the same way.
[[nodiscard]] std::string difference_of(const core::Rotary& expected, const core::Rotary& got);

}  // namespace phasor::attention
