#include "attention/peak.hpp"

#include <bit>
#include <chrono>

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
  // Zen 4: the first call for a level and a size measures both.
  constexpr int kLevels = static_cast<int>(core::InstructionSet::x86_64_v4) + 1;
  static core::MeasuredChoice choices[kLevels][65];
  core::MeasuredChoice& choice = choices[static_cast<int>(isa)][std::bit_width(count)];
  const PeakLoops& loops = peak_loops_for(isa);
  const auto read = [&](int way) {
    sink = way == 0 ? loops.sum(x, count) : loops.sum_ahead(x, count);
  };
  while (choice.kept() < 0) {
    const int way = choice.next(2);
    const auto begin = std::chrono::steady_clock::now();
    read(way);
    const std::chrono::duration<float> time = std::chrono::steady_clock::now() - begin;
    choice.record(2, way, time.count());
  }
  read(choice.kept());
}

}  // namespace phasor::bench
