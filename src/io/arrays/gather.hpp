// Elements in any order, copied to C order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace phasor::io {

// out[i, j, ...] = from[i * strides[0] + j * strides[1] + ...], in elements of `width` bytes.
//
// precondition  strides are not negative, the last element is inside `from`, and out.size() is the
//               product of shape and width
void gather(std::span<const std::byte> from, std::size_t width,
            const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
            std::span<std::byte> out);

// The strides of an array without gaps, in elements.
[[nodiscard]] std::vector<std::int64_t> c_strides(const std::vector<std::int64_t>& shape);
[[nodiscard]] std::vector<std::int64_t> fortran_strides(const std::vector<std::int64_t>& shape);

}  // namespace phasor::io
