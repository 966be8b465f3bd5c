#include "encodings/rope/scalings.hpp"

namespace phasor::encodings {

void check(const DefaultScaling&, const ScalingInput&) {}

ScaledFrequencies scale(const DefaultScaling&, const ScalingInput& input) {
  return in_both_arithmetics([&]<class T>(std::type_identity<T>) {
    return plain_frequencies<T>(input.base, input.width, input.width / 2);
  });
}

}  // namespace phasor::encodings
