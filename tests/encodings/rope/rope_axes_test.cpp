#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "encodings/rope/rope_specs.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::encodings {
namespace {

using testing::spec_of;

std::vector<int> rows_of(const RopeSpec& spec) {
  const core::Frequencies frequencies = resolve_frequencies(spec);
  return {frequencies.axes().begin(), frequencies.axes().end()};
}

RopeSpec mrope(std::vector<std::int64_t> sections, MropeAxes::Order order) {
  RopeSpec spec = spec_of(16, 1e6);
  spec.axes = MropeAxes{std::move(sections), order};
  return spec;
}

TEST(RopeAxes, OneAxisNeedsNoRows) { EXPECT_TRUE(rows_of(spec_of(16, 1e4)).empty()); }

TEST(RopeAxes, MropeOrders) {
  EXPECT_EQ(rows_of(mrope({2, 3, 3}, MropeAxes::Order::chunked)),
            (std::vector<int>{0, 0, 1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(rows_of(mrope({4, 2, 2}, MropeAxes::Order::interleaved)),
            (std::vector<int>{0, 1, 2, 0, 1, 2, 0, 0}));
  EXPECT_EQ(rows_of(mrope({2, 3, 3}, MropeAxes::Order::alternating)),
            (std::vector<int>{1, 2, 1, 2, 1, 2, 0, 0}));
}

// The rule of ggml: pairs that t, h and w leave read the fourth row.
TEST(RopeAxes, MropeWithFourSections) {
  EXPECT_EQ(rows_of(mrope({1, 2, 2, 3}, MropeAxes::Order::chunked)),
            (std::vector<int>{0, 1, 1, 2, 2, 3, 3, 3}));
  EXPECT_EQ(rows_of(mrope({3, 2, 1, 2}, MropeAxes::Order::interleaved)),
            (std::vector<int>{0, 1, 2, 0, 1, 3, 0, 3}));
  EXPECT_EQ(rows_of(mrope({2, 2, 2, 2}, MropeAxes::Order::interleaved)),
            (std::vector<int>{0, 1, 2, 0, 1, 2, 3, 3}));
  EXPECT_EQ(rows_of(mrope({3, 3, 2, 0}, MropeAxes::Order::interleaved)),
            rows_of(mrope({3, 3, 2}, MropeAxes::Order::interleaved)));
}

TEST(RopeAxes, EverySectionHasARowOfPositions) {
  for (const std::vector<std::int64_t>& sections : std::vector<std::vector<std::int64_t>>{
           {5, 3, 0}, {8, 0, 0}, {0, 8, 0}, {0, 0, 8}, {5, 3, 0, 0}, {8, 0, 0, 0}, {2, 2, 2, 2}}) {
    const RopeSpec spec = mrope(sections, MropeAxes::Order::chunked);
    const auto rows = static_cast<int>(sections.size());
    const core::Frequencies frequencies = resolve_frequencies(spec);
    EXPECT_EQ(axis_count(spec.axes), rows);
    EXPECT_EQ(frequencies.axis_count(), rows);
    EXPECT_EQ(resolve(spec).frequencies.axis_count(), rows);
    for (int row = 0; row < rows; ++row) {
      EXPECT_EQ(std::count(frequencies.axes().begin(), frequencies.axes().end(), row),
                sections[static_cast<std::size_t>(row)]);
    }
  }
  EXPECT_EQ(axis_count(OneAxis{}), 1);
  EXPECT_EQ(axis_count(AxialAxes{}), 2);
}

TEST(RopeAxes, MropeLeavesTheFrequenciesAlone) {
  const core::Frequencies rotated =
      resolve_frequencies(mrope({2, 3, 3}, MropeAxes::Order::chunked));
  const core::Frequencies plain = resolve_frequencies(spec_of(16, 1e6));
  EXPECT_TRUE(std::equal(plain.values().begin(), plain.values().end(), rotated.values().begin()));
  EXPECT_EQ(rotated.axis_count(), 3);
}

TEST(RopeAxes, MropeGoesWithYarn) {
  YarnScaling yarn;
  yarn.factor = 4.0;
  yarn.original_length = 32768;
  RopeSpec spec = mrope({2, 3, 3}, MropeAxes::Order::chunked);
  spec.scaling = yarn;
  EXPECT_NEAR(resolve_frequencies(spec).amplitude(), 1.0 + 0.1 * std::log(4.0), 1e-15);
}

RopeSpec axial(AxialAxes::Kind kind) {
  RopeSpec spec = spec_of(16, 100.0);
  spec.axes = AxialAxes{kind};
  return spec;
}

AxialAxes::Kind axial_kind(const RopeSpec& spec) { return std::get<AxialAxes>(spec.axes).kind; }

TEST(RopeAxes, AxialConcatenatedRepeatsTheListOfHalfTheWidth) {
  const RopeSpec spec = axial(AxialAxes::Kind::concatenated);
  const core::Frequencies shared = axial_frequencies(spec);
  const core::Frequencies both = resolve_frequencies(spec);
  ASSERT_EQ(shared.pairs(), 4);
  ASSERT_EQ(both.pairs(), 8);
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(shared.values()[i], std::pow(100.0, -2.0 * i / 8.0), 1e-16);
    EXPECT_EQ(both.values()[i], shared.values()[i]);
    EXPECT_EQ(both.values()[i + 4], shared.values()[i]);
    EXPECT_EQ(both.float32_values()[i + 4], shared.float32_values()[i]);
  }
  EXPECT_EQ(rows_of(spec), (std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(resolve(spec).blocks, 1);
}

TEST(RopeAxes, AxialAlternatingDealsOutTheListOfTheFullWidth) {
  const RopeSpec spec = axial(AxialAxes::Kind::alternating);
  const core::Frequencies shared = axial_frequencies(spec);
  const core::Frequencies both = resolve_frequencies(spec);
  ASSERT_EQ(shared.pairs(), 8);
  EXPECT_TRUE(std::ranges::equal(shared.values(), both.values())) << "the order of the pairs";
  EXPECT_TRUE(std::ranges::equal(shared.float32_values(), both.float32_values()));
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(both.values()[i], std::pow(100.0, -2.0 * (2 * i) / 16.0), 1e-16);
    EXPECT_NEAR(both.values()[i + 4], std::pow(100.0, -2.0 * (2 * i + 1) / 16.0), 1e-16);
  }
  EXPECT_EQ(rows_of(spec), (std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1}));
}

TEST(RopeAxes, AxialPerHalfHeadMakesTwoBlocks) {
  const RopeSpec spec = axial(AxialAxes::Kind::per_half_head);
  const core::Frequencies half = resolve_frequencies(spec);
  const core::Frequencies concatenated = resolve_frequencies(axial(AxialAxes::Kind::concatenated));
  EXPECT_TRUE(
      std::equal(half.values().begin(), half.values().end(), concatenated.values().begin()));
  EXPECT_EQ(resolve(spec).blocks, 2);
}

// Both axes read the scaled list of a spec of their own width.
TEST(RopeAxes, AxialGoesWithEveryScaling) {
  const std::vector<RopeScaling> scalings = {
      LinearScaling{4.0},
      NtkScaling{4.0, 0.6},
      DynamicScaling{2.0, std::nullopt, 64},
      NtkByPartsScaling{.factor = 4.0, .original_length = 64},
      YarnScaling{.factor = 4.0, .original_length = 64, .extrapolation_factor = 0.5},
      Llama3Scaling{4.0, 1.0, 4.0, 64},
      Telechat3YarnScaling{.factor = 4.0, .original_length = 64}};
  const auto expect_shared = [](RopeSpec spec, const RopeSpec& one_axis) {
    for (const std::optional<std::int64_t> context : {std::optional<std::int64_t>(), {200}}) {
      const core::Frequencies shared = resolve_frequencies(one_axis, context);
      const core::Frequencies both = resolve_frequencies(spec, context);
      const bool alternating = axial_kind(spec) == AxialAxes::Kind::alternating;
      for (std::size_t i = 0; i < both.values().size(); ++i) {
        const std::size_t half = both.values().size() / 2;
        const std::size_t at = alternating ? 2 * (i % half) + i / half : i % half;
        EXPECT_EQ(both.values()[i], shared.values()[at]) << name_of(spec.scaling);
        EXPECT_EQ(both.float32_values()[i], shared.float32_values()[at]) << name_of(spec.scaling);
      }
      EXPECT_EQ(both.amplitude(), shared.amplitude());
      EXPECT_EQ(axial_frequencies(spec, context).values()[1], both.values()[1]);
    }
  };
  for (const AxialAxes::Kind kind : {AxialAxes::Kind::concatenated, AxialAxes::Kind::alternating,
                                     AxialAxes::Kind::per_half_head}) {
    const std::int64_t width = kind == AxialAxes::Kind::alternating ? 16 : 8;
    for (const RopeScaling& scaling : scalings) {
      RopeSpec spec = axial(kind);
      spec.scaling = scaling;
      expect_shared(spec, spec_of(width, 100.0, scaling));
    }
    LongRopeScaling longrope;
    longrope.short_factor.assign(static_cast<std::size_t>(width / 2), 1.5);
    longrope.long_factor.assign(static_cast<std::size_t>(width / 2), 3.0);
    longrope.original_length = 64;
    longrope.factor = 4.0;
    RopeSpec spec = axial(kind);
    spec.scaling = longrope;
    expect_shared(spec, spec_of(width, 100.0, longrope));
  }
}

TEST(RopeAxes, AxialFrequenciesRefusesOtherAxes) {
  EXPECT_THROW(static_cast<void>(axial_frequencies(spec_of(16, 1e4))), Error);
}

TEST(RopeAxes, XposGrowthAndCentres) {
  RopeSpec spec = spec_of(32, 10000.0);
  spec.xpos = Xpos{};
  spec.xpos->centre = 12.5;
  const core::Rotary fixed = resolve(spec);
  ASSERT_TRUE(fixed.growth.has_value());
  ASSERT_EQ(fixed.growth->rates.size(), 16U);
  for (int i = 0; i < 16; ++i) {
    // The published form, zeta_i = (2i + 0.4 d) / (1.4 d).
    const double zeta = (2.0 * i + 0.4 * 32) / (1.4 * 32);
    EXPECT_NEAR(std::exp(512.0 * fixed.growth->rates[i]), zeta, 1e-14);
  }
  EXPECT_EQ(fixed.growth->centre, 12.5);
  EXPECT_FALSE(depends_on_context(spec));

  spec.xpos->policy = Xpos::Centre::middle_floor;
  EXPECT_EQ(resolve(spec, 7).growth->centre, 3.0);
  EXPECT_EQ(resolve(spec, 8).growth->centre, 4.0);
  spec.xpos->policy = Xpos::Centre::middle_ceil;
  EXPECT_EQ(resolve(spec, 7).growth->centre, 4.0);
  EXPECT_EQ(resolve(spec, 8).growth->centre, 4.0);
  EXPECT_TRUE(depends_on_context(spec));
}

TEST(RopeAxes, WindowAtAnOffset) {
  RopeSpec spec = spec_of(192, 10000.0);
  spec.rotary_dim = 64;
  spec.rotary_offset = 128;
  const core::Rotary rotary = resolve(spec);
  EXPECT_EQ(rotary.offset, 128);
  EXPECT_EQ(rotary.head_dim, 192);
  EXPECT_EQ(rotary.rotary_dim(), 64);
  EXPECT_NEAR(rotary.frequencies.values()[1], std::pow(10000.0, -2.0 / 64.0), 1e-16);
}

}  // namespace
}  // namespace phasor::encodings
