// The angles of the engines, rounded at each step of their arithmetic.
#include <cmath>
#include <limits>

#include "porting/dialects/reading.hpp"
#include "porting/rounding.hpp"

namespace phasor::porting {
namespace {

// After an overflow there is no angle to compare: the error is the largest float.
[[nodiscard]] double distance(double angle, double position, double frequency) {
  if (!std::isfinite(angle)) return std::numeric_limits<float>::max();
  // fma rounds once: the rounding of a product of two doubles would be as large as the error.
  return std::abs(std::fma(position, frequency, -angle));
}

[[nodiscard]] std::vector<float> float32_frequencies(const core::Frequencies& frequencies) {
  const auto given = frequencies.float32_values();
  std::vector<float> values(given.begin(), given.end());
  if (values.empty()) {
    for (const double value : frequencies.values()) values.push_back(static_cast<float>(value));
  }
  return values;
}

// ggml computes theta = position * theta_scale^i with one float32 product per pair, and the angle
// with one more product by f_i / base^(-2i/dim).
[[nodiscard]] std::vector<float> recurrent_angles(const EngineReading& reading,
                                                  const core::Frequencies& frequencies,
                                                  std::int64_t position) {
  const auto values = frequencies.values();
  std::vector<double> plain(values.begin(), values.end());
  float theta_scale = values.size() > 1 ? static_cast<float>(values[1] / values[0]) : 1.0F;
  // Dynamic scaling changes the base itself; every other scaling is a factor on each pair, and so
  // are the lists of a spec.
  const bool listed = !reading.rope.frequencies.empty() || !reading.rope.frequency_factors.empty();
  if (listed || (!std::holds_alternative<encodings::DynamicScaling>(reading.rope.scaling) &&
                 !std::holds_alternative<encodings::DefaultScaling>(reading.rope.scaling))) {
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
  if (reading.path == FloatPath::narrow) {
    const auto kept = rounded(static_cast<double>(position), reading.type);
    for (const double value : values) {
      const double frequency = rounded(value, reading.type);
      errors.push_back(distance(rounded(kept * frequency, reading.type),
                                static_cast<double>(position), frequency));
    }
    return errors;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    errors.push_back(
        distance(angles[i], static_cast<double>(position), values[i] / reading.position_divisor));
  }
  return errors;
}

}  // namespace phasor::porting
