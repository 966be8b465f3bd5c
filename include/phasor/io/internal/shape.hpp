// Shapes as files give them: checked before anything is multiplied or allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"

namespace phasor::io {

inline constexpr std::size_t kMaxDims = 64;  // NumPy's own limit

// The product of shape and element_bytes, refused when a part of it overflows even if a 0 makes it
// empty: whoever multiplies some of the dimensions later is then safe. The message has no file name
// in front: `must ..., got ...`.
[[nodiscard]] Result<std::size_t> byte_count(std::size_t element_bytes,
                                             const std::vector<std::int64_t>& shape);

// (2, 3), as Python writes it.
[[nodiscard]] std::string shape_text(const std::vector<std::int64_t>& shape);

// Text of a file as it may stand in a message: in quotes, printable, cut when long.
[[nodiscard]] std::string in_quotes(std::string_view text, std::size_t longest = 40);

}  // namespace phasor::io
