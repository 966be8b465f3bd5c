// What the tests of attention in float64 share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "phasor/attention/linear.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/core/error.hpp"

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

template <class Run>
void expect_unsupported(const char* text, const Run& run) {
  try {
    run();
    ADD_FAILURE() << "not refused: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
    EXPECT_STREQ(error.what(), text);
  }
}

}  // namespace phasor::attention::tests
