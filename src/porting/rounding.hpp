// Types of floats: their names, and doubles rounded to them.
#pragma once

#include <string_view>

#include "phasor/core/internal/enum_names.hpp"
#include "phasor/core/internal/stored.hpp"

namespace phasor::porting {

// NumPy's name.
[[nodiscard]] inline std::string_view type_name(core::DType type) noexcept {
  static constexpr core::EnumNames<core::DType::bf16> kNames("float64", "float32", "float16",
                                                             "bfloat16");
  return kNames[type];
}

[[nodiscard]] inline double rounded(double value, core::DType type) noexcept {
  return core::with_element(type, [&](auto element) {
    return static_cast<double>(core::widened(core::stored<decltype(element)>(value)));
  });
}

}  // namespace phasor::porting
