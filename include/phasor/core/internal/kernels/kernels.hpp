// What the kernels of every instruction set offer: plain structs and function pointers, no
// templates, so that the linker cannot choose an inline function of a level that the CPU does not
// have.
#pragma once

#include <cstdint>

namespace phasor::core::kernels {

// One token's heads: `heads` windows of 2 * pairs features, each `stride` elements after the last.
// Or one head's tokens: then each window has its own row, row_stride floats after the last.
struct Heads {
  const void* in;
  void* out;
  std::int64_t in_stride, out_stride;
  std::int64_t heads;
  std::int64_t row_stride = 0;
};

enum class Store : std::uint8_t { cached, streaming };

// rows     cos[pairs], sin[pairs], floats; 128 bytes after them may be read
// ahead    bytes to prefetch ahead of the element being worked on; 0: none
using RotateFunction = void (*)(const Heads& heads, std::int64_t pairs, const void* cos,
                                const void* sin, std::int64_t ahead, Store store);

// cos and sin of positions[axes[i]] * frequencies[i], times amplitude; axes may be null (all 0).
// Only finite positions with |angle| <= 2^48.
struct Angles {
  const double* frequencies;
  const std::uint8_t* axes;
  std::int64_t pairs;
  double amplitude;
};
using RowFunctionF32 = void (*)(const Angles& angles, const double* positions, float* cos,
                                float* sin);
using RowFunctionF64 = void (*)(const Angles& angles, const double* positions, double* cos,
                                double* sin);

// The position times the frequency, reduced exactly: returns the quadrant (mod 4), and
// the rest as parts[0] + parts[1]. Slow; for the few angles next to a multiple of pi/2.
[[nodiscard]] std::int64_t reduce_carefully(double position, double frequency, double parts[2]);

struct Kernels {
  // [f32, f16, bf16][interleaved, half]
  RotateFunction rotate[3][2];
  // [interleaved, half]; rows are doubles
  RotateFunction rotate_f64[2];
  // Copies past the caches to any address.
  void (*stream_bytes)(void* to, const void* from, std::int64_t bytes);
  // Makes streaming stores of this thread visible to the others.
  void (*fence)();
  RowFunctionF32 row_f32;
  RowFunctionF64 row_f64;
};

}  // namespace phasor::core::kernels
