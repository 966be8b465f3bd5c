// What the tests of attention in float64 share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "attention/reference/tokens.hpp"
#include "phasor/attention/linear.hpp"
#include "phasor/attention/softmax.hpp"

namespace phasor::attention::tests {

// Off by `error` of the largest number, or of 1.
inline void expect_wide(const char* what, const std::vector<double>& got,
                        const std::vector<double>& expected, double error = kAttendErrorF64) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  double largest = 1.0;
  for (const double x : expected) {
    if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
  }
  int reported = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool is_near =
        got[i] == expected[i] || std::fabs(got[i] - expected[i]) <= error * largest;
    if (!is_near && reported++ < 3) {
      ADD_FAILURE() << what << "[" << i << "]: got " << got[i] << ", expected " << expected[i]
                    << ", off by " << got[i] - expected[i];
    }
  }
}

// The gradient of one tensor against the derivative along a random direction: slope(direction) is
// exact to rounding. A wrong element moves the product with the direction by as much.
template <class Slope>
void expect_slope(const char* what, const void* data, const std::vector<double>& gradient,
                  const Slope& slope, double error = kAttendErrorF64) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  Direction direction{data, std::vector<double>(gradient.size())};
  double got = 0.0, largest = 1.0;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    direction.values[i] = normal(random);
    got += gradient[i] * direction.values[i];
    largest = std::max(largest, std::fabs(gradient[i]));
  }
  // Errors of `error` each, of random signs.
  const double tolerance =
      4.0 * error * largest * std::sqrt(1.0 + static_cast<double>(gradient.size()));
  EXPECT_NEAR(got, slope(direction), tolerance) << what;
}

}  // namespace phasor::attention::tests
