#include "encodings/rope/scalings.hpp"

namespace phasor::encodings {

void check(const LinearScaling& scaling, const ScalingInput&) {
  require_positive("linear factor", scaling.factor);
}

ScaledFrequencies scale(const LinearScaling& scaling, const ScalingInput& input) {
  return in_both_arithmetics([&]<class T>(std::type_identity<T>) {
    std::vector<T> frequencies = plain_frequencies<T>(input.base, input.width, input.width / 2);
    for (T& frequency : frequencies) frequency = frequency / element<T>(scaling.factor);
    return frequencies;
  });
}

}  // namespace phasor::encodings
