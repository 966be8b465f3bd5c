// Rows of cos and sin, and rotation of float32 scratch by them: attention rotates its tiles as it
// loads them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attention/floats.hpp"
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
  // Floats for the rows of `count` tokens, with the padding that kernels read.
  [[nodiscard]] std::int64_t floats_for(std::int64_t count) const noexcept;

  // The rows of tokens [first, first + count) of batch row b, for `role` (which xPos needs).
  void make(const core::Positions& positions, std::int64_t tokens, std::int64_t b,
            std::int64_t first, std::int64_t count, core::Role role, float* rows) const noexcept;
  // The rows of R^T from the rows of R.
  void transpose(const float* rows, std::int64_t count, float* transposed) const noexcept;

  // out_t = R_t in_t for `count` heads of head_dim features, `stride` floats apart in both; in
  // place when they are the same. PairLayout::interleaved_to_half rotates like interleaved: both
  // sides of a product keep one order of features, and no product depends on which.
  void rotate(const float* rows, const float* in, float* out, std::int64_t stride,
              std::int64_t count) const noexcept;

 private:
  const core::Rotary* rotary_;
  const core::kernels::Kernels* kernels_;
  std::int64_t pairs_;
};

// Whether rows made for `a` serve `b`.
[[nodiscard]] bool same_positions(const core::Positions& a, const core::Positions& b) noexcept;

// The rows of the last tokens of each rotary, found again by value.
class SharedRows {
 public:
  // Rows for `tokens` tokens at positions ids [axes][tokens]; computed unless the last rows of an
  // equal rotary had the same positions. Valid until the next call.
  //
  // throws   std::bad_alloc
  [[nodiscard]] const float* rows_for(const core::Rotary& rotary, core::Role role,
                                      const core::kernels::Kernels& kernels,
                                      std::span<const double> ids, std::int64_t tokens);

  // Scratch for the caller's ids.
  std::vector<double> wanted;

 private:
  struct Entry {
    core::Rotary rotary;
    core::Role role;
    const core::kernels::Kernels* kernels;
    std::vector<double> ids = {};
    Floats rows = {};
    bool filled = false;
  };
  [[nodiscard]] Entry& entry_for(const core::Rotary& rotary, core::Role role,
                                 const core::kernels::Kernels& kernels);

  std::vector<Entry> entries_;
  std::size_t oldest_ = 0;
};

}  // namespace phasor::attention
