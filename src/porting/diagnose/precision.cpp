// Finds the precision of the rotation: predicts the result in each arithmetic and returns the one
// with the smallest residual.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "phasor/core/internal/enum_names.hpp"
#include "porting/diagnose/parts.hpp"

namespace phasor::porting::diagnosis {
namespace {

// Vectors to compare the arithmetics on; the final residual is measured on all vectors.
constexpr std::int64_t kPrecisionVectors = 2048;

enum class Table : std::uint8_t { exact, float32_angles, bf16_positions, f16, bf16, bf16_angles };
struct RotationArithmetic {
  Table table;
  core::DType arithmetic;  // of products and sums; f64: one rounding at the end
};

std::string_view name_of(Table table) {
  static constexpr core::EnumNames<Table::bf16_angles> kNames(
      "exact", "float32_angles", "bfloat16_positions", "float16", "bfloat16", "bfloat16_angles");
  return kNames[table];
}

class Predictor {
 public:
  Predictor(const Vectors& vectors, const RotationModel& model, RotationArithmetic candidate)
      : vectors_(vectors), model_(model), arithmetic_(candidate) {}

  // sum |after - predicted|^2 over all features of one vector; `stored`: the prediction is rounded
  // to the tensor's type.
  double left(std::int64_t vector, bool stored) {
    const std::vector<double>& row = row_at(model_.position[static_cast<std::size_t>(vector)]);
    const double* const x = vectors_.before.data() + vector * vectors_.dim;
    const double* const y = vectors_.after.data() + vector * vectors_.dim;
    const Window& window = model_.window;
    double sum = 0.0;
    const auto see = [&](double predicted, double actual) {
      const double off = (stored ? rounded(predicted, vectors_.precision) : predicted) - actual;
      sum += off * off;
    };
    for (std::int64_t pair = 0; pair < window.pairs(); ++pair) {
      const PairFeatures at = features_of(window, pair);
      const double cos = row[static_cast<std::size_t>(2 * pair)];
      const double sin = row[static_cast<std::size_t>(2 * pair + 1)];
      const double a = x[at.read_a], b = x[at.read_b];
      // RoFormer (34)
      see(keep(keep(a * cos) - keep(b * sin)), y[at.write_a]);
      see(keep(keep(b * cos) + keep(a * sin)), y[at.write_b]);
    }
    for (std::int64_t j = 0; j < vectors_.dim; ++j) {
      if (j < window.first || j >= window.first + window.width) see(x[j], y[j]);
    }
    return sum;
  }

 private:
  [[nodiscard]] double keep(double value) const { return rounded(value, arithmetic_.arithmetic); }

  const std::vector<double>& row_at(double position) {
    const auto known = rows_.find(position);
    if (known != rows_.end()) return known->second;
    std::vector<double> row;
    for (const double frequency : model_.frequencies) {
      double angle = frequency * position;
      if (arithmetic_.table == Table::float32_angles) {
        angle = rounded(rounded(frequency, core::DType::f32) * position, core::DType::f32);
      } else if (arithmetic_.table == Table::bf16_positions) {
        angle = frequency * rounded(position, core::DType::bf16);
      } else if (arithmetic_.table == Table::bf16_angles) {
        angle = rounded(frequency * position, core::DType::bf16);
      }
      const core::DType type = arithmetic_.table == Table::f16    ? core::DType::f16
                               : arithmetic_.table == Table::bf16 ? core::DType::bf16
                                                                  : core::DType::f64;
      const double sign = model_.inverse ? -1.0 : 1.0;
      row.push_back(rounded(model_.amplitude * std::cos(angle), type));
      row.push_back(rounded(sign * model_.amplitude * std::sin(angle), type));
    }
    return rows_.emplace(position, std::move(row)).first->second;
  }

  const Vectors& vectors_;
  const RotationModel& model_;
  RotationArithmetic arithmetic_;
  std::map<double, std::vector<double>> rows_;
};

double residual_of(const Vectors& vectors, const RotationModel& model, RotationArithmetic candidate,
                   bool stored, std::int64_t most) {
  Predictor predict(vectors, model, candidate);
  const std::int64_t step = std::max<std::int64_t>(1, vectors.count / most);
  double left = 0.0, energy = 0.0;
  for (std::int64_t v = 0; v < vectors.count; v += step) {
    if (vectors.usable[static_cast<std::size_t>(v)] == 0) continue;
    left += predict.left(v, stored);
    for (std::int64_t j = 0; j < vectors.dim; ++j) {
      const double y = vectors.after[static_cast<std::size_t>(v * vectors.dim + j)];
      energy += y * y;
    }
  }
  return energy > 0.0 ? std::sqrt(left / energy) : 0.0;
}

bool rounding_moves(const std::vector<double>& positions) {
  return std::any_of(positions.begin(), positions.end(), [](double position) {
    return rounded(position, core::DType::bf16) != position;
  });
}

bool is_narrow(core::DType type) { return type == core::DType::f16 || type == core::DType::bf16; }

}  // namespace

double rounding_floor(core::DType precision) noexcept {
  // The error of one rounding is uniform up to a unit: its root mean square over a binade is 0.4.
  return 0.4 * unit_of(precision);
}

PrecisionVerdict find_precision(const Vectors& vectors, const RotationModel& model) {
  const bool narrow = is_narrow(vectors.precision);
  std::vector<RotationArithmetic> candidates;
  for (const Table table : {Table::exact, Table::float32_angles, Table::bf16_positions, Table::f16,
                            Table::bf16, Table::bf16_angles}) {
    if (table == Table::bf16_positions && !rounding_moves(model.position)) continue;
    candidates.push_back({table, core::DType::f64});
    if (narrow) candidates.push_back({table, vectors.precision});
  }
  std::vector<double> residuals;
  for (const RotationArithmetic& candidate : candidates) {
    residuals.push_back(residual_of(vectors, model, candidate, narrow, kPrecisionVectors));
  }
  std::size_t best = 0;
  for (std::size_t k = 1; k < candidates.size(); ++k) {
    // The simpler arithmetic, unless the residual of the other is clearly smaller.
    if (residuals[k] < 0.8 * residuals[best]) best = k;
  }
  PrecisionVerdict verdict;
  verdict.table = name_of(candidates[best].table);
  verdict.arithmetic =
      is_narrow(candidates[best].arithmetic) ? type_name(candidates[best].arithmetic) : "float32";
  verdict.exact_residual =
      residual_of(vectors, model, candidates[0], /*stored=*/false, vectors.count);
  verdict.residual =
      best == 0 ? verdict.exact_residual
                : residual_of(vectors, model, candidates[best], /*stored=*/false, vectors.count);
  verdict.runner_up_residual = HUGE_VAL;
  for (std::size_t k = 0; k < candidates.size(); ++k) {
    if (candidates[k].table == candidates[best].table) continue;
    if (residuals[k] < verdict.runner_up_residual) {
      verdict.runner_up_residual = residuals[k];
      verdict.runner_up = name_of(candidates[k].table);
    }
  }
  verdict.decided = residuals[best] < 0.9 * verdict.runner_up_residual;
  return verdict;
}

}  // namespace phasor::porting::diagnosis
