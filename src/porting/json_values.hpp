// Values as JSON has them: no infinity, no NaN, null for what is not there.
#pragma once

#include <cmath>
#include <optional>
#include <type_traits>

#include "phasor/io/internal/json.hpp"

namespace phasor::porting {

using io::Json;

template <class T>
[[nodiscard]] Json json_of(const T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::isfinite(value) ? Json(value) : Json(nullptr);
  } else {
    return Json(value);
  }
}
template <class T>
[[nodiscard]] Json json_of(const std::optional<T>& value) {
  return value ? json_of(*value) : Json(nullptr);
}

}  // namespace phasor::porting
