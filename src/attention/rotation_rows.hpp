// A window of tokens turned in float32 scratch, by the core's kernels: for attention that turns its
// tiles as it loads them.
#pragma once

#include <cstdint>
#include <optional>

#include "phasor/core/internal/kernels/kernels.hpp"
#include "phasor/core/rotate.hpp"

namespace phasor::attention {

class RotationRows {
 public:
  // Keeps pointers to both, which must outlive it. The positions must have been checked for
  // `tokens`.
  RotationRows(const core::Rotary& rotary, const core::kernels::Kernels& kernels) noexcept;

  // Floats of one token's row: cos, then sin.
  [[nodiscard]] std::int64_t row_floats() const noexcept { return 2 * pairs_; }
  // Floats for the rows of `count` tokens, with what kernels read behind them.
  [[nodiscard]] std::int64_t floats_for(std::int64_t count) const noexcept;

  // The rows of tokens [first, first + count) of batch row b, as `role` wants them (xPos).
  void make(const core::Positions& positions, std::int64_t tokens, std::int64_t b,
            std::int64_t first, std::int64_t count, core::Role role, float* rows) const noexcept;
  // The rows that turn by R^T where `rows` turn by R.
  void transpose(const float* rows, std::int64_t count, float* transposed) const noexcept;

  // out_t = R_t in_t for `count` heads of head_dim features, `stride` floats apart in both; in
  // place when they are the same. PairLayout::interleaved_to_half turns like interleaved: both
  // sides of a product keep one order of features, and no product depends on which.
  void rotate(const float* rows, const float* in, float* out, std::int64_t stride,
              std::int64_t count) const noexcept;

 private:
  const core::Rotary* rotary_;
  const core::kernels::Kernels* kernels_;
  std::int64_t pairs_;
};

// Whether rows made for the one serve the other.
[[nodiscard]] bool same_positions(const core::Positions& a, const core::Positions& b) noexcept;

}  // namespace phasor::attention
