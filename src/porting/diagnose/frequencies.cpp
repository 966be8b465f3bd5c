// Each pair's frequency, from the angles between tokens: near tokens give it roughly but without
// ambiguity, far tokens precisely.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "phasor/core/cancellation.hpp"
#include "porting/diagnose/parts.hpp"

namespace phasor::porting::diagnosis {
namespace {

constexpr double kPi = std::numbers::pi;
// With up to this many rows every two of a sequence are compared; else those 1, 2, 4, ... apart.
constexpr std::int64_t kAllLags = 96;
// The first guess uses at least this many lags.
constexpr std::size_t kFirstLags = 6;
constexpr std::size_t kCandidates = 48;
constexpr double kMostGridPoints = 200000.0;

struct Lag {
  std::int64_t from, to;
  double distance;
};

std::vector<Lag> lags_of(const Gains& gains) {
  std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(gains.sequences));
  for (std::int64_t row = 0; row < gains.rows; ++row) {
    rows[static_cast<std::size_t>(gains.sequence[static_cast<std::size_t>(row)])].push_back(row);
  }
  const auto position = [&](std::int64_t row) {
    return gains.position[static_cast<std::size_t>(row)];
  };
  std::vector<Lag> lags;
  for (std::vector<std::int64_t>& sequence : rows) {
    std::stable_sort(sequence.begin(), sequence.end(),
                     [&](std::int64_t a, std::int64_t b) { return position(a) < position(b); });
    const auto count = static_cast<std::int64_t>(sequence.size());
    for (std::int64_t step = 1; step < count; step = count <= kAllLags ? step + 1 : 2 * step) {
      for (std::int64_t k = 0; k + step < count; ++k) {
        const std::int64_t from = sequence[static_cast<std::size_t>(k)];
        const std::int64_t to = sequence[static_cast<std::size_t>(k + step)];
        const double distance = position(to) - position(from);
        if (distance > 0.0) lags.push_back({from, to, distance});
      }
    }
  }
  std::stable_sort(lags.begin(), lags.end(),
                   [](const Lag& a, const Lag& b) { return a.distance < b.distance; });
  return lags;
}

// Fits the frequency of one pair.
class PairFitter {
 public:
  PairFitter(const Gains& gains, const std::vector<Lag>& lags, std::int64_t pair)
      : gains_(gains), lags_(lags), pair_(pair) {
    rotations_.reserve(lags.size());
    for (const Lag& lag : lags) {
      const std::size_t a = gains.at(lag.from, pair), b = gains.at(lag.to, pair);
      const double weight = std::sqrt(gains.weight[a] * gains.weight[b]);
      rotations_.push_back(weight * gains.gain[b] * std::conj(gains.gain[a]));
    }
  }

  struct Fit {
    double value = 0.0, coherence = 0.0;
    bool ambiguous = false;
  };

  [[nodiscard]] Fit run() const {
    Fit best;
    std::vector<Fit> fits;
    for (const double start : first_guesses()) {
      Fit fit;
      fit.value = polish(refine(start));
      fit.coherence = coherence(fit.value);
      fits.push_back(fit);
    }
    if (fits.empty()) return {0.0, coherence(0.0), true};
    best = *std::max_element(fits.begin(), fits.end(), [](const Fit& a, const Fit& b) {
      // Of two that fit equally the smaller: multiples of m as positions allow f and f + 2 pi/m.
      return a.coherence - 1e-7 * std::abs(a.value) < b.coherence - 1e-7 * std::abs(b.value);
    });
    for (const Fit& other : fits) {
      const bool alike = 1.0 - other.coherence < 1.5 * (1.0 - best.coherence) + 1e-6;
      const double resolution = 0.5 / std::max(lags_.back().distance, 1.0);
      if (alike && std::abs(other.value - best.value) > resolution) best.ambiguous = true;
    }
    return best;
  }

  // sum of weight * gain * e^{-i f p} per sequence
  [[nodiscard]] std::vector<Complex> phases(double frequency) const {
    core::throw_if_cancelled();
    std::vector<Complex> sums(static_cast<std::size_t>(gains_.sequences), 0.0);
    for (std::int64_t row = 0; row < gains_.rows; ++row) {
      const auto r = static_cast<std::size_t>(row);
      const std::size_t at = gains_.at(row, pair_);
      sums[static_cast<std::size_t>(gains_.sequence[r])] +=
          gains_.weight[at] * gains_.gain[at] * std::polar(1.0, -frequency * gains_.position[r]);
    }
    return sums;
  }

 private:
  [[nodiscard]] double score(double frequency, std::size_t lags) const {
    double sum = 0.0;
    for (std::size_t k = 0; k < lags; ++k) {
      sum += (rotations_[k] * std::polar(1.0, -frequency * lags_[k].distance)).real();
    }
    return sum;
  }

  [[nodiscard]] std::vector<double> first_guesses() const {
    if (lags_.empty()) return {};
    std::size_t used = std::min(kFirstLags, lags_.size());
    while (used < lags_.size() && lags_[used].distance == lags_[used - 1].distance) ++used;
    const double longest = lags_[used - 1].distance;
    const double points = std::ceil(2.0 * kPi * longest / 0.4);
    if (points > kMostGridPoints) return {};
    const auto count = static_cast<std::size_t>(points);
    std::vector<double> scores(count);
    const auto at = [&](std::size_t k) {
      return -kPi + 2.0 * kPi * static_cast<double>(k) / points;
    };
    for (std::size_t k = 0; k < count; ++k) {
      core::throw_if_cancelled();
      scores[k] = score(at(k), used);
    }
    const double best = *std::max_element(scores.begin(), scores.end());
    std::vector<std::pair<double, double>> peaks;
    for (std::size_t k = 0; k < count; ++k) {
      const double left = scores[(k + count - 1) % count], right = scores[(k + 1) % count];
      if (scores[k] >= left && scores[k] >= right && scores[k] > 0.7 * best) {
        peaks.emplace_back(scores[k], at(k));
      }
    }
    std::sort(peaks.rbegin(), peaks.rend());
    if (peaks.size() > kCandidates) peaks.resize(kCandidates);
    std::vector<double> guesses;
    for (const auto& [peak, frequency] : peaks) guesses.push_back(newton(frequency, 0, used));
    return guesses;
  }

  // Newton steps on the lags [first, last).
  [[nodiscard]] double newton(double frequency, std::size_t first, std::size_t last) const {
    for (int step = 0; step < 3; ++step) {
      double slope = 0.0, curvature = 0.0;
      for (std::size_t k = first; k < last; ++k) {
        const double d = lags_[k].distance;
        const Complex left = rotations_[k] * std::polar(1.0, -frequency * d);
        slope += d * left.imag();
        curvature += d * d * std::abs(left);
      }
      if (curvature <= 0.0) break;
      frequency += slope / curvature;
    }
    return frequency;
  }

  // Lags twice as long at each step: the estimate is then within one full rotation.
  [[nodiscard]] double refine(double frequency) const {
    std::size_t first = 0;
    double longest = lags_[std::min(kFirstLags, lags_.size()) - 1].distance;
    while (longest < lags_.back().distance) {
      longest *= 2.0;
      std::size_t last = first;
      while (last < lags_.size() && lags_[last].distance <= longest) ++last;
      while (first < last && lags_[first].distance < longest / 4.0) ++first;
      if (first < last) frequency = newton(frequency, first, last);
    }
    return frequency;
  }

  // Least squares of the phases of all rows, with a separate phase for each sequence.
  [[nodiscard]] double polish(double frequency) const {
    for (int step = 0; step < 4; ++step) {
      const std::vector<Complex> sums = phases(frequency);
      std::vector<double> mean(sums.size(), 0.0), weights(sums.size(), 0.0);
      for_rows([&](std::size_t at, std::size_t r, std::size_t s) {
        mean[s] += gains_.weight[at] * gains_.position[r];
        weights[s] += gains_.weight[at];
      });
      double slope = 0.0, curvature = 0.0;
      for_rows([&](std::size_t at, std::size_t r, std::size_t s) {
        if (weights[s] <= 0.0) return;
        const double d = gains_.position[r] - mean[s] / weights[s];
        const Complex left =
            gains_.gain[at] * std::polar(1.0, -frequency * gains_.position[r]) * std::conj(sums[s]);
        if (left == Complex(0.0)) return;
        slope += gains_.weight[at] * d * std::arg(left);
        curvature += gains_.weight[at] * d * d;
      });
      if (curvature <= 0.0) break;
      frequency += slope / curvature;
    }
    return frequency;
  }

  [[nodiscard]] double coherence(double frequency) const {
    double together = 0.0, apart = 0.0;
    for (const Complex& sum : phases(frequency)) together += std::abs(sum);
    for_rows([&](std::size_t at, std::size_t, std::size_t) {
      apart += gains_.weight[at] * std::abs(gains_.gain[at]);
    });
    return apart > 0.0 ? together / apart : 0.0;
  }

  template <class Visit>
  void for_rows(Visit visit) const {
    for (std::int64_t row = 0; row < gains_.rows; ++row) {
      const auto r = static_cast<std::size_t>(row);
      visit(gains_.at(row, pair_), r, static_cast<std::size_t>(gains_.sequence[r]));
    }
  }

  const Gains& gains_;
  const std::vector<Lag>& lags_;
  std::int64_t pair_;
  std::vector<Complex> rotations_;
};

// The residual of one pair around gain(row) ~ phase[sequence] e^{i f p}, as energy.
struct PairEnergy {
  double left = 0.0, all = 0.0, spread = 0.0;  // spread: weighted sum of squared distances
};

PairEnergy energy_of(const Gains& gains, std::int64_t pair, double frequency,
                     const std::vector<Complex>& phase, bool anchored) {
  std::vector<double> mean(phase.size(), 0.0), weights(phase.size(), 0.0);
  for (std::int64_t row = 0; row < gains.rows; ++row) {
    const auto r = static_cast<std::size_t>(row);
    const auto s = static_cast<std::size_t>(gains.sequence[r]);
    mean[s] += gains.weight[gains.at(row, pair)] * gains.position[r];
    weights[s] += gains.weight[gains.at(row, pair)];
  }
  PairEnergy energy;
  double total = 0.0;
  for (std::int64_t row = 0; row < gains.rows; ++row) {
    const auto r = static_cast<std::size_t>(row);
    const auto s = static_cast<std::size_t>(gains.sequence[r]);
    const std::size_t at = gains.at(row, pair);
    const Complex model = phase[s] * std::polar(1.0, frequency * gains.position[r]);
    energy.left += gains.weight[at] * std::norm(gains.gain[at] - model);
    energy.all += gains.weight[at] * std::norm(gains.gain[at]);
    const double d =
        gains.position[r] - (anchored || weights[s] <= 0.0 ? 0.0 : mean[s] / weights[s]);
    energy.spread += gains.weight[at] * d * d;
    total += gains.weight[at];
  }
  // As a sum over rows of equal weight.
  energy.spread = total > 0.0 ? energy.spread / total * static_cast<double>(gains.rows) : 0.0;
  return energy;
}

void estimate_errors(const Gains& gains, FrequencyFit& fit, bool anchored) {
  double left = 0.0, all = 0.0;
  std::vector<double> spread;
  fit.pair_residual.clear();
  for (std::int64_t pair = 0; pair < gains.pairs; ++pair) {
    std::vector<Complex> phase;
    for (std::int64_t s = 0; s < gains.sequences; ++s) {
      phase.push_back(fit.phase[static_cast<std::size_t>(s * gains.pairs + pair)]);
    }
    const auto energy =
        energy_of(gains, pair, fit.value[static_cast<std::size_t>(pair)], phase, anchored);
    left += energy.left;
    all += energy.all;
    spread.push_back(energy.spread);
    fit.pair_residual.push_back(energy.all > 0.0 ? std::sqrt(energy.left / energy.all) : 0.0);
  }
  // Correction for the degrees of freedom of frequency and phase.
  const auto rows = static_cast<double>(gains.rows);
  const double spent = anchored ? 0.5 : 0.5 + static_cast<double>(gains.sequences);
  const double freedom = rows > spent + 0.5 ? rows / (rows - spent) : 2.0 * rows;
  fit.residual = all > 0.0 ? std::sqrt(left / all) : 0.0;
  fit.error.clear();
  // An error shared by all heads of a token comes from the table: it repeats from token to token
  // while the pair rotates by less than one rounding, and then does not average out.
  const auto [nearest, farthest] =
      std::minmax_element(gains.position.begin(), gains.position.end());
  const double stretch = *farthest - *nearest;
  const bool shared = fit.residual > 3.0 * gains.residual;
  const auto repeats = [&](double frequency) {
    const double steps = std::abs(frequency) * stretch / std::max(fit.residual, 1e-12);
    return shared ? rows / std::clamp(steps, 1.0, rows) : 1.0;
  };
  for (std::size_t pair = 0; pair < spread.size(); ++pair) {
    // A single pair may fit well by coincidence: at best half the common residual.
    const double own = std::max(fit.pair_residual[pair], 0.5 * fit.residual);
    const double sigma = std::max(own * std::sqrt(0.5 * freedom * repeats(fit.value[pair])), 1e-16);
    fit.error.push_back(spread[pair] > 0.0 ? sigma / std::sqrt(spread[pair]) : HUGE_VAL);
  }
}

}  // namespace

FrequencyFit fit_frequencies(const Gains& gains) {
  const std::vector<Lag> lags = lags_of(gains);
  FrequencyFit fit;
  fit.phase.resize(static_cast<std::size_t>(gains.sequences * gains.pairs));
  for (std::int64_t pair = 0; pair < gains.pairs; ++pair) {
    const PairFitter fitter(gains, lags, pair);
    const PairFitter::Fit found = fitter.run();
    fit.value.push_back(found.value);
    fit.ambiguous.push_back(found.ambiguous ? 1 : 0);
    const std::vector<Complex> sums = fitter.phases(found.value);
    for (std::int64_t s = 0; s < gains.sequences; ++s) {
      double weight = 0.0;
      for (std::int64_t row = 0; row < gains.rows; ++row) {
        if (gains.sequence[static_cast<std::size_t>(row)] == s) {
          weight += gains.weight[gains.at(row, pair)];
        }
      }
      fit.phase[static_cast<std::size_t>(s * gains.pairs + pair)] =
          weight > 0.0 ? sums[static_cast<std::size_t>(s)] / weight : 0.0;
    }
  }
  estimate_errors(gains, fit, /*anchored=*/false);
  return fit;
}

void anchor_frequencies(const Gains& gains, FrequencyFit& fit) {
  const double amplitude = mean_length(gains);
  for (std::int64_t pair = 0; pair < gains.pairs; ++pair) {
    double& frequency = fit.value[static_cast<std::size_t>(pair)];
    for (int step = 0; step < 4; ++step) {
      double slope = 0.0, curvature = 0.0;
      for (std::int64_t row = 0; row < gains.rows; ++row) {
        const double p = gains.position[static_cast<std::size_t>(row)];
        const std::size_t at = gains.at(row, pair);
        const Complex left = gains.gain[at] * std::polar(1.0, -frequency * p);
        if (left == Complex(0.0)) continue;
        slope += gains.weight[at] * p * std::arg(left);
        curvature += gains.weight[at] * p * p;
      }
      if (curvature <= 0.0) break;
      frequency += slope / curvature;
    }
    for (std::int64_t s = 0; s < gains.sequences; ++s) {
      fit.phase[static_cast<std::size_t>(s * gains.pairs + pair)] = amplitude;
    }
  }
  estimate_errors(gains, fit, /*anchored=*/true);
}

double fit_amplitude(const Gains& gains, const std::vector<double>& frequencies) {
  double sum = 0.0, weight = 0.0;
  for (std::int64_t row = 0; row < gains.rows; ++row) {
    const double p = gains.position[static_cast<std::size_t>(row)];
    for (std::int64_t pair = 0; pair < gains.pairs; ++pair) {
      const std::size_t at = gains.at(row, pair);
      const double angle = frequencies[static_cast<std::size_t>(pair)] * p;
      sum += gains.weight[at] * (gains.gain[at] * std::polar(1.0, -angle)).real();
      weight += gains.weight[at];
    }
  }
  return weight > 0.0 ? sum / weight : 0.0;
}

double model_residual(const Gains& gains, const std::vector<double>& frequencies,
                      double amplitude) {
  double left = 0.0, all = 0.0;
  for (std::int64_t pair = 0; pair < gains.pairs; ++pair) {
    double pair_left = 0.0, pair_all = 0.0;
    for (std::int64_t row = 0; row < gains.rows; ++row) {
      const double p = gains.position[static_cast<std::size_t>(row)];
      const std::size_t at = gains.at(row, pair);
      const Complex model = std::polar(amplitude, frequencies[static_cast<std::size_t>(pair)] * p);
      pair_left += gains.weight[at] * std::norm(gains.gain[at] - model);
      pair_all += gains.weight[at] * std::norm(gains.gain[at]);
    }
    left += pair_left;
    all += pair_all;
  }
  return all > 0.0 ? std::sqrt(left / all) : 0.0;
}

}  // namespace phasor::porting::diagnosis
