#include "phasor/core/rotate.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "phasor/core/internal/double_double.hpp"

namespace phasor::core {

Frequencies::Frequencies(std::vector<double> values, double amplitude,
                         std::vector<std::uint8_t> axes, std::vector<float> float32_values,
                         int axis_count) {
  const auto refuse = [](const std::string& what) { phasor::refuse("frequencies: " + what); };
  Data data{std::move(values), amplitude, std::move(axes), std::move(float32_values)};
  const std::size_t count = data.values.size();
  if (count == 0) refuse("at least one frequency is needed, got 0");
  if (count > kMaxRotaryDim / 2) {
    refuse(message("at most ", kMaxRotaryDim / 2, " frequencies are supported, got ", count));
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isfinite(data.values[i])) {
      refuse(message("frequency ", i, " must be finite, got ", data.values[i]));
    }
    data.largest = std::max(data.largest, std::fabs(data.values[i]));
  }
  if (!std::isfinite(amplitude) || amplitude <= 0.0) {
    refuse(message("the amplitude must be finite and positive, got ", amplitude));
  }
  if (!data.axes.empty()) {
    if (data.axes.size() != count) {
      refuse(message("one axis per frequency is needed, got ", data.axes.size(), " axes for ",
                     count, " frequencies"));
    }
    data.axis_count = *std::max_element(data.axes.begin(), data.axes.end()) + 1;
    if (data.axis_count > kMaxAxes) {
      refuse(message("an axis must be below ", kMaxAxes, ", got ", data.axis_count - 1));
    }
  }
  if (axis_count != 0) {
    if (axis_count < data.axis_count || axis_count > kMaxAxes) {
      refuse(message("the rows of positions must be from ", data.axis_count, " to ", kMaxAxes,
                     ", got ", axis_count));
    }
    if (axis_count > 1 && data.axes.empty()) data.axes.assign(count, 0);
    data.axis_count = axis_count;
  }
  if (data.float32_values.empty()) {
    data.float32_values.assign(data.values.begin(), data.values.end());
  } else if (data.float32_values.size() != count) {
    refuse(message(count, " float32 values are needed, got ", data.float32_values.size()));
  }
  data_ = std::make_shared<const Data>(std::move(data));
}

bool Frequencies::same_values(const Frequencies& other) const noexcept {
  if (data_ == other.data_) return true;
  // Compared by bytes: a decode step calls this for every token.
  const auto same_bytes = [](const auto& a, const auto& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
  };
  return data_->amplitude == other.data_->amplitude &&
         same_bytes(data_->values, other.data_->values) &&
         same_bytes(data_->float32_values, other.data_->float32_values);
}

Frequencies make_frequencies(const FrequencySpec& spec) {
  if (spec.rotary_dim <= 0 || spec.rotary_dim % 2 != 0 || spec.rotary_dim > kMaxRotaryDim) {
    refuse(message("frequencies: rotary_dim must be even and between 2 and ", kMaxRotaryDim,
                   ", got ", spec.rotary_dim));
  }
  if (!std::isfinite(spec.base) || spec.base <= 0.0) {
    refuse(message("frequencies: base must be finite and positive, got ", spec.base));
  }
  // (15)
  const DoubleDouble log_step = DoubleDouble(-2.0) * log(DoubleDouble(spec.base)) /
                                DoubleDouble(static_cast<double>(spec.rotary_dim));
  std::vector<double> values;
  for (const DoubleDouble power : powers(log_step, spec.rotary_dim / 2)) {
    values.push_back(static_cast<double>(power));
  }
  return Frequencies(std::move(values));
}

}  // namespace phasor::core
