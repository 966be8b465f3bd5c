#include "core/angles/float32_engine.hpp"

#include <cmath>

#include "phasor/core/internal/stored.hpp"

namespace phasor::core {

namespace {

template <class Element>
[[nodiscard]] float rounded_to(float value) noexcept {
  return widened(stored<Element>(value));
}

[[nodiscard]] float rounded_angle(float position, float frequency, AngleMode mode) noexcept {
  switch (mode) {
    case AngleMode::bfloat16_frequencies:
      return position * rounded_to<BFloat16>(frequency);
    case AngleMode::bfloat16:
      return rounded_to<BFloat16>(position * frequency);
    case AngleMode::float16:
      return rounded_to<Half>(position * frequency);
    case AngleMode::exact:
    case AngleMode::float32:
      break;
  }
  return position * frequency;
}

}  // namespace

void float32_row(const Frequencies& frequencies, const double* positions, AngleMode mode,
                 float* cos, float* sin) noexcept {
  const auto axes = frequencies.axes();
  const auto amplitude = static_cast<float>(frequencies.amplitude());
  const auto values = frequencies.float32_values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto position = static_cast<float>(positions[axes.empty() ? 0 : axes[i]]);
    const float angle = rounded_angle(position, values[i], mode);
    // In double and rounded: the float32 functions of the engines are within one unit of this.
    cos[i] = static_cast<float>(std::cos(static_cast<double>(angle))) * amplitude;
    sin[i] = static_cast<float>(std::sin(static_cast<double>(angle))) * amplitude;
  }
}

namespace {

template <class Element>
void rotate(PairLayout layout, const kernels::Heads& heads, std::int64_t pairs, const float* cos,
            const float* sin) noexcept {
  using Number = decltype(widened(Element{}));
  const auto* in = static_cast<const Element*>(heads.in);
  auto* out = static_cast<Element*>(heads.out);
  const auto round = [](Number x) { return widened(stored<Element>(x)); };
  const bool half = layout == PairLayout::half;
  const auto product = [&](Number x, Number y) { return half ? round(x * y) : x * y; };
  for (std::int64_t head = 0; head < heads.heads; ++head) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      const std::int64_t at_a = half ? i : 2 * i;
      const std::int64_t at_b = half ? i + pairs : 2 * i + 1;
      const Number a = widened(in[at_a]), b = widened(in[at_b]);
      const Number c = round(cos[i]), s = round(sin[i]);
      out[at_a] = stored<Element>(product(a, c) - product(b, s));  // (34)
      out[at_b] = stored<Element>(product(b, c) + product(a, s));
    }
    in += heads.in_stride;
    out += heads.out_stride;
  }
}

}  // namespace

void float32_rotate(DType dtype, PairLayout layout, const kernels::Heads& heads, std::int64_t pairs,
                    const float* cos, const float* sin) noexcept {
  with_element(dtype,
               [&](auto element) { rotate<decltype(element)>(layout, heads, pairs, cos, sin); });
}

}  // namespace phasor::core
