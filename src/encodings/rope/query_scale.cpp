#include "phasor/encodings/rope.hpp"

#include <cmath>

#include "phasor/core/error.hpp"

namespace phasor::encodings {

void validate(const QueryScale& scale) {
  if (!(std::isfinite(scale.beta) && scale.beta >= 0.0))
    refuse(message("query_scale: beta must be finite and not negative, got ", scale.beta));
  if (scale.length < 1)
    refuse(message("query_scale: length must be at least 1, got ", scale.length));
  if (scale.offset < 0)
    refuse(message("query_scale: offset must not be negative, got ", scale.offset));
}

double query_scale_at(const QueryScale& scale, double position) noexcept {
  const double steps = std::floor((position + static_cast<double>(scale.offset)) /
                                  static_cast<double>(scale.length));
  return 1.0 + scale.beta * std::log1p(steps);
}

std::vector<double> query_scales(const QueryScale& scale, std::span<const double> positions) {
  validate(scale);
  std::vector<double> factors;
  factors.reserve(positions.size());
  for (const double position : positions) {
    if (!(position >= 0.0 && std::isfinite(position))) {
      refuse(ErrorCode::out_of_range,
             message("query_scale: positions must be finite and not negative, got ", position));
    }
    factors.push_back(query_scale_at(scale, position));
  }
  return factors;
}

}  // namespace phasor::encodings
