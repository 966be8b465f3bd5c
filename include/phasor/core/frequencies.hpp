// The narrow waist: every RoPE type resolves to these numbers, and nothing below knows a type's
// name.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "phasor/core/error.hpp"

namespace phasor::core {

// A cos/sin row and a head are worked on in buffers of fixed size, so that a call never allocates.
inline constexpr std::int64_t kMaxRotaryDim = 2048;
// Positions come as rows (M-RoPE: temporal, height, width); a frequency reads one of them.
inline constexpr int kMaxAxes = 8;

// θ_i in radians per position, kept in float64; the factor on cos and sin; the position row each
// θ_i reads.
//
// throws   Error(invalid_argument) if there is no value, more than kMaxRotaryDim / 2, one that is
//          not finite, an amplitude that is not finite and positive, or axes that do not fit
class Frequencies {
 public:
  explicit Frequencies(std::vector<double> values, double amplitude = 1.0,
                       std::vector<std::uint8_t> axes = {}, std::vector<float> float32_values = {});

  [[nodiscard]] std::span<const double> values() const noexcept { return values_; }
  [[nodiscard]] double amplitude() const noexcept { return amplitude_; }
  // One entry per frequency, or empty when all read row 0.
  [[nodiscard]] std::span<const std::uint8_t> axes() const noexcept { return axes_; }
  [[nodiscard]] int axis_count() const noexcept { return axis_count_; }
  [[nodiscard]] std::int64_t pairs() const noexcept {
    return static_cast<std::int64_t>(values_.size());
  }
  [[nodiscard]] double largest() const noexcept { return largest_; }
  // The same frequencies as an engine gets them that computes in float32 throughout; used by
  // AngleMode::float32 alone.
  [[nodiscard]] std::span<const float> float32_values() const noexcept { return float32_values_; }

 private:
  std::vector<double> values_;
  double amplitude_;
  std::vector<std::uint8_t> axes_;
  std::vector<float> float32_values_;
  int axis_count_ = 1;
  double largest_ = 0.0;  // max |θ_i|
};

struct FrequencySpec {
  std::int64_t rotary_dim = 0;
  double base = 10000.0;
};

// RoFormer (15): θ_i = base^(-2i/rotary_dim), i = 0 .. rotary_dim/2 - 1, each correctly rounded to
// float64 (computed to about 100 bits).
//
// throws   Error(invalid_argument): rotary_dim odd, not positive or above kMaxRotaryDim; base not
//          positive
[[nodiscard]] Frequencies make_frequencies(const FrequencySpec& spec);

}  // namespace phasor::core
