#include <algorithm>

#include "encodings/rope/scalings.hpp"
#include "phasor/core/error.hpp"

namespace phasor::encodings {

void check(const DynamicScaling& scaling, const ScalingInput& input) {
  require_positive("dynamic factor", scaling.factor);
  if (scaling.alpha) {
    require_positive("dynamic alpha", *scaling.alpha);
  } else {
    require_positive("dynamic original_length", scaling.original_length);
  }
  // The exponent is dim / (dim - 2).
  if (input.width <= 2) {
    throw Error(ErrorCode::invalid_argument,
                message("rope: rotary_dim must be above 2 for dynamic scaling, got ", input.width));
  }
}

ScaledFrequencies scale(const DynamicScaling& scaling, const ScalingInput& input) {
  return in_both_arithmetics([&]<class T>(std::type_identity<T>) {
    using S = Setting<T>;
    S growth = scaling.alpha.value_or(1.0);
    if (!scaling.alpha) {
      const std::int64_t original = scaling.original_length;
      const std::int64_t length = std::max(input.context.value_or(original), original);
      const S factor = scaling.factor;
      const S stretched =
          factor * S(static_cast<double>(length)) / S(static_cast<double>(original));
      growth = stretched - (factor - S(1.0));
    }
    const auto width = static_cast<double>(input.width);
    const S base = S(input.base) * power(growth, S(width) / S(width - 2.0));
    return plain_frequencies<T>(base, input.width, input.width / 2);
  });
}

}  // namespace phasor::encodings
