// The gradients of linear.hpp in float64: queries take the forward's sums along, keys the mirrored
// ones from the other end.
#include <algorithm>
#include <vector>

#include "attention/linear/wide_linear.hpp"
#include "attention/softmax/call.hpp"
#include "attention/wide.hpp"
#include "phasor/core/threads.hpp"

namespace phasor::attention {
namespace {

// The memory of one thread.
struct Bench {
  explicit Bench(const LinearCall& call)
      : sums(call.dim, call.value_dim), out(static_cast<std::size_t>(call.value_dim)) {}
  WideSums sums;
  std::vector<double> out;
};

struct WideLinearBackward {
  const LinearCall& call;
  const WideFeatures& features;
  core::ConstHeadsView d_out;
  core::HeadsView d_q, d_k, d_v;
  // What the denominator takes from d phi, which is not turned.
  core::HeadsView below_q, below_k;
  // 1 / denominator and D_m, [batch, heads, queries]; 0 where no key counts.
  std::vector<double> inverses, means;
  std::vector<Bench> benches;

  [[nodiscard]] std::size_t index(std::int64_t b, std::int64_t i, std::int64_t h) const noexcept {
    return static_cast<std::size_t>((b * call.q.heads + h) * call.q.tokens + i);
  }

  // d phi(q_m) = R_m^T sum_n (R_n phi(k_n)) (v_n . g_m) - D_m sum_n phi(k_n), before R_m^T
  void run_queries(std::int64_t b, std::int64_t g, Bench& bench) {
    WideSums& sums = bench.sums;
    for_each_query(call, features, b, g, sums, [&](std::int64_t i) {
      for (std::int64_t h = g * call.group; h < (g + 1) * call.group; ++h) {
        const double denominator = wide_dot(features.query(b, i, h), sums.vectors.data(), call.dim);
        if (denominator == 0.0) continue;
        const double inverse = 1.0 / denominator;
        const double* const d_o = wide_row(d_out, b, i, h);
        sums.times_rows(features.rotated_query(b, i, h), bench.out.data());
        const double mean = wide_dot(bench.out.data(), d_o, call.value_dim) * inverse * inverse;
        inverses[index(b, i, h)] = inverse;
        means[index(b, i, h)] = mean;
        double* const d = wide_row(d_q, b, i, h);
        sums.times_columns(d_o, d);
        for (std::int64_t e = 0; e < call.dim; ++e) d[e] *= inverse;
        wide_add(wide_row(below_q, b, i, h), -mean, sums.vectors.data(), call.dim);
      }
    });
  }

  // sum_m (R_m phi(q_m)) g_m^T and sum_m D_m phi(q_m) take in query i.
  void add_query(std::int64_t b, std::int64_t g, std::int64_t i, Bench& bench) {
    for (std::int64_t h = g * call.group; h < (g + 1) * call.group; ++h) {
      const double inverse = inverses[index(b, i, h)];
      if (inverse == 0.0) continue;
      const double* const d_o = wide_row(d_out, b, i, h);
      for (std::int64_t d = 0; d < call.value_dim; ++d) {
        bench.out[static_cast<std::size_t>(d)] = d_o[d] * inverse;
      }
      bench.sums.add_product(features.rotated_query(b, i, h), bench.out.data());
      wide_add(bench.sums.vectors.data(), means[index(b, i, h)], features.query(b, i, h), call.dim);
    }
  }

  // d phi(k_n) = R_n^T sum_m (R_m phi(q_m)) (g_m . v_n) - sum_m D_m phi(q_m), before R_n^T, and
  // d v_n = sum_m g_m (R_m phi(q_m) . R_n phi(k_n)). A query's denominator is in units of its own
  // e_m >= e_n; sums in units of e_n shrink on the way back.
  void run_keys(std::int64_t b, std::int64_t g, Bench& bench) {
    const std::int64_t keys = call.k.tokens;
    if (keys == 0) return;
    WideSums& sums = bench.sums;
    sums.begin(features.exponent(b, keys - 1, g));
    if (!call.is_causal()) {
      for (std::int64_t i = 0; i < call.q.tokens; ++i) add_query(b, g, i, bench);
    }
    for (std::int64_t n = keys - 1; n >= 0; --n) {
      const double exponent = features.exponent(b, n, g);
      sums.rescale(exponent - sums.exponent, exponent);
      if (call.is_causal() && n >= call.offset) add_query(b, g, n - call.offset, bench);
      if (call.is_padding(b, n)) continue;
      sums.times_columns(wide_row(call.v, b, n, g), wide_row(d_k, b, n, g));
      sums.times_rows(features.rotated_key(b, n, g), wide_row(d_v, b, n, g));
      wide_add(wide_row(below_k, b, n, g), -1.0, sums.vectors.data(), call.dim);
    }
  }
};

void run_wide_linear_backward_part(void* context, int part, int parts) {
  WideLinearBackward& backward = *static_cast<WideLinearBackward*>(context);
  Bench& bench = backward.benches[static_cast<std::size_t>(part)];
  const std::int64_t heads = backward.call.k.heads, units = backward.call.k.batch * heads;
  for (std::int64_t unit = part; unit < units; unit += parts) {
    backward.run_queries(unit / heads, unit % heads, bench);
    backward.run_keys(unit / heads, unit % heads, bench);
  }
}

// d x from d phi(x), phi(x) at hand: elu's slope is 1 where phi > 1 and phi below; exp is its own.
// So is a query's softmax here, p (d - p . d): (19) does not change with the length of phi(q), and
// p . d = 0.
void unmap(const double* phi, bool is_exp, std::int64_t dim, double* d) {
  for (std::int64_t i = 0; i < dim; ++i) d[i] *= is_exp ? phi[i] : std::min(phi[i], 1.0);
}

}  // namespace

void linear_attend_backward_wide(const std::optional<core::Rotary>& rotary, const LinearCall& call,
                                 const core::ConstHeadsView& d_out, const core::HeadsView& d_q,
                                 const core::HeadsView& d_k, const core::HeadsView& d_v) {
  clear_view(d_q);
  clear_view(d_k);
  clear_view(d_v);
  const WideFeatures features(rotary, call);
  const WideHeads below_q(call.q), below_k(call.k);
  const auto rows = static_cast<std::size_t>(call.q.batch * call.q.heads * call.q.tokens);
  const int threads = linear_threads(call, call.k.batch * call.k.heads);
  WideLinearBackward backward{call,
                              features,
                              d_out,
                              d_q,
                              d_k,
                              d_v,
                              below_q.view(),
                              below_k.view(),
                              std::vector<double>(rows),
                              std::vector<double>(rows),
                              std::vector(static_cast<std::size_t>(threads), Bench(call))};
  core::run_parts(threads, run_wide_linear_backward_part, &backward);
  if (rotary) {
    rotate_wide(*rotary, call, core::Role::query, core::Direction::transpose, d_q);
    rotate_wide(*rotary, call, core::Role::key, core::Direction::transpose, d_k);
  }
  below_q.for_each_row([&](std::int64_t b, std::int64_t t, std::int64_t h, const double* below) {
    double* const d = wide_row(d_q, b, t, h);
    wide_add(d, 1.0, below, call.dim);
    unmap(features.query(b, t, h), call.is_exp(), call.dim, d);
  });
  below_k.for_each_row([&](std::int64_t b, std::int64_t t, std::int64_t g, const double* below) {
    double* const d = wide_row(d_k, b, t, g);
    wide_add(d, 1.0, below, call.dim);
    unmap(features.key(b, t, g), call.is_exp(), call.dim, d);
  });
}

}  // namespace phasor::attention
