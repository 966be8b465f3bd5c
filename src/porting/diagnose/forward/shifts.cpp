// Shifts of positions with which a model fits the data.
#include <algorithm>
#include <cmath>
#include <complex>

#include "porting/diagnose/forward/search.hpp"

namespace phasor::porting::forward {
namespace {

// The row of the sample with the most heads, and the rows of all measured phases rotated to it.
struct Reference {
  Sample::Row row;
  MeasuredRow measured;
};

Reference reference_of(const Data& data, const Model& model, const Sample& sample) {
  Reference reference{sample.rows.front(), {}};
  const std::size_t entries = model.frequencies.size();
  std::vector<std::complex<double>> sums(entries, 0.0);
  double rows = 0.0;
  const auto position = [&](std::size_t entry, const Sample::Row& row) {
    const std::int64_t axis = model.axes.empty() ? 0 : model.axes[entry];
    return model.positions->at(axis, row.b, row.t, row.heads[0]);
  };
  for (const Sample::Row& row : sample.rows) {
    if (row.b != reference.row.b) continue;
    const MeasuredRow measured = measured_row(data, model, row);
    rows += 1.0;
    for (std::size_t i = 0; i < entries; ++i) {
      const double back = model.frequencies[i] * (position(i, reference.row) - position(i, row));
      sums[i] += measured.direction[i] * std::polar(1.0, back);
    }
  }
  for (std::size_t i = 0; i < entries; ++i) {
    const double length = std::abs(sums[i]);
    const bool agrees = length > 0.9 * rows;
    reference.measured.direction.push_back(agrees ? sums[i] / length : 0.0);
    reference.measured.weight.push_back(agrees ? 1.0 : 0.0);
  }
  return reference;
}

std::int64_t measured_pairs(const Data& data, const Model& model, const Sample::Row& row) {
  const MeasuredRow measured = measured_row(data, model, row);
  return std::count(measured.weight.begin(), measured.weight.end(), 1.0);
}

// Whether cos and sin follow from the data without an angle.
bool is_linear(const Model& model) {
  return model.form != Form::in_place && model.form != Form::cos_only &&
         model.form != Form::sin_only && model.form != Form::first_only &&
         model.form != Form::second_only;
}

}  // namespace

// Shifts of the positions with which the model fits the sample, the best first.
std::vector<double> fitting_shifts(const Data& data, const Model& model, const Sample& sample,
                                   ShiftBounds bounds) {
  std::vector<double> fitting;
  if (sample.rows.empty()) return fitting;
  if (!is_linear(model)) {
    constexpr double kMostTried = 300.0;
    for (double shift = 0.0; shift <= kMostTried; shift += 1.0) {
      Model moved = model;
      moved.shift = shift;
      Sample one;
      one.rows.push_back(sample.rows.back());
      if (score(data, moved, one).fits() && score(data, moved, sample).fits()) {
        fitting.push_back(shift);
      }
    }
    return fitting;
  }
  const Reference reference = reference_of(data, model, sample);
  double weight = 0.0;
  for (const double w : reference.measured.weight) weight += w;
  // The relative positions alone contradict other frequencies.
  if (weight < 0.9 * static_cast<double>(measured_pairs(data, model, reference.row)))
    return fitting;
  for (const double shift : likely_shifts(model, reference.measured, reference.row, bounds, 6)) {
    Model moved = model;
    moved.shift = shift;
    if (score(data, moved, sample).fits()) fitting.push_back(shift);
  }
  std::stable_sort(fitting.begin(), fitting.end(),
                   [](double a, double b) { return std::abs(a) < std::abs(b); });
  return fitting;
}

std::optional<double> rough_shift(const Data& data, const Model& model, const Sample& sample,
                                  ShiftBounds bounds) {
  if (sample.rows.empty()) return std::nullopt;
  const Sample::Row& row = sample.rows[sample.rows.size() / 2];
  const std::vector<double> shifts =
      likely_shifts(model, measured_row(data, model, row), row, bounds, 1);
  return shifts.empty() ? std::nullopt : std::optional(shifts.front());
}

bool fits_everywhere(const Problem& problem, const Model& model, Score* whole) {
  if (!problem.few.rows.empty() && !score(problem.data, model, problem.few).fits()) return false;
  const Score all = score(problem.data, model, problem.all);
  if (whole != nullptr) *whole = all;
  return all.worst <= 1.0;
}

// The largest |difference of two models| in units of the bound.
double apart(const Data& data, const Model& a, const Model& b, const Sample& sample) {
  std::vector<PairFactors> fa, fb;
  std::vector<double> oa, ob, bound, other;
  double most = 0.0;
  for (const Sample::Row& row : sample.rows) {
    for (const std::int64_t h : row.heads) {
      const std::int64_t v = data.vector_at(row.b, row.t, h);
      factors_of(a, row.b, row.t, h, fa);
      factors_of(b, row.b, row.t, h, fb);
      predict(data, a, fa, v, oa, bound);
      predict(data, b, fb, v, ob, other);
      for (std::size_t j = 0; j < oa.size(); ++j) {
        most = std::max(most, std::abs(oa[j] - ob[j]) / bound[j]);
      }
    }
  }
  return most;
}

}  // namespace phasor::porting::forward
