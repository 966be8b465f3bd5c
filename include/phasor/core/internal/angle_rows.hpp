// What every row of cos and sin needs, in core and in the rooms that keep rows of their own.
#pragma once

#include <cstdint>

#include "phasor/core/rotate.hpp"

namespace phasor::core {

// Kernels read whole vectors of a row: this many floats after it must be readable.
inline constexpr std::int64_t kRowPadding = 32;

// xPos: multiplies cos[i] and sin[i] by e^{rate_i (m - centre)}, or by its inverse: for keys when
// they are rotated, for queries when the rotation is undone.
void apply_growth(const Growth& growth, double position, Role role, Direction direction,
                  double* cos, double* sin) noexcept;

}  // namespace phasor::core
