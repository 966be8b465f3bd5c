#include "encodings/rope/xpos.hpp"

#include <cmath>

#include "encodings/rope/scalings.hpp"

namespace phasor::encodings {

void check(const Xpos& xpos) {
  require_positive("xpos scale_base", xpos.scale_base);
  require_positive("xpos gamma", xpos.gamma);
  require_finite("xpos centre", xpos.centre);
}

core::Growth growth_of(const Xpos& xpos, std::int64_t rotary_dim,
                       std::optional<std::int64_t> context) {
  core::Growth growth;
  const DoubleDouble gamma = xpos.gamma;
  for (std::int64_t i = 0; i < rotary_dim / 2; ++i) {
    const DoubleDouble share =
        DoubleDouble(static_cast<double>(2 * i)) / DoubleDouble(static_cast<double>(rotary_dim));
    const DoubleDouble zeta = (share + gamma) / (DoubleDouble(1.0) + gamma);
    growth.rates.push_back(static_cast<double>(natural_log(zeta) / DoubleDouble(xpos.scale_base)));
  }
  growth.centre = xpos.centre;
  if (xpos.policy != Xpos::Centre::fixed) {
    if (!context) {
      throw Error(ErrorCode::invalid_argument,
                  "rope: xpos with a centre in the middle needs a context length, got none");
    }
    const std::int64_t middle = (*context + (xpos.policy == Xpos::Centre::middle_ceil ? 1 : 0)) / 2;
    growth.centre = static_cast<double>(middle);
  }
  return growth;
}

}  // namespace phasor::encodings
