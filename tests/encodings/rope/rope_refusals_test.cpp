#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "encodings/rope/rope_specs.hpp"
#include "phasor/encodings/rope.hpp"
#include "support/errors.hpp"

namespace phasor::encodings {
namespace {

using testing::spec_of;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct SpoiledSpec {
  std::vector<std::string> values;  // of the message
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

TEST(RopeRefusals, EachNamesTheMemberAndTheValue) {
  const std::vector<SpoiledSpec> refusals = {
      {{"head_dim", "0"}, [](RopeSpec& s) { s.head_dim = 0; }},
      {{"rotary_dim", "7"}, [](RopeSpec& s) { s.rotary_dim = 7; }},
      {{"rotary_dim", "0"}, [](RopeSpec& s) { s.rotary_dim = 0; }},
      {{"rotary_dim", "head_dim", "16", "18"}, [](RopeSpec& s) { s.rotary_dim = 18; }},
      {{"rotary_dim", "head_dim", "rotary_offset", "10", "16"},
       [](RopeSpec& s) { s.rotary_offset = 6; }},
      {{"rotary_offset", "-1"}, [](RopeSpec& s) { s.rotary_offset = -1; }},
      {{"rotary_dim", "2048", "4096"}, [](RopeSpec& s) { s.head_dim = s.rotary_dim = 4096; }},
      {{"base", "0"}, [](RopeSpec& s) { s.base = 0.0; }},
      {{"base", "-10000"}, [](RopeSpec& s) { s.base = -10000.0; }},
      {{"base", "nan"}, [](RopeSpec& s) { s.base = kNan; }},
      {{"base", "inf"}, [](RopeSpec& s) { s.base = kInfinity; }},
      {{"layout", "interleaved_to_half"}, [](RopeSpec& s) { s.layout.reset(); }},
      {{"linear factor", "0"}, [](RopeSpec& s) { s.scaling = LinearScaling{0.0}; }},
      {{"ntk factor", "-1"},
       [](RopeSpec& s) {
         s.scaling = NtkScaling{-1.0, std::nullopt};
       }},
      {{"ntk mixed_b", "mixed_b", "nan"},
       [](RopeSpec& s) {
         s.scaling = NtkScaling{2.0, kNan};
       }},
      {{"dynamic original_length", "original_length", "0"},
       [](RopeSpec& s) {
         s.scaling = DynamicScaling{2.0, std::nullopt, 0};
       }},
      {{"dynamic alpha", "0"},
       [](RopeSpec& s) {
         s.scaling = DynamicScaling{1.0, 0.0, 0};
       }},
      {{"rotary_dim", "2"},
       [](RopeSpec& s) {
         s.rotary_dim = 2;
         s.scaling = DynamicScaling{2.0, std::nullopt, 64};
       }},
      {{"rotary_dim", "2", "ntk_by_parts"},
       [](RopeSpec& s) {
         s.rotary_dim = 2;
         NtkByPartsScaling parts;
         parts.original_length = 64;
         s.scaling = parts;
       }},
      {{"ntk_by_parts ntk_factor", "ntk_by_parts", "ntk_factor", "nan"},
       [](RopeSpec& s) {
         NtkByPartsScaling parts;
         parts.original_length = 64;
         parts.ntk_factor = kNan;
         s.scaling = parts;
       }},
      {{"yarn factor", "nan"}, [](RopeSpec& s) { s.scaling = yarn(kNan, 64); }},
      {{"yarn original_length", "original_length", "0"},
       [](RopeSpec& s) { s.scaling = yarn(4.0, 0); }},
      {{"yarn beta_fast", "beta_fast", "beta_slow", "32", "64"},
       [](RopeSpec& s) {
         YarnScaling scaling = yarn(4.0, 64);
         scaling.beta_slow = 64.0;
         s.scaling = scaling;
       }},
      {{"base", "1", "0.5"},
       [](RopeSpec& s) {
         s.base = 0.5;
         s.scaling = yarn(4.0, 64);
       }},
      {{"longrope short_factor", "short_factor", "rotary_dim", "2", "8", "7"},
       [](RopeSpec& s) { s.scaling = longrope(7); }},
      {{"longrope long_factor[3]", "long_factor", "3", "0"},
       [](RopeSpec& s) {
         LongRopeScaling scaling = longrope(8);
         scaling.long_factor[3] = 0.0;
         s.scaling = scaling;
       }},
      {{"attention_factor 1.5", "short_mscale", "long_mscale"},
       [](RopeSpec& s) {
         LongRopeScaling scaling = longrope(8);
         scaling.attention_factor = 1.5;
         scaling.long_mscale = 1.5;
         s.scaling = scaling;
       }},
      {{"longrope original_length", "original_length", "1"},
       [](RopeSpec& s) {
         LongRopeScaling scaling = longrope(8);
         scaling.original_length = 1;
         scaling.factor = 2.0;
         s.scaling = scaling;
       }},
      {{"llama3 high_freq_factor", "3", "high_freq_factor", "low_freq_factor", "1", "4"},
       [](RopeSpec& s) {
         s.scaling = Llama3Scaling{8.0, 4.0, 1.0, 8192};
       }},
      {{"proportional proportion", "0", "1", "1.5"},
       [](RopeSpec& s) {
         s.scaling = ProportionalScaling{1.5, 1.0};
       }},
      {{"proportional", "rotary_dim", "head_dim", "16", "8"},
       [](RopeSpec& s) {
         s.rotary_dim = 8;
         s.scaling = ProportionalScaling{0.5, 1.0};
       }},
      {{"mrope", "3", "2"},
       [](RopeSpec& s) {
         s.axes = MropeAxes{{4, 4}, MropeAxes::Order::chunked};
       }},
      {{"mrope sections", "rotary_dim", "2", "8", "7"},
       [](RopeSpec& s) {
         s.axes = MropeAxes{{3, 2, 2}, MropeAxes::Order::chunked};
       }},
      {{"0", "rotary_dim", "2", "8", "-1"},
       [](RopeSpec& s) {
         s.axes = MropeAxes{{-1, 4, 5}, MropeAxes::Order::chunked};
       }},
      {{"0, 4, 4", "interleaved"},
       [](RopeSpec& s) {
         s.axes = MropeAxes{{0, 4, 4}, MropeAxes::Order::interleaved};
       }},
      {{"xpos", "mrope"},
       [](RopeSpec& s) {
         s.axes = MropeAxes{{2, 3, 3}, MropeAxes::Order::chunked};
         s.xpos = Xpos{};
       }},
      {{"mrope", "3", "4", "5"},
       [](RopeSpec& s) {
         s.axes = MropeAxes{{4, 1, 1, 1, 1}, MropeAxes::Order::chunked};
       }},
      {{"mrope", "3", "alternating", "4"},
       [](RopeSpec& s) {
         s.axes = MropeAxes{{2, 2, 2, 2}, MropeAxes::Order::alternating};
       }},
      {{"8, 0, 0, 0", "interleaved", "row 0", "3"},
       [](RopeSpec& s) {
         s.axes = MropeAxes{{8, 0, 0, 0}, MropeAxes::Order::interleaved};
       }},
      {{"axial", "proportional"},
       [](RopeSpec& s) {
         s.axes = AxialAxes{};
         s.scaling = ProportionalScaling{0.5, 1.0};
       }},
      {{"frequencies", "rotary_dim / 2 = 8", "7"},
       [](RopeSpec& s) { s.frequencies.assign(7, 0.5); }},
      {{"frequencies[2]", "nan"},
       [](RopeSpec& s) {
         s.frequencies.assign(8, 0.5);
         s.frequencies[2] = kNan;
       }},
      {{"frequencies[7]", "inf"},
       [](RopeSpec& s) {
         s.frequencies.assign(8, 0.5);
         s.frequencies[7] = kInfinity;
       }},
      {{"base", "frequencies", "500000"},
       [](RopeSpec& s) {
         s.frequencies.assign(8, 0.5);
         s.base = 500000.0;
       }},
      {{"yarn", "frequencies", "base"},
       [](RopeSpec& s) {
         s.frequencies.assign(8, 0.5);
         s.scaling = yarn(4.0, 64);
       }},
      {{"longrope", "frequencies"},
       [](RopeSpec& s) {
         s.frequencies.assign(8, 0.5);
         s.scaling = longrope(8);
       }},
      {{"frequency_factors", "rotary_dim / 2 = 8", "4"},
       [](RopeSpec& s) { s.frequency_factors.assign(4, 1.0); }},
      {{"frequency_factors[0]", "0"}, [](RopeSpec& s) { s.frequency_factors.assign(8, 0.0); }},
      {{"amplitude", "0"}, [](RopeSpec& s) { s.amplitude = 0.0; }},
      {{"amplitude", "-1.5"}, [](RopeSpec& s) { s.amplitude = -1.5; }},
      {{"amplitude", "nan"}, [](RopeSpec& s) { s.amplitude = kNan; }},
      {{"amplitude", "inf"}, [](RopeSpec& s) { s.amplitude = kInfinity; }},
      {{"yarn extrapolation_factor", "0 to 1", "1.5"},
       [](RopeSpec& s) {
         YarnScaling scaling = yarn(4.0, 64);
         scaling.extrapolation_factor = 1.5;
         s.scaling = scaling;
       }},
      {{"rotary_dim", "4", "14"},
       [](RopeSpec& s) {
         s.axes = AxialAxes{};
         s.rotary_dim = 14;
       }},
      {{"xpos scale_base", "scale_base", "0"},
       [](RopeSpec& s) {
         s.xpos = Xpos{};
         s.xpos->scale_base = 0.0;
       }},
      {{"xpos", "middle_ceil", "context"},
       [](RopeSpec& s) {
         s.xpos = Xpos{};
         s.xpos->policy = Xpos::Centre::middle_ceil;
       }},
  };
  EXPECT_NO_THROW(static_cast<void>(resolve(spec_of(16, 10000.0))));
  for (const SpoiledSpec& refusal : refusals) {
    RopeSpec spec = spec_of(16, 10000.0);
    refusal.spoil(spec);
    for (const std::string& value : refusal.values) {
      tests::expect_error(ErrorCode::invalid_argument, {value}, [&] { return resolve(spec); });
    }
  }
}

TEST(RopeRefusals, NegativeContext) {
  tests::expect_error(ErrorCode::invalid_argument, {"context", "-1"},
                      [] { return resolve(spec_of(16, 10000.0), -1); });
}

TEST(RopeRefusals, AmplitudeThatIsNotPositive) {
  YarnScaling scaling = yarn(4.0, 64);
  scaling.mscale = -100.0;
  scaling.mscale_all_dim = 1.0;
  tests::expect_error(ErrorCode::invalid_argument, {"amplitude"},
                      [&] { return resolve(spec_of(16, 10000.0, scaling)); });
}

}  // namespace
}  // namespace phasor::encodings
