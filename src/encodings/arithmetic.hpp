// The two arithmetics every formula of this room is evaluated in, so that it is written once.
//
// DoubleDouble gives the exact frequency, rounded once at the end. float gives what an engine gets
// that keeps its arrays in float32 and its settings in double: there each operation rounds, in the
// order of the formula as written.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "phasor/core/internal/double_double.hpp"

namespace phasor::encodings {

using core::DoubleDouble;

inline constexpr DoubleDouble kTwoPi{6.283185307179586232, 2.449293598294706414e-16};

// The type of settings, and of values computed from settings only, next to array elements T.
template <class T>
using Setting = std::conditional_t<std::is_same_v<T, float>, double, DoubleDouble>;

template <class T>
[[nodiscard]] T element(Setting<T> setting) {
  if constexpr (std::is_same_v<T, float>) {
    return static_cast<float>(setting);
  } else {
    return setting;
  }
}

[[nodiscard]] inline DoubleDouble power(DoubleDouble base, DoubleDouble exponent) {
  return core::pow(base, exponent);
}
[[nodiscard]] inline double power(double base, double exponent) { return std::pow(base, exponent); }
// In double, rounded once: float32 libraries differ in the last bit, this is their ideal result.
[[nodiscard]] inline float power(float base, float exponent) {
  return static_cast<float>(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
}
[[nodiscard]] inline DoubleDouble natural_log(DoubleDouble x) { return core::log(x); }
[[nodiscard]] inline double natural_log(double x) { return std::log(x); }
[[nodiscard]] inline float natural_log(float x) {
  return static_cast<float>(std::log(static_cast<double>(x)));
}
[[nodiscard]] inline DoubleDouble exponential(DoubleDouble x) { return core::exp(x); }
[[nodiscard]] inline float exponential(float x) {
  return static_cast<float>(std::exp(static_cast<double>(x)));
}
template <class T>
[[nodiscard]] bool less(T a, T b) {
  return static_cast<double>(a - b) < 0.0;
}

// base^(2i/width) for i < count: the reciprocals of RoFormer (15).
template <class T>
[[nodiscard]] std::vector<T> inverse_frequencies(Setting<T> base, std::int64_t width,
                                                 std::int64_t count) {
  if constexpr (std::is_same_v<T, DoubleDouble>) {
    return core::powers(T(2.0) * core::log(base) / T(static_cast<double>(width)), count);
  }
  std::vector<T> inverse;
  inverse.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const T exponent = T(static_cast<double>(2 * i)) / T(static_cast<double>(width));
    inverse.push_back(power(element<T>(base), exponent));
  }
  return inverse;
}

// RoFormer (15): θ_i = base^(-2i/width) for i < count.
template <class T>
[[nodiscard]] std::vector<T> plain_frequencies(Setting<T> base, std::int64_t width,
                                               std::int64_t count) {
  std::vector<T> frequencies = inverse_frequencies<T>(base, width, count);
  for (T& frequency : frequencies) frequency = T(1.0) / frequency;
  return frequencies;
}

}  // namespace phasor::encodings
