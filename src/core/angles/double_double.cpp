#include "phasor/core/internal/double_double.hpp"

#include <array>

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

std::vector<DoubleDouble> powers(DoubleDouble log_step, std::int64_t count) {
  // An exponential costs about as much as forty products: one starts each run, and products with the
  // first powers give the rest. A power is a product of at most five others, each rounded to 2^-102.
  constexpr std::size_t kRun = 16;
  std::array<DoubleDouble, kRun> first{1.0, exp(log_step)};
  for (std::size_t j = 2; j < kRun; ++j) first[j] = first[j / 2] * first[j - j / 2];
  std::vector<DoubleDouble> all(static_cast<std::size_t>(count));
  DoubleDouble start;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % kRun == 0) start = exp(log_step * static_cast<double>(i));
    all[i] = start * first[i % kRun];
  }
  return all;
}

}  // namespace phasor::core
