// Finds positions that were not given, or differ from the given ones: a common shift, or one
// position per row.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

#include "porting/diagnose/parts.hpp"

namespace phasor::porting::diagnosis {
namespace {

// The gain at the middle of a sequence has the smallest error: its phases are those of position
// middle + shift.
struct Middle {
  double position = 0.0;
  std::vector<Complex> direction;  // [pairs], length 1 or 0
  double error = 0.0;              // of one phase, radians
};

Middle middle_of(const Gains& gains, const FrequencyFit& fit, std::int64_t sequence) {
  Middle middle;
  double weight = 0.0, rows = 0.0;
  for (std::int64_t row = 0; row < gains.rows; ++row) {
    const auto r = static_cast<std::size_t>(row);
    if (gains.sequence[r] != sequence) continue;
    double row_weight = 0.0;
    for (std::int64_t pair = 0; pair < gains.pairs; ++pair) {
      row_weight += gains.weight[gains.at(row, pair)];
    }
    middle.position += row_weight * gains.position[r];
    weight += row_weight;
    rows += row_weight > 0.0 ? 1.0 : 0.0;
  }
  if (weight > 0.0) middle.position = std::round(middle.position / weight);
  for (std::int64_t pair = 0; pair < gains.pairs; ++pair) {
    const Complex phase = fit.phase[static_cast<std::size_t>(sequence * gains.pairs + pair)];
    const double length = std::abs(phase);
    const double rotated = fit.value[static_cast<std::size_t>(pair)] * middle.position;
    middle.direction.push_back(length > 0.0 ? phase / length * std::polar(1.0, rotated) : 0.0);
  }
  middle.error = fit.residual / std::sqrt(std::max(1.0, rows));
  return middle;
}

constexpr std::array kLikelyBases = {10000.0,   500000.0,   1000000.0, 150000.0,  5000000.0,
                                     8000000.0, 10000000.0, 1000.0,    2000000.0, 100.0};

// Phases that rotate by one position per step, for up to a million steps: plain numbers, because
// the product of std::complex checks for infinities.
class RotatingPhases {
 public:
  void add(const Complex& phase, const Complex& step) {
    phases_.push_back({phase.real(), phase.imag(), step.real(), step.imag()});
  }
  void set_weight(std::size_t i, double weight) { phases_[i].weight = weight; }

  // The weighted sum of the real parts; then each takes its step.
  double sum_and_step() {
    double sum = 0.0;
    for (Phase& p : phases_) {
      sum += p.weight * p.re;
      const double re = p.re * p.step_re - p.im * p.step_im;
      p.im = p.re * p.step_im + p.im * p.step_re;
      p.re = re;
    }
    return sum;
  }

 private:
  struct Phase {
    double re, im, step_re, step_im, weight = 1.0;
  };
  std::vector<Phase> phases_;
};

// The integer position whose angles fit one row best, and its mean square error.
struct RowMatch {
  double position = 0.0, miss = HUGE_VAL;
};

RowMatch match_row(const Gains& gains, std::int64_t row, const std::vector<double>& frequencies,
                   double sign, std::int64_t positions) {
  RotatingPhases left;
  double weight = 0.0;
  for (std::int64_t pair = 0; pair < gains.pairs; ++pair) {
    const std::size_t at = gains.at(row, pair);
    const double length = std::abs(gains.gain[at]);
    if (length <= 0.0) continue;
    left.add(gains.weight[at] * gains.gain[at] / length,
             std::polar(1.0, -sign * frequencies[static_cast<std::size_t>(pair)]));
    weight += gains.weight[at];
  }
  RowMatch best;
  if (weight <= 0.0) return {0.0, 0.0};
  for (std::int64_t position = 0; position < positions; ++position) {
    const double miss = 2.0 * (1.0 - left.sum_and_step() / weight);
    if (miss < best.miss) best = {static_cast<double>(position), miss};
  }
  return best;
}

// The mean square error of one position.
RowMatch row_at(const Gains& gains, std::int64_t row, const std::vector<double>& frequencies,
                double sign, double position) {
  double sum = 0.0, weight = 0.0;
  for (std::int64_t pair = 0; pair < gains.pairs; ++pair) {
    const std::size_t at = gains.at(row, pair);
    const double length = std::abs(gains.gain[at]);
    if (length <= 0.0) continue;
    const double angle = sign * frequencies[static_cast<std::size_t>(pair)] * position;
    sum += gains.weight[at] * (gains.gain[at] / length * std::polar(1.0, -angle)).real();
    weight += gains.weight[at];
  }
  return {position, weight > 0.0 ? 2.0 * (1.0 - sum / weight) : 0.0};
}

}  // namespace

std::vector<double> default_law(double base, std::int64_t pairs) {
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < pairs; ++i) {
    // RoFormer (15)
    frequencies.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(pairs)));
  }
  return frequencies;
}

ShiftSearch find_shift(const Gains& gains, const FrequencyFit& fit,
                       const std::vector<double>& frequencies, const std::vector<double>& errors,
                       std::int64_t sequence, ShiftRange range) {
  const Middle middle = middle_of(gains, fit, sequence);
  const std::int64_t lowest = range == ShiftRange::only_zero ? 0 : -kLowestOffset;
  const std::int64_t highest = range == ShiftRange::only_zero ? 0 : kHighestOffset;
  const auto pairs = static_cast<std::size_t>(gains.pairs);

  const double start = middle.position + static_cast<double>(lowest);
  RotatingPhases left;
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    left.add(middle.direction[pair] * std::polar(1.0, -frequencies[pair] * start),
             std::polar(1.0, -frequencies[pair]));
  }
  // Pairs whose frequency is too uncertain at a far position get no weight there.
  std::vector<double> trust(pairs, 1.0);
  double allowed = 0.0, all = 0.0;
  const auto weigh = [&](double position) {
    allowed = 0.0;
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const double spread = std::min(errors[pair] * std::abs(position), 10.0);
      trust[pair] =
          std::norm(middle.direction[pair]) > 0.0 ? std::exp(-0.5 * spread * spread) : 0.0;
      left.set_weight(pair, trust[pair]);
      allowed += trust[pair] * (middle.error * middle.error + std::min(spread * spread, 1.0));
    }
    // Positions that were not given must fit all pairs; given ones must only not contradict.
    all = range == ShiftRange::only_zero ? std::accumulate(trust.begin(), trust.end(), 1e-9)
                                         : static_cast<double>(pairs);
    allowed = 9.0 * allowed / all + 1e-12;
  };
  struct Found {
    double shift, mismatch;
  };
  std::optional<Found> best;
  std::vector<Found> acceptable;
  for (std::int64_t shift = lowest; shift <= highest; ++shift) {
    const double position = middle.position + static_cast<double>(shift);
    if ((shift - lowest) % 256 == 0) weigh(position);
    const Found found{static_cast<double>(shift), 2.0 * (1.0 - left.sum_and_step() / all)};
    if (!best || found.mismatch < best->mismatch) best = found;
    if (found.mismatch <= allowed) acceptable.push_back(found);
  }
  constexpr double kClear = 0.02;
  if (acceptable.empty()) {
    if (best->mismatch < kClear) return {best->shift, best->mismatch, std::nullopt};
    return {std::nullopt, best->mismatch, std::nullopt};
  }
  // Of the shifts that fit about as well as the best, the smallest is the most likely.
  const double alike = 4.0 * std::max(best->mismatch, middle.error * middle.error) + 1e-13;
  std::erase_if(acceptable, [&](const Found& found) { return found.mismatch > alike; });
  if (acceptable.empty()) return {best->shift, best->mismatch, std::nullopt};
  std::stable_sort(acceptable.begin(), acceptable.end(), [](const Found& a, const Found& b) {
    return std::abs(a.shift) < std::abs(b.shift);
  });
  ShiftSearch answer{acceptable.front().shift, acceptable.front().mismatch, std::nullopt};
  if (acceptable.size() > 1) answer.rival = acceptable[1].shift;
  return answer;
}

std::optional<LawFit> fit_base_alone(const Gains& gains, double amplitude,
                                     std::pair<double, double> log_bases) {
  const double farthest = farthest_position(gains);
  if (farthest <= 0.0 || gains.pairs < 3) return std::nullopt;
  // d(angle)/d(ln base) = p x e^{-x ln base} <= p / (e ln base), x = i / pairs.
  const double step = std::min(0.02, 0.4 * std::numbers::e * std::log(100.0) / farthest);
  const auto [low, high] = log_bases;
  constexpr double kMostSteps = 3e5;
  if ((high - low) / step > kMostSteps) return std::nullopt;

  // A coarse search on a few rows, then a fine one on all rows.
  Gains few = gains;
  constexpr std::int64_t kRows = 4;
  if (gains.rows > kRows) {
    few.rows = kRows;
    few.position.clear();
    few.gain.clear();
    few.weight.clear();
    for (std::int64_t k = 0; k < kRows; ++k) {
      const std::int64_t row = k * (gains.rows - 1) / (kRows - 1);
      few.position.push_back(gains.position[static_cast<std::size_t>(row)]);
      for (std::int64_t pair = 0; pair < gains.pairs; ++pair) {
        few.gain.push_back(gains.gain[gains.at(row, pair)]);
        few.weight.push_back(gains.weight[gains.at(row, pair)]);
      }
    }
  }
  std::optional<LawFit> best;
  for (const bool inverse : {false, true}) {
    if (inverse) conjugate(few);
    for (double log_base = low; log_base <= high; log_base += step) {
      const double residual =
          model_residual(few, default_law(std::exp(log_base), gains.pairs), amplitude);
      if (!best || residual < best->residual) best = {std::exp(log_base), 0.0, residual, inverse};
    }
  }
  Gains all = gains;
  if (best->inverse) conjugate(all);
  const auto residual_at = [&](double log_base) {
    return model_residual(all, default_law(std::exp(log_base), gains.pairs), amplitude);
  };
  // Golden section search within one step on either side.
  double a = std::log(best->base) - step, b = std::log(best->base) + step;
  const double ratio = 1.0 / std::numbers::phi;
  for (int k = 0; k < 60; ++k) {
    const double c = b - ratio * (b - a), d = a + ratio * (b - a);
    (residual_at(c) < residual_at(d) ? b : a) = residual_at(c) < residual_at(d) ? d : c;
  }
  const double found = 0.5 * (a + b);
  best->base = std::exp(found);
  best->residual = residual_at(found);
  // residual^2 ~ r0^2 + c (ln base)^2: where it has doubled, divided by the root of the count.
  const double probe = std::max(1e-9, 1e-4 * step);
  const double grown = residual_at(found + probe);
  const double curvature =
      std::max(grown * grown - best->residual * best->residual, 1e-30) / (probe * probe);
  const double count = static_cast<double>(gains.rows * gains.pairs);
  best->base_error = best->base * std::max(best->residual, 1e-9) / std::sqrt(curvature * count);
  return best;
}

PositionSearch find_positions(const Gains& gains, double unit) {
  // Mean square of the phase errors of one row: 2e-5 for a table in bfloat16.
  const double allowed =
      std::max({5e-5, 4.0 * unit * unit, 20.0 * gains.residual * gains.residual});
  // A row is searched for when the positions next to the previous row's do not fit: first among as
  // many positions as there are rows, then among all.
  constexpr std::int64_t kAllPositions = std::int64_t{1} << 16, kMostSearches = 512,
                         kFewestAngles = 16;
  const std::int64_t near = std::min(kAllPositions, 2 * gains.rows);
  if (gains.pairs < 4 || gains.rows * gains.pairs < kFewestAngles) return {};
  std::int64_t searches = 0;
  const std::int64_t probes = std::min<std::int64_t>(2, gains.rows);
  for (const double base : kLikelyBases) {
    const std::vector<double> frequencies = default_law(base, gains.pairs);
    for (const bool inverse : {false, true}) {
      const double sign = inverse ? -1.0 : 1.0;
      bool fits = true;
      for (std::int64_t k = 0; k < probes && fits; ++k) {
        const std::int64_t row = (k + 1) * (gains.rows - 1) / probes;
        fits = match_row(gains, row, frequencies, sign, kAllPositions).miss < allowed;
      }
      if (!fits) continue;
      FoundPositions found{{}, base, inverse};
      for (std::int64_t row = 0; row < gains.rows && fits; ++row) {
        RowMatch match;
        if (row > 0) {
          const double last = found.position.back();
          for (const double guess : {last + 1.0, last, 0.0}) {
            if (match.miss >= allowed) match = row_at(gains, row, frequencies, sign, guess);
          }
        }
        if (match.miss >= allowed) match = match_row(gains, row, frequencies, sign, near);
        if (match.miss >= allowed && near < kAllPositions) {
          if (++searches > kMostSearches) return {std::nullopt, false};
          match = match_row(gains, row, frequencies, sign, kAllPositions);
        }
        fits = match.miss < allowed;
        found.position.push_back(match.position);
      }
      if (fits) return {std::move(found), true};
    }
  }
  return {};
}

}  // namespace phasor::porting::diagnosis
