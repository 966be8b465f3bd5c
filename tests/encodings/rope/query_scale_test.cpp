// Queries that grow with their position.
#include "phasor/encodings/rope.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "phasor/core/error.hpp"
#include "support/errors.hpp"

namespace phasor::encodings {
namespace {

TEST(QueryScale, IsOneWithinTheLengthAndGrowsAtEachMultiple) {
  const QueryScale scale{0.1, 8192, 0};
  const std::vector<double> positions = {0, 1, 8191, 8192, 16383.5, 16384, 1 << 24};
  const std::vector<double> got = query_scales(scale, positions);
  ASSERT_EQ(got.size(), positions.size());
  for (std::size_t i = 0; i < positions.size(); ++i) {
    // The floor as a count of whole lengths, the logarithm of a sum instead of log1p.
    const auto lengths = static_cast<std::int64_t>(positions[i]) / scale.length;
    EXPECT_NEAR(got[i], 1.0 + scale.beta * std::log(static_cast<double>(lengths + 1)), 1e-15);
  }
  EXPECT_EQ(got[2], 1.0);
  EXPECT_GT(got[3], 1.0);
}

TEST(QueryScale, AnOffsetMovesTheStep) {
  const std::vector<double> positions = {8190, 8191};
  const std::vector<double> got = query_scales({0.1, 8192, 1}, positions);
  EXPECT_EQ(got[0], 1.0);
  EXPECT_NEAR(got[1], 1.0 + 0.1 * std::log(2.0), 1e-15);
  EXPECT_TRUE(query_scales({0.1, 8192, 1}, {}).empty());
}

TEST(QueryScale, RefusesWhatHasNoFactor) {
  const std::vector<double> zero = {0.0};
  const auto factor = [&](const QueryScale& scale) {
    return [&] { static_cast<void>(query_scales(scale, zero)); };
  };
  tests::expect_error(ErrorCode::invalid_argument, {"beta", "-0.5"}, factor({-0.5, 8, 0}));
  tests::expect_error(ErrorCode::invalid_argument, {"length", "0"}, factor({0.1, 0, 0}));
  tests::expect_error(ErrorCode::invalid_argument, {"offset", "-1"}, factor({0.1, 8, -1}));
  for (const double bad : {-1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    const std::vector<double> positions = {0.0, bad};
    EXPECT_THROW(static_cast<void>(query_scales({0.1, 8, 0}, positions)), Error) << bad;
  }
}

}  // namespace
}  // namespace phasor::encodings
