// YaRN and its variants blend f_i / factor into f_i over a range of pairs, and differ in the
// amplitude.
#pragma once

#include <vector>

#include "encodings/rope/correction_range.hpp"
#include "encodings/rope/scalings.hpp"

namespace phasor::encodings {

// The fields that every variant has. Scaling: factor, original_length, beta_fast, beta_slow,
// truncate.
template <class Scaling>
inline constexpr std::array kYarnBlendFields = {
    scaling_field<&Scaling::factor>("factor", FieldRange::positive, WhenMissing::null_means_ratio,
                                    "Divides the lowest frequencies; it also sets the amplitude."),
    original_length_field<&Scaling::original_length>(),
    scaling_field<&Scaling::beta_fast>(
        "beta_fast", FieldRange::positive, WhenMissing::use_default,
        "Pairs with more rotations within the original length keep f_i."),
    scaling_field<&Scaling::beta_slow>(
        "beta_slow", FieldRange::positive, WhenMissing::use_default,
        "Pairs with fewer rotations within the original length are divided by factor."),
    scaling_field<&Scaling::truncate>(
        "truncate", FieldRange::any, WhenMissing::use_default,
        "Rounds the range of blended pairs outward to whole pairs; false in gpt-oss."),
};

template <class Scaling>
void check_yarn_blend(const Scaling& scaling, const ScalingInput& input) {
  const std::string_view name = rule_of(std::type_identity<Scaling>{}).type.name;
  if (scaling.beta_fast < scaling.beta_slow) {
    refuse(message("rope: ", name, " beta_fast must not be below beta_slow, got ",
                   scaling.beta_fast, " and ", scaling.beta_slow));
  }
  // The range divides by ln base.
  if (!(input.base > 1.0))
    refuse(message("rope: base must be above 1 for ", name, " scaling, got ", input.base));
}

// f_i / factor (1 - k_i) + f_i k_i, k_i = extrapolation_factor (1 - ramp_i)
template <class Scaling>
[[nodiscard]] ScaledFrequencies yarn_blend(const Scaling& scaling, const ScalingInput& input,
                                           double amplitude, double extrapolation_factor = 1.0) {
  const auto formula = [&]<class T>(std::type_identity<T>) {
    std::vector<T> frequencies = inverse_frequencies<T>(input.base, input.width, input.width / 2);
    const Ramp<T> ramp({scaling.beta_fast, scaling.beta_slow}, input.width, input.base,
                       scaling.original_length,
                       scaling.truncate ? RangeEnds::whole_pairs : RangeEnds::as_computed);
    const T one(1.0);
    for (std::int64_t i = 0; i < input.width / 2; ++i) {
      T& frequency = frequencies[static_cast<std::size_t>(i)];
      const T kept = one / frequency;
      const T stretched = one / (element<T>(scaling.factor) * frequency);
      const T kept_part = (one - ramp(i)) * element<T>(extrapolation_factor);
      frequency = stretched * (one - kept_part) + kept * kept_part;
    }
    return frequencies;
  };
  return in_both_arithmetics(formula, amplitude);
}

}  // namespace phasor::encodings
