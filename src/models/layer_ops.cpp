#include "models/layer_ops.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace phasor::models {
namespace {

double value_of(Activation f, double x) {
  switch (f) {
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu:
      return x * (1 + std::erf(x / std::sqrt(2.0))) / 2;
    case Activation::gelu_tanh:
      return x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2;
    case Activation::relu:
      return x < 0 ? 0 : x;
  }
  return x;
}

}  // namespace

void rms_norm(const Rows& rows, const float* x, const float* weight, float offset, double epsilon,
              float* out, core::InstructionSet /*isa*/) {
  for (std::int64_t t = 0; t < rows.tokens; ++t) {
    const float* in = x + t * rows.stride;
    double sum = 0;
    for (std::int64_t c = 0; c < rows.width; ++c) sum += static_cast<double>(in[c]) * in[c];
    const double scale = 1 / std::sqrt(sum / static_cast<double>(rows.width) + epsilon);
    for (std::int64_t c = 0; c < rows.width; ++c)
      out[t * rows.stride + c] = static_cast<float>(in[c] * scale) * (offset + weight[c]);
  }
}

void layer_norm(const Rows& rows, const float* x, const float* weight, const float* bias,
                double epsilon, float* out, core::InstructionSet /*isa*/) {
  for (std::int64_t t = 0; t < rows.tokens; ++t) {
    const float* in = x + t * rows.stride;
    double sum = 0;
    double squares = 0;
    for (std::int64_t c = 0; c < rows.width; ++c) sum += in[c];
    const double mean = sum / static_cast<double>(rows.width);
    for (std::int64_t c = 0; c < rows.width; ++c) squares += (in[c] - mean) * (in[c] - mean);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(rows.width) + epsilon);
    for (std::int64_t c = 0; c < rows.width; ++c)
      out[t * rows.stride + c] = static_cast<float>((in[c] - mean) * scale * weight[c] +
                                                    (bias != nullptr ? bias[c] : 0.0F));
  }
}

void activate(Activation f, std::span<float> x, core::InstructionSet /*isa*/) {
  for (float& value : x) value = static_cast<float>(value_of(f, value));
}

void activate_gate(Activation f, std::span<float> gate, const float* up,
                   core::InstructionSet /*isa*/) {
  for (std::size_t i = 0; i < gate.size(); ++i)
    gate[i] = static_cast<float>(value_of(f, gate[i])) * up[i];
}

void add_to(std::span<float> x, const float* y, core::InstructionSet /*isa*/) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

double log_sum_exp(std::span<const float> x) {
  float highest = -std::numeric_limits<float>::infinity();
  for (const float value : x) highest = std::max(highest, value);
  double sum = 0;
  for (const float value : x) sum += std::exp(static_cast<double>(value) - highest);
  return highest + std::log(sum);
}

}  // namespace phasor::models
