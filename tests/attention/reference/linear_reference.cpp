#include "attention/reference/linear_reference.hpp"

#include <algorithm>
#include <cmath>

#include "attention/reference/dual.hpp"

namespace phasor::attention::tests {
namespace {

using core::ConstHeadsView;
using Side = RelativeRotation::Side;

// phi of a query or a key: elu(x) + 1, or softmax over the features and exp.
template <class T>
void map_features(FeatureMap features, core::Role role, Tokens<T>& x) {
  using std::exp;
  const auto dim = static_cast<std::size_t>(x.dim);
  for (std::size_t first = 0; first < x.values.size(); first += dim) {
    T sum = 0.0;
    for (std::size_t i = first; i < first + dim; ++i) {
      T& y = x.values[i];
      y = features == FeatureMap::elu_plus_one && value_of(y) > 0.0 ? y + T(1.0) : exp(y);
      sum += y;
    }
    if (features == FeatureMap::elu_plus_one || role == core::Role::key) continue;
    for (std::size_t i = first; i < first + dim; ++i) x.values[i] = x.values[i] / sum;
  }
}

// phi(x)_i = exp((|w_i|^2 - |w_i - x'|^2) / 2) / sqrt(M): the square that w_i . x' - |x'|^2 / 2 is part
// of.
template <class T>
void map_to_random_features(const LinearOptions& options, Tokens<T>& x) {
  using std::exp;
  const std::int64_t count = options.feature_count;
  const std::vector<float> w = favor_weights(count, x.dim, options.seed);
  const double root = std::pow(static_cast<double>(x.dim), -0.25);
  std::vector<T> features;
  for (std::size_t first = 0; first < x.values.size(); first += static_cast<std::size_t>(x.dim)) {
    for (std::int64_t i = 0; i < count; ++i) {
      T exponent = 0.0;
      for (std::int64_t e = 0; e < x.dim; ++e) {
        const T wide = static_cast<double>(w[static_cast<std::size_t>(i * x.dim + e)]);
        const T apart = wide - x.values[first + static_cast<std::size_t>(e)] * T(root);
        exponent += T(0.5) * (wide * wide - apart * apart);
      }
      features.push_back(exp(exponent) / T(std::sqrt(static_cast<double>(count))));
    }
  }
  x.values = std::move(features);
  x.dim = count;
}

template <class T>
class KernelMatrix {
 public:
  KernelMatrix(const std::optional<core::Rotary>& rotary, const ConstHeadsView& q,
               const ConstHeadsView& k, const ConstHeadsView& v, const LinearOptions& options,
               const Direction& direction)
      : options_(options), q_(q, direction), k_(k, direction), v_(v, direction) {
    if (rotary) {
      rotation_.emplace(*rotary);
      const int axes = rotary->frequencies.axis_count();
      const core::Positions from = core::positions_from(k_.tokens - q_.tokens);
      query_ids_ = ids_of(options.query_positions.value_or(from), axes, q_.batch, q_.tokens);
      key_ids_ = ids_of(options.key_positions.value_or(core::positions_from(0)), axes, k_.batch,
                        k_.tokens);
      if (options.rotates == Rotates::inputs) rotate_inputs();
    }
    map(core::Role::query, q_);
    map(core::Role::key, k_);
    find_key_lengths();
    out.assign(static_cast<std::size_t>(q_.batch * q_.tokens * q_.heads * v_.dim), T(0.0));
    for (std::int64_t b = 0; b < q_.batch; ++b) {
      for (std::int64_t m = 0; m < q_.tokens; ++m) {
        for (std::int64_t h = 0; h < q_.heads; ++h) attend(b, m, h);
      }
    }
  }

  std::vector<T> out;
  std::vector<double> magnitude;

 private:
  void map(core::Role role, Tokens<T>& x) {
    options_.features == FeatureMap::favor ? map_to_random_features(options_, x)
                                           : map_features(options_.features, role, x);
  }
  // Then there is nothing left to rotate.
  void rotate_inputs() {
    const auto rotate = [&](core::Role role, const std::vector<std::vector<double>>& ids,
                            Tokens<T>& x) {
      for (std::int64_t t = 0; t < x.batch * x.tokens; ++t) {
        const std::vector<double>& id = ids[static_cast<std::size_t>(t)];
        const Phases phases =
            role == core::Role::query ? rotation_->of_query(id) : rotation_->of_key(id);
        for (std::int64_t h = 0; h < x.heads; ++h)
          rotation_->rotate(phases, role, x.values.data() + (t * x.heads + h) * x.dim);
      }
    };
    rotate(core::Role::query, query_ids_, q_);
    rotate(core::Role::key, key_ids_, k_);
    rotation_.reset();
  }
  [[nodiscard]] bool sees(std::int64_t b, std::int64_t m, std::int64_t n) const {
    if (options_.causality == Causality::bottom_right && n > k_.tokens - q_.tokens + m) {
      return false;
    }
    return options_.key_padding.empty() ||
           options_.key_padding[static_cast<std::size_t>(b * k_.tokens + n)] != 0;
  }
  // (R_m a) . (R_n b) of phi(q_m) or phi(k_n), by ids of either.
  [[nodiscard]] T rotated(const T* a, const std::vector<double>* m, const T* b,
                          const std::vector<double>* n) {
    if (!rotation_) return dot(a, b, q_.dim);
    return rotation_->product(a, Side::raw, b, Side::raw, rotation_->between(*m, *n));
  }
  [[nodiscard]] const std::vector<double>* id(const std::vector<std::vector<double>>& ids,
                                              std::int64_t at) const {
    return rotation_ ? &ids[static_cast<std::size_t>(at)] : nullptr;
  }
  // |R x|: the amplitude and the growth of xPos act on the rotated features only.
  [[nodiscard]] double length(const T* x, core::Role role, const std::vector<double>* id) {
    double largest = 0.0;
    for (std::int64_t i = 0; i < q_.dim; ++i)
      largest = std::max(largest, std::fabs(value_of(x[i])));
    if (largest == 0.0) return 0.0;
    std::vector<double> values;  // exp(500)^2 is no double
    for (std::int64_t i = 0; i < q_.dim; ++i) values.push_back(value_of(x[i]) / largest);
    if (!rotation_) return largest * std::sqrt(dot(values.data(), values.data(), q_.dim));
    Phases squares;
    for (const auto& phase :
         role == core::Role::query ? rotation_->of_query(*id) : rotation_->of_key(*id)) {
      squares.emplace_back(std::norm(phase), 0.0);
    }
    return largest * std::sqrt(rotation_->product(values.data(), Side::raw, values.data(),
                                                  Side::raw, squares));
  }
  // |R_n phi(k_n)| |v_n| of every key.
  void find_key_lengths() {
    for (std::int64_t t = 0; t < k_.batch * k_.tokens; ++t) {
      for (std::int64_t g = 0; g < k_.heads; ++g) {
        const T* const value = v_.row(0, t, g);
        key_lengths_.push_back(length(k_.row(0, t, g), core::Role::key, id(key_ids_, t)) *
                               std::sqrt(value_of(dot(value, value, v_.dim))));
      }
    }
  }

  void attend(std::int64_t b, std::int64_t m, std::int64_t h) {
    const std::int64_t g = h / (q_.heads / k_.heads);
    const T* const query = q_.row(b, m, h);
    const auto* const query_id = id(query_ids_, b * q_.tokens + m);
    T denominator = 0.0;
    std::vector<T> weights(static_cast<std::size_t>(k_.tokens));  // a row of the matrix
    for (std::int64_t n = 0; n < k_.tokens; ++n) {
      if (!sees(b, m, n)) continue;
      const T* const key = k_.row(b, n, g);
      denominator += dot(query, key, q_.dim);
      weights[static_cast<std::size_t>(n)] =
          rotated(query, query_id, key, id(key_ids_, b * k_.tokens + n));
    }
    double& sum = magnitude.emplace_back(0.0);
    if (value_of(denominator) == 0.0) return;
    T* const o = out.data() + ((b * q_.tokens + m) * q_.heads + h) * v_.dim;
    const double query_length = length(query, core::Role::query, query_id);
    for (std::int64_t n = 0; n < k_.tokens; ++n) {
      if (!sees(b, m, n)) continue;
      const T weight = weights[static_cast<std::size_t>(n)] / denominator;
      const T* const value = v_.row(b, n, g);
      for (std::int64_t d = 0; d < v_.dim; ++d) o[d] += weight * value[d];
      sum += query_length *
             key_lengths_[static_cast<std::size_t>((b * k_.tokens + n) * k_.heads + g)] /
             value_of(denominator);
    }
  }

  const LinearOptions& options_;
  Tokens<T> q_, k_, v_;
  std::optional<RelativeRotation> rotation_;
  std::vector<std::vector<double>> query_ids_, key_ids_;
  std::vector<double> key_lengths_;  // [batch, keys, key_heads]
};

}  // namespace

LinearReference linear_attend_reference(const std::optional<core::Rotary>& rotary,
                                        const ConstHeadsView& q, const ConstHeadsView& k,
                                        const ConstHeadsView& v, const LinearOptions& options) {
  KernelMatrix<double> matrix(rotary, q, k, v, options, {});
  const double a = favor_exponent(q, k, options);
  for (double& x : matrix.magnitude) x *= 1.0 + a;
  return {std::move(matrix.out), std::move(matrix.magnitude)};
}

double favor_exponent(const ConstHeadsView& q, const ConstHeadsView& k,
                      const LinearOptions& options) {
  if (options.features != FeatureMap::favor) return 0.0;
  const auto longest = [](const std::vector<double>& values, std::int64_t dim) {
    double most = 0.0;
    for (std::size_t i = 0; i < values.size(); i += static_cast<std::size_t>(dim))
      most = std::max(most, dot(values.data() + i, values.data() + i, dim));
    return std::sqrt(most);
  };
  const std::vector<float> w = favor_weights(options.feature_count, q.head_dim, options.seed);
  const double x = std::max(longest(Tokens<double>(q, {}).values, q.head_dim),
                            longest(Tokens<double>(k, {}).values, q.head_dim)) *
                   std::pow(static_cast<double>(q.head_dim), -0.25);
  return longest({w.begin(), w.end()}, q.head_dim) * x + 0.5 * x * x;
}

double linear_attend_reference_slope(const std::optional<core::Rotary>& rotary,
                                     const ConstHeadsView& q, const ConstHeadsView& k,
                                     const ConstHeadsView& v, const std::vector<double>& d_out,
                                     const LinearOptions& options, const Direction& direction) {
  const std::vector<Dual> out = KernelMatrix<Dual>(rotary, q, k, v, options, direction).out;
  double slope = 0.0;
  for (std::size_t i = 0; i < out.size(); ++i) slope += slope_of(out[i]) * d_out[i];
  return slope;
}

LinearReferenceGradients linear_attend_backward_reference(
    const std::optional<core::Rotary>& rotary, const ConstHeadsView& q, const ConstHeadsView& k,
    const ConstHeadsView& v, const ConstHeadsView& d_out, const LinearOptions& options) {
  const auto view = [](auto& x, const ConstHeadsView& like) {
    return core::heads_view(x.data(), like.batch, like.tokens, like.heads, like.head_dim);
  };
  const Tokens<double> wide_q(q, {}), wide_k(k, {}), wide_v(v, {}), wide_d_out(d_out, {});
  LinearReferenceGradients to{std::vector<double>(wide_q.values.size()),
                              std::vector<double>(wide_k.values.size()),
                              std::vector<double>(wide_v.values.size())};
  linear_attend_backward(rotary, view(wide_q.values, q), view(wide_k.values, k),
                         view(wide_v.values, v), view(wide_d_out.values, d_out), view(to.d_q, q),
                         view(to.d_k, k), view(to.d_v, v), options);
  return to;
}

}  // namespace phasor::attention::tests
