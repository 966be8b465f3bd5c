// Types of floats: their names, and doubles rounded to them.
#pragma once

#include <string_view>

#include "phasor/core/view.hpp"

namespace phasor::porting {

// NumPy's name.
[[nodiscard]] inline std::string_view type_name(core::DType type) noexcept {
  switch (type) {
    case core::DType::f64:
      return "float64";
    case core::DType::f32:
      return "float32";
    case core::DType::f16:
      return "float16";
    case core::DType::bf16:
      break;
  }
  return "bfloat16";
}

[[nodiscard]] inline double rounded(double value, core::DType type) noexcept {
  switch (type) {
    case core::DType::f64:
      return value;
    case core::DType::f32:
      return static_cast<double>(static_cast<float>(value));
    // Via float32, as engines convert.
    case core::DType::f16:
      return static_cast<double>(core::to_float(core::to_half(static_cast<float>(value))));
    case core::DType::bf16:
      return static_cast<double>(core::to_float(core::to_bfloat16(static_cast<float>(value))));
  }
  return value;
}

}  // namespace phasor::porting
