#include "encodings/rope/scalings.hpp"

namespace phasor::encodings {
namespace {

ScaledFrequencies scale(const DefaultScaling&, const ScalingInput& input) {
  return in_both_arithmetics([&]<class T>(std::type_identity<T>) {
    return plain_frequencies<T>(input.base, input.width, input.width / 2);
  });
}

}  // namespace

const ScalingRule& rule_of(std::type_identity<DefaultScaling>) {
  static constexpr ScalingRule kRule =
      make_rule<DefaultScaling, scale>("default", "f_i = base^(-2i/dim)", {});
  return kRule;
}

}  // namespace phasor::encodings
