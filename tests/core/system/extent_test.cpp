// Arrays that reach further than memory.
#include "phasor/core/internal/extent.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <limits>
#include <span>

namespace phasor::core {
namespace {

constexpr std::int64_t kHuge = std::int64_t{1} << 62;
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

TEST(Extent, ReachesAsFarAsItsStrides) {
  const auto fits = [](std::initializer_list<Dimension> dimensions, std::size_t bytes = 4) {
    return is_addressable(std::span(dimensions.begin(), dimensions.size()), bytes);
  };
  EXPECT_TRUE(fits({{2, 8}, {3, -16}, {4, 1}}));
  EXPECT_TRUE(fits({}));
  EXPECT_TRUE(fits({{0, kHuge}, {2, kHuge}}));       // no element
  EXPECT_FALSE(fits({{0, 1}, {kHuge, 1}, {4, 1}}));  // as for NumPy
  EXPECT_TRUE(fits({{1, kHuge}, {1, kLeast}}));      // strides of one element are not used
  EXPECT_TRUE(fits({{2, std::int64_t{1} << 52}}));
  EXPECT_FALSE(fits({{2, kHuge}}));
  EXPECT_FALSE(fits({{2, -kHuge}}));
  EXPECT_FALSE(fits({{2, kLeast}}));
  EXPECT_FALSE(fits({{kHuge, kHuge}}));
  EXPECT_FALSE(fits({{2, std::int64_t{1} << 54}}));
  EXPECT_TRUE(fits({{2, std::int64_t{1} << 54}}, 1));
  // Each alone fits; together they do not.
  EXPECT_FALSE(fits({{2, std::int64_t{1} << 53}, {2, std::int64_t{1} << 53}}));
  EXPECT_FALSE(fits({{std::int64_t{1} << 40, 0}, {std::int64_t{1} << 40, 0}}));  // broadcast
}

}  // namespace
}  // namespace phasor::core
