// The small operations between the products of a layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "phasor/config/internal/families.hpp"
#include "phasor/core/cpu.hpp"

namespace phasor::models {

using config::Activation;

// By the name in hidden_act of a config.
//
// throws   Error(unsupported) naming the known ones
[[nodiscard]] Activation activation_of(std::string_view name);

// Rows of [tokens, width], `stride` floats apart.
struct Rows {
  std::int64_t tokens = 0, width = 0, stride = 0;
};

// out = x / sqrt(mean(x^2) + epsilon) * (offset + weight); offset is 1 for Gemma, 0 for others. The
// sum is in double. x == out is allowed.
void rms_norm(const Rows& rows, const float* x, const float* weight, float offset, double epsilon,
              float* out, core::InstructionSet isa = core::InstructionSet::best);
// out = (x - mean) / sqrt(variance + epsilon) * weight + bias; a null bias is 0.
void layer_norm(const Rows& rows, const float* x, const float* weight, const float* bias,
                double epsilon, float* out, core::InstructionSet isa = core::InstructionSet::best);

// x = f(x), and gate = f(gate) * up. NaN stays NaN; -infinity gives 0.
//
// error    kActivationError * |f(x)| + kActivationTail * min(1, |x|)
inline constexpr double kActivationError = 4e-7;
inline constexpr double kActivationTail = 5e-8;
void activate(Activation f, std::span<float> x,
              core::InstructionSet isa = core::InstructionSet::best);
void activate_gate(Activation f, std::span<float> gate, const float* up,
                   core::InstructionSet isa = core::InstructionSet::best);

// x += y
void add_to(std::span<float> x, const float* y,
            core::InstructionSet isa = core::InstructionSet::best);

// The hidden states after a layer, or, if layer == layers, the logits.
struct ResultOf {
  std::size_t layer = 0, layers = 0;
};
// Refuses rows of `width` numbers that are not all finite.
//
// throws   Error(out_of_range), with the layer and the first number that is not finite
// cost     one read of x, no allocation: 0.1 % of a layer
void require_finite(ResultOf what, std::span<const float> x, std::size_t width,
                    core::InstructionSet isa = core::InstructionSet::best);

// ln sum e^x, off by at most 2e-7; the part of a log-softmax that does not depend on the token. NaN
// if one of them is, -infinity for none.
[[nodiscard]] double log_sum_exp(std::span<const float> x);

}  // namespace phasor::models
