#include "attention/peak.hpp"

#include "attention/peak_loops.hpp"

namespace phasor::bench {

extern const PeakLoops peaks_generic;
#if defined(PHASOR_X86_LEVELS)
extern const PeakLoops peaks_x86_64_v3;
extern const PeakLoops peaks_x86_64_v4;
#endif

namespace {

const PeakLoops& peak_loops_for(core::InstructionSet isa) {
  switch (core::resolve_instruction_set(isa)) {
#if defined(PHASOR_X86_LEVELS)
    case core::InstructionSet::x86_64_v3:
      return peaks_x86_64_v3;
    case core::InstructionSet::x86_64_v4:
      return peaks_x86_64_v4;
#endif
    default:
      return peaks_generic;
  }
}

volatile float sink = 0.0F;  // keeps the result from being optimised away

}  // namespace

void multiply_add(core::InstructionSet isa, std::int64_t floats) {
  sink = peak_loops_for(isa).multiply_add(floats);
}

void read_through(core::InstructionSet isa, const float* x, std::size_t count) {
  sink = peak_loops_for(isa).sum(x, count);
}

}  // namespace phasor::bench
