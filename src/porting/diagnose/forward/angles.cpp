// Angles and positions measured from the data.
#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include "phasor/core/cancellation.hpp"
#include "porting/diagnose/forward/search.hpp"

namespace phasor::porting::forward {
namespace {

using Complex = std::complex<double>;
using diagnosis::unit_of;

// The factors of (c, s) = (1, 0) and (0, 1): every form but in_place is linear in them.
struct LinearForm {
  PairFactors cos, sin;
};

LinearForm linear_form(Form form) {
  // A model of one pair with frequency 1: position 0 has (1, 0), pi / 2 has (0, 1).
  Model model;
  model.pairs = {{0, 1, 0, 1}};
  model.frequencies = {1.0};
  model.form = form;
  auto table = std::make_shared<PositionTable>();
  table->tokens = 2;
  table->values = {0.0, 0.5 * std::numbers::pi};
  model.positions = table;
  std::vector<PairFactors> at_zero, at_quarter;
  factors_of(model, 0, 0, 0, at_zero);
  factors_of(model, 0, 1, 0, at_quarter);
  return {at_zero[0], at_quarter[0]};
}

double position_at(const Model& model, std::size_t entry, const Sample::Row& row) {
  const std::int64_t axis = model.axes.empty() ? 0 : model.axes[entry];
  return model.positions->at(axis, row.b, row.t, row.heads.empty() ? 0 : row.heads[0]);
}

}  // namespace

MeasuredRow measured_row(const Data& data, const Model& model, const Sample::Row& row) {
  const LinearForm form = linear_form(model.form);
  const std::size_t entries = model.frequencies.size();
  struct Sums {
    double cc = 0.0, cs = 0.0, ss = 0.0, cy = 0.0, sy = 0.0;
  };
  std::vector<Sums> sums(entries);
  for (const std::int64_t h : row.heads) {
    const std::int64_t v = data.vector_at(row.b, row.t, h);
    if (!data.usable(v)) continue;
    const double* const x = data.before(v);
    const double* const y = data.after(v);
    for (std::size_t i = 0; i < model.pairs.size(); ++i) {
      const PairPlace& at = model.pairs[i];
      const double a = x[at.read_a], b = x[at.read_b];
      const auto add = [&](std::size_t entry, double c, double s, double result) {
        Sums& to = sums[entry];
        to.cc += c * c;
        to.cs += c * s;
        to.ss += s * s;
        to.cy += c * result;
        to.sy += s * result;
      };
      const auto ea = static_cast<std::size_t>(model.entry_a.empty() ? static_cast<std::int64_t>(i)
                                                                     : model.entry_a[i]);
      const auto eb = static_cast<std::size_t>(model.entry_b.empty() ? static_cast<std::int64_t>(i)
                                                                     : model.entry_b[i]);
      add(ea, form.cos.aa * a + form.cos.ab * b, form.sin.aa * a + form.sin.ab * b, y[at.write_a]);
      add(eb, form.cos.ba * a + form.cos.bb * b, form.sin.ba * a + form.sin.bb * b, y[at.write_b]);
    }
  }
  MeasuredRow measured;
  for (const Sums& s : sums) {
    const double determinant = s.cc * s.ss - s.cs * s.cs;
    Complex found = 0.0;
    if (determinant > 1e-12 * s.cc * s.ss) {
      found = Complex((s.ss * s.cy - s.cs * s.sy) / determinant,
                      (s.cc * s.sy - s.cs * s.cy) / determinant);
    }
    const double length = std::abs(found);
    const bool number = length > 0.0 && std::isfinite(length);
    measured.direction.push_back(number ? found / length : Complex(0.0));
    measured.length.push_back(number ? length : 0.0);
    measured.weight.push_back(number ? 1.0 : 0.0);
  }
  return measured;
}

std::optional<core::DType> table_type(const Data& data, const Model& model, const Sample& sample) {
  // Only tensors that are finer than the table show its rounding.
  if (data.vectors->unit > unit_of(core::DType::f32) || model.growth) return std::nullopt;
  for (const core::DType type : {core::DType::bf16, core::DType::f16}) {
    std::int64_t near = 0, count = 0;
    for (const Sample::Row& row : sample.rows) {
      const MeasuredRow measured = measured_row(data, model, row);
      for (std::size_t i = 0; i < measured.length.size(); ++i) {
        if (measured.length[i] == 0.0) continue;
        for (const double part : {measured.direction[i].real(), measured.direction[i].imag()}) {
          const double value = part * measured.length[i];
          // Near 0 and 1 every number is near the grid.
          if (std::abs(value) < 0.1 || std::abs(value) > 0.97) continue;
          ++count;
          if (std::abs(value - rounded(value, type)) < 0.02 * unit_of(type)) ++near;
        }
      }
    }
    if (count >= 16 && near * 10 >= count * 8) return type;
  }
  return std::nullopt;
}

std::vector<double> likely_shifts(const Model& model, const MeasuredRow& measured,
                                  const Sample::Row& row, ShiftBounds bounds, std::size_t most) {
  const std::size_t entries = model.frequencies.size();
  struct Phase {
    double re, im, step_re, step_im;
  };
  // A few pairs of different wavelengths decide which shifts are worth a full look.
  std::vector<std::size_t> chosen;
  for (const double part : {0.0, 0.12, 0.25, 0.4, 0.06}) {
    const auto entry = static_cast<std::size_t>(part * static_cast<double>(entries));
    if (entry < entries && measured.weight[entry] > 0.0 &&
        std::find(chosen.begin(), chosen.end(), entry) == chosen.end()) {
      chosen.push_back(entry);
    }
  }
  std::vector<Phase> phases;
  for (const std::size_t entry : chosen) {
    const double frequency = model.frequencies[entry];
    const double start = position_at(model, entry, row) + static_cast<double>(bounds.lowest);
    const Complex left = measured.direction[entry] * std::polar(1.0, -frequency * start);
    const Complex step = std::polar(1.0, -frequency);
    phases.push_back({left.real(), left.imag(), step.real(), step.imag()});
  }
  double weight = 0.0;
  for (const double w : measured.weight) weight += w;
  // What float32 angles and the rounding of the tensors may cost: sum of 1 - cos(error).
  const double allowed = 0.06 * weight;
  // Fast pairs first: they reject most shifts.
  std::vector<std::size_t> order;
  for (std::size_t entry = 0; entry < entries; ++entry) {
    if (measured.weight[entry] > 0.0) order.push_back(entry);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::abs(model.frequencies[a]) > std::abs(model.frequencies[b]);
  });
  struct Match {
    double shift, agreement;
  };
  std::vector<Match> matches;
  const double enough = static_cast<double>(phases.size()) - std::min(0.7, allowed + 0.1);
  for (std::int64_t shift = bounds.lowest; shift <= bounds.highest; ++shift) {
    double sum = 0.0;
    for (Phase& p : phases) {
      sum += p.re;
      const double re = p.re * p.step_re - p.im * p.step_im;
      p.im = p.re * p.step_im + p.im * p.step_re;
      p.re = re;
    }
    if (sum < enough) continue;
    double lost = 0.0;
    for (const std::size_t entry : order) {
      const double angle =
          model.frequencies[entry] * (position_at(model, entry, row) + static_cast<double>(shift));
      lost += 1.0 - measured.direction[entry].real() * std::cos(angle) -
              measured.direction[entry].imag() * std::sin(angle);
      if (lost > allowed) break;
    }
    if (lost > allowed) continue;
    const double agreement = weight - lost;
    const auto worse = std::find_if(matches.begin(), matches.end(), [&](const Match& m) {
      return agreement > m.agreement + 1e-9 * weight ||
             (agreement > m.agreement - 1e-9 * weight &&
              std::abs(static_cast<double>(shift)) < std::abs(m.shift));
    });
    matches.insert(worse, {static_cast<double>(shift), agreement});
    if (matches.size() > most) matches.pop_back();
  }
  std::vector<double> shifts;
  for (const Match& match : matches) shifts.push_back(match.shift);
  return shifts;
}

std::optional<MeasuredFrequencies> measured_frequencies(const Data& data, const Model& model) {
  const std::size_t entries = model.frequencies.size();
  // Rows of the longest run of positions that ascend by one, in one batch row.
  constexpr std::int64_t kMostRows = 256;
  std::vector<MeasuredRow> rows;
  std::int64_t best_b = 0, best_first = 0, best_count = 0;
  for (std::int64_t b = 0; b < data.batch; ++b) {
    std::int64_t first = 0;
    for (std::int64_t t = 1; t <= data.tokens; ++t) {
      const bool goes_on = t < data.tokens && model.positions->at(0, b, t, 0) ==
                                                  model.positions->at(0, b, t - 1, 0) + 1.0;
      if (goes_on) continue;
      if (t - first > best_count) {
        best_b = b;
        best_first = first;
        best_count = t - first;
      }
      first = t;
    }
  }
  if (best_count < 2) return std::nullopt;
  const std::int64_t heads = std::min<std::int64_t>(data.heads, 8);
  std::vector<std::int64_t> some_heads;
  for (std::int64_t h = 0; h < heads; ++h) some_heads.push_back(h);
  const std::int64_t count = std::min(best_count, kMostRows);
  for (std::int64_t k = 0; k < count; ++k) {
    core::throw_if_cancelled();
    rows.push_back(measured_row(data, model, {best_b, best_first + k, some_heads}));
  }
  MeasuredFrequencies found{std::vector<double>(entries, 0.0), std::vector<double>(entries, 0.0)};
  const double unit = data.vectors->unit;
  for (std::size_t entry = 0; entry < entries; ++entry) {
    double value = 0.0;
    std::int64_t last_lag = 1;
    for (std::int64_t lag = 1; lag < count; lag *= 2) {
      Complex sum = 0.0;
      for (std::int64_t k = 0; k + lag < count; ++k) {
        sum += rows[static_cast<std::size_t>(k + lag)].direction[entry] *
               std::conj(rows[static_cast<std::size_t>(k)].direction[entry]);
      }
      const Complex left = sum * std::polar(1.0, -value * static_cast<double>(lag));
      value += std::arg(left) / static_cast<double>(lag);
      last_lag = lag;
    }
    found.value[entry] = value;
    found.error[entry] = 2.0 * unit / static_cast<double>(last_lag) + 3e-7 * std::abs(value);
  }
  return found;
}

}  // namespace phasor::porting::forward
