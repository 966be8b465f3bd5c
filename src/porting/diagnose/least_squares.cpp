#include <algorithm>
#include <cmath>

#include "phasor/core/cancellation.hpp"
#include "porting/diagnose/parts.hpp"

namespace phasor::porting::diagnosis {
namespace {

using Matrix = std::vector<std::vector<double>>;

// Gauss-Jordan with pivoting; the inverse is stored in the right half. False when singular.
bool invert(Matrix& m) {
  const std::size_t n = m.size();
  for (std::size_t i = 0; i < n; ++i) {
    m[i].resize(2 * n, 0.0);
    m[i][n + i] = 1.0;
  }
  for (std::size_t column = 0; column < n; ++column) {
    std::size_t pivot = column;
    for (std::size_t row = column + 1; row < n; ++row) {
      if (std::abs(m[row][column]) > std::abs(m[pivot][column])) pivot = row;
    }
    if (!(std::abs(m[pivot][column]) > 0.0)) return false;
    std::swap(m[pivot], m[column]);
    const double scale = m[column][column];
    for (double& entry : m[column]) entry /= scale;
    for (std::size_t row = 0; row < n; ++row) {
      if (row == column) continue;
      const double part = m[row][column];
      for (std::size_t k = 0; k < 2 * n; ++k) m[row][k] -= part * m[column][k];
    }
  }
  return true;
}

struct Normal {
  Matrix curvature;
  std::vector<double> slope;
};

Normal normal_equations(const LawModel& law, const std::vector<double>& at,
                        const std::vector<double>& here, const std::vector<double>& value,
                        const std::vector<double>& error) {
  const std::size_t n = at.size();
  std::vector<std::vector<double>> derivative;
  for (std::size_t k = 0; k < n; ++k) {
    std::vector<double> moved = at;
    const double step = 1e-6 * std::max(1e-2, std::abs(at[k]));
    moved[k] += step;
    std::vector<double> there = law.frequencies(moved);
    for (std::size_t i = 0; i < there.size(); ++i)
      there[i] = (there[i] - here[i]) / step / error[i];
    derivative.push_back(std::move(there));
  }
  Normal normal{Matrix(n, std::vector<double>(n, 0.0)), std::vector<double>(n, 0.0)};
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = 0; b < n; ++b) {
      for (std::size_t i = 0; i < value.size(); ++i) {
        normal.curvature[a][b] += derivative[a][i] * derivative[b][i];
      }
    }
    for (std::size_t i = 0; i < value.size(); ++i) {
      normal.slope[a] += derivative[a][i] * (value[i] - here[i]) / error[i];
    }
  }
  return normal;
}

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

}  // namespace

double misfit_of(const std::vector<double>& law, const std::vector<double>& value,
                 const std::vector<double>& error) {
  if (law.size() != value.size() || !all_finite(law)) return HUGE_VAL;
  double sum = 0.0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const double off = (value[i] - law[i]) / error[i];
    sum += off * off;
  }
  return std::sqrt(sum / static_cast<double>(value.size()));
}

Fitted fit_law(const LawModel& law, std::vector<double> start, const std::vector<double>& value,
               const std::vector<double>& error) {
  constexpr int kSteps = 40;
  Fitted best{std::move(start), {}, HUGE_VAL};
  std::vector<double> here = law.frequencies(best.parameters);
  best.misfit = misfit_of(here, value, error);
  double damping = 1e-3;
  for (int step = 0; step < kSteps && std::isfinite(best.misfit) && damping < 1e8; ++step) {
    core::throw_if_cancelled();
    const Normal normal = normal_equations(law, best.parameters, here, value, error);
    Matrix damped = normal.curvature;
    for (std::size_t k = 0; k < damped.size(); ++k) damped[k][k] *= 1.0 + damping;
    if (!invert(damped)) break;
    const std::size_t n = damped.size();
    std::vector<double> next = best.parameters;
    for (std::size_t a = 0; a < n; ++a) {
      for (std::size_t b = 0; b < n; ++b) next[a] += damped[a][n + b] * normal.slope[b];
    }
    std::vector<double> there = law.frequencies(next);
    const double misfit = misfit_of(there, value, error);
    if (!(misfit < best.misfit)) {
      damping *= 8.0;
      continue;
    }
    const bool settled = misfit > best.misfit * (1.0 - 1e-9);
    best.parameters = std::move(next);
    best.misfit = misfit;
    here = std::move(there);
    damping = std::max(damping / 8.0, 1e-12);
    if (settled) break;
  }
  best.errors.assign(best.parameters.size(), HUGE_VAL);
  if (std::isfinite(best.misfit)) {
    Normal normal = normal_equations(law, best.parameters, here, value, error);
    const std::size_t n = best.parameters.size();
    // A parameter without effect must not make the errors of the others infinite.
    for (std::size_t k = 0; k < n; ++k) {
      double& own = normal.curvature[k][k];
      own = own > 0.0 ? own * (1.0 + 1e-10) : 1e-12;
    }
    if (invert(normal.curvature)) {
      for (std::size_t k = 0; k < n; ++k) {
        best.errors[k] = std::sqrt(std::max(normal.curvature[k][n + k], 0.0));
      }
    }
  }
  return best;
}

}  // namespace phasor::porting::diagnosis
