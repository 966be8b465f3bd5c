// How much memory a strided array reaches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "phasor/core/view.hpp"

namespace phasor::core {

// More than any machine can address. Below it, sums and products of offsets do not overflow.
inline constexpr std::int64_t kMaxExtentBytes = std::int64_t{1} << 56;

struct Dimension {
  std::int64_t count = 0, stride = 0;  // stride in elements, of any sign; not used if count is 1
};

// Whether the elements of an array, and the distance of its outermost ones, stay below
// kMaxExtentBytes. Of an array without elements, the product of its other counts must: it is computed.
[[nodiscard]] bool is_addressable(std::span<const Dimension> dimensions,
                                  std::size_t element_bytes) noexcept;

// throws   Error(out_of_range) with the shape and the strides, if it is not addressable
void check_extent(std::string_view where, std::string_view name, const ConstHeadsView& view);

}  // namespace phasor::core
