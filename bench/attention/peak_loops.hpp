// What a core can multiply and what it can read, as plain loops. Compiled per instruction set, like the
// kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace phasor::bench {

struct PeakLoops {
  // Multiplies and adds in registers alone, at least `floats` of each; returns a value that needs
  // them all.
  float (*multiply_add)(std::int64_t floats);
  // Read everything and add it up; aligned to 64 bytes. In order without prefetching, 4 KiB and 16 KiB
  // ahead; halves and quarters in turn.
  float (*sums[5])(const float* x, std::size_t count);
};

}  // namespace phasor::bench
