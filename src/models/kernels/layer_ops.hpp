// The operations between the products: norms, activations, sums.
#pragma once

#include "models/kernels/dot.hpp"
#include "models/kernels/kernels.hpp"
#include "phasor/attention/internal/kernels/exponential.hpp"

namespace {

// e^x for x <= 0; 0 below -87, NaN stays NaN. ln 2 is subtracted in two parts, so that a large |x|
// costs no digits; the polynomial of degree 6 on [-ln 2 / 2, ln 2 / 2] is off by 3e-9.
inline Float exp_of(Float x) {
  const Float magic = splat(0x1.8p23F);
  const Float shifted = mul_add(x, splat(1.44269504F), magic);
  const Float whole = shifted - magic;
  Float rest = mul_add(whole, splat(-0x1.62e4p-1F), x);  // 17 bits: exact without FMA too
  rest = mul_add(whole, splat(-1.42860682e-6F), rest);
  Float p = splat(0.00139411084F);
  p = mul_add(p, rest, splat(0.0083751264F));
  p = mul_add(p, rest, splat(0.0416663529F));
  p = mul_add(p, rest, splat(0.166664155F));
  p = mul_add(p, rest, splat(0.500000005F));
  p = mul_add(p, rest, splat(1.00000004F));
  p = mul_add(p, rest, splat(1.0F));
  const Bits exponent = (reinterpret_cast<Bits>(shifted) + 127U) << 23;
  const Float scaled = p * reinterpret_cast<Float>(exponent);
  return x < splat(-87.0F) ? Float{} : scaled;
}

inline Float absolute(Float x) {
  return reinterpret_cast<Float>(reinterpret_cast<Bits>(x) & 0x7fffffffU);
}

// x / (1 + e^-y), as x e^y / (1 + e^y) for y < 0: no exponential above 1.
inline Float times_sigmoid(Float x, Float y) {
  const Float power = exp_of(-absolute(y));
  const Float above = splat(1.0F) / (splat(1.0F) + power);
  return x * (y < Float{} ? power * above : above);
}

// A function and its derivative at one place.
struct Slope {
  Float value, slope;
};

struct Silu {
  // s = 1 / (1 + e^-x): f' = s (1 + x (1 - s)) = s + f (1 - s)
  static Slope slope_at(Float x) {
    const Float s = times_sigmoid(splat(1.0F), x);
    const Float value = of(x);
    return {value, mul_add(value, splat(1.0F) - s, s)};
  }
  static Float of(Float x) {
    // -infinity times 0 is NaN; the limit is 0.
    return x < splat(-88.0F) ? Float{} : times_sigmoid(x, x);
  }
};

struct GeluTanh {
  // With s the sigmoid of 2u, 2u = 1.5957... (x + 0.044715 x^3): f = x s, f' = s + f (1 - s) (2u)'
  static Slope slope_at(Float x) {
    const Float square = x * x;
    const Float inner = mul_add(splat(0.044715F), square, splat(1.0F)) * splat(1.59576912F);
    const Float s = x < splat(-10.0F) ? Float{} : times_sigmoid(splat(1.0F), x * inner);
    const Float growth = mul_add(splat(3 * 0.044715F), square, splat(1.0F)) * splat(1.59576912F);
    return {x * s, mul_add(x * s * (splat(1.0F) - s), growth, s)};
  }
  // (1 + tanh u) / 2 is the sigmoid of 2u.
  static Float of(Float x) {
    const Float inner = mul_add(splat(0.044715F) * x, x, splat(1.0F)) * splat(1.59576912F);
    return x < splat(-10.0F) ? Float{} : times_sigmoid(x, x * inner);
  }
};

// x Phi(x), Phi(x) = erfc(-x / sqrt 2) / 2, by erfc(z) = e^(-z^2) g(z): the upper tail keeps its
// digits where 1 + erf would have lost them. g is a polynomial in (z - 3) / (z + 3).
struct Gelu {
  // Phi(x), and e^(-x^2 / 2).
  struct Normal {
    Float below, power;
  };
  static Normal normal(Float x) {
    const Float size = absolute(x);
    const Float z = size * splat(0.707106781F);
    const Float t = (z - splat(3.0F)) / (z + splat(3.0F));
    Float g = splat(5.37066842e-05F);
    g = mul_add(g, t, splat(2.44068566e-05F));
    g = mul_add(g, t, splat(-0.000595398008F));
    g = mul_add(g, t, splat(0.000718695866F));
    g = mul_add(g, t, splat(0.00427002262F));
    g = mul_add(g, t, splat(-0.024394935F));
    g = mul_add(g, t, splat(0.0716655931F));
    g = mul_add(g, t, splat(-0.150115711F));
    g = mul_add(g, t, splat(0.245603816F));
    g = mul_add(g, t, splat(-0.326233566F));
    g = mul_add(g, t, splat(0.179001151F));
    // The rounding of x^2 would cost x^2 / 2 units of the exponential.
    const Float square = size * size;
    const Float lost = mul_add(size, size, -square);
    const Float rounded = exp_of(square * splat(-0.5F));
    const Float power = mul_add(rounded, lost * splat(-0.5F), rounded);
    const Float tail = splat(0.5F) * g * power;
    return {x < Float{} ? tail : splat(1.0F) - tail, power};
  }
  static Float of(Float x) {
    const Float value = x * normal(x).below;
    // Beyond 13 the tail is below every float; infinity would make NaN of it.
    const Float far = x < Float{} ? Float{} : x;
    return absolute(x) > splat(13.0F) ? far : value;
  }
  // f' = Phi(x) + x e^(-x^2 / 2) / sqrt(2 pi)
  static Slope slope_at(Float x) {
    const Normal at = normal(x);
    const Float far = x < Float{} ? Float{} : splat(1.0F);
    const Float slope = mul_add(x * splat(0.398942280F), at.power, at.below);
    return {of(x), absolute(x) > splat(13.0F) ? far : slope};
  }
};

struct Relu {
  static Slope slope_at(Float x) { return {of(x), x > Float{} ? splat(1.0F) : Float{}}; }
  static Float of(Float x) { return x < Float{} ? Float{} : x; }
};

template <class Function>
void activate(float* x, const float* by, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + kFloats <= count; i += kFloats) {
    const Float value = Function::of(load<Float>(x + i));
    store(x + i, by == nullptr ? value : value * load<Float>(by + i));
  }
  if (i == count) return;
  float rest[kFloats] = {};
  for (std::int64_t j = 0; j < count - i; ++j) rest[j] = x[i + j];
  const Float value = Function::of(load<Float>(rest));
  for (std::int64_t j = 0; j < count - i; ++j)
    x[i + j] = by == nullptr ? value[j] : value[j] * by[i + j];
}

// Calls body(at, lanes) for whole vectors, and once more for the rest.
template <class Body>
inline void for_vectors(std::int64_t count, const Body& body) {
  std::int64_t i = 0;
  for (; i + kFloats <= count; i += kFloats) body(i, kFloats);
  if (i < count) body(i, static_cast<int>(count - i));
}
// The first `lanes` of a vector; the others read as 0 and are not written.
inline Float load_lanes(const float* from, int lanes) {
  if (lanes == kFloats) return load<Float>(from);
  float rest[kFloats] = {};
  for (int j = 0; j < lanes; ++j) rest[j] = from[j];
  return load<Float>(rest);
}
inline void store_lanes(float* to, Float value, int lanes) {
  if (lanes == kFloats) return store(to, value);
  for (int j = 0; j < lanes; ++j) to[j] = value[j];
}

template <class Function>
void activate_backward(const float* x, const float* by, const float* d_out, std::int64_t count,
                       float* d_x, float* d_by) {
  for_vectors(count, [&](std::int64_t i, int lanes) {
    const Slope at = Function::slope_at(load_lanes(x + i, lanes));
    const Float d = load_lanes(d_out + i, lanes);
    if (by == nullptr) return store_lanes(d_x + i, d * at.slope, lanes);
    const Float factor = load_lanes(by + i, lanes);
    store_lanes(d_x + i, d * factor * at.slope, lanes);
    store_lanes(d_by + i, d * at.value, lanes);
  });
}

void add(float* x, const float* y, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + kFloats <= count; i += kFloats) store(x + i, load<Float>(x + i) + load<Float>(y + i));
  for (; i < count; ++i) x[i] += y[i];
}

inline Double read_doubles(const float* at) {
  return __builtin_convertvector(load<HalfFloat>(at), Double);
}
inline double sum_of_doubles(Double x) {
  double sum = 0;
  for (int lane = 0; lane < kDoubles; ++lane) sum += x[lane];
  return sum;
}

double sum(const float* x, std::int64_t count) {
  Double sums[2] = {};
  std::int64_t i = 0;
  for (; i + kFloats <= count; i += kFloats) {
    sums[0] += read_doubles(x + i);
    sums[1] += read_doubles(x + i + kDoubles);
  }
  double total = sum_of_doubles(sums[0] + sums[1]);
  for (; i < count; ++i) total += static_cast<double>(x[i]);
  return total;
}

double sum_of_squares(const float* x, std::int64_t count, double minus) {
  const Double middle = minus - Double{};
  Double sums[2] = {};
  std::int64_t i = 0;
  for (; i + kFloats <= count; i += kFloats) {
    const Double low = read_doubles(x + i) - middle, high = read_doubles(x + i + kDoubles) - middle;
    sums[0] = mul_add(low, low, sums[0]);
    sums[1] = mul_add(high, high, sums[1]);
  }
  double total = sum_of_doubles(sums[0] + sums[1]);
  for (; i < count; ++i) {
    const double value = static_cast<double>(x[i]) - minus;
    total += value * value;
  }
  return total;
}

// The difference in double: float would lose it when the mean is large compared with the spread.
void normalise(const float* x, std::int64_t count, double minus, double scale, float offset,
               const float* weight, const float* bias, float* out) {
  const Double middle = minus - Double{}, factor = scale - Double{};
  std::int64_t i = 0;
  for (; i + kDoubles <= count; i += kDoubles) {
    const HalfFloat normal =
        __builtin_convertvector((read_doubles(x + i) - middle) * factor, HalfFloat);
    HalfFloat value = normal * (load<HalfFloat>(weight + i) + offset);
    if (bias != nullptr) value += load<HalfFloat>(bias + i);
    store(out + i, value);
  }
  for (; i < count; ++i) {
    const auto normal = static_cast<float>((static_cast<double>(x[i]) - minus) * scale);
    const float value = normal * (weight[i] + offset);
    out[i] = bias == nullptr ? value : value + bias[i];
  }
}

void normalise_backward(const float* x, const float* d_out, std::int64_t count, double minus,
                        double scale, const float* weight, const float* plus, float* d_x,
                        float* d_weight, float* d_bias) {
  const Float middle = splat(static_cast<float>(minus)), factor = splat(static_cast<float>(scale));
  Float with_normal = {}, alone = {};
  for_vectors(count, [&](std::int64_t i, int lanes) {
    const Float d = load_lanes(d_out + i, lanes);
    const Float normal = (load_lanes(x + i, lanes) - middle) * factor;
    const Float weighted = d * load_lanes(weight + i, lanes);
    with_normal = mul_add(weighted, normal, with_normal);
    alone += weighted;
    store_lanes(d_weight + i, mul_add(d, normal, load_lanes(d_weight + i, lanes)), lanes);
    if (d_bias != nullptr) store_lanes(d_bias + i, load_lanes(d_bias + i, lanes) + d, lanes);
  });
  const float share = 1.0F / static_cast<float>(count);
  const Float along = splat(sum_of_lanes(with_normal) * share);
  // Only a norm that subtracts the mean, which is the one with a bias, has this part.
  const Float level = splat(d_bias == nullptr ? 0.0F : sum_of_lanes(alone) * share);
  for_vectors(count, [&](std::int64_t i, int lanes) {
    const Float normal = (load_lanes(x + i, lanes) - middle) * factor;
    const Float weighted = load_lanes(d_out + i, lanes) * load_lanes(weight + i, lanes);
    const Float d = (weighted - mul_add(normal, along, level)) * factor;
    store_lanes(d_x + i, plus == nullptr ? d : load_lanes(plus + i, lanes) + d, lanes);
  });
}

void softmax_backward(float* x, std::int64_t count, float minus, float scale, float uniform) {
  for_vectors(count, [&](std::int64_t i, int lanes) {
    const Float power = exp_of(load_lanes(x + i, lanes) - splat(minus));
    store_lanes(x + i, mul_add(power, splat(scale), splat(-uniform)), lanes);
  });
}

// Murmur3's finaliser of the place, with the key mixed in twice.
void drop(const float* x, const float* plus, std::int64_t count, std::uint32_t first,
          std::uint64_t key, std::uint32_t dropped_below, float scale, float* out) {
  const auto low = static_cast<std::uint32_t>(key), high = static_cast<std::uint32_t>(key >> 32);
  Bits lane = {};
  for (int j = 0; j < kFloats; ++j) lane[j] = static_cast<std::uint32_t>(j);
  for_vectors(count, [&](std::int64_t i, int lanes) {
    Bits h = (lane + (first + static_cast<std::uint32_t>(i))) * 0x9e3779b1U + low;
    h = (h ^ (h >> 16)) * 0x85ebca6bU;
    h = ((h ^ (h >> 13)) + high) * 0xc2b2ae35U;
    h ^= h >> 16;
    const Float value = load_lanes(x + i, lanes) * splat(scale);
    const Float kept = h < dropped_below ? Float{} : value;
    store_lanes(out + i, plus == nullptr ? kept : load_lanes(plus + i, lanes) + kept, lanes);
  });
}

double sum_of_exponentials(const float* x, std::int64_t count, float minus) {
  Double sums[2] = {};
  const auto add_vector = [&](const float* at) {
    alignas(64) float powers[kFloats];
    store(powers, exp_of(load<Float>(at) - splat(minus)));
    sums[0] += read_doubles(powers);
    sums[1] += read_doubles(powers + kDoubles);
  };
  std::int64_t i = 0;
  for (; i + kFloats <= count; i += kFloats) add_vector(x + i);
  if (i < count) {
    float rest[kFloats];
    for (int j = 0; j < kFloats; ++j) rest[j] = i + j < count ? x[i + j] : minus - 1000.0F;
    add_vector(rest);
  }
  return sum_of_doubles(sums[0] + sums[1]);
}

// x - x is 0, or NaN for what is not finite.
bool all_finite(const float* x, std::int64_t count) {
  Float sums[2] = {};
  std::int64_t i = 0;
  for (; i + 2 * kFloats <= count; i += 2 * kFloats) {
    const Float first = load<Float>(x + i), second = load<Float>(x + i + kFloats);
    sums[0] += first - first;
    sums[1] += second - second;
  }
  float sum = sum_of_lanes(sums[0] + sums[1]);
  for (; i < count; ++i) sum += x[i] - x[i];
  return sum == 0.0F;
}

constexpr phasor::models::kernels::LayerKernels kLayerKernels = {
    .sum_of_squares = sum_of_squares,
    .sum = sum,
    .normalise = normalise,
    .activate = {activate<Silu>, activate<Gelu>, activate<GeluTanh>, activate<Relu>},
    .activate_backward = {activate_backward<Silu>, activate_backward<Gelu>,
                          activate_backward<GeluTanh>, activate_backward<Relu>},
    .normalise_backward = normalise_backward,
    .softmax_backward = softmax_backward,
    .drop = drop,
    .add = add,
    .sum_of_exponentials = sum_of_exponentials,
    .all_finite = all_finite,
};

}  // namespace
