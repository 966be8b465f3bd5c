// 2^x and the soft cap, on vectors of float.
#pragma once

#include "phasor/attention/internal/kernels/product.hpp"

namespace {

// Weights below this are exact zeros: a product with subnormal numbers costs a hundred cycles.
constexpr float kSmallestExponent = -100.0F;

#if defined(__AVX512F__)
inline Float less_nearest(Float x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return reinterpret_cast<Float>(
      _mm512_maskz_reduce_ps(kAllLanes, reinterpret_cast<__m512>(x), kNearest));
}
// p 2^whole, or 0 where x is below kSmallestExponent.
inline Float scaled_or_zero(Float p, Float whole, Float x) {
  const __mmask16 is_kept = _mm512_cmp_ps_mask(
      reinterpret_cast<__m512>(x), reinterpret_cast<__m512>(splat(kSmallestExponent)), _CMP_NLT_UQ);
  return reinterpret_cast<Float>(_mm512_maskz_scalef_ps(is_kept, reinterpret_cast<__m512>(p),
                                                        reinterpret_cast<__m512>(whole)));
}
#endif

// x[i] = 2^x[i] for x <= 1 or so; 0 below kSmallestExponent, -infinity included; NaN stays NaN. The
// polynomial of degree 5 on [-1/2, 1/2] is off by at most 9.2e-8 of the value. Several vectors step
// by step: one alone waits for each of its own results.
template <int kCount>
inline void exp2_of_each(Float* x) {
  Float whole[kCount], part[kCount], p[kCount];
  const auto each = [](auto step) __attribute__((always_inline)) {
    PHASOR_UNROLL
    for (int i = 0; i < kCount; ++i) step(i);
  };
#if defined(__AVX512F__)
  // x less the nearest integer, in one instruction.
  each([&](int i) { part[i] = less_nearest(x[i]); });
  each([&](int i) { whole[i] = x[i] - part[i]; });
#else
  const Float magic = splat(0x1.8p23F);
  each([&](int i) { whole[i] = x[i] + magic; });
  each([&](int i) { part[i] = x[i] - (whole[i] - magic); });
#endif
  each([&](int i) { p[i] = mul_add(splat(1.3264727e-3F), part[i], splat(9.671513e-3F)); });
  each([&](int i) { p[i] = mul_add(p[i], part[i], splat(5.5507336e-2F)); });
  each([&](int i) { p[i] = mul_add(p[i], part[i], splat(2.4022242e-1F)); });
  each([&](int i) { p[i] = mul_add(p[i], part[i], splat(6.93147e-1F)); });
  each([&](int i) { p[i] = mul_add(p[i], part[i], splat(1.0F)); });
#if defined(__AVX512F__)
  each([&](int i) { x[i] = scaled_or_zero(p[i], whole[i], x[i]); });
#else
  // The low bits of `whole` are the integer; a product, not an addition to the exponent, so that
  // NaN stays NaN.
  each([&](int i) {
    p[i] *= reinterpret_cast<Float>((reinterpret_cast<Bits>(whole[i]) + 127U) << 23);
  });
  each([&](int i) { x[i] = x[i] < splat(kSmallestExponent) ? Float{} : p[i]; });
#endif
}
inline Float exp2_of(Float x) {
  exp2_of_each<1>(&x);
  return x;
}

// c tanh(x / c).
inline Float soft_capped(Float x, float cap) {
  const Float y = x * splat(1.0F / cap);
  const Float magnitude = y < Float{} ? -y : y;
  // 1 - 2 / (e^2y + 1) loses digits near 0, where the series of tanh is used.
  const Float square = y * y;
  Float series = splat(62.0F / 2835.0F);
  series = mul_add(series, square, splat(-17.0F / 315.0F));
  series = mul_add(series, square, splat(2.0F / 15.0F));
  series = mul_add(series, square, splat(-1.0F / 3.0F));
  series = mul_add(series * square, magnitude, magnitude);
  const Float bounded = magnitude > splat(20.0F) ? splat(20.0F) : magnitude;
  const Float power = exp2_of(bounded * splat(-2.8853900817779268F));  // e^(-2|y|)
  const Float large = (splat(1.0F) - power) / (splat(1.0F) + power);
  const Float size = magnitude < splat(0.35F) ? series : large;
  return splat(cap) * (y < Float{} ? -size : size);
}

// The larger of each lane; b if either is NaN.
inline Float larger(Float a, Float b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Float>(
      _mm512_maskz_max_ps(kAllLanes, reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Float>(
      _mm256_max_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
#else
  return a > b ? a : b;
#endif
}

// The vector with its lanes rotated by kBy: (lane + kBy) mod kFloats.
template <int kBy, int... Lane>
inline Float rotated_lanes(Float x, Lanes<Lane...>) {
  return __builtin_shufflevector(x, x, ((Lane + kBy) % kFloats)...);
}
template <int kBy>
inline Float rotated_lanes(Float x) {
  return rotated_lanes<kBy>(x, FloatLanes{});
}
inline float sum_of_lanes(Float x) {
  if constexpr (kFloats >= 16) x += rotated_lanes<8>(x);
  if constexpr (kFloats >= 8) x += rotated_lanes<4>(x);
  x += rotated_lanes<2>(x);
  x += rotated_lanes<1>(x);
  return x[0];
}
inline float largest_of_lanes(Float x) {
  if constexpr (kFloats >= 16) x = larger(x, rotated_lanes<8>(x));
  if constexpr (kFloats >= 8) x = larger(x, rotated_lanes<4>(x));
  x = larger(x, rotated_lanes<2>(x));
  x = larger(x, rotated_lanes<1>(x));
  return x[0];
}

// The sum of row[begin .. end).
inline float sum_of(const float* row, std::int64_t begin, std::int64_t end) {
  Float sums{};
  std::int64_t i = begin;
  for (; i + kFloats <= end; i += kFloats) sums += load<Float>(row + i);
  float sum = sum_of_lanes(sums);
  for (; i < end; ++i) sum += row[i];
  return sum;
}

// Units of kUnit lanes: the even ones (kOdd = 0) or the odd ones of each block of four units (of all,
// where a vector has two), first of a, then of b. The sum of both is one level of a reduction.
template <int kUnit, int kOdd, int... Lane>
inline Float every_other_unit(Float a, Float b, Lanes<Lane...>) {
  constexpr int kBlock = kFloats < 4 * kUnit ? kFloats : 4 * kUnit;
  constexpr int kFromEach = kBlock / kUnit / 2;
  return __builtin_shufflevector(
      a, b,
      (Lane / kBlock * kBlock + (2 * (Lane % kBlock / kUnit % kFromEach) + kOdd) * kUnit +
       Lane % kUnit + (Lane % kBlock / kUnit < kFromEach ? 0 : kFloats))...);
}
// a and b joined over every other run of kUnit lanes, a's runs first.
template <int kUnit, class Join>
PHASOR_IN_PLACE Float join_units(Float a, Float b, Join join) {
  return join(every_other_unit<kUnit, 0>(a, b, FloatLanes{}),
              every_other_unit<kUnit, 1>(a, b, FloatLanes{}));
}
// x[i] joined over its lanes, in lane i: two shuffles for each join.
template <int kUnit, int kCount, class Join>
PHASOR_IN_PLACE void join_units(Float* x, Join join) {
  PHASOR_UNROLL
  for (int i = 0; i < kCount; ++i) x[i] = join_units<kUnit>(x[2 * i], x[2 * i + 1], join);
}
template <class Join>
inline Float joined_lanes(Float* x, Join join) {
  join_units<1, kFloats / 2>(x, join);
  join_units<1, kFloats / 4>(x, join);
  if constexpr (kFloats >= 8) join_units<4, kFloats / 8>(x, join);
  if constexpr (kFloats >= 16) join_units<4, kFloats / 16>(x, join);
  return x[0];
}
inline Float sums_of_lanes(Float* sums) {
  return joined_lanes(sums, [](Float a, Float b) { return a + b; });
}
inline Float largest_of_lanes(Float* values) {
  return joined_lanes(values, [](Float a, Float b) { return larger(a, b); });
}

}  // namespace
