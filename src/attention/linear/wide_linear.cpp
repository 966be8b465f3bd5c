#include "attention/linear/wide_linear.hpp"

#include "attention/softmax/call.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/cpu.hpp"

namespace phasor::attention {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

// w_i . x' - |x'|^2 / 2
void project(const RandomFeatures& random, const WideHeads& inputs, const WideHeads& features) {
  inputs.for_each_row([&](std::int64_t b, std::int64_t t, std::int64_t h, const double* x) {
    const double half = 0.5 * random.scale * wide_dot(x, x, random.head_dim);
    double* const row = wide_row(features.view(), b, t, h);
    for (std::int64_t i = 0; i < random.count; ++i) {
      row[i] = wide_dot(random.row(i), x, random.head_dim) - half;
    }
  });
}

void map_query(const LinearCall& call, double* row) {
  const std::int64_t dim = call.dim;
  if (!call.is_exp()) {
    for (std::int64_t i = 0; i < dim; ++i) row[i] = row[i] > 0.0 ? row[i] + 1.0 : std::exp(row[i]);
    return;
  }
  double largest = kNone, sum = 0.0;
  for (std::int64_t i = 0; i < dim; ++i) largest = std::max(largest, row[i]);
  for (std::int64_t i = 0; i < dim; ++i) sum += row[i] = std::exp(row[i] - largest);
  for (std::int64_t i = 0; i < dim; ++i) row[i] /= sum;
}

struct WideLinearForward {
  const LinearCall& call;
  const WideFeatures& features;
  core::HeadsView out;
  std::vector<WideLinearThread>& threads;

  void run_key_head(std::int64_t b, std::int64_t g, WideSums& state) const {
    for_each_query(call, features, b, g, state, [&](std::int64_t i) {
      for (std::int64_t h = g * call.group; h < (g + 1) * call.group; ++h) {
        const double denominator =
            wide_dot(features.query(b, i, h), state.vectors.data(), call.dim);
        if (denominator == 0.0) continue;  // no key counts
        double* const o = wide_row(out, b, i, h);
        state.times_rows(features.rotated_query(b, i, h), o);
        for (std::int64_t d = 0; d < call.value_dim; ++d) o[d] /= denominator;
      }
    });
  }
};

void run_wide_linear_part(void* context, int part, int parts) {
  WideLinearForward& forward = *static_cast<WideLinearForward*>(context);
  const std::int64_t heads = forward.call.k.heads, units = forward.call.k.batch * heads;
  for (std::int64_t unit = part; unit < units; unit += parts) {
    forward.run_key_head(unit / heads, unit % heads,
                         forward.threads[static_cast<std::size_t>(part)].sums);
  }
}

}  // namespace

WideFeatures::WideFeatures(const LinearCall& call)
    : q_(features_like(call.q, call)),
      k_(features_like(call.k, call)),
      exponents_(static_cast<std::size_t>(call.k.batch * call.k.heads * call.k.tokens)),
      rotates_(call.rotates(Rotates::features)) {
  if (call.is_favor()) {
    inputs_q_ = WideHeads(call.q);
    inputs_k_ = WideHeads(call.k);
  }
  if (!rotates_) return;
  rotated_q_ = WideHeads(features_like(call.q, call));
  rotated_k_ = WideHeads(features_like(call.k, call));
}

std::size_t WideFeatures::bytes() const noexcept {
  return q_.bytes() + k_.bytes() + rotated_q_.bytes() + rotated_k_.bytes() + inputs_q_.bytes() +
         inputs_k_.bytes() + exponents_.size() * sizeof(double);
}

void WideFeatures::load(const std::optional<core::Rotary>& rotary, const LinearCall& call) {
  WideHeads& inputs_q = call.is_favor() ? inputs_q_ : q_;
  WideHeads& inputs_k = call.is_favor() ? inputs_k_ : k_;
  inputs_q.assign(call.q);
  inputs_k.assign(call.k);
  if (call.rotates(Rotates::inputs)) {
    rotate_wide(*rotary, call, core::Role::query, core::Direction::forward, inputs_q.view());
    rotate_wide(*rotary, call, core::Role::key, core::Direction::forward, inputs_k.view());
  }
  if (call.is_favor()) {
    project(*call.random, inputs_q_, q_);
    project(*call.random, inputs_k_, k_);
  }
  q_.for_each_row(
      [&](std::int64_t, std::int64_t, std::int64_t, double* row) { map_query(call, row); });
  for (std::int64_t b = 0; b < call.k.batch; ++b) {
    for (std::int64_t g = 0; g < call.k.heads; ++g) map_keys(call, b, g);
  }
  if (!rotates_) return;
  rotated_q_.assign(q_.view());
  rotated_k_.assign(k_.view());
  rotate_wide(*rotary, call, core::Role::query, core::Direction::forward, rotated_q_.view());
  rotate_wide(*rotary, call, core::Role::key, core::Direction::forward, rotated_k_.view());
}

void WideFeatures::map_keys(const LinearCall& call, std::int64_t b, std::int64_t g) {
  const std::int64_t tokens = call.k.tokens;
  double* const exponents = exponents_.data() + (b * call.k.heads + g) * tokens;
  double largest = call.is_exp() ? kNone : 0.0;
  for (std::int64_t n = 0; n < tokens; ++n) {
    if (call.is_exp() && !call.is_padding(b, n)) {
      const double* const row = wide_row(k_.view(), b, n, g);
      for (std::int64_t i = 0; i < call.dim; ++i) largest = std::max(largest, row[i]);
    }
    exponents[n] = largest;
  }
  for (std::int64_t n = 0; n < tokens; ++n) {
    core::throw_if_cancelled();
    double* const row = wide_row(k_.view(), b, n, g);
    const double exponent = exponents[n] == kNone ? 0.0 : exponents[n];
    for (std::int64_t i = 0; i < call.dim; ++i) {
      row[i] = call.is_padding(b, n)            ? 0.0
               : !call.is_exp() && row[i] > 0.0 ? row[i] + 1.0
                                                : std::exp(row[i] - exponent);
    }
  }
}

void rotate_wide(const core::Rotary& rotary, const LinearCall& call, core::Role role,
                 core::Direction direction, const core::HeadsView& x) {
  if (x.batch * x.tokens == 0) return;
  const core::Rotation in_place{x, x, role};
  core::rotate(rotary, role == core::Role::query ? call.query_positions : call.key_positions,
               {&in_place, 1},
               {.direction = direction,
                .angles = core::AngleMode::exact,
                .table = nullptr,
                .threads = call.options.threads,
                .isa = call.options.isa});
}

WideLinearMemory::WideLinearMemory(const LinearCall& call, WidePasses passes)
    : features(call),
      threads(static_cast<std::size_t>(linear_threads(call, call.k.batch * call.k.heads)),
              WideLinearThread(call)) {
  if (passes == WidePasses::forward) return;
  below_q = WideHeads(features_like(call.q, call));
  below_k = WideHeads(features_like(call.k, call));
  if (call.is_favor()) {
    d_phi_q = WideHeads(features_like(call.q, call));
    d_phi_k = WideHeads(features_like(call.k, call));
  }
  inverses.resize(static_cast<std::size_t>(call.q.batch * call.q.heads * call.q.tokens));
  means.resize(inverses.size());
}

std::size_t WideLinearMemory::bytes() const noexcept {
  std::size_t doubles = inverses.size() + means.size();
  for (const WideLinearThread& thread : threads) {
    doubles += thread.sums.products.size() + thread.sums.vectors.size() + thread.out.size();
  }
  return features.bytes() + below_q.bytes() + below_k.bytes() + d_phi_q.bytes() + d_phi_k.bytes() +
         doubles * sizeof(double);
}

void run_wide_linear_forward(const std::optional<core::Rotary>& rotary, const LinearCall& call,
                             WideLinearMemory& memory, const core::HeadsView& out) {
  clear_view(out);
  memory.features.load(rotary, call);
  WideLinearForward forward{call, memory.features, out, memory.threads};
  core::run_parts(static_cast<int>(memory.threads.size()), run_wide_linear_part, &forward);
}

}  // namespace phasor::attention
