#include "phasor/core/internal/double_double.hpp"

namespace phasor::core {
namespace {

constexpr DoubleDouble kLn2{6.931471805599452862e-01, 2.319046813846299558e-17};

}  // namespace

DoubleDouble exp(DoubleDouble x) {
  // e^x = 2^k (e^{r / 512})^512 with |r| <= ln2 / 2. Squaring works on e^y - 1, which loses nothing
  // to the 1.
  constexpr int kHalvings = 9;
  const double k = std::nearbyint(x.high / kLn2.high);
  const DoubleDouble reduced = x - kLn2 * k;
  const double shrink = std::ldexp(1.0, -kHalvings);
  const DoubleDouble y{reduced.high * shrink, reduced.low * shrink};
  // |y| < 7e-4: the first term left out, y^11 / 11!, is below 1e-42.
  DoubleDouble sum = y / 10.0;
  for (int n = 9; n >= 1; --n) sum = (y / static_cast<double>(n)) * (sum + 1.0);
  for (int i = 0; i < kHalvings; ++i) sum = sum * 2.0 + sum * sum;  // (1 + s)^2 - 1
  sum = sum + 1.0;
  const int power = static_cast<int>(k);
  return {std::ldexp(sum.high, power), std::ldexp(sum.low, power)};
}

DoubleDouble log(DoubleDouble x) {
  // Newton on e^y = x: each step doubles the digits that std::log gives.
  DoubleDouble y = std::log(x.high);
  for (int step = 0; step < 2; ++step) y = y + (x * exp(-y) - 1.0);
  return y;
}

}  // namespace phasor::core
