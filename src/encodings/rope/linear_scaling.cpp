#include "encodings/rope/scalings.hpp"

namespace phasor::encodings {
namespace {

constexpr std::array kLinearFields = {
    scaling_field<&LinearScaling::factor>("factor", FieldRange::positive, WhenMissing::error,
                                          "Divides every frequency."),
};

ScaledFrequencies scale(const LinearScaling& scaling, const ScalingInput& input) {
  return in_both_arithmetics([&]<class T>(std::type_identity<T>) {
    std::vector<T> frequencies = unscaled_frequencies<T>(input);
    for (T& frequency : frequencies) frequency = frequency / element<T>(scaling.factor);
    return frequencies;
  });
}

}  // namespace

const ScalingRule& rule_of(std::type_identity<LinearScaling>) {
  static constexpr ScalingRule kRule =
      taking_a_list(make_rule<LinearScaling, scale>("linear", "f_i / factor", kLinearFields));
  return kRule;
}

}  // namespace phasor::encodings
