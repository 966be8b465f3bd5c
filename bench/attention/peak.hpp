// What one core can multiply and read at an instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "phasor/core/cpu.hpp"

namespace phasor::bench {

// At least this many fused multiply-adds of floats, none of which waits for memory.
void multiply_add(core::InstructionSet isa, std::int64_t floats);
void read_through(core::InstructionSet isa, const float* x, std::size_t count);

}  // namespace phasor::bench
