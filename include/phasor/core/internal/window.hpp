// The rotated features of a head.
#pragma once

#include <cstdint>
#include <span>

#include "phasor/core/rotate.hpp"

namespace phasor::core {

struct Window {
  PairLayout layout;
  std::int64_t head_dim, offset, blocks, pairs;  // as in Rotary

  [[nodiscard]] std::int64_t rotary_dim() const noexcept { return 2 * pairs; }
};
[[nodiscard]] Window window_of(const Rotary& rotary) noexcept;

// throws   Error(invalid_argument | shape_mismatch) naming the member that does not fit
void check_window(const Window& window);

// rotate_by() for a window of any number of blocks.
//
// throws   as rotate_by(), before an output is touched
// cost     as rotate(): no allocation
void rotate_window(const Window& window, const CosSinRows& rows,
                   std::span<const Rotation> rotations, const RotateOptions& options);

}  // namespace phasor::core
