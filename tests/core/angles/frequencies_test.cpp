#include "phasor/core/rotate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <limits>
#include <string_view>

#include "support/errors.hpp"
#include "support/truth.hpp"

namespace phasor::core {
namespace {

TEST(Frequencies, AreThePowersOfEquation15CorrectlyRounded) {
  for (const double base : {10000.0, 500000.0, 1.0e6, 150000.0, 8.0e6, 2.0, 0.5, 12345.678}) {
    for (const std::int64_t dim : {2, 6, 64, 96, 128, 256, 2048}) {
      const Frequencies frequencies = make_frequencies({dim, base});
      ASSERT_EQ(frequencies.pairs(), dim / 2);
      for (std::int64_t i = 0; i < dim / 2; ++i) {
        ASSERT_EQ(frequencies.values()[static_cast<std::size_t>(i)],
                  tests::exact_frequency(base, dim, i).rounded())
            << "base " << base << " dim " << dim << " pair " << i;
      }
    }
  }
}

TEST(Frequencies, RefuseBadSpecs) {
  const auto refused = [](std::int64_t dim, double base, std::string_view name,
                          std::string_view value) {
    phasor::tests::expect_error(ErrorCode::invalid_argument, {name, value}, [&] {
      return make_frequencies({dim, base});
    });
  };
  refused(7, 1e4, "rotary_dim", "got 7");
  refused(0, 1e4, "rotary_dim", "got 0");
  refused(-2, 1e4, "rotary_dim", "got -2");
  refused(2050, 1e4, "rotary_dim", "got 2050");
  refused(8, 0.0, "base", "got 0");
  refused(8, -1.0, "base", "-1");
  refused(8, std::nan(""), "base", "nan");
}

TEST(Frequencies, RefuseValuesThatCannotRotateAnything) {
  using Values = std::vector<double>;
  using Axes = std::vector<std::uint8_t>;
  const auto refused = [](std::initializer_list<std::string_view> values, auto... arguments) {
    phasor::tests::expect_error(ErrorCode::invalid_argument, values,
                                [&] { return Frequencies(arguments...); });
  };
  refused({"frequency", "0"}, Values{});
  refused({"1024", "1025"}, Values(1025, 1.0));
  refused({"frequency 1", "nan"}, Values{1.0, std::nan("")});
  refused({"frequency 0", "inf"}, Values{std::numeric_limits<double>::infinity()});
  refused({"amplitude", "0"}, Values{1.0}, 0.0);
  refused({"2 axes", "1 frequencies"}, Values{1.0}, 1.0, Axes{0, 1});
  refused({"axis", "8"}, Values{1.0}, 1.0, Axes{8});
  refused({"2", "8", "1"}, Values{1.0}, 1.0, Axes{1}, std::vector<float>{}, 1);
  refused({"1", "8", "9"}, Values{1.0}, 1.0, Axes{}, std::vector<float>{}, 9);
  refused({"1", "8", "-1"}, Values{1.0}, 1.0, Axes{}, std::vector<float>{}, -1);
  refused({"1 float32", "2"}, Values{1.0}, 1.0, Axes{}, std::vector<float>{1.0F, 2.0F});
}

TEST(Frequencies, KnowTheirAxesAndTheirLargest) {
  const Frequencies frequencies({0.5, -2.0, 0.25}, 1.0, {0, 2, 1});
  EXPECT_EQ(frequencies.axis_count(), 3);
  EXPECT_EQ(frequencies.largest(), 2.0);
  EXPECT_EQ(frequencies.float32_values()[2], 0.25F);
}

TEST(Frequencies, MayHaveRowsOfPositionsThatNoneReads) {
  const Frequencies three({0.5, 2.0}, 1.0, {1, 0}, {}, 3);
  EXPECT_EQ(three.axis_count(), 3);
  const Frequencies first({0.5, 2.0}, 1.0, {}, {}, 4);
  EXPECT_EQ(first.axis_count(), 4);
  ASSERT_EQ(first.axes().size(), 2U);
  EXPECT_EQ(first.axes()[1], 0);
  EXPECT_TRUE(Frequencies({0.5}, 1.0, {}, {}, 1).axes().empty());
}

}  // namespace
}  // namespace phasor::core
