// Linear attention by its definition: float64, the whole matrix of (19), no state. The measure of
// the fast one.
#pragma once

#include <optional>
#include <vector>

#include "phasor/attention/linear.hpp"
#include "phasor/export.h"

namespace phasor::attention {

// As linear_attend() without a state, in float64 throughout: out [batch, Nq, heads, dv], dense.
// Turns by the complex form (12); views may be f64. `magnitude` is what kLinearError is measured
// in: sum_n |R_m phi(q_m)| |R_n phi(k_n)| |v_n| / denominator, one value per (batch, query, head).
//
// throws   Error(shape_mismatch) as linear_attend
struct LinearReference {
  std::vector<double> out, magnitude;
};
[[nodiscard]] PHASOR_API LinearReference linear_attend_reference(
    const std::optional<core::Rotary>& rotary, core::ConstHeadsView q, core::ConstHeadsView k,
    core::ConstHeadsView v, const LinearOptions& options = {});

// The gradients of sum(out * d_out) by the chain rule over the whole matrix, dense like q, k and v.
struct LinearReferenceGradients {
  std::vector<double> d_q, d_k, d_v;
};
[[nodiscard]] PHASOR_API LinearReferenceGradients linear_attend_backward_reference(
    const std::optional<core::Rotary>& rotary, core::ConstHeadsView q, core::ConstHeadsView k,
    core::ConstHeadsView v, core::ConstHeadsView d_out, const LinearOptions& options = {});

}  // namespace phasor::attention
