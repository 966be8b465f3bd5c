#include "attention/peak.hpp"

#include <bit>
#include <iterator>

#include "attention/peak_loops.hpp"
#include "phasor/core/internal/kernel_levels.hpp"
#include "phasor/core/internal/measured_choice.hpp"

namespace phasor::bench {

extern const PeakLoops peaks_generic, peaks_x86_64_v3, peaks_x86_64_v4;

namespace {

// The loops are compiled for fewer levels than the kernels.
const PeakLoops& peak_loops_for(core::InstructionSet isa) {
#if defined(PHASOR_X86_LEVELS)
  return core::KernelLevels<PeakLoops>{&peaks_generic, &peaks_generic, &peaks_x86_64_v3,
                                       &peaks_x86_64_v4}
      .of(isa);
#else
  return core::KernelLevels<PeakLoops>{&peaks_generic}.of(isa);
#endif
}

volatile float sink = 0.0F;  // keeps the result from being optimised away

}  // namespace

void multiply_add(core::InstructionSet isa, std::int64_t floats) {
  sink = peak_loops_for(isa).multiply_add(floats);
}

void read_through(core::InstructionSet isa, const float* x, std::size_t count) {
  // A limit must be the fastest way. Prefetching is a tenth faster on a Xeon at AVX2, and a fifth slower on
  // Zen 4: the first calls for a level and a size measure all ways.
  static core::MeasuredChoice choices[core::kChoiceLevels][65];
  const PeakLoops& loops = peak_loops_for(isa);
  choices[static_cast<int>(isa)][std::bit_width(count)].run(
      static_cast<int>(std::size(loops.sums)), static_cast<float>(count),
      [&](int way) { sink = loops.sums[way](x, count); });
}

}  // namespace phasor::bench
