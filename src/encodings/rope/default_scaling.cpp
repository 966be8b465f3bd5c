#include "encodings/rope/scalings.hpp"

namespace phasor::encodings {
namespace {

ScaledFrequencies scale(const DefaultScaling&, const ScalingInput& input) {
  return in_both_arithmetics(
      [&]<class T>(std::type_identity<T>) { return unscaled_frequencies<T>(input); });
}

}  // namespace

const ScalingRule& rule_of(std::type_identity<DefaultScaling>) {
  static constexpr ScalingRule kRule =
      taking_a_list(make_rule<DefaultScaling, scale>("default", "f_i = base^(-2i/dim)", {}));
  return kRule;
}

}  // namespace phasor::encodings
