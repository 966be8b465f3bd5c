// A sample of indices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace phasor::porting {

// At most `count` of [0, all), evenly spaced, with the first and the last.
[[nodiscard]] inline std::vector<std::size_t> evenly_spaced(std::size_t all, std::size_t count) {
  count = std::min(all, count);
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < count; ++i) {
    chosen.push_back(count == 1 ? 0 : i * (all - 1) / (count - 1));
  }
  return chosen;
}

}  // namespace phasor::porting
