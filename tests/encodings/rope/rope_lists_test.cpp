// Frequencies, frequency factors and an amplitude that a spec gives as numbers.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "encodings/rope/rope_specs.hpp"
#include "phasor/core/error.hpp"
#include "phasor/encodings/internal/fields.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::encodings {
namespace {

using testing::spec_of;

RopeSpec listed(std::vector<double> frequencies) {
  RopeSpec spec = spec_of(2 * static_cast<std::int64_t>(frequencies.size()), 10000.0);
  spec.frequencies = std::move(frequencies);
  return spec;
}

std::vector<double> values_of(const RopeSpec& spec) {
  const core::Frequencies frequencies = resolve_frequencies(spec);
  return {frequencies.values().begin(), frequencies.values().end()};
}

TEST(RopeLists, FrequenciesAreTakenToTheBit) {
  const std::vector<double> list = {1.0, 0.1 + 0.2, -0.25, 0.0};
  RopeSpec spec = listed(list);
  EXPECT_EQ(values_of(spec), list);
  EXPECT_EQ(resolve_frequencies(spec).float32_values()[1], static_cast<float>(0.1 + 0.2));
  EXPECT_EQ(base_of(spec), std::nullopt);
  EXPECT_EQ(base_of(spec_of(8, 500.0)), 500.0);
  spec.amplitude = 1.25;
  EXPECT_EQ(resolve_frequencies(spec).amplitude(), 1.25);
  EXPECT_FALSE(depends_on_context(spec));
}

TEST(RopeLists, ListOfThePowersIsTheBase) {
  const RopeSpec plain = spec_of(64, 10000.0);
  RopeSpec spec = plain;
  spec.frequencies = values_of(plain);
  EXPECT_TRUE(values_of(spec) == values_of(plain));
  spec.scaling = LinearScaling{4.0};
  RopeSpec divided = plain;
  divided.scaling = LinearScaling{4.0};
  EXPECT_EQ(values_of(spec), values_of(divided));
}

TEST(RopeLists, FactorsDivideWhatTheScalingGives) {
  const std::vector<double> factors = {1.0, 1.1, 2.0, 0.5, 4.0, 8.0, 0.9, 16.0};
  for (const RopeScaling& scaling : std::vector<RopeScaling>{
           DefaultScaling{}, LinearScaling{4.0}, DynamicScaling{2.0, std::nullopt, 64},
           YarnScaling{.factor = 4.0, .original_length = 64, .extrapolation_factor = 0.5},
           Llama3Scaling{4.0, 1.0, 4.0, 64}}) {
    const RopeSpec plain = spec_of(16, 10000.0, scaling);
    RopeSpec spec = plain;
    spec.frequency_factors = factors;
    const core::Frequencies before = resolve_frequencies(plain, 200);
    const core::Frequencies after = resolve_frequencies(spec, 200);
    for (std::size_t i = 0; i < factors.size(); ++i) {
      EXPECT_EQ(after.values()[i], before.values()[i] / factors[i]) << name_of(scaling);
      EXPECT_EQ(after.float32_values()[i],
                before.float32_values()[i] / static_cast<float>(factors[i]));
    }
    EXPECT_EQ(after.amplitude(), before.amplitude());
  }
  RopeSpec both = listed({8.0, 4.0});
  both.frequency_factors = {2.0, 0.5};
  both.scaling = LinearScaling{2.0};
  EXPECT_EQ(values_of(both), (std::vector<double>{2.0, 4.0}));
}

// MLX's rope(freqs=): the angle is position / freqs_i.
TEST(RopeLists, ReciprocalsAreFactorsOfBaseOne) {
  RopeSpec spec = spec_of(8, 1.0);
  spec.frequency_factors = {1.0, 10.0, 100.0, 1000.0};
  EXPECT_EQ(values_of(spec), (std::vector<double>{1.0, 0.1, 0.01, 0.001}));
}

TEST(RopeLists, AmplitudeMultipliesTheScalings) {
  RopeSpec spec = spec_of(16, 10000.0, YarnScaling{.factor = 4.0, .original_length = 64});
  const double own = resolve_frequencies(spec).amplitude();
  spec.amplitude = 0.5;
  EXPECT_EQ(resolve_frequencies(spec).amplitude(), 0.5 * own);
  EXPECT_EQ(resolve(spec).frequencies.amplitude(), 0.5 * own);
}

TEST(RopeLists, ListsAreInTheOrderOfThePairsOnEveryAxis) {
  RopeSpec spec = listed({8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0});
  const std::vector<double> list = spec.frequencies;
  spec.axes = MropeAxes{{2, 2, 2, 2}, MropeAxes::Order::interleaved};
  EXPECT_EQ(values_of(spec), list);
  for (const AxialAxes::Kind kind : {AxialAxes::Kind::concatenated, AxialAxes::Kind::alternating,
                                     AxialAxes::Kind::per_half_head}) {
    spec.axes = AxialAxes{kind};
    spec.frequency_factors.clear();
    EXPECT_EQ(values_of(spec), list);
    EXPECT_EQ(axial_frequencies(spec).pairs(), 8);
    spec.frequency_factors.assign(8, 2.0);
    spec.frequency_factors[5] = 1.0;
    EXPECT_EQ(values_of(spec)[4], 2.0);
    EXPECT_EQ(values_of(spec)[5], 3.0);
    EXPECT_EQ(resolve_frequencies(spec).axis_count(), 2);
  }
}

TEST(RopeLists, DimsThatAreNotGiven) {
  RopeSpec spec = listed({1.0, 2.0, 3.0});
  EXPECT_EQ(width_of_list(spec), 6);
  EXPECT_EQ(width_of_list(spec_of(8, 10.0)), 0);
  spec.rotary_offset = 2;
  EXPECT_EQ(rest_of_head(spec), 4);
  spec.rotary_offset = std::numeric_limits<std::int64_t>::min();
  EXPECT_THROW(static_cast<void>(rest_of_head(spec)), Error);
}

}  // namespace
}  // namespace phasor::encodings
