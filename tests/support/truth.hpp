// Exact values from MPFR at 300 bits: another library, another precision, none of Phasor's code.
#pragma once

#include <mpfr.h>

#include <algorithm>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

namespace phasor::tests {

class Real {
 public:
  Real() { mpfr_init2(value_, 300); }
  explicit Real(double value) : Real() { mpfr_set_d(value_, value, MPFR_RNDN); }
  Real(const Real& other) : Real() { mpfr_set(value_, other.value_, MPFR_RNDN); }
  Real& operator=(const Real& other) {
    mpfr_set(value_, other.value_, MPFR_RNDN);
    return *this;
  }
  ~Real() { mpfr_clear(value_); }

  mpfr_ptr get() { return value_; }
  mpfr_srcptr get() const { return value_; }
  [[nodiscard]] double rounded() const { return mpfr_get_d(value_, MPFR_RNDN); }

 private:
  mpfr_t value_;
};

inline Real operator*(const Real& a, const Real& b) {
  Real result;
  mpfr_mul(result.get(), a.get(), b.get(), MPFR_RNDN);
  return result;
}
inline Real operator/(const Real& a, const Real& b) {
  Real result;
  mpfr_div(result.get(), a.get(), b.get(), MPFR_RNDN);
  return result;
}
inline Real operator-(const Real& a, const Real& b) {
  Real result;
  mpfr_sub(result.get(), a.get(), b.get(), MPFR_RNDN);
  return result;
}
inline Real half_pi() {
  Real result;
  mpfr_const_pi(result.get(), MPFR_RNDN);
  return result / Real(2.0);
}

struct CosSin {
  Real cos, sin;
};
inline CosSin cos_sin_of(const Real& angle) {
  CosSin result;
  mpfr_sin_cos(result.sin.get(), result.cos.get(), angle.get(), MPFR_RNDN);
  return result;
}

// base^(-2i/dim)
inline Real exact_frequency(double base, std::int64_t dim, std::int64_t i) {
  Real result;
  const Real exponent = Real(-2.0 * static_cast<double>(i)) / Real(static_cast<double>(dim));
  mpfr_pow(result.get(), Real(base).get(), exponent.get(), MPFR_RNDN);
  return result;
}

// |got - truth| in units in the last place of T at the truth.
template <class T>
double ulps(T got, const Real& truth) {
  const double difference = std::fabs((Real(static_cast<double>(got)) - truth).rounded());
  const double near = std::fabs(truth.rounded());
  const int exponent = near > 0.0 ? std::ilogb(near) : std::numeric_limits<T>::min_exponent - 1;
  const int lowest = std::numeric_limits<T>::min_exponent - 1;
  return difference /
         std::ldexp(1.0, std::max(exponent, lowest) - (std::numeric_limits<T>::digits - 1));
}

}  // namespace phasor::tests
