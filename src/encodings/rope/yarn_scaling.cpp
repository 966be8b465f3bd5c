#include <cmath>

#include "encodings/rope/correction_range.hpp"
#include "encodings/rope/scalings.hpp"
#include "phasor/core/error.hpp"

namespace phasor::encodings {

double yarn_amplitude(double factor, double mscale) noexcept {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void check(const YarnScaling& scaling, const ScalingInput& input) {
  require_positive("yarn factor", scaling.factor);
  require_positive("yarn original_length", scaling.original_length);
  require_positive("yarn beta_fast", scaling.beta_fast);
  require_positive("yarn beta_slow", scaling.beta_slow);
  require_finite("yarn mscale", scaling.mscale);
  require_finite("yarn mscale_all_dim", scaling.mscale_all_dim);
  if (scaling.attention_factor)
    require_positive("yarn attention_factor", *scaling.attention_factor);
  if (scaling.beta_fast < scaling.beta_slow) {
    throw Error(ErrorCode::invalid_argument,
                message("rope: yarn beta_fast must not be below beta_slow, got ", scaling.beta_fast,
                        " and ", scaling.beta_slow));
  }
  // The range divides by ln base.
  if (!(input.base > 1.0)) {
    throw Error(ErrorCode::invalid_argument,
                message("rope: base must be above 1 for yarn scaling, got ", input.base));
  }
}

ScaledFrequencies scale(const YarnScaling& scaling, const ScalingInput& input) {
  double amplitude = yarn_amplitude(scaling.factor, 1.0);
  if (scaling.attention_factor) {
    amplitude = *scaling.attention_factor;
  } else if (scaling.mscale != 0.0 && scaling.mscale_all_dim != 0.0) {
    amplitude = yarn_amplitude(scaling.factor, scaling.mscale) /
                yarn_amplitude(scaling.factor, scaling.mscale_all_dim);
  }
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
      const T kept_part = one - ramp(i);
      frequency = stretched * (one - kept_part) + kept * kept_part;
    }
    return frequencies;
  };
  return in_both_arithmetics(formula, amplitude);
}

}  // namespace phasor::encodings
