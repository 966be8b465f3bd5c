// What linear attention is compared with. Forward: RoFormer (19) as an explicit [queries, keys] matrix
// of kernel values, no running sums, rotations in the relative form (16). Gradients:
// linear_attend_backward() over float64 views, which wide_linear_test.cpp compares with derivatives in
// dual numbers.
#pragma once

#include <optional>
#include <vector>

#include "attention/reference/tokens.hpp"
#include "phasor/attention/linear.hpp"

namespace phasor::attention::tests {

// As linear_attend() without a state, in float64: out [batch, Nq, heads, dv], dense. `magnitude` is
// the unit of kLinearError: sum_n |R_m phi(q_m)| |R_n phi(k_n)| |v_n| / denominator, one value per
// (batch, query, head); favor: times 1 + a.
struct LinearReference {
  std::vector<double> out, magnitude;
};
[[nodiscard]] LinearReference linear_attend_reference(const std::optional<core::Rotary>& rotary,
                                                      const core::ConstHeadsView& q,
                                                      const core::ConstHeadsView& k,
                                                      const core::ConstHeadsView& v,
                                                      const LinearOptions& options = {});

// The a of linear.hpp: the largest |w_i| |x'| + |x'|^2 / 2 of a query or key; 0 unless favor.
[[nodiscard]] double favor_exponent(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                                    const LinearOptions& options);

// The derivative of sum(out * d_out) along a direction of q, k or v.
[[nodiscard]] double linear_attend_reference_slope(
    const std::optional<core::Rotary>& rotary, const core::ConstHeadsView& q,
    const core::ConstHeadsView& k, const core::ConstHeadsView& v, const std::vector<double>& d_out,
    const LinearOptions& options, const Direction& direction);

// The gradients of sum(out * d_out) by linear_attend_backward() in float64, dense like q, k and v.
struct LinearReferenceGradients {
  std::vector<double> d_q, d_k, d_v;
};
[[nodiscard]] LinearReferenceGradients linear_attend_backward_reference(
    const std::optional<core::Rotary>& rotary, const core::ConstHeadsView& q,
    const core::ConstHeadsView& k, const core::ConstHeadsView& v, const core::ConstHeadsView& d_out,
    const LinearOptions& options = {});

}  // namespace phasor::attention::tests
