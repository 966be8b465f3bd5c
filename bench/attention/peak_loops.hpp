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
  // Reads everything and adds it up; aligned to 64 bytes.
  float (*sum)(const float* x, std::size_t count);
};

}  // namespace phasor::bench
