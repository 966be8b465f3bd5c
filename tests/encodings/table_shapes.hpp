// Tables without numbers, for what looks at their shape alone.
#pragma once

#include <cstdint>

#include "phasor/encodings/encoding.hpp"

namespace phasor::encodings::testing {

[[nodiscard]] inline Table table_of(std::int64_t heads, std::int64_t rows, std::int64_t dim) {
  static const float kNumber = 0.0F;
  return {&kNumber, heads, rows, dim, 0, 0};
}

}  // namespace phasor::encodings::testing
