// The float32 arithmetic of the engines: the same rule, rounded at each of their steps.
#include <cmath>
#include <limits>

#include "porting/dialects/reading.hpp"

namespace phasor::porting {
namespace {

// Overflow leaves no angle to compare; the error is then as large as an angle can matter.
[[nodiscard]] double distance(float angle, double position, double frequency) {
  if (!std::isfinite(angle)) return std::numeric_limits<float>::max();
  // One rounding: the product of two doubles would lose what is measured here.
  return std::abs(std::fma(position, frequency, -static_cast<double>(angle)));
}

[[nodiscard]] std::vector<float> float32_frequencies(const core::Frequencies& frequencies) {
  const auto given = frequencies.float32_values();
  std::vector<float> values(given.begin(), given.end());
  if (values.empty()) {
    for (const double value : frequencies.values()) values.push_back(static_cast<float>(value));
  }
  return values;
}

// ggml keeps theta = position * theta_scale^i, one float32 product per pair, and turns it into the
// angle by one more with the pair's share f_i / base^(-2i/dim).
[[nodiscard]] std::vector<float> recurrent_angles(const EngineReading& reading,
                                                  const core::Frequencies& frequencies,
                                                  std::int64_t position) {
  const auto values = frequencies.values();
  std::vector<double> plain(values.begin(), values.end());
  float theta_scale = values.size() > 1 ? static_cast<float>(values[1] / values[0]) : 1.0F;
  // A moved base is itself the base there; every other scaling is a share of each pair.
  if (!std::holds_alternative<encodings::DynamicScaling>(reading.rope.scaling) &&
      !std::holds_alternative<encodings::DefaultScaling>(reading.rope.scaling)) {
    const double exponent = -2.0 / static_cast<double>(reading.rope.rotary_dim);
    theta_scale = static_cast<float>(std::pow(reading.rope.base, exponent));
    for (std::size_t i = 0; i < plain.size(); ++i) {
      plain[i] = std::pow(reading.rope.base, exponent * static_cast<double>(i));
    }
  }
  std::vector<float> angles;
  auto theta = static_cast<float>(position);
  for (std::size_t i = 0; i < values.size(); ++i) {
    angles.push_back(theta * static_cast<float>(values[i] / plain[i]));
    theta *= theta_scale;
  }
  return angles;
}

}  // namespace

std::vector<double> rounding_of(const EngineReading& reading, const core::Frequencies& frequencies,
                                std::int64_t position) {
  const auto values = frequencies.values();
  std::vector<float> angles;
  const bool images = std::holds_alternative<encodings::AxialAxes>(reading.rope.axes);
  if (reading.path == FloatPath::recurrence && !images) {
    angles = recurrent_angles(reading, frequencies, position);
  } else {
    auto place = static_cast<float>(position);
    if (reading.path == FloatPath::divided_positions)
      place /= static_cast<float>(reading.position_divisor);
    for (const float value : float32_frequencies(frequencies)) angles.push_back(place * value);
  }
  std::vector<double> errors;
  for (std::size_t i = 0; i < values.size(); ++i) {
    errors.push_back(
        distance(angles[i], static_cast<double>(position), values[i] / reading.position_divisor));
  }
  return errors;
}

}  // namespace phasor::porting
