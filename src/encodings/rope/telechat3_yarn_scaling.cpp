#include <cmath>

#include "encodings/rope/yarn_blend.hpp"

namespace phasor::encodings {
namespace {

ScaledFrequencies scale(const Telechat3YarnScaling& scaling, const ScalingInput& input) {
  const double amplitude = scaling.factor <= 1.0 ? 1.0 : 0.07 * std::log(scaling.factor) + 1.0;
  return yarn_blend(scaling, input, amplitude);
}

}  // namespace

const ScalingRule& rule_of(std::type_identity<Telechat3YarnScaling>) {
  static constexpr ScalingRule kRule =
      make_rule<Telechat3YarnScaling, scale, check_yarn_blend<Telechat3YarnScaling>>(
          "telechat3-yarn", "YaRN with amplitude 1 + 0.07 ln factor",
          kYarnBlendFields<Telechat3YarnScaling>);
  return kRule;
}

}  // namespace phasor::encodings
