#include "phasor/core/frequencies.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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

std::string refusal_of_spec(std::int64_t dim, double base) {
  try {
    static_cast<void>(make_frequencies({dim, base}));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST(Frequencies, RefuseBadSpecs) {
  EXPECT_EQ(refusal_of_spec(7, 1e4),
            "frequencies: rotary_dim must be even and between 2 and 2048, got 7");
  EXPECT_EQ(refusal_of_spec(0, 1e4),
            "frequencies: rotary_dim must be even and between 2 and 2048, got 0");
  EXPECT_EQ(refusal_of_spec(-2, 1e4),
            "frequencies: rotary_dim must be even and between 2 and 2048, got -2");
  EXPECT_EQ(refusal_of_spec(2050, 1e4),
            "frequencies: rotary_dim must be even and between 2 and 2048, got 2050");
  EXPECT_EQ(refusal_of_spec(8, 0.0), "frequencies: base must be finite and positive, got 0");
  EXPECT_EQ(refusal_of_spec(8, -1.0), "frequencies: base must be finite and positive, got -1");
  EXPECT_EQ(refusal_of_spec(8, std::nan("")),
            "frequencies: base must be finite and positive, got nan");
}

template <class... Arguments>
std::string frequencies_refusal(Arguments... arguments) {
  try {
    const Frequencies frequencies(arguments...);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Frequencies, RefuseValuesThatCannotRotateAnything) {
  using Values = std::vector<double>;
  using Axes = std::vector<std::uint8_t>;
  EXPECT_EQ(frequencies_refusal(Values{}),
            "frequencies: expected at least one frequency, got none");
  EXPECT_EQ(frequencies_refusal(Values(1025, 1.0)),
            "frequencies: expected at most 1024 frequencies, got 1025");
  EXPECT_EQ(frequencies_refusal(Values{1.0, std::nan("")}),
            "frequencies: frequency 1 must be finite, got nan");
  EXPECT_EQ(frequencies_refusal(Values{std::numeric_limits<double>::infinity()}),
            "frequencies: frequency 0 must be finite, got inf");
  EXPECT_EQ(frequencies_refusal(Values{1.0}, 0.0),
            "frequencies: the amplitude must be finite and positive, got 0");
  EXPECT_EQ(frequencies_refusal(Values{1.0}, 1.0, Axes{0, 1}),
            "frequencies: expected one axis per frequency, got 2 axes for 1 frequencies");
  EXPECT_EQ(frequencies_refusal(Values{1.0}, 1.0, Axes{8}),
            "frequencies: an axis must be below 8, got 8");
  EXPECT_EQ(frequencies_refusal(Values{1.0}, 1.0, Axes{}, std::vector<float>{1.0F, 2.0F}),
            "frequencies: expected 1 float32 values, got 2");
}

TEST(Frequencies, KnowTheirAxesAndTheirLargest) {
  const Frequencies frequencies({0.5, -2.0, 0.25}, 1.0, {0, 2, 1});
  EXPECT_EQ(frequencies.axis_count(), 3);
  EXPECT_EQ(frequencies.largest(), 2.0);
  EXPECT_EQ(frequencies.float32_values()[2], 0.25F);
}

}  // namespace
}  // namespace phasor::core
