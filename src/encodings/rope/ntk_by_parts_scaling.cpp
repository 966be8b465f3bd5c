#include "encodings/rope/correction_range.hpp"
#include "encodings/rope/scalings.hpp"

namespace phasor::encodings {
namespace {

constexpr std::array kNtkByPartsFields = {
    scaling_field<&NtkByPartsScaling::factor>("factor", FieldRange::positive, WhenMissing::error,
                                              "Divides the lowest frequencies."),
    original_length_field<&NtkByPartsScaling::original_length>(),
    scaling_field<&NtkByPartsScaling::beta_0>(
        "beta_0", FieldRange::positive, WhenMissing::use_default,
        "Rotations within the original length above which NTK replaces linear."),
    scaling_field<&NtkByPartsScaling::beta_1>("beta_1", FieldRange::positive,
                                              WhenMissing::use_default,
                                              "Rotations below which linear applies alone."),
    scaling_field<&NtkByPartsScaling::gamma_0>("gamma_0", FieldRange::positive,
                                               WhenMissing::use_default,
                                               "Rotations above which f_i is unscaled."),
    scaling_field<&NtkByPartsScaling::gamma_1>("gamma_1", FieldRange::positive,
                                               WhenMissing::use_default,
                                               "Rotations below which the first blend applies."),
    scaling_field<&NtkByPartsScaling::ntk_factor>("ntk_factor", FieldRange::finite,
                                                  WhenMissing::use_default,
                                                  "Weight of NTK in the first blend."),
    scaling_field<&NtkByPartsScaling::extrapolation_factor>(
        "extrapolation_factor", FieldRange::finite, WhenMissing::use_default,
        "Weight of f_i in the second blend."),
};

void check(const NtkByPartsScaling& scaling, const ScalingInput& input) {
  if (scaling.beta_0 < scaling.beta_1 || scaling.gamma_0 < scaling.gamma_1) {
    refuse(message(
        "rope: ntk_by_parts beta_0 and gamma_0 must not be below beta_1 and gamma_1, got ",
        scaling.beta_0, ", ", scaling.gamma_0, " and ", scaling.beta_1, ", ", scaling.gamma_1));
  }
  // The exponent is dim / (dim - 2), and the range divides by ln base.
  if (input.width <= 2) {
    refuse(message("rope: rotary_dim must be above 2 for ntk_by_parts scaling, got ", input.width));
  }
  if (!(input.base > 1.0)) {
    refuse(message("rope: base must be above 1 for ntk_by_parts scaling, got ", input.base));
  }
}

ScaledFrequencies scale(const NtkByPartsScaling& scaling, const ScalingInput& input) {
  return in_both_arithmetics([&]<class T>(std::type_identity<T>) {
    using S = Setting<T>;
    const std::int64_t pairs = input.width / 2;
    const auto width = static_cast<double>(input.width);
    const S ntk_base = S(input.base) * power(S(scaling.factor), S(width) / S(width - 2.0));
    const std::vector<T> inverse = inverse_frequencies<T>(input.base, input.width, pairs);
    std::vector<T> frequencies = plain_frequencies<T>(ntk_base, input.width, pairs);
    const Ramp<T> to_linear({scaling.beta_0, scaling.beta_1}, input.width, input.base,
                            scaling.original_length, RangeEnds::whole_pairs);
    const Ramp<T> to_blend({scaling.gamma_0, scaling.gamma_1}, input.width, input.base,
                           scaling.original_length, RangeEnds::whole_pairs);
    const T one(1.0);
    for (std::int64_t i = 0; i < pairs; ++i) {
      T& frequency = frequencies[static_cast<std::size_t>(i)];
      const T& inverse_i = inverse[static_cast<std::size_t>(i)];
      const T linear = one / (element<T>(scaling.factor) * inverse_i);
      const T ntk_part = (one - to_linear(i)) * element<T>(scaling.ntk_factor);
      frequency = linear * (one - ntk_part) + frequency * ntk_part;
      const T plain_part = (one - to_blend(i)) * element<T>(scaling.extrapolation_factor);
      frequency = frequency * (one - plain_part) + (one / inverse_i) * plain_part;
    }
    return frequencies;
  });
}

}  // namespace

const ScalingRule& rule_of(std::type_identity<NtkByPartsScaling>) {
  static constexpr ScalingRule kRule = make_rule<NtkByPartsScaling, scale, check>(
      "ntk_by_parts", "linear blended into NTK, then into f_i, by rotations in the original length",
      kNtkByPartsFields);
  return kRule;
}

}  // namespace phasor::encodings
