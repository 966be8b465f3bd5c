// The gradients of linear.hpp in float64: queries use the sums of the forward pass, keys the mirrored
// sums from the last token backward.
#include <algorithm>

#include "attention/linear/wide_linear.hpp"
#include "attention/softmax/call.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/cpu.hpp"

namespace phasor::attention {
namespace {

struct WideLinearBackward {
  const LinearCall& call;
  const WideFeatures& features;
  core::ConstHeadsView d_out;
  core::HeadsView d_q, d_k, d_v;  // of phi(q), phi(k) and v
  core::HeadsView below_q, below_k;
  std::vector<double>&inverses, &means;
  std::vector<WideLinearThread>& threads;

  [[nodiscard]] std::size_t index(std::int64_t b, std::int64_t i, std::int64_t h) const noexcept {
    return static_cast<std::size_t>((b * call.q.heads + h) * call.q.tokens + i);
  }

  // d phi(q_m) = R_m^T sum_n (R_n phi(k_n)) (v_n . g_m) - D_m sum_n phi(k_n), before R_m^T
  void run_queries(std::int64_t b, std::int64_t g, WideLinearThread& thread) {
    WideSums& sums = thread.sums;
    for_each_query(call, features, b, g, sums, [&](std::int64_t i) {
      for (std::int64_t h = g * call.group; h < (g + 1) * call.group; ++h) {
        const double denominator = wide_dot(features.query(b, i, h), sums.vectors.data(), call.dim);
        if (denominator == 0.0) continue;
        const double inverse = 1.0 / denominator;
        const double* const d_o = wide_row(d_out, b, i, h);
        sums.times_rows(features.rotated_query(b, i, h), thread.out.data());
        const double mean = wide_dot(thread.out.data(), d_o, call.value_dim) * inverse * inverse;
        inverses[index(b, i, h)] = inverse;
        means[index(b, i, h)] = mean;
        double* const d = wide_row(d_q, b, i, h);
        sums.times_columns(d_o, d);
        for (std::int64_t e = 0; e < call.dim; ++e) d[e] *= inverse;
        wide_add(wide_row(below_q, b, i, h), -mean, sums.vectors.data(), call.dim);
      }
    });
  }

  // Adds query i to sum_m (R_m phi(q_m)) g_m^T and sum_m D_m phi(q_m).
  void add_query(std::int64_t b, std::int64_t g, std::int64_t i, WideLinearThread& thread) {
    for (std::int64_t h = g * call.group; h < (g + 1) * call.group; ++h) {
      const double inverse = inverses[index(b, i, h)];
      if (inverse == 0.0) continue;
      const double* const d_o = wide_row(d_out, b, i, h);
      for (std::int64_t d = 0; d < call.value_dim; ++d) {
        thread.out[static_cast<std::size_t>(d)] = d_o[d] * inverse;
      }
      thread.sums.add_product(features.rotated_query(b, i, h), thread.out.data());
      wide_add(thread.sums.vectors.data(), means[index(b, i, h)], features.query(b, i, h),
               call.dim);
    }
  }

  // d phi(k_n) = R_n^T sum_m (R_m phi(q_m)) (g_m . v_n) - sum_m D_m phi(q_m), before R_n^T, and
  // d v_n = sum_m g_m (R_m phi(q_m) . R_n phi(k_n)). A query's denominator is in units of its own
  // e_m >= e_n; sums in units of e_n shrink as n falls.
  void run_keys(std::int64_t b, std::int64_t g, WideLinearThread& thread) {
    const std::int64_t keys = call.k.tokens;
    if (keys == 0) return;
    WideSums& sums = thread.sums;
    sums.begin(features.exponent(b, keys - 1, g));
    if (!call.is_causal()) {
      for (std::int64_t i = 0; i < call.q.tokens; ++i) {
        core::throw_if_cancelled();
        add_query(b, g, i, thread);
      }
    }
    for (std::int64_t n = keys - 1; n >= 0; --n) {
      core::throw_if_cancelled();
      const double exponent = features.exponent(b, n, g);
      sums.rescale(exponent - sums.exponent, exponent);
      if (call.is_causal() && n >= call.offset) add_query(b, g, n - call.offset, thread);
      if (call.is_padding(b, n)) continue;
      sums.times_columns(wide_row(call.v, b, n, g), wide_row(d_k, b, n, g));
      sums.times_rows(features.rotated_key(b, n, g), wide_row(d_v, b, n, g));
      wide_add(wide_row(below_k, b, n, g), -1.0, sums.vectors.data(), call.dim);
    }
  }
};

void run_wide_linear_backward_part(void* context, int part, int parts) {
  WideLinearBackward& backward = *static_cast<WideLinearBackward*>(context);
  WideLinearThread& thread = backward.threads[static_cast<std::size_t>(part)];
  const std::int64_t heads = backward.call.k.heads, units = backward.call.k.batch * heads;
  for (std::int64_t unit = part; unit < units; unit += parts) {
    backward.run_queries(unit / heads, unit % heads, thread);
    backward.run_keys(unit / heads, unit % heads, thread);
  }
}

// d x from phi(x) and d phi(x). The slope of elu is 1 if phi > 1, otherwise phi; that of exp is phi.
// So is that of a query's softmax, p (d - p . d): (19) does not depend on the length of phi(q), hence
// p . d = 0.
void unmap(const double* phi, bool is_exp, std::int64_t dim, double* d) {
  for (std::int64_t i = 0; i < dim; ++i) d[i] *= is_exp ? phi[i] : std::min(phi[i], 1.0);
}

// d x' = sum_i d phi_i phi_i (w_i - x'); without x' for a query, as p . d = 0.
void unproject(const RandomFeatures& random, const double* g, const double* input, double* d) {
  double sum = 0.0;
  std::fill_n(d, random.head_dim, 0.0);
  for (std::int64_t i = 0; i < random.count; ++i) {
    wide_add(d, g[i], random.row(i), random.head_dim);
    sum += g[i];
  }
  if (input != nullptr) wide_add(d, -random.scale * sum, input, random.head_dim);
}

}  // namespace

void run_wide_linear_backward(const std::optional<core::Rotary>& rotary, const LinearCall& call,
                              WideLinearMemory& memory, const core::ConstHeadsView& d_out,
                              const core::HeadsView& d_q, const core::HeadsView& d_k,
                              const core::HeadsView& d_v) {
  const core::HeadsView& d_phi_q = call.is_favor() ? memory.d_phi_q.view() : d_q;
  const core::HeadsView& d_phi_k = call.is_favor() ? memory.d_phi_k.view() : d_k;
  clear_view(d_phi_q);
  clear_view(d_phi_k);
  clear_view(d_v);
  memory.below_q.clear();
  memory.below_k.clear();
  std::fill(memory.inverses.begin(), memory.inverses.end(), 0.0);
  memory.features.load(rotary, call);
  const WideFeatures& features = memory.features;
  WideLinearBackward backward{call,
                              features,
                              d_out,
                              d_phi_q,
                              d_phi_k,
                              d_v,
                              memory.below_q.view(),
                              memory.below_k.view(),
                              memory.inverses,
                              memory.means,
                              memory.threads};
  core::run_parts(static_cast<int>(memory.threads.size()), run_wide_linear_backward_part,
                  &backward);
  const auto rotate_back = [&](Rotates what, const core::HeadsView& q, const core::HeadsView& k) {
    if (!call.rotates(what)) return;
    rotate_wide(*rotary, call, core::Role::query, core::Direction::transpose, q);
    rotate_wide(*rotary, call, core::Role::key, core::Direction::transpose, k);
  };
  rotate_back(Rotates::features, d_phi_q, d_phi_k);
  memory.below_q.for_each_row(
      [&](std::int64_t b, std::int64_t t, std::int64_t h, const double* below) {
        double* const d = wide_row(d_phi_q, b, t, h);
        wide_add(d, 1.0, below, call.dim);
        unmap(features.query(b, t, h), call.is_exp(), call.dim, d);
        if (call.is_favor()) unproject(*call.random, d, nullptr, wide_row(d_q, b, t, h));
      });
  memory.below_k.for_each_row(
      [&](std::int64_t b, std::int64_t t, std::int64_t g, const double* below) {
        double* const d = wide_row(d_phi_k, b, t, g);
        wide_add(d, 1.0, below, call.dim);
        unmap(features.key(b, t, g), call.is_exp(), call.dim, d);
        if (call.is_favor()) {
          unproject(*call.random, d, features.input_key(b, t, g), wide_row(d_k, b, t, g));
        }
      });
  rotate_back(Rotates::inputs, d_q, d_k);
}

}  // namespace phasor::attention
