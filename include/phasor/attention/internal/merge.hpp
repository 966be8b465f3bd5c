// Attention over parts of the keys, merged.
#pragma once

#include <cmath>
#include <limits>
#include <span>

namespace phasor::attention {

// The weights by which outputs over parts of the keys sum to the output over all of them: with l_i the
// log-sum-exp of part i,
//   L = log sum_i exp(l_i)     out = sum_i exp(l_i - L) out_i
// A part that sees no key (l_i = -inf) has weight 0, all of them if no part sees one. NaN stays NaN.
//
// returns  L
inline double merge_weights(std::span<const double> log_sums, std::span<double> weights) noexcept {
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  double top = kNothing, sum = 0.0;
  for (const double l : log_sums) top = std::isnan(l) || l > top ? l : top;
  if (top == kNothing) {
    for (double& weight : weights) weight = 0.0;
    return kNothing;
  }
  for (const double l : log_sums) sum += std::exp(l - top);
  const double all = top + std::log(sum);
  for (std::size_t i = 0; i < log_sums.size(); ++i) weights[i] = std::exp(log_sums[i] - all);
  return all;
}

}  // namespace phasor::attention
