// Doubles as a narrower type would keep them.
#pragma once

#include "phasor/core/view.hpp"

namespace phasor::porting {

[[nodiscard]] inline double rounded(double value, core::DType type) noexcept {
  switch (type) {
    case core::DType::f64:
      return value;
    case core::DType::f32:
      return static_cast<double>(static_cast<float>(value));
    // Through float32, as engines do that convert.
    case core::DType::f16:
      return static_cast<double>(core::to_float(core::to_half(static_cast<float>(value))));
    case core::DType::bf16:
      return static_cast<double>(core::to_float(core::to_bfloat16(static_cast<float>(value))));
  }
  return value;
}

}  // namespace phasor::porting
