#include "porting/diagnose/forward/model.hpp"

#include <algorithm>
#include <cmath>

#include "phasor/core/cancellation.hpp"

namespace phasor::porting::forward {
namespace {

struct CosSin {
  double c, s;
  double doubt;
};

double position_of(const Model& model, std::size_t entry, std::int64_t b, std::int64_t t,
                   std::int64_t h) {
  const std::int64_t axis = model.axes.empty() ? 0 : model.axes[entry];
  return model.positions->at(axis, b, t, h) + model.shift;
}

CosSin entry_of(const Model& model, std::size_t entry, std::int64_t b, std::int64_t t,
                std::int64_t h) {
  const Types& types = model.types;
  const double exact = model.frequencies[entry];
  const double frequency = rounded(exact, types.frequency);
  const double position = rounded(position_of(model, entry, b, t, h), types.position);
  const double angle = rounded(position * frequency, types.angle);
  double growth = model.amplitude, growth_doubt = 0.0;
  if (model.growth) {
    const double exponent =
        model.growth->rates[entry] * (position_of(model, entry, b, t, h) - model.growth->centre);
    growth *= std::exp(exponent);
    growth_doubt = kFloat32Angle * std::abs(exponent);
  }
  // A frequency that float32 holds exactly has an exact float32 angle up to 2^24.
  const bool held = rounded(exact, core::DType::f32) == exact;
  const double doubt = std::abs(angle) * (held && std::abs(angle) < 0x1p24 ? 0.0
                                          : held                           ? 0x1p-24
                                                                           : kFloat32Angle);
  return {rounded(growth * std::cos(angle), types.table),
          rounded(growth * std::sin(angle), types.table), growth * std::hypot(doubt, growth_doubt)};
}

PairFactors factors(Form form, const CosSin& at_a, const CosSin& at_b) {
  const auto [ca, sa, da] = at_a;
  const auto [cb, sb, db] = at_b;
  switch (form) {
    case Form::rotation:
      return {ca, -sa, sb, cb, da, db, 0.0};
    case Form::inverse:
      return {ca, sa, -sb, cb, da, db, 0.0};
    case Form::swapped:
      return {sa, -ca, cb, sb, da, db, 0.0};
    case Form::no_minus:
      return {ca, sa, sb, cb, da, db, 0.0};
    case Form::minus_on_both:
      return {ca, -sa, -sb, cb, da, db, 0.0};
    case Form::minus_on_first:
      return {-ca, sa, sb, cb, da, db, 0.0};
    case Form::mirrored:
      return {ca, -sa, -sb, -cb, da, db, 0.0};
    case Form::swapped_inverse:
      return {sa, ca, -cb, sb, da, db, 0.0};
    case Form::in_place:
      return {ca, -sa, ca * sb, cb - sa * sb, da, 2.0 * db, 2.0};
    case Form::cos_only:
      return {ca, 0.0, 0.0, cb, da, db, 0.0};
    case Form::sin_only:
      return {0.0, -sa, sb, 0.0, da, db, 0.0};
    case Form::partner_order:
      return {sa, ca, cb, -sb, da, db, 0.0};
    case Form::own_half:
      return {ca - sa, 0.0, 0.0, cb + sb, 2.0 * da, 2.0 * db, 2.0};
    case Form::own_half_other:
      return {ca + sa, 0.0, 0.0, cb - sb, 2.0 * da, 2.0 * db, 2.0};
    case Form::first_only:
      return {ca, -sa, 0.0, 1.0, da, db, 0.0};
    case Form::second_only:
      return {1.0, 0.0, sb, cb, da, db, 0.0};
  }
  return {};
}

constexpr double kTiny = 1e-37;

double smallest_step(core::DType type) noexcept {
  return type == core::DType::f16 ? 0x1p-25 : kTiny;
}

}  // namespace

double Score::relative() const {
  if (energy > 0.0) return std::sqrt(left / energy);
  return left > 0.0 ? HUGE_VAL : 0.0;
}

void factors_of(const Model& model, std::int64_t b, std::int64_t t, std::int64_t h,
                std::vector<PairFactors>& out) {
  const bool idle = !model.idle_heads.empty() && model.idle_heads[static_cast<std::size_t>(h)] != 0;
  out.resize(model.pairs.size());
  if (idle) {
    std::fill(out.begin(), out.end(), PairFactors{1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0});
    return;
  }
  if (model.entry_a.empty()) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const CosSin at = entry_of(model, i, b, t, h);
      out[i] = factors(model.form, at, at);
    }
    return;
  }
  std::vector<CosSin> entries;
  for (std::size_t i = 0; i < model.frequencies.size(); ++i) {
    entries.push_back(entry_of(model, i, b, t, h));
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = factors(model.form, entries[static_cast<std::size_t>(model.entry_a[i])],
                     entries[static_cast<std::size_t>(model.entry_b[i])]);
  }
}

void predict(const Data& data, const Model& model, const std::vector<PairFactors>& factors,
             std::int64_t v, std::vector<double>& out, std::vector<double>& bound) {
  const auto dim = static_cast<std::size_t>(data.vectors->dim);
  const double* const x = data.before(v);
  const double unit = data.vectors->unit;
  const double step = 4.0 * smallest_step(data.vectors->precision);
  out.assign(x, x + dim);
  bound.resize(dim);
  for (std::size_t j = 0; j < dim; ++j) bound[j] = 1.01 * unit * std::abs(x[j]) + step;
  if (model.rest_is_zero) std::fill(out.begin(), out.end(), 0.0);
  for (std::size_t i = 0; i < model.pairs.size(); ++i) {
    const PairPlace& at = model.pairs[i];
    const PairFactors& f = factors[i];
    const double a = x[at.read_a], b = x[at.read_b];
    const auto to_a = static_cast<std::size_t>(at.write_a),
               to_b = static_cast<std::size_t>(at.write_b);
    const double length = std::sqrt(a * a + b * b);
    out[to_a] = f.aa * a + f.ab * b;
    out[to_b] = f.ba * a + f.bb * b;
    const double rounding = kRotationRoundings * model.roundings * unit;
    bound[to_a] = rounding * (std::abs(f.aa * a) + std::abs(f.ab * b)) + f.doubt_a * length + step;
    bound[to_b] = rounding * (std::abs(f.ba * a) + std::abs(f.bb * b)) + f.doubt_b * length + step;
    // The absolute error of cos and sin in float32.
    const double table =
        kCosSinFloat32 * length * std::max({std::abs(f.aa), std::abs(f.ab), std::abs(f.bb)});
    bound[to_a] += table + rounding * f.hidden * length;
    bound[to_b] += table + rounding * f.hidden * length;
  }
}

Sample sample_of(const Data& data, std::int64_t most_rows, std::int64_t most_heads) {
  Sample sample;
  const std::int64_t rows = data.batch * data.tokens;
  // Every usable row, then as many of them as wanted, spread from the first to the last.
  std::vector<Sample::Row> usable;
  const std::int64_t step = std::max<std::int64_t>(1, rows / (8 * most_rows));
  for (std::int64_t r = 0; r < rows; r += step) {
    Sample::Row row{r / data.tokens, r % data.tokens, {}};
    const std::int64_t heads = std::min(most_heads, data.heads);
    for (std::int64_t k = 0; k < heads; ++k) {
      // The first and the last head are always there.
      const std::int64_t h = heads == 1 ? 0 : k * (data.heads - 1) / (heads - 1);
      const std::int64_t v = data.vector_at(row.b, row.t, h);
      const double* const x = data.before(v);
      const bool moves = std::any_of(x, x + data.vectors->dim, [](double y) { return y != 0.0; });
      if (data.usable(v) && moves) row.heads.push_back(h);
    }
    if (!row.heads.empty()) usable.push_back(std::move(row));
  }
  const auto count = static_cast<std::int64_t>(usable.size());
  if (count <= most_rows) {
    sample.rows = std::move(usable);
    return sample;
  }
  for (std::int64_t k = 0; k < most_rows; ++k) {
    sample.rows.push_back(usable[static_cast<std::size_t>(k * (count - 1) / (most_rows - 1))]);
  }
  return sample;
}

Sample everything(const Data& data) {
  Sample sample;
  std::vector<std::int64_t> heads;
  for (std::int64_t h = 0; h < data.heads; ++h) heads.push_back(h);
  for (std::int64_t b = 0; b < data.batch; ++b) {
    for (std::int64_t t = 0; t < data.tokens; ++t) sample.rows.push_back({b, t, heads});
  }
  return sample;
}

Score score(const Data& data, const Model& model, const Sample& sample) {
  Score result;
  const auto dim = static_cast<std::size_t>(data.vectors->dim);
  const bool per_head = model.positions->heads > 1 || !model.idle_heads.empty();
  std::vector<PairFactors> factors;
  std::vector<double> out, bound;
  std::vector<std::uint8_t> rotated(dim, 0);
  for (const PairPlace& at : model.pairs) {
    rotated[static_cast<std::size_t>(at.write_a)] = rotated[static_cast<std::size_t>(at.write_b)] =
        1;
  }
  for (const Sample::Row& row : sample.rows) {
    core::throw_if_cancelled();
    bool ready = false;
    for (const std::int64_t h : row.heads) {
      const std::int64_t v = data.vector_at(row.b, row.t, h);
      if (!data.usable(v)) continue;
      if (!ready || per_head) factors_of(model, row.b, row.t, h, factors);
      ready = true;
      predict(data, model, factors, v, out, bound);
      const double* const y = data.after(v);
      double worst = 0.0;
      for (std::size_t j = 0; j < dim; ++j) {
        const double off = y[j] - out[j];
        result.left += off * off;
        result.energy += y[j] * y[j];
        worst = std::max(worst, std::abs(off) / bound[j]);
        if (rotated[j] != 0) {
          result.product += y[j] * out[j];
          result.square += out[j] * out[j];
        }
      }
      if (!(worst <= result.worst)) {
        result.worst = std::isnan(worst) ? HUGE_VAL : worst;
        result.worst_vector = v;
      }
      ++result.vectors;
    }
  }
  return result;
}

Lean lean(const Data& data, const Model& asked, const Model& other, const Sample& sample) {
  std::vector<PairFactors> factors, other_factors;
  std::vector<double> out, bound, other_out, other_bound;
  const auto dim = static_cast<std::size_t>(data.vectors->dim);
  double along = 0.0, distance = 0.0;
  std::size_t most_heads = 1;
  for (const Sample::Row& row : sample.rows) {
    core::throw_if_cancelled();
    most_heads = std::max(most_heads, row.heads.size());
    for (const std::int64_t h : row.heads) {
      const std::int64_t v = data.vector_at(row.b, row.t, h);
      factors_of(asked, row.b, row.t, h, factors);
      factors_of(other, row.b, row.t, h, other_factors);
      predict(data, asked, factors, v, out, bound);
      predict(data, other, other_factors, v, other_out, other_bound);
      const double* const y = data.after(v);
      for (std::size_t j = 0; j < dim; ++j) {
        // The bound is about three standard deviations of the rounding of a whole rotation.
        const double weight = 9.0 / (bound[j] * bound[j]);
        const double apart = other_out[j] - out[j];
        along += weight * (y[j] - out[j]) * apart;
        distance += weight * apart * apart;
      }
    }
  }
  return {distance > 0.0 ? along / distance : 0.0, distance / static_cast<double>(most_heads)};
}

}  // namespace phasor::porting::forward
