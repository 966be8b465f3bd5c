// Angles as engines compute them in float32, rounded after the same steps: AngleMode::float32
// and those with one more rounding.
#pragma once

#include <cstdint>

#include "phasor/core/internal/kernels/kernels.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/core/view.hpp"

namespace phasor::core {

// cos and sin of float(position) * float32 frequency, times float(amplitude), each step rounded to
// float32; frequency or angle are also rounded to 16 bits if the mode says so.
//
// precondition  mode is not exact
void float32_row(const Frequencies& frequencies, const double* positions, AngleMode mode,
                 float* cos, float* sin) noexcept;

// RoFormer (34) with every product rounded, then the sum. The half layout works in the storage type
// throughout (cos and sin too); the interleaved layout rounds cos and sin to it, works in float32
// and rounds once: the two conventions of the reference engines.
void float32_rotate(DType dtype, PairLayout layout, const kernels::Heads& heads, std::int64_t pairs,
                    const float* cos, const float* sin) noexcept;

}  // namespace phasor::core
