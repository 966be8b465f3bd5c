// cos and sin of exact products, a vector of doubles at a time. Included by kernels.cpp alone.
#pragma once

#include "phasor/core/internal/kernels/kernels.hpp"
#include "phasor/core/internal/kernels/vector.hpp"

namespace {

using phasor::core::kernels::Angles;

// pi/2 in two parts; the third is below what a vector needs, and lanes that need it go to
// reduce_carefully().
constexpr double kHalfPi1 = 0x1.921fb54442d18p+0;
constexpr double kHalfPi2 = 0x1.1a62633145c07p-54;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
// Adding and subtracting 1.5 * 2^52 rounds to an integer, whose low bits are then the low bits
// of the sum.
constexpr double kRounder = 0x1.8p52;

inline Double broadcast(double value) { return Double{} + value; }

// a b + c, rounded once at every level: the exact reduction relies on it.
#if defined(__FMA__) || defined(__aarch64__)
inline Double fused(Double a, Double b, Double c) { return mul_add(a, b, c); }
#else
// Without FMA: the exact product by Dekker's splitting. Where the exact a*b + c is a double, as in
// the three uses below that rely on it, (p + c) + e is that double.
inline Double fused(Double a, Double b, Double c) {
  constexpr double kSplitter = 0x1p27 + 1.0;
  const Double a_big = a * kSplitter, b_big = b * kSplitter;
  const Double a_high = a_big - (a_big - a), b_high = b_big - (b_big - b);
  const Double a_low = a - a_high, b_low = b - b_high;
  const Double product = a * b;
  const Double error =
      ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
  return (product + c) + error;
}
#endif

// Minimax on |r| <= 0.85: sin r = r + r^3 P(r^2), cos r = 1 - r^2/2 + r^4 Q(r^2).
// float32 results: relative error 2^-36 and 2^-41; float64 results: 2^-67 and 2^-62.
constexpr double kSinF32[] = {-0x1.555555452bd66p-3, 0x1.1111037806695p-7, -0x1.a00bc6aef2a34p-13,
                              0x1.6bfdf00ca9aebp-19};
constexpr double kCosF32[] = {0x1.5555554a036ebp-5, -0x1.6c16b344aa2a1p-10, 0x1.a00dd7b2fab9bp-16,
                              -0x1.2388b0b6ddd78p-22};
constexpr double kSinF64[] = {-0x1.5555555555555p-3, 0x1.1111111111101p-7,   -0x1.a01a01a017170p-13,
                              0x1.71de3a514ad18p-19, -0x1.ae64503ca05b1p-26, 0x1.611f2a184ab1ep-33,
                              -0x1.a9fd7686da74ap-41};
constexpr double kCosF64[] = {0x1.555555555553cp-5,  -0x1.6c16c16c13198p-10,
                              0x1.a01a0199b3c98p-16, -0x1.27e4f5f7e98e0p-22,
                              0x1.1ee8938661f13p-29, -0x1.8f046296dec57p-37};

template <int kTerms>
inline Double polynomial(const double (&coefficients)[kTerms], Double z) {
  Double sum = broadcast(coefficients[kTerms - 1]);
  for (int i = kTerms - 2; i >= 0; --i) sum = mul_add(sum, z, broadcast(coefficients[i]));
  return sum;
}

// Whether a comparison holds anywhere.
inline bool any_lane(Long mask) {
#if defined(__AVX512F__)
  return _mm512_movepi64_mask(reinterpret_cast<__m512i>(mask)) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_pd(reinterpret_cast<__m256d>(mask)) != 0;
#else
  std::int64_t any = 0;
  for (int i = 0; i < kDoubles; ++i) any |= mask[i];
  return any != 0;
#endif
}

struct Pair {
  Double sin, cos;
};
// sin and cos of high + low, |high| <= 0.85.
template <bool kDouble>
inline Pair sin_cos_reduced(Double high, Double low) {
  const Double z = high * high;
  if constexpr (kDouble) {
    const Double half_z = z * 0.5;
    const Double one_minus = 1.0 - half_z;
    const Double sin = high + mul_add(low, one_minus, high * z * polynomial(kSinF64, z));
    const Double rest = mul_add(z * z, polynomial(kCosF64, z), -(high * low));
    const Double cos = one_minus + (((1.0 - one_minus) - half_z) + rest);
    return {sin, cos};
  } else {
    const Double sin = mul_add(high, z * polynomial(kSinF32, z), high);
    const Double cos = mul_add(z, z * polynomial(kCosF32, z), 1.0 - z * 0.5);
    return {sin, cos};
  }
}

template <class T>
inline void store_rounded(T* at, Double value) {
  if constexpr (sizeof(T) == 8) {
    store(at, value);
  } else {
    store(at, __builtin_convertvector(value, HalfFloat));
  }
}

inline Double magnitude(Double x) {
  return reinterpret_cast<Double>(reinterpret_cast<Long>(x) & 0x7fffffffffffffff);
}

// cos and sin of position * frequency, times amplitude, for one vector.
template <class T>
inline void angle_vector(Double position, Double frequency, double amplitude, T* cos, T* sin) {
  constexpr bool kDouble = sizeof(T) == 8;
  // The short reduction below is off by at most |k| 2^-105. A lane whose reduced angle is so small
  // that this shows (relative 2^-33 for float32, 2^-55 for float64) is recomputed by
  // reduce_carefully(), except for k = 0.
  constexpr double kSmall = kDouble ? 0x1p-50 : 0x1p-72;

  // The exact angle, high + low.
  const Double high = position * frequency;
  const Double low = fused(position, frequency, -high);
  const Double shifted = mul_add(high, broadcast(kTwoOverPi), broadcast(kRounder));
  const Double k = shifted - kRounder;
  Long quadrant = reinterpret_cast<Long>(shifted);
  // high - k pi1 is exact: a multiple of 2^-53 below one.
  const Double rest = fused(-k, broadcast(kHalfPi1), high);
  const Double correction = fused(-k, broadcast(kHalfPi2), low);
  Double r = rest + correction;
  Double r_low = {};
  if constexpr (kDouble) {
    const Double back = r - rest;
    r_low = (rest - (r - back)) + (correction - back);
  }

  const Long careful = magnitude(r) < magnitude(k) * kSmall;
  if (__builtin_expect(any_lane(careful), 0)) {
    for (int i = 0; i < kDoubles; ++i) {
      if (careful[i] == 0) continue;
      double parts[2];
      quadrant[i] = phasor::core::kernels::reduce_carefully(position[i], frequency[i], parts);
      r[i] = parts[0];
      r_low[i] = parts[1];
    }
  }

  const Pair pair = sin_cos_reduced<kDouble>(r, r_low);
  // angle = r + quadrant pi/2: odd quadrants swap, and two bits give the signs. All on bits,
  // without a blend.
  const Long sin_bits = reinterpret_cast<Long>(pair.sin),
             cos_bits = reinterpret_cast<Long>(pair.cos);
  const Long swap = (sin_bits ^ cos_bits) & -(quadrant & 1);
  const Long sin_sign = (quadrant & 2) << 62;
  const Long cos_sign = ((quadrant + 1) & 2) << 62;
  store_rounded(cos, reinterpret_cast<Double>(cos_bits ^ swap ^ cos_sign) * amplitude);
  store_rounded(sin, reinterpret_cast<Double>(sin_bits ^ swap ^ sin_sign) * amplitude);
}

template <class T>
void angle_row(const Angles& angles, const double* positions, T* cos, T* sin) {
  const std::int64_t pairs = angles.pairs;
  const double* frequencies = angles.frequencies;
  const double amplitude = angles.amplitude;
  const Double one_position = broadcast(positions[0]);
  std::int64_t first = 0;
  if (angles.axes == nullptr) {
    for (; first + kDoubles <= pairs; first += kDoubles) {
      angle_vector(one_position, load<Double>(frequencies + first), amplitude, cos + first,
                   sin + first);
    }
  }
  // Several axes, and the last few pairs: lanes are filled one by one.
  for (; first < pairs; first += kDoubles) {
    const int count = pairs - first < kDoubles ? static_cast<int>(pairs - first) : kDoubles;
    Double position = one_position;
    Double frequency = {};
    for (int i = 0; i < count; ++i) {
      frequency[i] = frequencies[first + i];
      if (angles.axes != nullptr) position[i] = positions[angles.axes[first + i]];
    }
    T lane_cos[kDoubles], lane_sin[kDoubles];
    angle_vector(position, frequency, amplitude, lane_cos, lane_sin);
    for (int i = 0; i < count; ++i) cos[first + i] = lane_cos[i];
    for (int i = 0; i < count; ++i) sin[first + i] = lane_sin[i];
  }
}

}  // namespace
