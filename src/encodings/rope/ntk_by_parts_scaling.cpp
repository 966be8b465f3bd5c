#include "encodings/rope/correction_range.hpp"
#include "encodings/rope/scalings.hpp"
#include "phasor/core/error.hpp"

namespace phasor::encodings {

void check(const NtkByPartsScaling& scaling, const ScalingInput& input) {
  require_positive("ntk_by_parts factor", scaling.factor);
  require_positive("ntk_by_parts original_length", scaling.original_length);
  require_positive("ntk_by_parts beta_0", scaling.beta_0);
  require_positive("ntk_by_parts beta_1", scaling.beta_1);
  require_positive("ntk_by_parts gamma_0", scaling.gamma_0);
  require_positive("ntk_by_parts gamma_1", scaling.gamma_1);
  require_finite("ntk_by_parts ntk_factor", scaling.ntk_factor);
  require_finite("ntk_by_parts extrapolation_factor", scaling.extrapolation_factor);
  if (scaling.beta_0 < scaling.beta_1 || scaling.gamma_0 < scaling.gamma_1) {
    throw Error(
        ErrorCode::invalid_argument,
        message("rope: ntk_by_parts beta_0 and gamma_0 must not be below beta_1 and gamma_1, got ",
                scaling.beta_0, ", ", scaling.gamma_0, " and ", scaling.beta_1, ", ",
                scaling.gamma_1));
  }
  // The exponent is dim / (dim - 2), and the range divides by ln base.
  if (input.width <= 2) {
    throw Error(
        ErrorCode::invalid_argument,
        message("rope: rotary_dim must be above 2 for ntk_by_parts scaling, got ", input.width));
  }
  if (!(input.base > 1.0)) {
    throw Error(ErrorCode::invalid_argument,
                message("rope: base must be above 1 for ntk_by_parts scaling, got ", input.base));
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

}  // namespace phasor::encodings
