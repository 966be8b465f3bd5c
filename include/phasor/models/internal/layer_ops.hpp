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

// The gradients of both, from that of out: d_x = plus + ..., a null `plus` is 0 and may be d_x itself.
// d_weight and d_bias are added to. Statistics of x are computed again.
void rms_norm_backward(const Rows& rows, const float* x, const float* weight, double epsilon,
                       const float* d_out, const float* plus, float* d_x, float* d_weight,
                       core::InstructionSet isa = core::InstructionSet::best);
void layer_norm_backward(const Rows& rows, const float* x, const float* weight, double epsilon,
                         const float* d_out, const float* plus, float* d_x, float* d_weight,
                         float* d_bias, core::InstructionSet isa = core::InstructionSet::best);

// x = f(x), and gate = f(gate) * up. NaN stays NaN; -infinity gives 0.
//
// error    kActivationError * |f(x)| + kActivationTail * min(1, |x|)
inline constexpr double kActivationError = 4e-7;
inline constexpr double kActivationTail = 5e-8;
void activate(Activation f, std::span<float> x,
              core::InstructionSet isa = core::InstructionSet::best);
void activate_gate(Activation f, std::span<float> gate, const float* up,
                   core::InstructionSet isa = core::InstructionSet::best);

// d_x = d_out * f'(x), of the x before activate(); and of f(gate) * up both gradients. d_x may be d_out.
void activate_backward(Activation f, std::span<const float> x, const float* d_out, float* d_x,
                       core::InstructionSet isa = core::InstructionSet::best);
void activate_gate_backward(Activation f, std::span<const float> gate, const float* up,
                            const float* d_out, float* d_gate, float* d_up,
                            core::InstructionSet isa = core::InstructionSet::best);

// Dropout without a stored mask: number `first + i` of a tensor is dropped if the hash of (key, first
// + i) is below rate * 2^32; the others are divided by 1 - rate. out = plus + dropped(x), a null `plus`
// is 0. The gradient is the same function of d_out.
//
// precondition  0 <= rate < 1
struct Dropout {
  double rate = 0.0;
  std::uint64_t key = 0;
};
void drop(const Dropout& dropout, std::span<const float> x, std::int64_t first, const float* plus,
          float* out, core::InstructionSet isa = core::InstructionSet::best);

// The negative log-likelihood of `label`, and with label smoothing e: (1 - e) of it plus e times the mean
// over all classes.
struct CrossEntropy {
  double smoothed = 0.0, plain = 0.0;
  std::int64_t largest = 0;  // the class of the largest logit
};
// logits become the gradient of scale * smoothed.
//
// precondition  0 <= label < logits.size()
CrossEntropy cross_entropy(std::span<float> logits, std::int64_t label, double smoothing,
                           double scale, core::InstructionSet isa = core::InstructionSet::best);

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
