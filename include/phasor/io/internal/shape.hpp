// Shapes of untrusted files: checked before anything is multiplied or allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "phasor/core/error.hpp"

namespace phasor::io {

inline constexpr std::size_t kMaxDims = 64;  // NumPy's own limit

// The product of shape and element_bytes. Error(io), without a file name, when a dimension is
// negative or a partial product overflows, even if another dimension is 0: later products of some
// of the dimensions are then safe.
[[nodiscard]] Result<std::size_t> byte_count(std::size_t element_bytes,
                                             const std::vector<std::int64_t>& shape);

}  // namespace phasor::io
