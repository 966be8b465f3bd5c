// A few queries against keys and values that are not packed: decoding reads every key once, and
// packing would read it twice.
#pragma once

#include "attention/kernels/few_rows_scores.hpp"
#include "attention/kernels/few_rows_values.hpp"

namespace {

// The largest of scores[0 .. count); -infinity if there is none. Several maxima at a time: one alone
// would wait for itself.
inline float largest_of(const float* scores, std::int64_t count) {
  constexpr int kChains = 4;
  const Float lowest = splat(-__builtin_inff());
  Float top[kChains] = {lowest, lowest, lowest, lowest};
  std::int64_t j = 0;
  for (; j + kChains * kFloats <= count; j += kChains * kFloats) {
    PHASOR_UNROLL
    for (int i = 0; i < kChains; ++i)
      top[i] = larger(top[i], load<Float>(scores + j + i * kFloats));
  }
  for (; j + kFloats <= count; j += kFloats) top[0] = larger(top[0], load<Float>(scores + j));
  float best = largest_of_lanes(larger(larger(top[0], top[1]), larger(top[2], top[3])));
  for (; j < count; ++j) best = scores[j] > best ? scores[j] : best;
  return best;
}

// Scores to weights in place, with the maximum and the sum of the weights. A row whose
// keys are all hidden has the sum 0.
void exp_row(float* scores, std::int64_t count, float* maximum, float* sum) {
  const float best = largest_of(scores, count);
  const float base = best == -__builtin_inff() ? 0.0F : best;
  Float total{};
  std::int64_t j = 0;
  for (; j + kFloats <= count; j += kFloats) {
    const Float weight = exp2_of(load<Float>(scores + j) - splat(base));
    store(scores + j, weight);
    total += weight;
  }
  float rest = sum_of_lanes(total);
  if (j < count) {
    const Float weight = exp2_of(read_part<F32>(scores + j, count - j) - splat(base));
    for (std::int64_t lane = 0; lane < count - j; ++lane) {
      scores[j + lane] = weight[lane];
      rest += weight[lane];
    }
  }
  *maximum = best;
  *sum = rest;
}

// scores[j] += step * (first + j): the distance stays exact, so that the error is
// proportional to the bias.
void add_line(float* scores, std::int64_t count, float step, std::int64_t first) {
  alignas(64) float lanes[kFloats];
  for (int lane = 0; lane < kFloats; ++lane) lanes[lane] = static_cast<float>(lane);
  const Float ramp = load<Float>(lanes);
  std::int64_t j = 0;
  for (; j + kFloats <= count; j += kFloats) {
    const Float distance = ramp + splat(static_cast<float>(first + j));
    store(scores + j, mul_add(distance, splat(step), load<Float>(scores + j)));
  }
  for (; j < count; ++j) scores[j] += step * static_cast<float>(first + j);
}

void soft_cap_row(float* scores, std::int64_t count, float cap) {
  std::int64_t j = 0;
  for (; j + kFloats <= count; j += kFloats)
    store(scores + j, soft_capped(load<Float>(scores + j), cap));
  if (j == count) return;
  const Float tail = soft_capped(read_part<F32>(scores + j, count - j), cap);
  for (std::int64_t lane = 0; lane < count - j; ++lane) scores[j + lane] = tail[lane];
}

}  // namespace
