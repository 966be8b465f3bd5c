// A number as the unevaluated sum of two doubles: about 106 bits. Frequencies are computed in it,
// so that the float64 value that is kept is the exact one, rounded once.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "phasor/export.h"

namespace phasor::core {

struct DoubleDouble {
  double high = 0.0;
  double low = 0.0;

  constexpr DoubleDouble() = default;
  // Exact.
  constexpr DoubleDouble(double value) : high(value) {}  // NOLINT(google-explicit-constructor)
  constexpr DoubleDouble(double high_part, double low_part) : high(high_part), low(low_part) {}
  explicit operator double() const { return high + low; }
};

// Knuth: sum + error == a + b exactly.
[[nodiscard]] inline DoubleDouble two_sum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}
// product + error == a * b exactly.
[[nodiscard]] inline DoubleDouble two_product(double a, double b) {
  const double product = a * b;
  return {product, std::fma(a, b, -product)};
}

[[nodiscard]] inline DoubleDouble operator-(DoubleDouble a) { return {-a.high, -a.low}; }
[[nodiscard]] inline DoubleDouble operator+(DoubleDouble a, DoubleDouble b) {
  DoubleDouble high = two_sum(a.high, b.high);
  const DoubleDouble low = two_sum(a.low, b.low);
  high = two_sum(high.high, high.low + low.high);
  return two_sum(high.high, high.low + low.low);
}
[[nodiscard]] inline DoubleDouble operator-(DoubleDouble a, DoubleDouble b) { return a + (-b); }
[[nodiscard]] inline DoubleDouble operator*(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble product = two_product(a.high, b.high);
  return two_sum(product.high, product.low + (a.high * b.low + a.low * b.high));
}
[[nodiscard]] inline DoubleDouble operator/(DoubleDouble a, DoubleDouble b) {
  // Three quotient digits of 53 bits each, the last one only for rounding.
  const double first = a.high / b.high;
  DoubleDouble rest = a - b * first;
  const double second = rest.high / b.high;
  rest = rest - b * second;
  const double third = rest.high / b.high;
  return two_sum(first, second) + DoubleDouble(third);
}

// Relative error below 1e-29 in the range where the result is a normal double far from the ends.
[[nodiscard]] PHASOR_API DoubleDouble exp(DoubleDouble x);
[[nodiscard]] PHASOR_API DoubleDouble log(DoubleDouble x);  // x > 0
[[nodiscard]] inline DoubleDouble pow(DoubleDouble base, DoubleDouble exponent) {
  return exp(exponent * log(base));
}
// e^(i log_step) for i < count: the powers of one number, at the cost of a product each. Same error bound.
[[nodiscard]] PHASOR_API std::vector<DoubleDouble> powers(DoubleDouble log_step,
                                                          std::int64_t count);

}  // namespace phasor::core
