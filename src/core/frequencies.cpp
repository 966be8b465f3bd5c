#include "phasor/core/frequencies.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "phasor/core/double_double.hpp"

namespace phasor::core {

Frequencies::Frequencies(std::vector<double> values, double amplitude,
                         std::vector<std::uint8_t> axes, std::vector<float> float32_values)
    : values_(std::move(values)),
      amplitude_(amplitude),
      axes_(std::move(axes)),
      float32_values_(std::move(float32_values)) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::invalid_argument, "frequencies: " + what);
  };
  if (values_.empty()) refuse("expected at least one frequency, got none");
  if (pairs() > kMaxRotaryDim / 2) {
    refuse(message("expected at most ", kMaxRotaryDim / 2, " frequencies, got ", pairs()));
  }
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (!std::isfinite(values_[i]))
      refuse(message("frequency ", i, " must be finite, got ", values_[i]));
    largest_ = std::max(largest_, std::fabs(values_[i]));
  }
  if (!std::isfinite(amplitude_) || amplitude_ <= 0.0) {
    refuse(message("the amplitude must be finite and positive, got ", amplitude_));
  }
  if (!axes_.empty()) {
    if (axes_.size() != values_.size()) {
      refuse(message("expected one axis per frequency, got ", axes_.size(), " axes for ",
                     values_.size(), " frequencies"));
    }
    axis_count_ = *std::max_element(axes_.begin(), axes_.end()) + 1;
    if (axis_count_ > kMaxAxes) {
      refuse(message("an axis must be below ", kMaxAxes, ", got ", axis_count_ - 1));
    }
  }
  if (float32_values_.empty()) {
    float32_values_.assign(values_.begin(), values_.end());
  } else if (float32_values_.size() != values_.size()) {
    refuse(message("expected ", values_.size(), " float32 values, got ", float32_values_.size()));
  }
}

Frequencies make_frequencies(const FrequencySpec& spec) {
  if (spec.rotary_dim <= 0 || spec.rotary_dim % 2 != 0 || spec.rotary_dim > kMaxRotaryDim) {
    throw Error(ErrorCode::invalid_argument,
                message("frequencies: rotary_dim must be even and between 2 and ", kMaxRotaryDim,
                        ", got ", spec.rotary_dim));
  }
  if (!std::isfinite(spec.base) || spec.base <= 0.0) {
    throw Error(ErrorCode::invalid_argument,
                message("frequencies: base must be finite and positive, got ", spec.base));
  }
  const DoubleDouble log_base = log(DoubleDouble(spec.base));
  std::vector<double> values(static_cast<std::size_t>(spec.rotary_dim / 2));
  for (std::size_t i = 0; i < values.size(); ++i) {
    // (15)
    const DoubleDouble exponent = DoubleDouble(-2.0 * static_cast<double>(i)) /
                                  DoubleDouble(static_cast<double>(spec.rotary_dim));
    values[i] = static_cast<double>(exp(exponent * log_base));
  }
  return Frequencies(std::move(values));
}

}  // namespace phasor::core
