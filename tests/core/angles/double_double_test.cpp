#include "phasor/core/internal/double_double.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "support/truth.hpp"

namespace phasor::core {
namespace {

using tests::Real;

Real real(DoubleDouble x) {
  Real sum;
  mpfr_add(sum.get(), Real(x.high).get(), Real(x.low).get(), MPFR_RNDN);
  return sum;
}
double relative_error(DoubleDouble got, const Real& truth) {
  return std::fabs(((real(got) - truth) / truth).rounded());
}

TEST(DoubleDouble, ArithmeticKeepsAHundredBits) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> numbers(0.1, 1000.0);
  for (int i = 0; i < 200; ++i) {
    const DoubleDouble a = two_sum(numbers(random), numbers(random) * 1e-17);
    const DoubleDouble b = two_sum(numbers(random), numbers(random) * 1e-17);
    Real sum;
    mpfr_add(sum.get(), real(a).get(), real(b).get(), MPFR_RNDN);
    EXPECT_LT(relative_error(a + b, sum), 1e-31);
    EXPECT_LT(relative_error(a * b, real(a) * real(b)), 1e-31);
    EXPECT_LT(relative_error(a / b, real(a) / real(b)), 1e-31);
  }
}

TEST(DoubleDouble, ExpLogAndPowKeepNinetySixBits) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> exponents(-40.0, 40.0);
  for (int i = 0; i < 200; ++i) {
    const double x = exponents(random);
    Real truth;
    mpfr_exp(truth.get(), Real(x).get(), MPFR_RNDN);
    EXPECT_LT(relative_error(exp(DoubleDouble(x)), truth), 1e-29) << x;
    const double y = std::exp(x);
    mpfr_log(truth.get(), Real(y).get(), MPFR_RNDN);
    EXPECT_LT(relative_error(log(DoubleDouble(y)), truth), 1e-29) << y;
    mpfr_pow(truth.get(), Real(10000.0).get(), Real(x / 40).get(), MPFR_RNDN);
    EXPECT_LT(relative_error(pow(DoubleDouble(10000.0), DoubleDouble(x / 40)), truth), 1e-29) << x;
  }
}

}  // namespace
}  // namespace phasor::core
