// Dual numbers: x + d e with e^2 = 0. A formula evaluated in them gives its value and its derivative
// along one direction, both to the rounding of float64.
#pragma once

#include <cmath>

namespace phasor::attention::tests {

struct Dual {
  double x = 0.0, d = 0.0;

  Dual() = default;
  Dual(double value, double derivative = 0.0)  // NOLINT(google-explicit-constructor)
      : x(value), d(derivative) {}
  Dual& operator+=(const Dual& b) { return *this = {x + b.x, d + b.d}; }
  Dual& operator*=(const Dual& b) { return *this = {x * b.x, d * b.x + x * b.d}; }
};
inline Dual operator+(Dual a, const Dual& b) { return a += b; }
inline Dual operator-(const Dual& a, const Dual& b) { return {a.x - b.x, a.d - b.d}; }
inline Dual operator*(Dual a, const Dual& b) { return a *= b; }
inline Dual operator/(const Dual& a, const Dual& b) {
  return {a.x / b.x, (a.d - a.x / b.x * b.d) / b.x};
}
inline Dual exp(const Dual& a) { return {std::exp(a.x), std::exp(a.x) * a.d}; }
inline Dual tanh(const Dual& a) {
  const double y = std::tanh(a.x);
  return {y, (1.0 - y * y) * a.d};
}

inline double value_of(double x) { return x; }
inline double value_of(const Dual& x) { return x.x; }
inline double slope_of(double) { return 0.0; }
inline double slope_of(const Dual& x) { return x.d; }

}  // namespace phasor::attention::tests
