#include <cmath>

#include "encodings/rope/scalings.hpp"

namespace phasor::encodings {
namespace {

constexpr Field<RopeScaling> proportion_field() {
  auto field = scaling_field<&ProportionalScaling::proportion>(
      "proportion", FieldRange::share, WhenMissing::state_default,
      "The share of the head's pairs that rotate.");
  field.key = "partial_rotary_factor";
  return field;
}

constexpr std::array kProportionalFields = {
    proportion_field(),
    scaling_field<&ProportionalScaling::factor>(
        "factor", FieldRange::positive, WhenMissing::use_default, "Divides every frequency."),
};

// The exponents span the whole head, however few pairs rotate: a narrower window is another
// encoding.
void check(const ProportionalScaling&, const ScalingInput& input) {
  if (input.width != input.head_dim) {
    refuse(message("rope: proportional scaling needs rotary_dim = head_dim = ", input.head_dim,
                   ", got ", input.width));
  }
}

ScaledFrequencies scale(const ProportionalScaling& scaling, const ScalingInput& input) {
  return in_both_arithmetics([&]<class T>(std::type_identity<T>) {
    const double rotating_features = scaling.proportion * static_cast<double>(input.width);
    const auto rotating = static_cast<std::int64_t>(std::floor(rotating_features / 2.0));
    std::vector<T> frequencies = plain_frequencies<T>(input.base, input.width, rotating);
    for (T& frequency : frequencies) frequency = frequency / element<T>(scaling.factor);
    frequencies.resize(static_cast<std::size_t>(input.width / 2), T(0.0));
    return frequencies;
  });
}

}  // namespace

const ScalingRule& rule_of(std::type_identity<ProportionalScaling>) {
  static constexpr ScalingRule kRule = make_rule<ProportionalScaling, scale, check>(
      "proportional", "base^(-2i/head_dim) / factor for a share of the pairs, then 0",
      kProportionalFields);
  return kRule;
}

}  // namespace phasor::encodings
