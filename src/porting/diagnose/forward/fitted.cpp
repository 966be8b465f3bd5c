// Parameters fitted to the frequencies in the data.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "phasor/core/error.hpp"
#include "porting/diagnose/forward/search.hpp"

namespace phasor::porting::forward {
namespace {

double wrapped(double angle) {
  constexpr double kTurn = 2.0 * std::numbers::pi;
  return angle - kTurn * std::round(angle / kTurn);
}

// Grows with the logarithm of the deviations: the fit finds its way from afar, and a few pairs may be
// wrong.
double misfit(const MeasuredFrequencies& measured, const core::Frequencies& law) {
  double sum = 0.0;
  for (std::size_t i = 0; i < measured.value.size(); ++i) {
    const double off = wrapped(measured.value[i] - law.values()[i]) / measured.error[i];
    sum += std::log1p(off * off);
  }
  return sum;
}

struct KnobFit {
  double value = 0.0, misfit = HUGE_VAL;
};

std::vector<KnobFit> fit_knob(const Knob& knob, const MeasuredFrequencies& measured) {
  const auto cost = [&](double logarithm) {
    const auto law = knob.with(std::exp(logarithm));
    if (!law || static_cast<std::size_t>(law->pairs()) != measured.value.size()) return HUGE_VAL;
    return misfit(measured, *law);
  };
  constexpr int kSteps = 240;
  const double low = std::log(knob.lowest), high = std::log(knob.highest);
  const double step = (high - low) / kSteps;
  std::vector<std::pair<double, double>> grid;  // cost, logarithm
  for (int k = 0; k <= kSteps; ++k) {
    const double at = low + step * k;
    const double value = cost(at);
    if (std::isfinite(value)) grid.emplace_back(value, at);
  }
  std::sort(grid.begin(), grid.end());
  std::vector<KnobFit> fits;
  for (std::size_t k = 0; k < std::min<std::size_t>(3, grid.size()); ++k) {
    double a = grid[k].second - step, b = grid[k].second + step;
    const double ratio = 1.0 / std::numbers::phi;
    for (int n = 0; n < 50; ++n) {
      const double c = b - ratio * (b - a), d = a + ratio * (b - a);
      (cost(c) < cost(d) ? b : a) = cost(c) < cost(d) ? d : c;
    }
    const double at = 0.5 * (a + b);
    fits.push_back({std::exp(at), cost(at)});
  }
  std::sort(fits.begin(), fits.end(),
            [](const KnobFit& x, const KnobFit& y) { return x.misfit < y.misfit; });
  return fits;
}

// Values with few digits near `value`, the plainest first.
std::vector<double> plain_values(double value) {
  std::vector<double> values;
  const auto add = [&](double candidate) {
    if (candidate > 0.0 && std::abs(candidate / value - 1.0) < 0.05 &&
        std::find(values.begin(), values.end(), candidate) == values.end()) {
      values.push_back(candidate);
    }
  };
  add(std::exp2(std::round(std::log2(value))));
  const double exponent = std::floor(std::log10(value));
  for (int count = 1; count <= 4; ++count) {
    const double step = std::pow(10.0, exponent - count + 1);
    add(std::round(value / step) * step);
  }
  if (value > 10.0) add(std::round(value));
  return values;
}

}  // namespace

std::vector<Candidate> fitted_candidates(const Problem& problem, const Model& like, Fit what) {
  std::vector<Candidate> all;
  const auto measured = measured_frequencies(problem.data, like);
  if (!measured) return all;
  const auto push = [&](const Mistake& mistake, int rank) {
    Candidate candidate{mistake.id, mistake.text, {}, like, rank};
    candidate.model.frequencies = mistake.frequencies;
    candidate.model.amplitude = mistake.amplitude;
    if (!mistake.field.empty()) {
      candidate.fields.push_back({mistake.field, mistake.asked, mistake.found, mistake.text});
    }
    all.push_back(candidate);
    if (std::abs(mistake.amplitude / like.amplitude - 1.0) > 1e-9) {
      candidate.model.amplitude = like.amplitude;
      candidate.rank = rank + 1;
      all.push_back(std::move(candidate));
    }
  };
  for (const Knob& knob : knobs_of(problem.spec, problem.context)) {
    if (what == Fit::context_only && knob.id != "context") continue;
    for (const KnobFit& fit : fit_knob(knob, *measured)) {
      if (!std::isfinite(fit.misfit)) continue;
      const auto at = [&](double value, int rank, int known) {
        if (std::abs(value / knob.asked - 1.0) < 1e-6) return;
        const auto made = knob.with(value);
        if (made) push(mistake_of(knob, value, *made, known), rank);
      };
      const bool context = knob.id == "context";
      int rank = 12;
      for (const double value : plain_values(fit.value)) {
        // A length of few digits is likelier than another factor; one of many is not.
        const double step = std::pow(10.0, std::floor(std::log10(value)) - 1.0);
        const bool few = std::exp2(std::round(std::log2(value))) == value ||
                         std::round(value / step) * step == value;
        at(value, context ? (few ? 5 : 10) : rank++, 8);
      }
      // A power law of another base is one of another divisor of the exponents.
      if (knob.id == "base" && knob.asked > 1.0 && fit.value > 1.0) {
        const auto dim = static_cast<double>(problem.spec.rotary_dim);
        const double divisor = dim * std::log(knob.asked) / std::log(fit.value);
        const double whole = std::round(divisor);
        if (whole >= 2.0 && whole < 1e5 && std::abs(divisor - whole) < 0.02) {
          const auto made = knob.with(std::pow(knob.asked, dim / whole));
          if (made) {
            Mistake mistake = mistake_of(knob, whole, *made);
            mistake.id = "exponent_dim";
            mistake.field = "dim of the exponents";
            mistake.asked = digits(dim);
            mistake.found = digits(whole);
            mistake.text =
                message("the exponents divide by ", mistake.found, " instead of ", mistake.asked);
            push(mistake, 18);
          }
        }
      }
      at(fit.value, context ? 11 : 20, known_digits(problem.data));
    }
  }
  if (what == Fit::context_only) return all;
  // All angles times one number.
  double along = 0.0, square = 0.0;
  for (std::size_t i = 0; i < measured->value.size(); ++i) {
    const double weight = 1.0 / (measured->error[i] * measured->error[i]);
    along += weight * measured->value[i] * like.frequencies[i];
    square += weight * like.frequencies[i] * like.frequencies[i];
  }
  if (square > 0.0 && along > 0.0) {
    const double ratio = along / square;
    std::vector<double> values = plain_values(ratio);
    for (const double inverse : plain_values(1.0 / ratio)) values.push_back(1.0 / inverse);
    values.push_back(ratio);
    int rank = 14;
    for (const double value : values) {
      if (std::abs(value - 1.0) < 1e-6 || !(value > 1e-5 && value < 1e5)) continue;
      Mistake mistake;
      mistake.id = "angles_scaled";
      mistake.text =
          message("all angles are multiplied by ", digits(value, known_digits(problem.data)),
                  value < 1.0 ? message(", as linear scaling with factor ",
                                        digits(1.0 / value, known_digits(problem.data)))
                              : std::string());
      for (const double frequency : like.frequencies)
        mistake.frequencies.push_back(frequency * value);
      mistake.amplitude = like.amplitude;
      push(mistake, rank++);
    }
  }
  // Frequencies that were computed in a 16-bit type: all are numbers of that type.
  for (const core::DType type : {core::DType::bf16, core::DType::f16}) {
    const double unit = diagnosis::unit_of(type);
    std::vector<double> kept;
    int near = 0, tested = 0;
    bool close = true;
    for (std::size_t i = 0; i < measured->value.size(); ++i) {
      const double value = measured->value[i], grid = rounded(value, type);
      close = close && std::abs(wrapped(value - like.frequencies[i])) <=
                           16.0 * unit * like.frequencies[i] + 20.0 * measured->error[i];
      kept.push_back(grid);
      if (measured->error[i] > 0.02 * unit * std::abs(value)) {
        kept.back() = value;
        continue;
      }
      ++tested;
      if (std::abs(value - grid) < 0.1 * unit * std::abs(value)) ++near;
    }
    if (!close || tested < 4 || near * 10 < tested * 9) continue;
    Mistake mistake;
    mistake.id = message(type_name(type), "_frequencies");
    mistake.text = message("the frequencies were computed in ", type_name(type));
    mistake.frequencies = std::move(kept);
    mistake.amplitude = like.amplitude;
    push(mistake, 13);
  }
  // The frequencies as they are.
  std::size_t farthest = 0, differ = 0, first = 0, last = 0;
  double most = 0.0;
  for (std::size_t i = 0; i < measured->value.size(); ++i) {
    const double off = std::abs(wrapped(measured->value[i] - like.frequencies[i]));
    if (off < 20.0 * measured->error[i]) continue;
    if (differ++ == 0) first = i;
    last = i;
    if (off > most) {
      most = off;
      farthest = i;
    }
  }
  if (differ > 0) {
    Mistake mistake;
    mistake.id = "frequencies";
    const std::string where = first == last ? message("pair ", first)
                                            : message(differ, " pairs from ", first, " to ", last);
    mistake.text =
        message("the frequencies of ", where, " differ, for example pair ", farthest, ": ",
                digits(like.frequencies[farthest], 5), " in the config, ",
                digits(measured->value[farthest], known_digits(problem.data)), " in the data");
    mistake.field = "frequencies";
    mistake.asked = digits(like.frequencies[farthest], 10);
    mistake.found = digits(measured->value[farthest], 6);
    mistake.frequencies = measured->value;
    mistake.amplitude = like.amplitude;
    push(mistake, 90);
  }
  return all;
}

}  // namespace phasor::porting::forward
