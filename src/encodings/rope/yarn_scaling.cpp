#include <cmath>

#include "encodings/rope/yarn_blend.hpp"

namespace phasor::encodings {
namespace {

constexpr std::array kYarnFields = {
    kYarnBlendFields<YarnScaling>[0],
    kYarnBlendFields<YarnScaling>[1],
    kYarnBlendFields<YarnScaling>[2],
    kYarnBlendFields<YarnScaling>[3],
    kYarnBlendFields<YarnScaling>[4],
    scaling_field<&YarnScaling::attention_factor>("attention_factor", FieldRange::positive,
                                                  WhenMissing::not_used,
                                                  "The amplitude; without it 1 + 0.1 ln factor."),
    scaling_field<&YarnScaling::mscale>(
        "mscale", FieldRange::finite, WhenMissing::not_used,
        "With mscale_all_dim, the amplitude is g(mscale) / g(mscale_all_dim)."),
    scaling_field<&YarnScaling::mscale_all_dim>(
        "mscale_all_dim", FieldRange::finite, WhenMissing::not_used,
        "Divides the amplitude by g(mscale_all_dim) = 1 + 0.1 mscale_all_dim ln factor."),
    scaling_field<&YarnScaling::extrapolation_factor>(
        "extrapolation_factor", FieldRange::weight, WhenMissing::use_default,
        "Weight of f_i in the blend; at 0 the amplitude is 1 too. ext_factor in ggml."),
};

ScaledFrequencies scale(const YarnScaling& scaling, const ScalingInput& input) {
  double amplitude =
      scaling.extrapolation_factor == 0.0 ? 1.0 : yarn_amplitude(scaling.factor, 1.0);
  if (scaling.attention_factor) {
    amplitude = *scaling.attention_factor;
  } else if (scaling.mscale != 0.0 && scaling.mscale_all_dim != 0.0) {
    amplitude = yarn_amplitude(scaling.factor, scaling.mscale) /
                yarn_amplitude(scaling.factor, scaling.mscale_all_dim);
  }
  return yarn_blend(scaling, input, amplitude, scaling.extrapolation_factor);
}

}  // namespace

double yarn_amplitude(double factor, double mscale) noexcept {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

const ScalingRule& rule_of(std::type_identity<YarnScaling>) {
  static constexpr ScalingRule kRule = make_rule<YarnScaling, scale, check_yarn_blend<YarnScaling>>(
      "yarn", "f_i / factor blended into f_i between corr(beta_fast) and corr(beta_slow)",
      kYarnFields);
  return kRule;
}

}  // namespace phasor::encodings
