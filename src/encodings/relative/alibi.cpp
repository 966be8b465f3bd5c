// ALiBi: the farther, the less, at a rate of each head's own; nothing is trained.
//
//   s(m, n) = q_m . k_n / sqrt(d) - slope_h |m - n|
#include <bit>

#include "encodings/relative/terms.hpp"

namespace phasor::encodings {

std::vector<double> alibi_slopes(std::int64_t heads, double max_bias, SlopeOrder order) {
  if (heads < 1) {
    refuse(message("alibi: heads must be positive, got ", heads));
  }
  if (!(std::isfinite(max_bias) && max_bias > 0.0)) {
    refuse(message("alibi: max_bias must be positive and finite, got ", max_bias));
  }
  const auto below = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  // Slope i of n: 2^(-max_bias i / n), i from 1; n is a power of two, so the quotient is exact.
  const auto slope = [&](std::int64_t i, std::int64_t n) {
    return std::exp2(-max_bias * static_cast<double>(i) / static_cast<double>(n));
  };
  std::vector<double> slopes;
  slopes.reserve(static_cast<std::size_t>(heads));
  const auto take = [&](std::int64_t first, std::int64_t step, std::int64_t last, std::int64_t n) {
    for (std::int64_t i = first; i <= last && static_cast<std::int64_t>(slopes.size()) < heads;
         i += step) {
      slopes.push_back(slope(i, n));
    }
  };
  const std::int64_t next = 2 * below;
  if (heads == below || order == SlopeOrder::bloom) {
    take(1, 1, below, below);
    take(1, 2, next, next);
  } else {
    take(2, 2, next, next);
    take(1, 2, next, next);
  }
  return slopes;
}

ScoreTerms terms_of(const Alibi& encoding, const AttentionShape& shape) {
  ScoreTerms terms;
  terms.slopes = alibi_slopes(shape.heads, encoding.max_bias);
  terms.scale = plain_scale(shape);
  return terms;
}

}  // namespace phasor::encodings
