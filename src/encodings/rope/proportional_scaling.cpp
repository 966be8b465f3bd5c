#include <cmath>

#include "encodings/rope/scalings.hpp"
#include "phasor/core/error.hpp"

namespace phasor::encodings {

void check(const ProportionalScaling& scaling, const ScalingInput&) {
  require_positive("proportional factor", scaling.factor);
  if (!(scaling.proportion > 0.0 && scaling.proportion <= 1.0)) {
    throw Error(ErrorCode::invalid_argument,
                message("rope: proportional proportion must be above 0 and at most 1, got ",
                        scaling.proportion));
  }
}

// precondition  input.width is head_dim: the exponents span the whole head, however few pairs turn
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

}  // namespace phasor::encodings
