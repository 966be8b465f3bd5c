// The frequencies of a rotation. Every RoPE type is resolved to these numbers; tables and kernels do
// not depend on the type.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/export.h"

namespace phasor::core {

// cos/sin rows and heads are processed in buffers of fixed size, so that a call never allocates.
inline constexpr std::int64_t kMaxRotaryDim = 2048;
// Positions may have several axes (M-RoPE: temporal, height, width); a frequency reads one of them.
inline constexpr int kMaxAxes = 8;

// θ_i in radians per position, in float64; the factor on cos and sin; the position axis that each
// θ_i reads.
//
// An immutable value: copies share their numbers.
//
// throws   Error(invalid_argument) if there is no value, more than kMaxRotaryDim / 2, one that is
//          not finite, an amplitude that is not finite and positive, or axes that do not fit
class PHASOR_API Frequencies {
 public:
  explicit Frequencies(std::vector<double> values, double amplitude = 1.0,
                       std::vector<std::uint8_t> axes = {}, std::vector<float> float32_values = {});

  [[nodiscard]] std::span<const double> values() const noexcept { return data_->values; }
  [[nodiscard]] double amplitude() const noexcept { return data_->amplitude; }
  // One entry per frequency, or empty if all read axis 0.
  [[nodiscard]] std::span<const std::uint8_t> axes() const noexcept { return data_->axes; }
  [[nodiscard]] int axis_count() const noexcept { return data_->axis_count; }
  [[nodiscard]] std::int64_t pairs() const noexcept {
    return static_cast<std::int64_t>(data_->values.size());
  }
  [[nodiscard]] double largest() const noexcept { return data_->largest; }  // max |θ_i|
  // The same frequencies as an engine that works in float32 throughout computes them; used by
  // AngleMode::float32 only.
  [[nodiscard]] std::span<const float> float32_values() const noexcept {
    return data_->float32_values;
  }
  [[nodiscard]] bool same_values(const Frequencies& other) const noexcept;

 private:
  struct Data {
    std::vector<double> values;
    double amplitude;
    std::vector<std::uint8_t> axes;
    std::vector<float> float32_values;
    int axis_count = 1;
    double largest = 0.0;
  };
  std::shared_ptr<const Data> data_;
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
[[nodiscard]] PHASOR_API Frequencies make_frequencies(const FrequencySpec& spec);

}  // namespace phasor::core
