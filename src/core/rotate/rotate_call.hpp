// One checked call of rotate(): what all its parts share.
#pragma once

#include <cstdint>
#include <span>

#include "phasor/core/internal/kernels/kernels.hpp"
#include "phasor/core/internal/window.hpp"
#include "phasor/core/rotate.hpp"

namespace phasor::core {

// Everything that is the same for all tokens of a call.
struct RotateCall {
  Window window;
  const Rotary* rotary;  // null if the caller gave rows
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
  bool many_tokens;  // heads first, and large enough to be read from memory in long runs
  float sin_sign;
  double scale;                      // on cos and sin
  const CosSinRows* rows = nullptr;  // the caller's cos and sin, instead of angles

  [[nodiscard]] bool grows() const { return rotary != nullptr && rotary->growth.has_value(); }
  // Reads one layout and writes the other.
  [[nodiscard]] bool crosses() const { return window.layout == PairLayout::interleaved_to_half; }
  // The layout that the kernel works in.
  [[nodiscard]] PairLayout kernel_layout() const {
    return crosses() ? PairLayout::half : window.layout;
  }
};

// Rotates one block of each of `heads` by the rows cos, sin: block_pairs floats, or doubles for f64
// data.
void rotate_block(const RotateCall& call, const kernels::Heads& heads, const void* cos,
                  const void* sin);

// Copies the features of a token's heads that are not rotated, if the output is another buffer.
void copy_unrotated_features(const RotateCall& call, const Rotation& rotation, const char* in,
                             char* out);

}  // namespace phasor::core
