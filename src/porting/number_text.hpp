// Numbers in sentences.
#pragma once

#include <cstdio>
#include <string>

namespace phasor::porting {

// `value` with at most `count` significant digits.
[[nodiscard]] inline std::string digits(double value, int count = 6) {
  char buffer[48];
  std::snprintf(buffer, sizeof buffer, "%.*g", count, value);
  return buffer;
}

}  // namespace phasor::porting
