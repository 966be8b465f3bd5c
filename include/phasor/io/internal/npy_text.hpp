// What a .npy file holds before its numbers.
#pragma once

#include <string>

#include "phasor/io/npy.hpp"

namespace phasor::io {

// Magic, version and header of the file that write_npy() writes; the array's bytes follow.
//
// throws   Error(invalid_argument | shape_mismatch): bytes that do not match type and shape
[[nodiscard]] std::string npy_start(const NpyArray& array);

}  // namespace phasor::io
