#include "phasor/attention/internal/linear_reference.hpp"

#include <algorithm>
#include <cmath>

#include "phasor/core/error.hpp"
#include "phasor/core/internal/reference.hpp"

namespace phasor::attention {
namespace {

using core::ConstHeadsView;

// A dense float64 [batch, tokens, heads, dim].
struct Heads {
  std::int64_t batch, tokens, heads, dim;
  std::vector<double> values;

  Heads(std::int64_t batch_, std::int64_t tokens_, std::int64_t heads_, std::int64_t dim_)
      : batch(batch_),
        tokens(tokens_),
        heads(heads_),
        dim(dim_),
        values(static_cast<std::size_t>(batch_ * tokens_ * heads_ * dim_)) {}
  explicit Heads(const ConstHeadsView& view)
      : Heads(view.batch, view.tokens, view.heads, view.head_dim) {
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t h = 0; h < heads; ++h) {
          for (std::int64_t i = 0; i < dim; ++i) {
            row(b, t, h)[i] = core::element_of(
                view, b * view.batch_stride + t * view.token_stride + h * view.head_stride + i);
          }
        }
      }
    }
  }
  [[nodiscard]] double* row(std::int64_t b, std::int64_t t, std::int64_t h) {
    return values.data() + ((b * tokens + t) * heads + h) * dim;
  }
  [[nodiscard]] const double* row(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return values.data() + ((b * tokens + t) * heads + h) * dim;
  }
};

double dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

void map_queries(FeatureMap features, Heads& x) {
  for (std::size_t first = 0; first < x.values.size(); first += static_cast<std::size_t>(x.dim)) {
    double* row = x.values.data() + first;
    if (features == FeatureMap::elu_plus_one) {
      for (std::int64_t i = 0; i < x.dim; ++i)
        row[i] = row[i] > 0.0 ? row[i] + 1.0 : std::exp(row[i]);
      continue;
    }
    const double largest = *std::max_element(row, row + x.dim);
    double sum = 0.0;
    for (std::int64_t i = 0; i < x.dim; ++i) sum += row[i] = std::exp(row[i] - largest);
    for (std::int64_t i = 0; i < x.dim; ++i) row[i] /= sum;
  }
}
void map_keys(FeatureMap features, Heads& x) {
  for (double& value : x.values) {
    value = features == FeatureMap::elu_plus_one && value > 0.0 ? value + 1.0 : std::exp(value);
  }
}

// d x from d phi(x), phi(x) at hand; elu's slope is 1 where phi > 1, and phi below.
void unmap_queries(FeatureMap features, const Heads& phi, Heads& gradient) {
  for (std::size_t first = 0; first < phi.values.size();
       first += static_cast<std::size_t>(phi.dim)) {
    const double* p = phi.values.data() + first;
    double* g = gradient.values.data() + first;
    const double shared = features == FeatureMap::softmax_exp ? dot(p, g, phi.dim) : 0.0;
    for (std::int64_t i = 0; i < phi.dim; ++i) {
      g[i] =
          features == FeatureMap::softmax_exp ? p[i] * (g[i] - shared) : g[i] * std::min(p[i], 1.0);
    }
  }
}
void unmap_keys(FeatureMap features, const Heads& phi, Heads& gradient) {
  for (std::size_t i = 0; i < phi.values.size(); ++i) {
    gradient.values[i] *=
        features == FeatureMap::softmax_exp ? phi.values[i] : std::min(phi.values[i], 1.0);
  }
}

struct Reference {
  const std::optional<core::Rotary>& rotary;
  const LinearOptions& options;
  Heads q, k, v;               // phi(q), phi(k), v
  Heads rotated_q, rotated_k;  // R phi
  std::int64_t group = 1;

  Reference(const std::optional<core::Rotary>& rotary_, const ConstHeadsView& q_,
            const ConstHeadsView& k_, const ConstHeadsView& v_, const LinearOptions& options_)
      : rotary(rotary_), options(options_), q(q_), k(k_), v(v_), rotated_q(q), rotated_k(k) {
    if (q.batch != k.batch || q.batch != v.batch || k.tokens != v.tokens || k.heads != v.heads ||
        q.dim != k.dim || k.heads < 1 || q.heads % k.heads != 0) {
      throw Error(
          ErrorCode::shape_mismatch,
          message("linear_attend_reference: q, k and v must fit, got q [", q.batch, ", ", q.tokens,
                  ", ", q.heads, ", ", q.dim, "], k [", k.batch, ", ", k.tokens, ", ", k.heads,
                  ", ", k.dim, "], v [", v.batch, ", ", v.tokens, ", ", v.heads, ", ", v.dim, "]"));
    }
    group = q.heads / k.heads;
    map_queries(options.features, q);
    map_keys(options.features, k);
    rotated_q = q;
    rotated_k = k;
    rotate(rotated_q, core::Role::query, core::Direction::forward);
    rotate(rotated_k, core::Role::key, core::Direction::forward);
  }

  void rotate(Heads& x, core::Role role, core::Direction direction) const {
    if (!rotary) return;
    const bool is_query = role == core::Role::query;
    const auto& given = is_query ? options.query_positions : options.key_positions;
    const core::Positions positions =
        given.value_or(core::positions_from(is_query ? k.tokens - q.tokens : 0));
    const core::HeadsView view =
        core::heads_view(x.values.data(), x.batch, x.tokens, x.heads, x.dim);
    core::reference::rotate(*rotary, positions, view, view, direction, role);
  }
  [[nodiscard]] bool sees(std::int64_t b, std::int64_t m, std::int64_t n) const {
    if (options.causality == Causality::bottom_right && n > k.tokens - q.tokens + m) return false;
    return options.key_padding.empty() ||
           options.key_padding[static_cast<std::size_t>(b * k.tokens + n)] != 0;
  }
  [[nodiscard]] double denominator(std::int64_t b, std::int64_t m, std::int64_t h) const {
    double sum = 0.0;
    for (std::int64_t n = 0; n < k.tokens; ++n) {
      if (sees(b, m, n)) sum += dot(q.row(b, m, h), k.row(b, n, h / group), q.dim);
    }
    return sum;
  }
};

}  // namespace

LinearReference linear_attend_reference(const std::optional<core::Rotary>& rotary,
                                        core::ConstHeadsView q, core::ConstHeadsView k,
                                        core::ConstHeadsView v, const LinearOptions& options) {
  const Reference r(rotary, q, k, v, options);
  Heads out(q.batch, q.tokens, q.heads, v.head_dim);
  LinearReference result;
  for (std::int64_t b = 0; b < q.batch; ++b) {
    for (std::int64_t m = 0; m < q.tokens; ++m) {
      for (std::int64_t h = 0; h < q.heads; ++h) {
        const double denominator = r.denominator(b, m, h);
        const double* query = r.rotated_q.row(b, m, h);
        double magnitude = 0.0;
        for (std::int64_t n = 0; n < k.tokens && denominator != 0.0; ++n) {
          if (!r.sees(b, m, n)) continue;
          const double* key = r.rotated_k.row(b, n, h / r.group);
          const double* value = r.v.row(b, n, h / r.group);
          const double weight = dot(query, key, r.q.dim) / denominator;
          for (std::int64_t j = 0; j < out.dim; ++j) out.row(b, m, h)[j] += weight * value[j];
          magnitude += std::sqrt(dot(query, query, r.q.dim) * dot(key, key, r.q.dim) *
                                 dot(value, value, out.dim)) /
                       denominator;
        }
        result.magnitude.push_back(magnitude);
      }
    }
  }
  result.out = std::move(out.values);
  return result;
}

LinearReferenceGradients linear_attend_backward_reference(
    const std::optional<core::Rotary>& rotary, core::ConstHeadsView q, core::ConstHeadsView k,
    core::ConstHeadsView v, core::ConstHeadsView d_out, const LinearOptions& options) {
  const Reference r(rotary, q, k, v, options);
  const Heads out_gradient(d_out);
  const std::vector<double> out = linear_attend_reference(rotary, q, k, v, options).out;
  // Of R phi(q), R phi(k) in the numerator; of phi(q), phi(k) in the denominator; of v.
  Heads above_q(q.batch, q.tokens, q.heads, q.head_dim), below_q = above_q;
  Heads above_k(k.batch, k.tokens, k.heads, k.head_dim), below_k = above_k;
  Heads d_v(v.batch, v.tokens, v.heads, v.head_dim);
  for (std::int64_t b = 0; b < q.batch; ++b) {
    for (std::int64_t m = 0; m < q.tokens; ++m) {
      for (std::int64_t h = 0; h < q.heads; ++h) {
        const std::int64_t g = h / r.group;
        const double denominator = r.denominator(b, m, h);
        if (denominator == 0.0) continue;
        const double* gradient = out_gradient.row(b, m, h);
        const double* o = out.data() + ((b * q.tokens + m) * q.heads + h) * v.head_dim;
        const double d_denominator = -dot(gradient, o, v.head_dim) / denominator;
        for (std::int64_t n = 0; n < k.tokens; ++n) {
          if (!r.sees(b, m, n)) continue;
          const double d_weight = dot(gradient, r.v.row(b, n, g), v.head_dim) / denominator;
          const double weight = dot(r.rotated_q.row(b, m, h), r.rotated_k.row(b, n, g), q.head_dim);
          for (std::int64_t i = 0; i < q.head_dim; ++i) {
            above_q.row(b, m, h)[i] += d_weight * r.rotated_k.row(b, n, g)[i];
            above_k.row(b, n, g)[i] += d_weight * r.rotated_q.row(b, m, h)[i];
            below_q.row(b, m, h)[i] += d_denominator * r.k.row(b, n, g)[i];
            below_k.row(b, n, g)[i] += d_denominator * r.q.row(b, m, h)[i];
          }
          for (std::int64_t j = 0; j < v.head_dim; ++j) {
            d_v.row(b, n, g)[j] += weight / denominator * gradient[j];
          }
        }
      }
    }
  }
  r.rotate(above_q, core::Role::query, core::Direction::transpose);
  r.rotate(above_k, core::Role::key, core::Direction::transpose);
  for (std::size_t i = 0; i < above_q.values.size(); ++i) above_q.values[i] += below_q.values[i];
  for (std::size_t i = 0; i < above_k.values.size(); ++i) above_k.values[i] += below_k.values[i];
  unmap_queries(options.features, r.q, above_q);
  unmap_keys(options.features, r.k, above_k);
  return {std::move(above_q.values), std::move(above_k.values), std::move(d_v.values)};
}

}  // namespace phasor::attention
