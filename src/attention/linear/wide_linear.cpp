#include "attention/linear/wide_linear.hpp"

#include "attention/softmax/call.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/cpu.hpp"

namespace phasor::attention {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

void map_query(FeatureMap features, double* row, std::int64_t dim) {
  if (features == FeatureMap::elu_plus_one) {
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

WideFeatures::WideFeatures(const LinearCall& call, bool rotates)
    : q_(call.q),
      k_(call.k),
      exponents_(static_cast<std::size_t>(call.k.batch * call.k.heads * call.k.tokens)),
      rotates_(rotates) {
  if (!rotates_) return;
  rotated_q_ = WideHeads(call.q);
  rotated_k_ = WideHeads(call.k);
}

std::size_t WideFeatures::bytes() const noexcept {
  return q_.bytes() + k_.bytes() + rotated_q_.bytes() + rotated_k_.bytes() +
         exponents_.size() * sizeof(double);
}

void WideFeatures::load(const std::optional<core::Rotary>& rotary, const LinearCall& call) {
  q_.assign(call.q);
  k_.assign(call.k);
  q_.for_each_row([&](std::int64_t, std::int64_t, std::int64_t, double* row) {
    map_query(call.options.features, row, call.dim);
  });
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

WideLinearMemory::WideLinearMemory(const LinearCall& call, bool rotates, WidePasses passes)
    : features(call, rotates),
      threads(static_cast<std::size_t>(linear_threads(call, call.k.batch * call.k.heads)),
              WideLinearThread(call)) {
  if (passes == WidePasses::forward) return;
  below_q = WideHeads(call.q);
  below_k = WideHeads(call.k);
  inverses.resize(static_cast<std::size_t>(call.q.batch * call.q.heads * call.q.tokens));
  means.resize(inverses.size());
}

std::size_t WideLinearMemory::bytes() const noexcept {
  std::size_t doubles = inverses.size() + means.size();
  for (const WideLinearThread& thread : threads) {
    doubles += thread.sums.products.size() + thread.sums.vectors.size() + thread.out.size();
  }
  return features.bytes() + below_q.bytes() + below_k.bytes() + doubles * sizeof(double);
}

void run_wide_linear_forward(const std::optional<core::Rotary>& rotary, const LinearCall& call,
                             WideLinearMemory& memory, const core::HeadsView& out) {
  clear_view(out);
  memory.features.load(rotary, call);
  WideLinearForward forward{call, memory.features, out, memory.threads};
  core::run_parts(static_cast<int>(memory.threads.size()), run_wide_linear_part, &forward);
}

}  // namespace phasor::attention
