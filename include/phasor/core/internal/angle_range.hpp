// The range in which angles are exact, and frequencies as kernels take them.
#pragma once

#include "phasor/core/internal/kernels/kernels.hpp"
#include "phasor/core/rotate.hpp"

namespace phasor::core {

// throws   Error(out_of_range) unless every position in [low, high] gives an angle that the kernels
//          reduce exactly and that `mode` can represent
void check_angle_range(const char* where, const Frequencies& frequencies, double low, double high,
                       AngleMode mode = AngleMode::exact);

[[nodiscard]] kernels::Angles kernel_angles(const Frequencies& frequencies) noexcept;

}  // namespace phasor::core
