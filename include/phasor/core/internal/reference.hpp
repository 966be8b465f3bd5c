// The definition, for checking: double, scalar, not optimised, and another form of the equation
// than the kernels use.
#pragma once

#include "phasor/core/rotate.hpp"
#include "phasor/export.h"

namespace phasor::core::reference {

// RoFormer (12)   y = x e^{imθ}, x = x[a] + i x[b], in long double where that is wider.
//
// Same arguments and checks as core::rotate, AngleMode::exact only; good to about 1e-12 for
// |position| <= 2^24.
PHASOR_API void rotate(const Rotary& rotary, const Positions& positions, ConstHeadsView in,
                       HeadsView out, Direction direction = Direction::forward,
                       Role role = Role::query);

}  // namespace phasor::core::reference
