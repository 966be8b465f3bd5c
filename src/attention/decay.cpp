#include "phasor/attention/decay.hpp"

#include <algorithm>
#include <complex>

namespace phasor::attention {
namespace {

using Complex = std::complex<double>;

// Calls use(r, phases) with phases[i] = e^{i r θ_i}, exact angles, amplitude left out.
template <class Use>
void for_each_distance(const core::Frequencies& frequencies, std::span<const double> distances,
                       const Use& use) {
  const auto n = static_cast<std::size_t>(frequencies.pairs());
  // A distance is one number, on whatever axis a frequency reads.
  const core::Frequencies plain({frequencies.values().begin(), frequencies.values().end()});
  std::vector<double> cos(n), sin(n);
  std::vector<Complex> phases(n);
  for (std::size_t at = 0; at < distances.size(); ++at) {
    core::cos_sin(plain, {&distances[at], 1}, cos, sin);
    for (std::size_t i = 0; i < n; ++i) phases[i] = {cos[i], sin[i]};
    use(at, phases);
  }
}

double sum_of_partial_sums(std::span<const Complex> phases) {
  Complex partial = 0.0;  // S_j
  double total = 0.0;
  for (const Complex& phase : phases) {
    partial += phase;
    total += std::abs(partial);
  }
  return total;
}

// h_i = q_[2i:2i+1] conj(k_[2i:2i+1]) of (35)
std::vector<Complex> pair_products(const core::Frequencies& frequencies, std::span<const double> q,
                                   std::span<const double> k) {
  const auto n = static_cast<std::size_t>(frequencies.pairs());
  if (q.size() != 2 * n || k.size() != 2 * n) {
    refuse(ErrorCode::shape_mismatch, message("decay: q and k must have ", 2 * n, " features, got ",
                                              q.size(), " and ", k.size()));
  }
  std::vector<Complex> products(n);
  for (std::size_t i = 0; i < n; ++i) {
    products[i] = Complex(q[2 * i], q[2 * i + 1]) * std::conj(Complex(k[2 * i], k[2 * i + 1]));
  }
  return products;
}

}  // namespace

std::vector<double> mean_partial_sums(const core::Frequencies& frequencies,
                                      std::span<const double> distances) {
  std::vector<double> means(distances.size());
  for_each_distance(frequencies, distances, [&](std::size_t at, std::span<const Complex> phases) {
    means[at] = sum_of_partial_sums(phases) / static_cast<double>(phases.size());
  });
  return means;
}

std::vector<double> abel_bounds(const core::Frequencies& frequencies, std::span<const double> q,
                                std::span<const double> k, std::span<const double> distances) {
  const std::vector<Complex> h = pair_products(frequencies, q, k);
  double largest_step = std::abs(h.back());  // h_n = 0
  for (std::size_t i = 0; i + 1 < h.size(); ++i)
    largest_step = std::max(largest_step, std::abs(h[i + 1] - h[i]));
  const double factor = largest_step * frequencies.amplitude() * frequencies.amplitude();
  std::vector<double> bounds(distances.size());
  for_each_distance(frequencies, distances, [&](std::size_t at, std::span<const Complex> phases) {
    bounds[at] = factor * sum_of_partial_sums(phases);  // (37)
  });
  return bounds;
}

std::vector<double> rotated_scores(const core::Frequencies& frequencies, std::span<const double> q,
                                   std::span<const double> k, std::span<const double> distances) {
  const std::vector<Complex> h = pair_products(frequencies, q, k);
  const double factor = frequencies.amplitude() * frequencies.amplitude();
  std::vector<double> scores(distances.size());
  for_each_distance(frequencies, distances, [&](std::size_t at, std::span<const Complex> phases) {
    Complex sum = 0.0;
    for (std::size_t i = 0; i < h.size(); ++i) sum += h[i] * phases[i];  // (35)
    scores[at] = factor * sum.real();
  });
  return scores;
}

std::vector<double> mean_rotated_scores(const core::Frequencies& frequencies, double mean,
                                        double variance, QueryKey relation,
                                        std::span<const double> distances) {
  // E[h_i] is real: features of a pair are independent, so only their squares and means survive.
  const double per_pair = 2.0 * (mean * mean + (relation == QueryKey::equal ? variance : 0.0));
  const double factor = per_pair * frequencies.amplitude() * frequencies.amplitude();
  std::vector<double> scores(distances.size());
  for_each_distance(frequencies, distances, [&](std::size_t at, std::span<const Complex> phases) {
    double sum = 0.0;
    for (const Complex& phase : phases) sum += phase.real();
    scores[at] = factor * sum;
  });
  return scores;
}

}  // namespace phasor::attention
