// The header of a .npy file: a Python dict of three entries.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/io/npy.hpp"

namespace phasor::io {

struct NpyHeader {
  std::string descr;
  enum class Order : std::uint8_t { c, fortran };
  Order order = Order::c;
  std::vector<std::int64_t> shape;
};

// Parses {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }. Error(io | unsupported), without
// a file name.
[[nodiscard]] Result<NpyHeader> parse_npy_header(std::string_view text);
// The same text, without padding.
[[nodiscard]] std::string npy_header_text(NpyType type, const std::vector<std::int64_t>& shape);

[[nodiscard]] Result<NpyType> npy_type_of(std::string_view descr);

}  // namespace phasor::io
