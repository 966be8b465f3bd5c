// Array arguments as the library's strided arrays.
#pragma once

#include "arrays.hpp"
#include "phasor/porting/convert.hpp"

namespace phasor::python {

[[nodiscard]] inline porting::StridedArray<const std::byte> strided(const Array& array) noexcept {
  return {static_cast<const std::byte*>(array.data()), size_of(array.element()), array.shape(),
          array.strides()};
}

// precondition  Access::write
[[nodiscard]] inline porting::StridedArray<std::byte> writable_strided(
    const Array& array) noexcept {
  return {static_cast<std::byte*>(array.writable()), size_of(array.element()), array.shape(),
          array.strides()};
}

}  // namespace phasor::python
