// The long-term decay of RoPE, RoFormer section 3.4.3, for any frequencies.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "phasor/core/rotate.hpp"
#include "phasor/export.h"

namespace phasor::attention {

// RoFormer (37): (1/n) sum_{j=1..n} |S_j| with S_j = sum_{i<j} e^{i r θ_i}, n pairs, at each
// distance r.
[[nodiscard]] PHASOR_API std::vector<double> mean_partial_sums(const core::Frequencies& frequencies,
                                                               std::span<const double> distances);

// RoFormer (36)-(37): max_i |h_{i+1} - h_i| * sum_j |S_j|, h_i = q_i conj(k_i), h_n = 0: an upper
// bound of the magnitude of this query and key's score at distance r.
//
// shape    q, k [2 * pairs], pair i = features (2i, 2i+1)
[[nodiscard]] PHASOR_API std::vector<double> abel_bounds(const core::Frequencies& frequencies,
                                                         std::span<const double> q,
                                                         std::span<const double> k,
                                                         std::span<const double> distances);

// (35) the score itself at each distance, Re sum_i h_i e^{i r θ_i} times the amplitude squared.
[[nodiscard]] PHASOR_API std::vector<double> rotated_scores(const core::Frequencies& frequencies,
                                                            std::span<const double> q,
                                                            std::span<const double> k,
                                                            std::span<const double> distances);

// The mean of (35) over queries and keys with independent, identically distributed features of mean
// `mean` and variance `variance`, q = k allowed: n pairs, 2 mean^2 sum_i cos(r θ_i) for independent
// q and k, plus 2 variance sum_i cos(r θ_i) for q = k.
enum class QueryKey : std::uint8_t { independent, equal };
[[nodiscard]] PHASOR_API std::vector<double> mean_rotated_scores(
    const core::Frequencies& frequencies, double mean, double variance, QueryKey relation,
    std::span<const double> distances);

}  // namespace phasor::attention
