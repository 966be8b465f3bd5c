// From an instruction set to its kernels.
#pragma once

#include "phasor/core/cpu.hpp"
#include "phasor/core/internal/kernels/kernels.hpp"

namespace phasor::core {

// throws   Error(unsupported) for a level that this CPU or this build does not have
[[nodiscard]] const kernels::Kernels& kernels_for(InstructionSet isa);

}  // namespace phasor::core
