// The kernels of an instruction set.
#pragma once

#include "models/kernels/kernels.hpp"
#include "phasor/core/cpu.hpp"

namespace phasor::models {

// x86-64-v4 comes with VNNI where the CPU has it: the same results, fewer instructions.
//
// throws   Error(unsupported) for a level that this CPU or this build does not have
[[nodiscard]] const kernels::Kernels& kernels_for(core::InstructionSet isa);

}  // namespace phasor::models
