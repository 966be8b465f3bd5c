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

std::vector<double> query_scales(const QueryScale& scale, std::span<const double> positions) {
  validate(scale);
  const auto length = static_cast<double>(scale.length);
  const auto offset = static_cast<double>(scale.offset);
  std::vector<double> factors;
  factors.reserve(positions.size());
  for (const double position : positions) {
    if (!(position >= 0.0 && std::isfinite(position))) {
      refuse(ErrorCode::out_of_range,
             message("query_scale: positions must be finite and not negative, got ", position));
    }
    factors.push_back(1.0 + scale.beta * std::log1p(std::floor((position + offset) / length)));
  }
  return factors;
}

}  // namespace phasor::encodings
