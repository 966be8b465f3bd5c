// One checked call of rotate(): what all its parts share.
#pragma once

#include <cstdint>
#include <span>

#include "core/rotate/rotate_ways.hpp"
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
  kernels::Store store;
  bool staged;  // large output that is not aligned for streaming stores
  bool heads_first;
  bool copies;  // features that are not rotated go to another buffer
  float sin_sign;
  double scale;                      // on cos and sin
  const CosSinRows* rows = nullptr;  // the caller's cos and sin, instead of angles
  // One axis, forward: rows of the table are used as they are, sin after cos.
  bool rows_in_table = false;
  // The kernel that rotate_block() calls at once; null: it depends on more.
  kernels::RotateFunction kernel = nullptr;
  Ways ways = {};
  std::int64_t row_bytes = 0;  // of all tensors in a token

  [[nodiscard]] bool grows() const { return rotary != nullptr && rotary->growth.has_value(); }
  // Reads one layout and writes the other.
  [[nodiscard]] bool crosses() const { return window.layout == PairLayout::interleaved_to_half; }
  // The layout that the kernel works in.
  [[nodiscard]] PairLayout kernel_layout() const {
    return crosses() ? PairLayout::half : window.layout;
  }
};

// Rotates the tokens of part `part` of `parts`; `context` is a RotateCall.
void rotate_part(void* context, int part, int parts);

// The kernel of a call that keeps its layout, in f32 or 16 bits and exact angles; null of others.
[[nodiscard]] kernels::RotateFunction plain_kernel(const RotateCall& call);

// rotate_block() without a plain kernel, or through a buffer.
void rotate_block_otherwise(const RotateCall& call, const kernels::Heads& heads, const void* cos,
                            const void* sin, std::int64_t ahead);

// Rotates one block of each of `heads` by the rows cos, sin: block_pairs floats, or doubles for f64
// data.
inline void rotate_block(const RotateCall& call, const kernels::Heads& heads, const void* cos,
                         const void* sin, std::int64_t ahead) {
  if (call.kernel != nullptr) {
    call.kernel(heads, call.block_pairs, cos, sin, ahead, call.store);
  } else {
    rotate_block_otherwise(call, heads, cos, sin, ahead);
  }
}

// Copies the features of a token's heads that are not rotated, where the output is another buffer.
void copy_unrotated_features(const RotateCall& call, const Rotation& rotation, const char* in,
                             char* out);

}  // namespace phasor::core
