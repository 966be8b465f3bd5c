// Linear attention in float64: features, the running sums of (19), and the passes over them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "attention/linear/linear_call.hpp"
#include "attention/wide_arithmetic.hpp"
#include "phasor/core/cancellation.hpp"

namespace phasor::attention {

// phi(q), phi(k), and both rotated. Keys of FeatureMap::softmax_exp are kept as exp(k_n - e_n), e_n
// being the largest feature of keys 0 to n, and those of favor alike: it cancels in (19), no key overflows, and no query
// depends on keys that it does not see. Padding is zero.
class WideFeatures {
 public:
  explicit WideFeatures(const LinearCall& call);
  // Computes the features of the call's present views. Allocates nothing.
  void load(const std::optional<core::Rotary>& rotary, const LinearCall& call);
  [[nodiscard]] std::size_t bytes() const noexcept;

  [[nodiscard]] const double* query(std::int64_t b, std::int64_t t, std::int64_t h) const noexcept {
    return wide_row(q_.view(), b, t, h);
  }
  [[nodiscard]] const double* key(std::int64_t b, std::int64_t t, std::int64_t g) const noexcept {
    return wide_row(k_.view(), b, t, g);
  }
  [[nodiscard]] const double* rotated_query(std::int64_t b, std::int64_t t,
                                            std::int64_t h) const noexcept {
    return wide_row(rotates_ ? rotated_q_.view() : q_.view(), b, t, h);
  }
  [[nodiscard]] const double* rotated_key(std::int64_t b, std::int64_t t,
                                          std::int64_t g) const noexcept {
    return wide_row(rotates_ ? rotated_k_.view() : k_.view(), b, t, g);
  }
  // favor: k, or R k.
  [[nodiscard]] const double* input_key(std::int64_t b, std::int64_t t,
                                        std::int64_t g) const noexcept {
    return wide_row(inputs_k_.view(), b, t, g);
  }
  // e_n; 0 for FeatureMap::elu_plus_one.
  [[nodiscard]] double exponent(std::int64_t b, std::int64_t n, std::int64_t g) const noexcept {
    return exponents_[static_cast<std::size_t>((b * k_.view().heads + g) * k_.view().tokens + n)];
  }

 private:
  void map_keys(const LinearCall& call, std::int64_t b, std::int64_t g);

  WideHeads q_, k_, rotated_q_, rotated_k_;
  WideHeads inputs_q_, inputs_k_;  // favor only
  std::vector<double> exponents_;
  bool rotates_;
};

// A view of the call's phi, without data.
[[nodiscard]] inline core::ConstHeadsView features_like(core::ConstHeadsView x,
                                                        const LinearCall& call) noexcept {
  x.head_dim = call.dim;
  return x;
}

// Rotates phi or inputs, or gradients of them, in place at the call's positions.
void rotate_wide(const core::Rotary& rotary, const LinearCall& call, core::Role role,
                 core::Direction direction, const core::HeadsView& x);

// sum a b^T [rows, columns] and sum c [rows] of one key head.
struct WideSums {
  WideSums(std::int64_t rows, std::int64_t columns)
      : rows(rows),
        columns(columns),
        products(static_cast<std::size_t>(rows * columns)),
        vectors(static_cast<std::size_t>(rows)) {}
  std::int64_t rows, columns;
  std::vector<double> products, vectors;
  double exponent = 0.0;

  void begin(double at) noexcept {
    std::fill(products.begin(), products.end(), 0.0);
    std::fill(vectors.begin(), vectors.end(), 0.0);
    exponent = at;
  }
  // Multiplies by e^change and sets the exponent.
  void rescale(double change, double to) noexcept {
    if (exponent == to) return;  // infinities too
    exponent = to;
    const double factor = std::exp(change);
    for (double& x : products) x *= factor;
    for (double& x : vectors) x *= factor;
  }
  void add_product(const double* a, const double* b) noexcept {
    for (std::int64_t i = 0; i < rows; ++i) {
      wide_add(products.data() + i * columns, a[i], b, columns);
    }
  }
  // out [columns] = products^T a;  out [rows] = products b
  void times_rows(const double* a, double* out) const noexcept {
    std::fill_n(out, columns, 0.0);
    for (std::int64_t i = 0; i < rows; ++i) {
      wide_add(out, a[i], products.data() + i * columns, columns);
    }
  }
  void times_columns(const double* b, double* out) const noexcept {
    for (std::int64_t i = 0; i < rows; ++i) {
      out[i] = wide_dot(products.data() + i * columns, b, columns);
    }
  }
};

// Adds the keys of key head g of batch row b to sum (R phi(k)) v^T and sum phi(k), and calls act(i)
// for each query when the sums hold the keys that it sees; not for queries before the first key.
template <class Act>
void for_each_query(const LinearCall& call, const WideFeatures& features, std::int64_t b,
                    std::int64_t g, WideSums& sums, const Act& act) {
  sums.begin(-std::numeric_limits<double>::infinity());
  for (std::int64_t n = 0; n < call.k.tokens; ++n) {
    core::throw_if_cancelled();
    if (!call.is_padding(b, n)) {
      const double exponent = features.exponent(b, n, g);
      sums.rescale(sums.exponent - exponent, exponent);
      sums.add_product(features.rotated_key(b, n, g), wide_row(call.v, b, n, g));
      wide_add(sums.vectors.data(), 1.0, features.key(b, n, g), call.dim);
    }
    if (call.is_causal() && n >= call.offset) act(n - call.offset);
  }
  if (call.is_causal()) return;
  for (std::int64_t i = 0; i < call.q.tokens; ++i) {
    core::throw_if_cancelled();
    act(i);
  }
}

// The memory of one thread.
struct WideLinearThread {
  explicit WideLinearThread(const LinearCall& call)
      : sums(call.dim, call.value_dim), out(static_cast<std::size_t>(call.value_dim)) {}
  WideSums sums;
  std::vector<double> out;
};

enum class WidePasses : std::uint8_t { forward, both };

// What a plan owns for f64 views.
struct WideLinearMemory {
  WideLinearMemory(const LinearCall& call, WidePasses passes);
  [[nodiscard]] std::size_t bytes() const noexcept;

  WideFeatures features;
  std::vector<WideLinearThread> threads;
  // Backward: the denominator's part of d phi, which is not rotated, and 1 / denominator and D_m,
  // [batch, heads, queries], 0 if no key counts.
  WideHeads below_q, below_k;
  WideHeads d_phi_q, d_phi_k;  // favor only: d_q and d_k are as wide as phi otherwise
  std::vector<double> inverses, means;
};

// precondition  the call has checked views and is not empty; outputs are checked
void run_wide_linear_forward(const std::optional<core::Rotary>& rotary, const LinearCall& call,
                             WideLinearMemory& memory, const core::HeadsView& out);
void run_wide_linear_backward(const std::optional<core::Rotary>& rotary, const LinearCall& call,
                              WideLinearMemory& memory, const core::ConstHeadsView& d_out,
                              const core::HeadsView& d_q, const core::HeadsView& d_k,
                              const core::HeadsView& d_v);

}  // namespace phasor::attention
