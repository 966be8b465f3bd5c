// Times two functions alternately, so that other load on the machine affects both.
#pragma once

#include <functional>

namespace phasor::bench {

struct Contest {
  double ours_us = 0.0;          // median
  double against_us = 0.0;       // median
  double ratio = 0.0;            // median of the ratios of each round
  double low = 0.0, high = 0.0;  // quartiles of those ratios
};

// Runs both alternately, `rounds` times after some to warm up; each repeats its work until it
// takes about `piece_us`, so that the resolution of the clock does not matter.
[[nodiscard]] Contest compare(const std::function<void()>& ours,
                              const std::function<void()>& against, int rounds,
                              double piece_us = 500.0);

}  // namespace phasor::bench
