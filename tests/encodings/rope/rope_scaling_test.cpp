// Every scaling against its closed form in another arithmetic and another shape: logarithms of
// frequencies in long double, where the room itself divides and multiplies.
#include "phasor/encodings/rope.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "encodings/rope/rope_specs.hpp"

namespace phasor::encodings {
namespace {

using testing::spec_of;

// long double carries 64 bits and the sums below lose a few: far below one float64 rounding.
constexpr double kScalingRelative = 4e-16;
constexpr long double kPi = 3.141592653589793238462643383279502884L;

long double log_frequency(long double base, int i, int width) {
  return -2.0L * i / width * std::log(base);
}

void expect_frequencies(const RopeSpec& spec, std::optional<std::int64_t> context,
                        const std::function<long double(int)>& expected) {
  const core::Frequencies frequencies = resolve_frequencies(spec, context);
  ASSERT_EQ(frequencies.pairs(), spec.rotary_dim / 2);
  for (int i = 0; i < frequencies.pairs(); ++i) {
    const auto want = static_cast<double>(expected(i));
    EXPECT_NEAR(frequencies.values()[i], want, kScalingRelative * std::fabs(want)) << "pair " << i;
    // Each float32 step rounds by half a unit; a dozen of them is generous.
    EXPECT_NEAR(frequencies.float32_values()[i], want, 2e-6 * std::fabs(want)) << "pair " << i;
  }
}

TEST(RopeScaling, DefaultIsEquation15) {
  expect_frequencies(spec_of(96, 10000.0), std::nullopt,
                     [](int i) { return std::exp(log_frequency(10000.0L, i, 96)); });
}

TEST(RopeScaling, LinearDividesEveryFrequency) {
  expect_frequencies(spec_of(64, 500000.0, LinearScaling{3.0}), 99999, [](int i) {
    return std::exp(log_frequency(500000.0L, i, 64) - std::log(3.0L));
  });
}

TEST(RopeScaling, NtkSlowsTheLastPairByTheFactor) {
  // ln f' = ln f - (2i/dim) ln s - (2/dim) ln s
  expect_frequencies(spec_of(80, 10000.0, NtkScaling{4.0, std::nullopt}), std::nullopt, [](int i) {
    return std::exp(log_frequency(10000.0L, i, 80) - (2.0L * i + 2.0L) / 80.0L * std::log(4.0L));
  });
  const core::Frequencies plain = resolve_frequencies(spec_of(80, 10000.0));
  const core::Frequencies ntk =
      resolve_frequencies(spec_of(80, 10000.0, NtkScaling{4.0, std::nullopt}));
  EXPECT_NEAR(plain.values()[39] / ntk.values()[39], 4.0, 1e-14);
}

TEST(RopeScaling, NtkMixedSpreadsTheFactorByAPower) {
  // ln f' = ln f - ln s ((i+1)/(dim/2))^b
  expect_frequencies(spec_of(64, 10000.0, NtkScaling{16.0, 0.625}), std::nullopt, [](int i) {
    return std::exp(log_frequency(10000.0L, i, 64) -
                    std::log(16.0L) * std::pow((i + 1) / 32.0L, 0.625L));
  });
}

TEST(RopeScaling, DynamicGrowsTheBaseBeyondTheOriginalLength) {
  const RopeSpec spec = spec_of(128, 10000.0, DynamicScaling{2.0, std::nullopt, 4096});
  for (const std::int64_t context : {1, 4096, 4097, 16384}) {
    const long double length = std::max<long double>(context, 4096.0L);
    expect_frequencies(spec, context, [&](int i) {
      const long double growth = 1.0L + 2.0L * (length / 4096.0L - 1.0L);
      return std::exp(log_frequency(10000.0L, i, 128) - 2.0L * i / 126.0L * std::log(growth));
    });
  }
  const core::Frequencies silent = resolve_frequencies(spec);
  const core::Frequencies within = resolve_frequencies(spec, 100);
  EXPECT_TRUE(std::equal(silent.values().begin(), silent.values().end(), within.values().begin()));
}

TEST(RopeScaling, DynamicAlphaIsTheSameAtEveryLength) {
  const RopeSpec spec = spec_of(128, 10000.0, DynamicScaling{1.0, 1000.0, 0});
  for (const std::int64_t context : {1, 1000000}) {
    expect_frequencies(spec, context, [](int i) {
      return std::exp(log_frequency(10000.0L, i, 128) - 2.0L * i / 126.0L * std::log(1000.0L));
    });
  }
  EXPECT_FALSE(depends_on_context(spec));
}

// The blend written with rotations made within the original length, not with pair indices: a pair
// belongs to the kept side by how far ln(rotations) is between the ends of the range.
long double kept_share(int i, int width, long double base, long double original, long double fast,
                       long double slow, bool whole_pairs) {
  const auto pair_of = [&](long double rotations) {
    return (std::log(original) - std::log(2.0L * kPi) - std::log(rotations)) /
           (std::log(base) * 2.0L / width);
  };
  long double low = pair_of(fast);
  long double high = pair_of(slow);
  if (whole_pairs) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::fmax(low, 0.0L);
  high = std::fmin(high, width - 1.0L);
  if (low == high) high += 0.001L;
  return 1.0L - std::fmin(std::fmax((i - low) / (high - low), 0.0L), 1.0L);
}

TEST(RopeScaling, YarnBlendsOverRotations) {
  for (const bool truncate : {true, false}) {
    YarnScaling yarn;
    yarn.factor = 32.0;
    yarn.original_length = 4096;
    yarn.truncate = truncate;
    expect_frequencies(spec_of(64, 150000.0, yarn), std::nullopt, [&](int i) {
      const long double kept = kept_share(i, 64, 150000.0L, 4096.0L, 32.0L, 1.0L, truncate);
      const long double f = std::exp(log_frequency(150000.0L, i, 64));
      return f * (1.0L / 32.0L + kept * (1.0L - 1.0L / 32.0L));
    });
  }
}

TEST(RopeScaling, YarnRangeOfOnePairIsWidened) {
  // original = 2 pi r exactly nowhere, yet both ends land on pair 0 here.
  YarnScaling yarn;
  yarn.factor = 4.0;
  yarn.original_length = 2;
  yarn.beta_fast = 32.0;
  yarn.beta_slow = 1.0;
  const core::Frequencies frequencies = resolve_frequencies(spec_of(16, 10000.0, yarn));
  const core::Frequencies plain = resolve_frequencies(spec_of(16, 10000.0));
  EXPECT_EQ(frequencies.values()[0], plain.values()[0]);
  EXPECT_NEAR(frequencies.values()[1], plain.values()[1] / 4.0, 1e-16);
}

TEST(RopeScaling, YarnAmplitude) {
  YarnScaling yarn;
  yarn.factor = 40.0;
  yarn.original_length = 4096;
  const auto amplitude = [&] { return resolve_frequencies(spec_of(64, 1e4, yarn)).amplitude(); };
  const double log_factor = std::log(40.0);
  EXPECT_NEAR(amplitude(), 1.0 + 0.1 * log_factor, 1e-15);
  yarn.mscale = 0.707;
  EXPECT_NEAR(amplitude(), 1.0 + 0.1 * log_factor, 1e-15) << "mscale alone changes nothing";
  yarn.mscale_all_dim = 1.3;
  EXPECT_NEAR(amplitude(), (1.0 + 0.0707 * log_factor) / (1.0 + 0.13 * log_factor), 1e-15);
  yarn.attention_factor = 1.25;
  EXPECT_EQ(amplitude(), 1.25);
  yarn.attention_factor.reset();
  yarn.factor = 0.5;
  EXPECT_EQ(amplitude(), 1.0);
}

// ggml's rope_yarn: theta = freq_scale e (1 - mix) + e mix, mix = ramp * ext_factor.
TEST(RopeScaling, YarnWithAnExtrapolationFactor) {
  YarnScaling yarn;
  yarn.factor = 4.0;
  yarn.original_length = 8192;
  for (const double weight : {0.0, 0.25, 0.7465, 1.0}) {
    yarn.extrapolation_factor = weight;
    const RopeSpec spec = spec_of(128, 1e6, yarn);
    expect_frequencies(spec, std::nullopt, [&](int i) {
      const long double mix =
          static_cast<long double>(weight) * kept_share(i, 128, 1e6L, 8192.0L, 32.0L, 1.0L, true);
      return std::exp(log_frequency(1e6L, i, 128)) * (0.25L + mix * 0.75L);
    });
    EXPECT_NEAR(resolve_frequencies(spec).amplitude(),
                weight == 0.0 ? 1.0 : 1.0 + 0.1 * std::log(4.0), 1e-15);
  }
  yarn.extrapolation_factor = 0.0;
  yarn.attention_factor = 1.5;
  EXPECT_EQ(resolve_frequencies(spec_of(128, 1e6, yarn)).amplitude(), 1.5);
}

TEST(RopeScaling, Telechat3YarnIsYarnWithASmallerAmplitude) {
  const Telechat3YarnScaling telechat{.factor = 4.0, .original_length = 8192};
  const RopeSpec spec = spec_of(128, 1e6, telechat);
  expect_frequencies(spec, std::nullopt, [](int i) {
    const long double kept = kept_share(i, 128, 1e6L, 8192.0L, 32.0L, 1.0L, true);
    return std::exp(log_frequency(1e6L, i, 128)) * (0.25L + kept * 0.75L);
  });
  // 1 + 0.07 ln s = ln(e s^0.07)
  EXPECT_NEAR(resolve_frequencies(spec).amplitude(), std::log(std::exp(1.0) * std::pow(4.0, 0.07)),
              1e-15);
  EXPECT_EQ(resolve_frequencies(
                spec_of(128, 1e6, Telechat3YarnScaling{.factor = 0.5, .original_length = 8192}))
                .amplitude(),
            1.0);
}

TEST(RopeScaling, NtkByPartsBlendsTwice) {
  NtkByPartsScaling parts;
  parts.factor = 8.0;
  parts.original_length = 2048;
  parts.ntk_factor = 0.9;
  parts.extrapolation_factor = 0.8;
  expect_frequencies(spec_of(128, 10000.0, parts), std::nullopt, [](int i) {
    const long double f = std::exp(log_frequency(10000.0L, i, 128));
    const long double ntk_share = 0.9 * kept_share(i, 128, 10000.0L, 2048.0L, 1.25L, 0.75L, true);
    const long double ntk = std::exp(-2.0L * i / 126.0L * std::log(8.0L));
    const long double blend = 1.0L / 8.0L + ntk_share * (ntk - 1.0L / 8.0L);
    const long double kept = 0.8 * kept_share(i, 128, 10000.0L, 2048.0L, 16.0L, 2.0L, true);
    return f * (blend + kept * (1.0L - blend));
  });
}

LongRopeScaling longrope_of_width_8() {
  LongRopeScaling longrope;
  longrope.short_factor = {1.0, 1.1, 1.3, 1.6};
  longrope.long_factor = {1.2, 3.0, 9.0, 31.0};
  longrope.original_length = 64;
  longrope.factor = 8.0;
  return longrope;
}

TEST(RopeScaling, LongRopePicksTheListByTheContext) {
  const LongRopeScaling longrope = longrope_of_width_8();
  const RopeSpec spec = spec_of(8, 1000.0, longrope);
  for (const std::int64_t context : {1, 64, 65, 500}) {
    expect_frequencies(spec, context, [&](int i) {
      const double divisor = context > 64 ? longrope.long_factor[i] : longrope.short_factor[i];
      return std::exp(log_frequency(1000.0L, i, 8) - std::log(static_cast<long double>(divisor)));
    });
  }
  EXPECT_EQ(resolve_frequencies(spec).values()[3], resolve_frequencies(spec, 64).values()[3]);
  EXPECT_TRUE(depends_on_context(spec));
}

TEST(RopeScaling, LongRopeAmplitude) {
  LongRopeScaling longrope = longrope_of_width_8();
  const auto amplitude = [&](std::int64_t context) {
    return resolve_frequencies(spec_of(8, 1000.0, longrope), context).amplitude();
  };
  // 64 = 8^2: ln factor / ln original is one half.
  EXPECT_NEAR(amplitude(1), std::sqrt(1.5), 1e-15);
  longrope.short_mscale = 1.25;
  EXPECT_EQ(amplitude(64), 1.25);
  EXPECT_NEAR(amplitude(65), std::sqrt(1.5), 1e-15);
  longrope.long_mscale = 1.5;
  EXPECT_EQ(amplitude(65), 1.5);
  longrope.short_mscale.reset();
  longrope.long_mscale.reset();
  longrope.attention_factor = 1.75;
  EXPECT_EQ(amplitude(65), 1.75);
  longrope.attention_factor.reset();
  longrope.factor = 1.0;
  EXPECT_EQ(amplitude(65), 1.0);
}

TEST(RopeScaling, Llama3BlendsByWavelength) {
  expect_frequencies(
      spec_of(128, 500000.0, Llama3Scaling{8.0, 1.0, 4.0, 8192}), std::nullopt, [](int i) {
        const long double f = std::exp(log_frequency(500000.0L, i, 128));
        const long double rotations = 8192.0L * f / (2.0L * kPi);
        const long double kept = std::fmin(std::fmax((rotations - 1.0L) / 3.0L, 0.0L), 1.0L);
        return f * (1.0L / 8.0L + kept * (7.0L / 8.0L));
      });
}

TEST(RopeScaling, Llama3WithEqualFactorsIsAStep) {
  expect_frequencies(spec_of(128, 500000.0, Llama3Scaling{16.0, 1.0, 1.0, 8192}), std::nullopt,
                     [](int i) {
                       const long double f = std::exp(log_frequency(500000.0L, i, 128));
                       return 8192.0L * f / (2.0L * kPi) >= 1.0L ? f : f / 16.0L;
                     });
}

TEST(RopeScaling, Llama3WithEqualFactorsKeepsTheWavelengthOnTheStep) {
  // The first pair's float32 wavelength is the step itself, and nothing may be divided by high -
  // low = 0.
  const double wavelength = static_cast<float>(2.0 * 3.14159265358979323846);
  const double step = 8192.0 / wavelength;
  ASSERT_EQ(static_cast<float>(8192.0 / step), static_cast<float>(wavelength));
  const core::Frequencies plain = resolve_frequencies(spec_of(96, 10000.0));
  const core::Frequencies stepped =
      resolve_frequencies(spec_of(96, 10000.0, Llama3Scaling{2.0, step, step, 8192}));
  EXPECT_EQ(stepped.float32_values()[0], 1.0F);
  for (int i = 1; i < 48; ++i) {
    EXPECT_EQ(stepped.float32_values()[i], plain.float32_values()[i] / 2.0F) << "pair " << i;
  }
}

TEST(RopeScaling, ProportionalRotatesAShareOfTheWholeHead) {
  // 0.3 * 64 = 19.2 features, 9 pairs.
  expect_frequencies(spec_of(64, 1e6, ProportionalScaling{0.3, 2.0}), std::nullopt, [](int i) {
    return i < 9 ? std::exp(log_frequency(1e6L, i, 64)) / 2.0L : 0.0L;
  });
}

TEST(RopeScaling, PartialRotaryUsesItsOwnWidth) {
  RopeSpec spec = spec_of(64, 10000.0);
  spec.rotary_dim = 24;
  expect_frequencies(spec, std::nullopt,
                     [](int i) { return std::exp(log_frequency(10000.0L, i, 24)); });
}

TEST(RopeScaling, NamesAreThoseOfConfigs) {
  EXPECT_EQ(name_of(RopeScaling{DefaultScaling{}}), "default");
  EXPECT_EQ(name_of(RopeScaling{LinearScaling{}}), "linear");
  EXPECT_EQ(name_of(RopeScaling{NtkScaling{}}), "ntk");
  EXPECT_EQ(name_of(RopeScaling{DynamicScaling{}}), "dynamic");
  EXPECT_EQ(name_of(RopeScaling{NtkByPartsScaling{}}), "ntk_by_parts");
  EXPECT_EQ(name_of(RopeScaling{YarnScaling{}}), "yarn");
  EXPECT_EQ(name_of(RopeScaling{LongRopeScaling{}}), "longrope");
  EXPECT_EQ(name_of(RopeScaling{Llama3Scaling{}}), "llama3");
  EXPECT_EQ(name_of(RopeScaling{ProportionalScaling{}}), "proportional");
  EXPECT_EQ(name_of(RopeScaling{Telechat3YarnScaling{}}), "telechat3-yarn");
}

TEST(RopeScaling, Float32ListFollowsTheFloat32Steps) {
  // 1 / 10000^(2/6): every step rounds, so the last bit is not that of the exact frequency,
  // rounded.
  const core::Frequencies frequencies = resolve_frequencies(spec_of(6, 10000.0));
  const float exponent = 2.0F / 6.0F;
  const auto power = static_cast<float>(std::pow(10000.0, static_cast<double>(exponent)));
  EXPECT_EQ(frequencies.float32_values()[1], 1.0F / power);
}

TEST(RopeScaling, ABaseBeyondFloat32KeepsAFiniteFloat32List) {
  // 1e-46 is zero in float32, and one over a power of zero is infinite.
  const core::Frequencies frequencies = resolve_frequencies(spec_of(8, 1e-46));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(frequencies.float32_values()[i], static_cast<float>(frequencies.values()[i]));
  }
}

}  // namespace
}  // namespace phasor::encodings
