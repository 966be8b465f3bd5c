#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "phasor/core/view.hpp"

namespace phasor::core {
namespace {

bool is_nan_half(std::uint32_t bits) { return (bits & 0x7fffU) > 0x7c00U; }
bool is_nan_bfloat16(std::uint32_t bits) { return (bits & 0x7fffU) > 0x7f80U; }

TEST(Convert, EveryHalfSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const float value = to_float(half);
    if (is_nan_half(bits)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(is_nan_half(to_half(value).bits)) << bits;
    } else {
      ASSERT_EQ(to_half(value).bits, half.bits) << bits;
    }
  }
}

TEST(Convert, EveryBFloat16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const BFloat16 stored{static_cast<std::uint16_t>(bits)};
    const float value = to_float(stored);
    if (is_nan_bfloat16(bits)) {
      EXPECT_TRUE(is_nan_bfloat16(to_bfloat16(value).bits)) << bits;
    } else {
      ASSERT_EQ(to_bfloat16(value).bits, stored.bits) << bits;
    }
  }
}

TEST(Convert, HalfIsTheSignedMantissaTimesAPowerOfTwo) {
  // Another form: sign (1024 + m) 2^(e-25), sign m 2^-24 below the normal numbers.
  for (std::uint32_t bits = 0; bits < 0x7c00U; ++bits) {
    const std::uint32_t exponent = bits >> 10, mantissa = bits & 0x3ffU;
    const double expected = exponent == 0
                                ? std::ldexp(mantissa, -24)
                                : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
    ASSERT_EQ(to_float(Half{static_cast<std::uint16_t>(bits)}), expected) << bits;
    ASSERT_EQ(to_float(Half{static_cast<std::uint16_t>(bits | 0x8000U)}), -expected) << bits;
  }
}

// Between two neighbours: below the middle down, above it up, at the middle to the even one.
template <class Stored, class ToStored>
void check_rounding(std::uint32_t last_finite, const ToStored& to_stored) {
  for (std::uint32_t bits = 0; bits < last_finite; ++bits) {
    const float low = to_float(Stored{static_cast<std::uint16_t>(bits)});
    const float high = to_float(Stored{static_cast<std::uint16_t>(bits + 1)});
    const auto middle = static_cast<float>((static_cast<double>(low) + high) / 2);
    ASSERT_EQ(to_stored(middle).bits, bits + (bits & 1U)) << bits;
    ASSERT_EQ(to_stored(std::nextafter(middle, low)).bits, bits) << bits;
    ASSERT_EQ(to_stored(std::nextafter(middle, high)).bits, bits + 1) << bits;
  }
}
TEST(Convert, HalfRoundsToNearestEven) {
  check_rounding<Half>(0x7bffU, [](float value) { return to_half(value); });
  EXPECT_EQ(to_half(65519.996F).bits, 0x7bffU);
  EXPECT_EQ(to_half(65520.0F).bits, 0x7c00U);
  EXPECT_EQ(to_half(-std::numeric_limits<float>::infinity()).bits, 0xfc00U);
}
TEST(Convert, BFloat16RoundsToNearestEven) {
  check_rounding<BFloat16>(0x7f7fU, [](float value) { return to_bfloat16(value); });
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80U);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x7f800001U)).bits & 0x7fc0U, 0x7fc0U)
      << "a NaN stays a NaN";
}

TEST(Convert, ElementsAreReadAndWrittenInEveryType) {
  double d[2] = {};
  float f[2] = {};
  Half h[2] = {};
  BFloat16 b[2] = {};
  for (const HeadsView& view : {heads_view(d, 1, 1, 1, 2), heads_view(f, 1, 1, 1, 2),
                                heads_view(h, 1, 1, 1, 2), heads_view(b, 1, 1, 1, 2)}) {
    set_element(view, 1, -2.5);
    EXPECT_EQ(element_of(view, 0), 0.0) << name_of(view.dtype);
    EXPECT_EQ(element_of(view, 1), -2.5) << name_of(view.dtype);
  }
}

}  // namespace
}  // namespace phasor::core
