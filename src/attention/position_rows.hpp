// The positions of the tokens of a cache.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "phasor/core/rotate.hpp"

namespace phasor::attention {

// throws   Error(out_of_range) unless positions from low to high give angles of the mode under the
//          rotary
void check_position_bounds(double low, double high, const std::optional<core::Rotary>& rotary,
                           core::AngleMode angles = core::AngleMode::exact);
// throws   Error(shape_mismatch | invalid_argument | out_of_range) unless positions fit the shape,
//          are finite and give angles of the mode under the rotary
void check_position_range(const core::Positions& positions, int axes, std::int64_t batch,
                          std::int64_t tokens, const std::optional<core::Rotary>& rotary,
                          core::AngleMode angles = core::AngleMode::exact);

// [axes][capacity], room for every token at once: appending allocates nothing.
class PositionRows {
 public:
  PositionRows(int axes, std::int64_t capacity);

  [[nodiscard]] int axes() const noexcept { return axes_; }
  // Over the axes of one token.
  [[nodiscard]] double largest(std::int64_t token) const noexcept;
  // Over every axis of tokens [first, first + count).
  //
  // precondition  count > 0
  struct Bounds {
    double low, high;
  };
  [[nodiscard]] Bounds bounds(std::int64_t first, std::int64_t count) const noexcept;
  // Tokens [first, first + count) as [axes, count], in the caller's memory.
  void copy(std::int64_t first, std::int64_t count, double* out) const noexcept;
  // Tokens [first, first + count) as [axes, count].
  [[nodiscard]] std::vector<double> dense(std::int64_t first, std::int64_t count) const;
  // Tokens [0, count) as [axes, count] for another number of axes.
  //
  // throws   Error(shape_mismatch) if the axes of a token differ
  [[nodiscard]] std::vector<double> dense_for(int axes, std::int64_t count) const;
  // One axis from token `first` on.
  [[nodiscard]] const double* from(int axis, std::int64_t first) const noexcept {
    return values_.data() + axis * capacity_ + first;
  }

  // The caller's positions for tokens [first, first + count) of every batch row, checked.
  //
  // throws   as check_position_range; Error(unsupported) if batch rows differ; tokens before
  //          `first` do not change
  void write(std::int64_t first, const core::Positions& positions, std::int64_t batch,
             std::int64_t count, const std::optional<core::Rotary>& rotary,
             core::AngleMode angles = core::AngleMode::exact);
  // shape    positions [axes, count]
  void assign(std::int64_t first, const std::vector<double>& positions) noexcept;
  void add(std::int64_t first, std::int64_t count, double delta) noexcept;
  // Moves `count` tokens from `last` on to `first`.
  void close_gap(std::int64_t first, std::int64_t last, std::int64_t count) noexcept;

 private:
  [[nodiscard]] double& at(int axis, std::int64_t token) noexcept {
    return values_[static_cast<std::size_t>(axis * capacity_ + token)];
  }

  int axes_;
  std::int64_t capacity_;
  std::vector<double> values_;
};

}  // namespace phasor::attention
