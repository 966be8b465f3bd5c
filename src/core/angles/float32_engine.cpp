#include "core/angles/float32_engine.hpp"

#include <cmath>

namespace phasor::core {

void float32_row(const Frequencies& frequencies, const double* positions, float* cos,
                 float* sin) noexcept {
  const auto axes = frequencies.axes();
  const auto amplitude = static_cast<float>(frequencies.amplitude());
  const auto values = frequencies.float32_values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto position = static_cast<float>(positions[axes.empty() ? 0 : axes[i]]);
    const float angle = position * values[i];
    // In double and rounded: the float32 functions of the engines are within one unit of this.
    cos[i] = static_cast<float>(std::cos(static_cast<double>(angle))) * amplitude;
    sin[i] = static_cast<float>(std::sin(static_cast<double>(angle))) * amplitude;
  }
}

namespace {

struct StorageF64 {
  using Element = double;
  using Number = double;
  static double read(double value) { return value; }
  static double round(double value) { return value; }
  static double write(double value) { return value; }
};
struct StorageF32 {
  using Element = float;
  using Number = float;
  static float read(float value) { return value; }
  static float round(float value) { return value; }
  static float write(float value) { return value; }
};
struct StorageF16 {
  using Element = Half;
  using Number = float;
  static float read(Half value) { return to_float(value); }
  static float round(float value) { return to_float(to_half(value)); }
  static Half write(float value) { return to_half(value); }
};
struct StorageBf16 {
  using Element = BFloat16;
  using Number = float;
  static float read(BFloat16 value) { return to_float(value); }
  static float round(float value) { return to_float(to_bfloat16(value)); }
  static BFloat16 write(float value) { return to_bfloat16(value); }
};

template <class Storage>
void rotate(PairLayout layout, const kernels::Heads& heads, std::int64_t pairs, const float* cos,
            const float* sin) noexcept {
  using Number = typename Storage::Number;
  const auto* in = static_cast<const typename Storage::Element*>(heads.in);
  auto* out = static_cast<typename Storage::Element*>(heads.out);
  const bool half = layout == PairLayout::half;
  const auto product = [half](Number x, Number y) { return half ? Storage::round(x * y) : x * y; };
  for (std::int64_t head = 0; head < heads.heads; ++head) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      const std::int64_t at_a = half ? i : 2 * i;
      const std::int64_t at_b = half ? i + pairs : 2 * i + 1;
      const Number a = Storage::read(in[at_a]), b = Storage::read(in[at_b]);
      const Number c = Storage::round(cos[i]), s = Storage::round(sin[i]);
      out[at_a] = Storage::write(product(a, c) - product(b, s));  // (34)
      out[at_b] = Storage::write(product(b, c) + product(a, s));
    }
    in += heads.in_stride;
    out += heads.out_stride;
  }
}

}  // namespace

void float32_rotate(DType dtype, PairLayout layout, const kernels::Heads& heads, std::int64_t pairs,
                    const float* cos, const float* sin) noexcept {
  switch (dtype) {
    case DType::f64:
      return rotate<StorageF64>(layout, heads, pairs, cos, sin);
    case DType::f32:
      return rotate<StorageF32>(layout, heads, pairs, cos, sin);
    case DType::f16:
      return rotate<StorageF16>(layout, heads, pairs, cos, sin);
    case DType::bf16:
      return rotate<StorageBf16>(layout, heads, pairs, cos, sin);
  }
}

}  // namespace phasor::core
