// YaRN and NTK-by-parts blend two lists of frequencies over a range of pairs, chosen by how many
// rotations a pair makes within the original length.
#pragma once

#include <cmath>
#include <cstdint>

#include "encodings/arithmetic.hpp"

namespace phasor::encodings {

struct Rotations {
  double fast = 0.0;  // pairs with more rotations are before the range
  double slow = 0.0;  // pairs with fewer are after it
};

enum class RangeEnds : std::uint8_t {
  whole_pairs,  // rounded outward to whole pair indices
  as_computed,  // gpt-oss
};

// The pair index, as a real number, that makes r rotations within the original length:
//   corr(r) = dim ln(original / (2 pi r)) / (2 ln base)
template <class S>
[[nodiscard]] S correction_pair(double rotations, std::int64_t width, double base,
                                std::int64_t original_length) {
  const S rotates_once =
      S(static_cast<double>(original_length)) / (S(rotations) * static_cast<S>(kTwoPi));
  return S(static_cast<double>(width)) * natural_log(rotates_once) /
         (S(2.0) * natural_log(S(base)));
}

// How much of pair i belongs to the slow side: 0 before the range, 1 after it, linear inside.
template <class T>
class Ramp {
 public:
  Ramp(Rotations rotations, std::int64_t width, double base, std::int64_t original_length,
       RangeEnds ends) {
    using S = Setting<T>;
    low_ = correction_pair<S>(rotations.fast, width, base, original_length);
    high_ = correction_pair<S>(rotations.slow, width, base, original_length);
    if (ends == RangeEnds::whole_pairs) {
      low_ = S(std::floor(static_cast<double>(low_)));
      high_ = S(std::ceil(static_cast<double>(high_)));
    }
    // Each end is clamped on one side only, as in every engine that implements YaRN.
    const S last = S(static_cast<double>(width - 1));
    if (less(low_, S(0.0))) low_ = S(0.0);
    if (less(last, high_)) high_ = last;
    if (!less(low_, high_) && !less(high_, low_)) high_ = high_ + S(0.001);
  }

  [[nodiscard]] T operator()(std::int64_t pair) const {
    const T position = T(static_cast<double>(pair)) - element<T>(low_);
    const T ramp = position / element<T>(high_ - low_);
    if (less(ramp, T(0.0))) return T(0.0);
    return less(T(1.0), ramp) ? T(1.0) : ramp;
  }

 private:
  Setting<T> low_, high_;
};

}  // namespace phasor::encodings
