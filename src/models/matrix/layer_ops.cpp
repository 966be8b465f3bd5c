#include "phasor/models/internal/layer_ops.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/matrix/dispatch.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/internal/json.hpp"

namespace phasor::models {
namespace {

// Between two looks at the caller's cancellation: some milliseconds of the widest rows.
constexpr std::int64_t kRowsPerLook = 256;
constexpr std::int64_t kElementsPerLook = std::int64_t{1} << 20;  // whole vectors

}  // namespace

Activation activation_of(std::string_view name) {
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") {
    return Activation::gelu_tanh;
  }
  if (name == "relu") return Activation::relu;
  refuse(ErrorCode::unsupported,
         message("hidden_act must be one of gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, relu, "
                 "silu, swish, got ",
                 io::one_line(name)));
}

namespace {

// What a norm subtracts from a row and multiplies it by.
struct Statistics {
  double minus = 0.0, scale = 1.0;
};
enum class NormOf : std::uint8_t { squares, variance };

[[nodiscard]] Statistics statistics(const kernels::LayerKernels& kernels, NormOf norm,
                                    const float* x, std::int64_t width, double epsilon) {
  const auto count = static_cast<double>(width);
  const double mean = norm == NormOf::variance ? kernels.sum(x, width) / count : 0.0;
  return {mean, 1 / std::sqrt(kernels.sum_of_squares(x, width, mean) / count + epsilon)};
}

template <class Body>
void for_rows(const Rows& rows, const Body& body) {
  for (std::int64_t t = 0; t < rows.tokens; ++t) {
    if (t % kRowsPerLook == kRowsPerLook - 1) core::throw_if_cancelled();
    body(t * rows.stride);
  }
}

void norm_backward(NormOf norm, const Rows& rows, const float* x, const float* weight,
                   double epsilon, const float* d_out, const float* plus, float* d_x,
                   float* d_weight, float* d_bias, core::InstructionSet isa) {
  const kernels::LayerKernels& kernels = kernels_for(isa).layer;
  for_rows(rows, [&](std::int64_t at) {
    const Statistics row = statistics(kernels, norm, x + at, rows.width, epsilon);
    kernels.normalise_backward(x + at, d_out + at, rows.width, row.minus, row.scale, weight,
                               plus == nullptr ? nullptr : plus + at, d_x + at, d_weight, d_bias);
  });
}

}  // namespace

void rms_norm(const Rows& rows, const float* x, const float* weight, float offset, double epsilon,
              float* out, core::InstructionSet isa) {
  const kernels::LayerKernels& kernels = kernels_for(isa).layer;
  for_rows(rows, [&](std::int64_t at) {
    const Statistics row = statistics(kernels, NormOf::squares, x + at, rows.width, epsilon);
    kernels.normalise(x + at, rows.width, 0, row.scale, offset, weight, nullptr, out + at);
  });
}

void layer_norm(const Rows& rows, const float* x, const float* weight, const float* bias,
                double epsilon, float* out, core::InstructionSet isa) {
  const kernels::LayerKernels& kernels = kernels_for(isa).layer;
  for_rows(rows, [&](std::int64_t at) {
    const Statistics row = statistics(kernels, NormOf::variance, x + at, rows.width, epsilon);
    kernels.normalise(x + at, rows.width, row.minus, row.scale, 0.0F, weight, bias, out + at);
  });
}

void rms_norm_backward(const Rows& rows, const float* x, const float* weight, double epsilon,
                       const float* d_out, const float* plus, float* d_x, float* d_weight,
                       core::InstructionSet isa) {
  norm_backward(NormOf::squares, rows, x, weight, epsilon, d_out, plus, d_x, d_weight, nullptr,
                isa);
}

void layer_norm_backward(const Rows& rows, const float* x, const float* weight, double epsilon,
                         const float* d_out, const float* plus, float* d_x, float* d_weight,
                         float* d_bias, core::InstructionSet isa) {
  norm_backward(NormOf::variance, rows, x, weight, epsilon, d_out, plus, d_x, d_weight, d_bias,
                isa);
}

void activate(Activation f, std::span<float> x, core::InstructionSet isa) {
  activate_gate(f, x, nullptr, isa);
}

void activate_gate(Activation f, std::span<float> gate, const float* up, core::InstructionSet isa) {
  const auto kernel = kernels_for(isa).layer.activate[static_cast<std::size_t>(f)];
  const auto all = static_cast<std::int64_t>(gate.size());
  for (std::int64_t first = 0; first < all; first += kElementsPerLook) {
    if (first > 0) core::throw_if_cancelled();
    kernel(gate.data() + first, up == nullptr ? nullptr : up + first,
           std::min(kElementsPerLook, all - first));
  }
}

void activate_backward(Activation f, std::span<const float> x, const float* d_out, float* d_x,
                       core::InstructionSet isa) {
  activate_gate_backward(f, x, nullptr, d_out, d_x, nullptr, isa);
}

void activate_gate_backward(Activation f, std::span<const float> gate, const float* up,
                            const float* d_out, float* d_gate, float* d_up,
                            core::InstructionSet isa) {
  kernels_for(isa).layer.activate_backward[static_cast<std::size_t>(f)](
      gate.data(), up, d_out, static_cast<std::int64_t>(gate.size()), d_gate, d_up);
}

void drop(const Dropout& dropout, std::span<const float> x, std::int64_t first, const float* plus,
          float* out, core::InstructionSet isa) {
  kernels_for(isa).layer.drop(x.data(), plus, static_cast<std::int64_t>(x.size()),
                              static_cast<std::uint32_t>(first), dropout.key,
                              static_cast<std::uint32_t>(std::ldexp(dropout.rate, 32)),
                              static_cast<float>(1.0 / (1.0 - dropout.rate)), out);
}

CrossEntropy cross_entropy(std::span<float> logits, std::int64_t label, double smoothing,
                           double scale, core::InstructionSet isa) {
  const kernels::LayerKernels& kernels = kernels_for(isa).layer;
  const auto count = static_cast<std::int64_t>(logits.size());
  const auto highest = std::max_element(logits.begin(), logits.end());
  const double total = kernels.sum_of_exponentials(logits.data(), count, *highest);
  const double normaliser = static_cast<double>(*highest) + std::log(total);
  float& at_label = logits[static_cast<std::size_t>(label)];
  CrossEntropy result{.plain = normaliser - static_cast<double>(at_label),
                      .largest = highest - logits.begin()};
  result.smoothed = result.plain;
  if (smoothing > 0.0) {
    const double mean = kernels.sum(logits.data(), count) / static_cast<double>(count);
    result.smoothed = (1.0 - smoothing) * result.plain + smoothing * (normaliser - mean);
  }
  // e^(x - highest) / total, so that no exponential is above 1.
  kernels.softmax_backward(logits.data(), count, *highest, static_cast<float>(scale / total),
                           static_cast<float>(scale * smoothing / static_cast<double>(count)));
  at_label -= static_cast<float>(scale * (1.0 - smoothing));
  return result;
}

void add_to(std::span<float> x, const float* y, core::InstructionSet isa) {
  kernels_for(isa).layer.add(x.data(), y, static_cast<std::int64_t>(x.size()));
}

void require_finite(ResultOf what, std::span<const float> x, std::size_t width,
                    core::InstructionSet isa) {
  if (kernels_for(isa).layer.all_finite(x.data(), static_cast<std::int64_t>(x.size()))) return;
  const auto found =
      std::find_if(x.begin(), x.end(), [](float value) { return !std::isfinite(value); });
  const auto at = static_cast<std::size_t>(found - x.begin());
  const std::string where = what.layer == what.layers
                                ? message("the logits, after ", what.layers, " layers,")
                                : message("the hidden states after layer ", what.layer, " of ",
                                          what.layers, ", counted from 0,");
  refuse(ErrorCode::out_of_range,
         message("forward: ", where, " must be finite, got ", *found, " in row ", at / width,
                 ", column ", at % width, ": this model exceeds the range of float32"));
}

double log_sum_exp(std::span<const float> x) {
  float highest = -std::numeric_limits<float>::infinity();
  for (const float value : x) highest = highest < value ? value : highest;
  if (highest == std::numeric_limits<float>::infinity()) return static_cast<double>(highest);
  if (!std::isfinite(highest)) {  // empty, or only -infinity and NaN
    for (const float value : x) {
      if (std::isnan(value)) return static_cast<double>(value);
    }
    return static_cast<double>(highest);
  }
  const double sum =
      kernels_for(core::InstructionSet::best)
          .layer.sum_of_exponentials(x.data(), static_cast<std::int64_t>(x.size()), highest);
  return static_cast<double>(highest) + std::log(sum);
}

}  // namespace phasor::models
