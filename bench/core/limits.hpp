// The machine's own limits at an instruction set and a thread count.
#pragma once

#include <cstddef>

#include "phasor/core/cpu.hpp"

namespace phasor::bench {

void scale_in_place(core::InstructionSet isa, int threads, float* x, std::size_t count);
void stream_copy(core::InstructionSet isa, int threads, const float* from, float* to,
                 std::size_t count);

}  // namespace phasor::bench
