// Reads checked positions token by token.
#pragma once

#include <cstdint>

#include "phasor/core/positions.hpp"

namespace phasor::core {

// Gives the positions of flat tokens row, row + 1, ... of a [batch, tokens] tensor, one value per
// axis.
class PositionCursor {
 public:
  PositionCursor(const Positions& positions, int axes, std::int64_t tokens, std::int64_t row);

  template <class T>  // std::int64_t for tables, double for angles
  void next(T* values) noexcept {
    switch (positions_.kind) {
      case Positions::Kind::integers:
        for (int axis = 0; axis < axes_; ++axis) {
          values[axis] = static_cast<T>(positions_.integers[axis * axis_stride_ + token_]);
        }
        wrap(positions_.batch == 0);
        return;
      case Positions::Kind::floats:
        for (int axis = 0; axis < axes_; ++axis) {
          values[axis] = static_cast<T>(positions_.floats[axis * axis_stride_ + token_]);
        }
        wrap(positions_.batch == 0);
        return;
      case Positions::Kind::offset:
        fill(values, static_cast<T>(positions_.offset + token_));
        wrap(true);
        return;
      case Positions::Kind::packed:
        while (positions_.integers[sequence_ + 1] <= token_)
          ++sequence_;  // empty sequences are skipped
        fill(values, static_cast<T>(positions_.offset + token_ - positions_.integers[sequence_]));
        ++token_;
        return;
    }
  }

 private:
  template <class T>
  void fill(T* values, T value) const noexcept {
    for (int axis = 0; axis < axes_; ++axis) values[axis] = value;
  }
  void wrap(bool per_row) noexcept {
    if (++token_ == tokens_ && per_row) token_ = 0;
  }

  const Positions& positions_;
  int axes_;
  std::int64_t tokens_;
  std::int64_t token_;
  std::int64_t axis_stride_ = 0;
  std::int64_t sequence_ = 0;
};

}  // namespace phasor::core
