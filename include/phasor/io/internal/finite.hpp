// Numbers in the bytes of a tensor that are not finite.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "phasor/io/tensors.hpp"

namespace phasor::io {

// A number of a float type, or a scale or minimum of a quantised block.
struct NonFinite {
  std::size_t block = 0;  // its block; the element of a type without blocks
  float value = 0.0F;
};

// The first number of whole blocks that is not finite as float32, if there is one. Integers are finite;
// the f8 types are not looked at.
//
// cost     reads the scales of quantised blocks only
[[nodiscard]] std::optional<NonFinite> find_non_finite(TensorType type,
                                                       std::span<const std::byte> blocks) noexcept;

}  // namespace phasor::io
