#include <cmath>

#include "phasor/core/internal/double_double.hpp"
#include "phasor/core/internal/kernels/kernels.hpp"

namespace phasor::core::kernels {

std::int64_t reduce_carefully(double position, double frequency, double parts[2]) {
  // pi/2 to 161 bits.
  constexpr double kHalfPi1 = 0x1.921fb54442d18p+0;
  constexpr double kHalfPi2 = 0x1.1a62633145c07p-54;
  constexpr double kHalfPi3 = -0x1.f1976b7ed8fbcp-110;
  const DoubleDouble angle = two_product(position, frequency);
  const double k = std::nearbyint(angle.high / kHalfPi1);
  // Exact: a multiple of 2^-53 below one. What follows is a sum of numbers near 2^-53 |angle| that
  // may cancel, so each addition keeps its error, and the errors are added last.
  const double rest = std::fma(-k, kHalfPi1, angle.high);
  const DoubleDouble second = two_product(-k, kHalfPi2);
  DoubleDouble sum = two_sum(rest, second.high);
  double errors = sum.low;
  sum = two_sum(sum.high, angle.low);
  errors += sum.low;
  const DoubleDouble low = two_sum(errors, second.low - k * kHalfPi3);
  sum = two_sum(sum.high, low.high);
  sum = two_sum(sum.high, sum.low + low.low);
  parts[0] = sum.high;
  parts[1] = sum.low;
  return static_cast<std::int64_t>(k) & 3;
}

}  // namespace phasor::core::kernels
