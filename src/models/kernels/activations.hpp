// Activations as bytes: x = scale (c0 + c1 / 254 + c2 / 254^2), a scale for each 32 columns.
#pragma once

#include "models/kernels/formats.hpp"
#include "phasor/attention/internal/kernels/exponential.hpp"

namespace {

using phasor::models::kernels::ActivationBlock;
using phasor::models::kernels::kStepInverse;
using phasor::models::kernels::kStepRatio;

constexpr int kBlockVectors = static_cast<int>(kBlock) / kFloats;
// Below this the finest step or its reciprocal is not a normal float: the block counts as zeros.
constexpr float kSmallestActivation = 1e-31F;

using Bytes = std::int8_t __attribute__((vector_size(kFloats)));

#if defined(PHASOR_PAIR_DOTS)
// The steps as two numbers. Plain loops, which the compiler makes vectors of.
inline void write_pairs(ActivationBlock<phasor::models::kernels::kExactSteps>& out) {
  for (int c = 0; c < kBlock; ++c) {
    out.pairs[0][c] = static_cast<std::int16_t>(kStepInverse * out.codes[0][c] + out.codes[1][c]);
    out.pairs[1][c] = out.codes[2][c];
  }
  constexpr int kFours = static_cast<int>(sizeof(out.pairs)) / 8;
  std::uint64_t fours[kFours];
  __builtin_memcpy(fours, out.pairs, sizeof(fours));
  for (std::uint64_t& four : fours)  // columns 0 1 2 3 -> 0 2 1 3
    four = (four & 0xffff00000000ffffU) | (four & 0xffff0000U) << 16 | (four >> 16 & 0xffff0000U);
  __builtin_memcpy(out.pairs, fours, sizeof(fours));
  for (int half = 0; half < 2; ++half) {
    out.pair_sums[0][half] = kStepInverse * out.sums[0][half] + out.sums[1][half];
    out.pair_sums[1][half] = out.sums[2][half];
  }
}
#endif

template <int kSteps>
PHASOR_IN_PLACE void write_block(const float* x, ActivationBlock<kSteps>& out) {
  Float rest[kBlockVectors];
  Float largest{};
  Float finite{};  // x - x is 0, or NaN for what is not finite
  PHASOR_UNROLL
  for (int v = 0; v < kBlockVectors; ++v) {
    rest[v] = load<Float>(x + v * kFloats);
    finite += rest[v] - rest[v];
    largest =
        larger(reinterpret_cast<Float>(reinterpret_cast<Bits>(rest[v]) & 0x7fffffffU), largest);
  }
  if (const float poison = sum_of_lanes(finite); poison != 0.0F) {
    // NaN from here reaches every row of this token.
    out = {};
    out.scale = out.total = out.totals[0] = out.totals[1] = poison;
    return;
  }
  const float top = largest_of_lanes(largest);
  const bool some = top >= kSmallestActivation;
  const float scale = some ? top * (1.0F / 127) : 0.0F;
  const Float magic = splat(0x1.8p23F);
  Float inverse = splat(some ? 127.0F / top : 0.0F);
  Float step = splat(scale);
  float total[2] = {0.0F, 0.0F};
  float ratio = scale;
  PHASOR_UNROLL
  for (int s = 0; s < kSteps; ++s) {
    Float sums[2] = {};
    PHASOR_UNROLL
    for (int v = 0; v < kBlockVectors; ++v) {
      const Float whole = mul_add(rest[v], inverse, magic) - magic;  // rounded to nearest
      rest[v] = mul_add(-whole, step, rest[v]);
      sums[v * kFloats / 16] += whole;
      store(out.codes[s] + v * kFloats,
            __builtin_convertvector(__builtin_convertvector(whole, Ints), Bytes));
    }
    for (int half = 0; half < 2; ++half) {
      const float sum = sum_of_lanes(sums[half]);
      out.sums[s][half] = static_cast<std::int16_t>(sum);
      total[half] += sum * ratio;
    }
    step *= splat(kStepRatio);
    inverse *= splat(1.0F / kStepRatio);
    ratio *= kStepRatio;
  }
#if defined(PHASOR_PAIR_DOTS)
  if constexpr (kSteps == phasor::models::kernels::kExactSteps) write_pairs(out);
#endif
  out.scale = scale;
  out.totals[0] = total[0];
  out.totals[1] = total[1];
  out.total = total[0] + total[1];
}

template <int kSteps>
void write_steps(const float* x, std::int64_t blocks, std::int64_t set, void* out) {
  auto* to = static_cast<ActivationBlock<kSteps>*>(out);
  for (std::int64_t b = 0; b < blocks; ++b) write_block<kSteps>(x + b * kBlock, to[b * set]);
}

}  // namespace
