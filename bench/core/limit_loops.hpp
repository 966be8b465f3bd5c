// The simplest loops that touch the same bytes as a rotation. Compiled per instruction set, like
// the kernels.
#pragma once

#include <cstddef>

namespace phasor::bench {

struct LimitLoops {
  // x *= factor, in place.
  void (*scale)(float* x, std::size_t count, float factor);
  // to = from, past the caches. Both aligned to 64 bytes, count a multiple of 16.
  void (*stream_copy)(const float* from, float* to, std::size_t count);
};

}  // namespace phasor::bench
