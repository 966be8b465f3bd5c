// One call of rotate, checked: what its parts share.
#pragma once

#include <cstdint>
#include <span>

#include "phasor/core/internal/kernels/kernels.hpp"
#include "phasor/core/internal/window.hpp"
#include "phasor/core/rotate.hpp"

namespace phasor::core {

// Everything that is the same for all tokens of a call.
struct Call {
  Window window;
  const Rotary* rotary;  // null where the caller gave rows
  const Positions& positions;
  std::span<const Rotation> rotations;
  const RotateOptions& options;
  const kernels::Kernels& kernels;
  DType dtype;
  std::int64_t batch, tokens;
  std::int64_t element;  // bytes
  std::int64_t block_pairs;
  std::int64_t ahead;
  kernels::Store store;
  bool staged;  // large output that is not aligned for streaming stores
  bool heads_first;
  bool many_tokens;  // heads first, and so large that it is read from memory in long runs
  float sin_sign;
  double scale;                      // on cos and sin
  const CosSinRows* rows = nullptr;  // the caller's cos and sin, in place of angles

  [[nodiscard]] bool grows() const { return rotary != nullptr && rotary->growth.has_value(); }
  // Reads one layout and writes the other.
  [[nodiscard]] bool crosses() const { return window.layout == PairLayout::interleaved_to_half; }
  // The layout that the kernel works in.
  [[nodiscard]] PairLayout kernel_layout() const {
    return crosses() ? PairLayout::half : window.layout;
  }
};

// Turns the window of each of `heads` by rows cos, sin: block_pairs floats, or doubles for f64
// data.
void rotate_window(const Call& call, const kernels::Heads& heads, const void* cos, const void* sin);

// The features of a token's heads that do not turn, when the output is another buffer.
void copy_the_rest(const Call& call, const Rotation& rotation, const char* in, char* out);

}  // namespace phasor::core
