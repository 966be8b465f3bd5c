// The stored types of tensors as C++ types: double, float, Half and BFloat16.
#pragma once

#include <type_traits>

#include "phasor/core/view.hpp"

namespace phasor::core {

// Calls visit(Element{}) with the type that `dtype` stores.
template <class Visit>
decltype(auto) with_element(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::f64:
      return visit(double{});
    case DType::f32:
      return visit(float{});
    case DType::f16:
      return visit(Half{});
    case DType::bf16:
      break;
  }
  return visit(BFloat16{});
}

// An element as a number to compute with.
[[nodiscard]] inline double widened(double value) noexcept { return value; }
[[nodiscard]] inline float widened(float value) noexcept { return value; }
[[nodiscard]] inline float widened(Half value) noexcept { return to_float(value); }
[[nodiscard]] inline float widened(BFloat16 value) noexcept { return to_float(value); }

// A number as an element; 16-bit types are rounded via float32, as engines convert.
template <class Element>
[[nodiscard]] Element stored(double value) noexcept {
  if constexpr (std::is_same_v<Element, Half>) {
    return to_half(static_cast<float>(value));
  } else if constexpr (std::is_same_v<Element, BFloat16>) {
    return to_bfloat16(static_cast<float>(value));
  } else {
    return static_cast<Element>(value);
  }
}

}  // namespace phasor::core
