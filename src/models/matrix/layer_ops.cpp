#include "models/matrix/layer_ops.hpp"

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

void rms_norm(const Rows& rows, const float* x, const float* weight, float offset, double epsilon,
              float* out, core::InstructionSet isa) {
  const kernels::LayerKernels& kernels = kernels_for(isa).layer;
  for (std::int64_t t = 0; t < rows.tokens; ++t) {
    if (t % kRowsPerLook == kRowsPerLook - 1) core::throw_if_cancelled();
    const float* const in = x + t * rows.stride;
    const double mean = kernels.sum_of_squares(in, rows.width, 0) / static_cast<double>(rows.width);
    kernels.normalise(in, rows.width, 0, 1 / std::sqrt(mean + epsilon), offset, weight, nullptr,
                      out + t * rows.stride);
  }
}

void layer_norm(const Rows& rows, const float* x, const float* weight, const float* bias,
                double epsilon, float* out, core::InstructionSet isa) {
  const kernels::LayerKernels& kernels = kernels_for(isa).layer;
  const auto width = static_cast<double>(rows.width);
  for (std::int64_t t = 0; t < rows.tokens; ++t) {
    if (t % kRowsPerLook == kRowsPerLook - 1) core::throw_if_cancelled();
    const float* const in = x + t * rows.stride;
    const double mean = kernels.sum(in, rows.width) / width;
    const double variance = kernels.sum_of_squares(in, rows.width, mean) / width;
    kernels.normalise(in, rows.width, mean, 1 / std::sqrt(variance + epsilon), 0.0F, weight, bias,
                      out + t * rows.stride);
  }
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
