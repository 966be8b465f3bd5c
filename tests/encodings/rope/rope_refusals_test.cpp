#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "encodings/rope/rope_specs.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::encodings {
namespace {

using testing::spec_of;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct SpoiledSpec {
  std::string message;
  std::function<void(RopeSpec&)> spoil;
};

YarnScaling yarn(double factor, std::int64_t original) {
  YarnScaling scaling;
  scaling.factor = factor;
  scaling.original_length = original;
  return scaling;
}

LongRopeScaling longrope(std::size_t length) {
  LongRopeScaling scaling;
  scaling.short_factor.assign(length, 1.0);
  scaling.long_factor.assign(length, 2.0);
  scaling.original_length = 64;
  return scaling;
}

// The message of the Error that resolving throws; empty when nothing is thrown.
std::string refusal_of(const RopeSpec& spec, std::optional<std::int64_t> context = std::nullopt) {
  try {
    static_cast<void>(resolve(spec, context));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(RopeRefusals, EachNamesTheMemberAndWhatCame) {
  const std::vector<SpoiledSpec> refusals = {
      {"rope: head_dim must be positive, got 0", [](RopeSpec& s) { s.head_dim = 0; }},
      {"rope: rotary_dim must be even, got 7", [](RopeSpec& s) { s.rotary_dim = 7; }},
      {"rope: rotary_dim must be positive, got 0", [](RopeSpec& s) { s.rotary_dim = 0; }},
      {"rope: rotary_dim must be at most head_dim = 16, got 18",
       [](RopeSpec& s) { s.rotary_dim = 18; }},
      {"rope: rotary_dim must be at most head_dim - rotary_offset = 10, got 16",
       [](RopeSpec& s) { s.rotary_offset = 6; }},
      {"rope: rotary_offset must be from 0 to head_dim - 1 = 15, got -1",
       [](RopeSpec& s) { s.rotary_offset = -1; }},
      {"rope: rotary_dim must be at most 2048, got 4096",
       [](RopeSpec& s) { s.head_dim = s.rotary_dim = 4096; }},
      {"rope: base must be positive and finite, got 0", [](RopeSpec& s) { s.base = 0.0; }},
      {"rope: base must be positive and finite, got -10000",
       [](RopeSpec& s) { s.base = -10000.0; }},
      {"rope: base must be positive and finite, got nan", [](RopeSpec& s) { s.base = kNan; }},
      {"rope: base must be positive and finite, got inf", [](RopeSpec& s) { s.base = kInfinity; }},
      {"rope: layout must be given (interleaved, half or interleaved_to_half), got none",
       [](RopeSpec& s) { s.layout.reset(); }},
      {"rope: linear factor must be positive and finite, got 0",
       [](RopeSpec& s) { s.scaling = LinearScaling{0.0}; }},
      {"rope: ntk factor must be positive and finite, got -1",
       [](RopeSpec& s) {
         s.scaling = NtkScaling{-1.0, std::nullopt};
       }},
      {"rope: ntk mixed_b must be positive and finite, got nan",
       [](RopeSpec& s) {
         s.scaling = NtkScaling{2.0, kNan};
       }},
      {"rope: dynamic original_length must be positive, got 0",
       [](RopeSpec& s) {
         s.scaling = DynamicScaling{2.0, std::nullopt, 0};
       }},
      {"rope: dynamic alpha must be positive and finite, got 0",
       [](RopeSpec& s) {
         s.scaling = DynamicScaling{1.0, 0.0, 0};
       }},
      {"rope: rotary_dim must be above 2 for dynamic scaling, got 2",
       [](RopeSpec& s) {
         s.rotary_dim = 2;
         s.scaling = DynamicScaling{2.0, std::nullopt, 64};
       }},
      {"rope: rotary_dim must be above 2 for ntk_by_parts scaling, got 2",
       [](RopeSpec& s) {
         s.rotary_dim = 2;
         NtkByPartsScaling parts;
         parts.original_length = 64;
         s.scaling = parts;
       }},
      {"rope: ntk_by_parts ntk_factor must be finite, got nan",
       [](RopeSpec& s) {
         NtkByPartsScaling parts;
         parts.original_length = 64;
         parts.ntk_factor = kNan;
         s.scaling = parts;
       }},
      {"rope: yarn factor must be positive and finite, got nan",
       [](RopeSpec& s) { s.scaling = yarn(kNan, 64); }},
      {"rope: yarn original_length must be positive, got 0",
       [](RopeSpec& s) { s.scaling = yarn(4.0, 0); }},
      {"rope: yarn beta_fast must not be below beta_slow, got 32 and 64",
       [](RopeSpec& s) {
         YarnScaling scaling = yarn(4.0, 64);
         scaling.beta_slow = 64.0;
         s.scaling = scaling;
       }},
      {"rope: base must be above 1 for yarn scaling, got 0.5",
       [](RopeSpec& s) {
         s.base = 0.5;
         s.scaling = yarn(4.0, 64);
       }},
      {"rope: longrope short_factor must have rotary_dim / 2 = 8 entries, got 7",
       [](RopeSpec& s) { s.scaling = longrope(7); }},
      {"rope: longrope long_factor[3] must be positive and finite, got 0",
       [](RopeSpec& s) {
         LongRopeScaling scaling = longrope(8);
         scaling.long_factor[3] = 0.0;
         s.scaling = scaling;
       }},
      {"rope: longrope amplitude must be given once, got attention_factor beside short_mscale or "
       "long_mscale",
       [](RopeSpec& s) {
         LongRopeScaling scaling = longrope(8);
         scaling.attention_factor = 1.5;
         scaling.long_mscale = 1.5;
         s.scaling = scaling;
       }},
      {"rope: longrope original_length must be above 1, got 1",
       [](RopeSpec& s) {
         LongRopeScaling scaling = longrope(8);
         scaling.original_length = 1;
         scaling.factor = 2.0;
         s.scaling = scaling;
       }},
      {"rope: llama3 high_freq_factor must not be below low_freq_factor, got 1 and 4",
       [](RopeSpec& s) {
         s.scaling = Llama3Scaling{8.0, 4.0, 1.0, 8192};
       }},
      {"rope: proportional proportion must be above 0 and at most 1, got 1.5",
       [](RopeSpec& s) {
         s.scaling = ProportionalScaling{1.5, 1.0};
       }},
      {"rope: proportional scaling needs rotary_dim = head_dim = 16, got 8",
       [](RopeSpec& s) {
         s.rotary_dim = 8;
         s.scaling = ProportionalScaling{0.5, 1.0};
       }},
      {"rope: mrope sections must be three (temporal, height, width), got 2",
       [](RopeSpec& s) {
         s.axes = MropeAxes{{4, 4}, MropeAxes::Order::chunked};
       }},
      {"rope: mrope sections must add up to rotary_dim / 2 = 8, got 7",
       [](RopeSpec& s) {
         s.axes = MropeAxes{{3, 2, 2}, MropeAxes::Order::chunked};
       }},
      {"rope: an mrope section must be from 0 to rotary_dim / 2 = 8, got -1",
       [](RopeSpec& s) {
         s.axes = MropeAxes{{-1, 4, 5}, MropeAxes::Order::chunked};
       }},
      {"rope: mrope sections must leave room for each other, got 0, 4, 4",
       [](RopeSpec& s) {
         s.axes = MropeAxes{{0, 4, 4}, MropeAxes::Order::interleaved};
       }},
      {"rope: xpos needs one row of positions, got mrope",
       [](RopeSpec& s) {
         s.axes = MropeAxes{{2, 3, 3}, MropeAxes::Order::chunked};
         s.xpos = Xpos{};
       }},
      {"rope: axial needs the default scaling, got linear",
       [](RopeSpec& s) {
         s.axes = AxialAxes{};
         s.scaling = LinearScaling{2.0};
       }},
      {"rope: rotary_dim must be a multiple of 4 for two axes, got 14",
       [](RopeSpec& s) {
         s.axes = AxialAxes{};
         s.rotary_dim = 14;
       }},
      {"rope: xpos scale_base must be positive and finite, got 0",
       [](RopeSpec& s) {
         s.xpos = Xpos{};
         s.xpos->scale_base = 0.0;
       }},
      {"rope: xpos with a centre in the middle needs a context length, got none",
       [](RopeSpec& s) {
         s.xpos = Xpos{};
         s.xpos->policy = Xpos::Centre::middle_ceil;
       }},
  };
  ASSERT_EQ(refusal_of(spec_of(16, 10000.0)), "");
  for (const SpoiledSpec& refusal : refusals) {
    RopeSpec spec = spec_of(16, 10000.0);
    refusal.spoil(spec);
    EXPECT_EQ(refusal_of(spec), refusal.message);
  }
}

TEST(RopeRefusals, NegativeContext) {
  EXPECT_EQ(refusal_of(spec_of(16, 10000.0), -1), "rope: context must not be negative, got -1");
}

TEST(RopeRefusals, AmplitudeThatIsNotPositive) {
  YarnScaling scaling = yarn(4.0, 64);
  scaling.mscale = -100.0;
  scaling.mscale_all_dim = 1.0;
  EXPECT_NE(refusal_of(spec_of(16, 10000.0, scaling)).find("amplitude"), std::string::npos);
}

}  // namespace
}  // namespace phasor::encodings
