// Which position row each frequency reads.
#pragma once

#include <cstdint>
#include <vector>

#include "phasor/encodings/rope.hpp"

namespace phasor::encodings {

// throws   Error(invalid_argument) when the axes do not fit rotary_dim or cannot be combined with
//          the rest of the spec
void check_axes(const RopeSpec& spec);

// The row of each of `pairs` frequencies.
//
// precondition  check_axes() passed for a spec with these axes
[[nodiscard]] std::vector<std::uint8_t> mrope_rows(const MropeAxes& axes, std::int64_t pairs);

// The dim of the formulas: a part of rotary_dim where both axes of an image use the same
// frequencies.
[[nodiscard]] std::int64_t formula_width(const RopeSpec& spec) noexcept;

// Arranges the shared list over both axes of an image, in the order in which the kernels read it.
template <class T>
[[nodiscard]] std::vector<T> over_both_axes(AxialAxes::Kind kind, const std::vector<T>& shared) {
  std::vector<T> laid_out;
  if (kind == AxialAxes::Kind::alternating) {
    for (std::size_t row = 0; row < 2; ++row) {
      for (std::size_t i = row; i < shared.size(); i += 2) laid_out.push_back(shared[i]);
    }
  } else {
    for (int row = 0; row < 2; ++row) laid_out.insert(laid_out.end(), shared.begin(), shared.end());
  }
  return laid_out;
}

}  // namespace phasor::encodings
