// One or a few tokens: every weight is read once, at the speed of the memory.
#pragma once

#include "models/kernels/activations.hpp"

namespace {

using phasor::models::kernels::kMostStreamed;
using phasor::models::kernels::Results;

constexpr std::int64_t kAhead = 4096;  // bytes fetched before they are read

inline void prefetch_bytes(const std::byte* at, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i);
}

inline Ints splat_codes(const std::int8_t* at) {
  std::int32_t four;
  __builtin_memcpy(&four, at, sizeof(four));
  return splat_int(four);
}

// A vector of sums from `row` on, as many as there are rows.
inline void write_rows(Float sums, const Results& results, std::int64_t row, std::int64_t token) {
  float* const out = results.out + token * results.stride + row;
  const float* const bias = results.bias == nullptr ? nullptr : results.bias + row;
  if (results.rows - row >= kFloats) {
    store(out, bias == nullptr ? sums : sums + load<Float>(bias));
    return;
  }
  for (std::int64_t i = 0; i < results.rows - row; ++i)
    out[i] = sums[i] + (bias == nullptr ? 0.0F : bias[i]);
}
inline void write_group(const Float* sums, const Results& results, std::int64_t group,
                        std::int64_t token) {
  PHASOR_UNROLL
  for (int part = 0; part < kParts; ++part)
    write_rows(sums[part], results, group * kGroupRows + part * kFloats, token);
}

// A block of weights times a block of activations, added to `sum`.
template <class Type, int kSteps>
PHASOR_IN_PLACE Float add_block(const typename Type::Head& head, int block,
                                const Ints (&codes)[kWords], const ActivationBlock<kSteps>& x,
                                Float sum) {
  using Dot = DotSum<Type::kBits>;
  constexpr int kZero = Dot::kSigned ? 0 : Type::kZero;
  constexpr int kHalfWords = kWords / Type::kHalves;
  PHASOR_UNROLL
  for (int half = 0; half < Type::kHalves; ++half) {
    Float dots{};
    PHASOR_UNROLL
    for (int s = kSteps - 1; s >= 0; --s) {
      // The zero of the codes is taken off as an integer: as a float it would cancel digits.
      Dot dot(Type::kHalves == 2 ? -kZero * x.sums[s][half]
                                 : -kZero * (x.sums[s][0] + x.sums[s][1]));
      PHASOR_UNROLL
      for (int w = 0; w < kHalfWords; ++w) {
        const int word = half * kHalfWords + w;
        dot.add(codes[word], splat_codes(x.codes[s] + 4 * word), w);
      }
      const Float value = to_float(dot.value());
      dots = s == kSteps - 1 ? value : mul_add(dots, splat(kStepRatio), value);
    }
    sum = mul_add(dots * splat(x.scale), head.scale_of(block, half), sum);
  }
  if constexpr (Type::kMinima) sum = mul_add(splat(x.total), head.minimum_of(block), sum);
  return sum;
}

// kOne: the sums of a single token stay in registers.
template <class Type, int kSteps, bool kOne>
void stream_type(const Weights& weights, const ActivationBlock<kSteps>* x, std::int64_t tokens,
                 const Results& results) {
  for (std::int64_t g = 0; g < weights.groups; ++g) {
    const std::byte* head = weights.data + g * weights.group_bytes;
    const std::byte* code = head + weights.head_bytes;
    const ActivationBlock<kSteps>* block = x;
    Float sums[kOne ? 1 : kMostStreamed][kParts];
    for (std::int64_t t = 0; t < (kOne ? 1 : tokens); ++t) {
      PHASOR_UNROLL
      for (int part = 0; part < kParts; ++part) sums[t][part] = Float{};
    }
    for (std::int64_t u = 0; u < weights.units; ++u) {
      typename Type::Head heads[kParts];
      PHASOR_UNROLL
      for (int part = 0; part < kParts; ++part) heads[part] = Type::head(head, part);
      for (int b = 0; b < Type::kBlocks; ++b) {
        prefetch_bytes(code + kAhead, Type::kCodeBytes);
        PHASOR_UNROLL
        for (int part = 0; part < kParts; ++part) {
          Ints codes[kWords];
          read_codes<Type::kBits>(code + word_offset(part), codes);
          if constexpr (kOne) {
            sums[0][part] = add_block<Type, kSteps>(heads[part], b, codes, *block, sums[0][part]);
          } else {
            for (std::int64_t t = 0; t < tokens; ++t)
              sums[t][part] =
                  add_block<Type, kSteps>(heads[part], b, codes, block[t], sums[t][part]);
          }
        }
        code += Type::kCodeBytes;
        block += kOne ? 1 : tokens;
      }
      head += Type::kHeadBytes;
    }
    for (std::int64_t t = 0; t < (kOne ? 1 : tokens); ++t) write_group(sums[t], results, g, t);
  }
}

template <int kSteps>
void stream(const Weights& weights, const void* x, std::int64_t tokens, const Results& results) {
  const auto* const blocks = static_cast<const ActivationBlock<kSteps>*>(x);
  with_format(weights.format, [&](auto type) {
    using Type = decltype(type);
    if (tokens == 1) {
      stream_type<Type, kSteps, true>(weights, blocks, 1, results);
    } else {
      stream_type<Type, kSteps, false>(weights, blocks, tokens, results);
    }
  });
}

// Weights that are floats: kCount tokens, kChains sums each so that one need not wait for another.
template <class Type, int kCount, int kChains>
PHASOR_IN_PLACE void stream_columns(const Weights& weights, std::int64_t group, const float* x,
                                    std::int64_t x_stride, std::int64_t first,
                                    const Results& results) {
  using Element = typename Type::Element;
  constexpr std::int64_t kColumnBytes = kGroupRows * static_cast<std::int64_t>(sizeof(Element));
  const std::byte* at = weights.data + group * weights.group_bytes;
  Float sums[kCount][kChains][kParts] = {};
  std::int64_t c = 0;
  const auto add_column = [&](int chain) __attribute__((always_inline)) {
    PHASOR_UNROLL
    for (int part = 0; part < kParts; ++part) {
      const Float column =
          in_register(Type::read(reinterpret_cast<const Element*>(at) + part * kFloats));
      PHASOR_UNROLL
      for (int t = 0; t < kCount; ++t)
        sums[t][chain][part] = mul_add(column, splat(x[t * x_stride + c]), sums[t][chain][part]);
    }
    at += kColumnBytes;
    ++c;
  };
  while (c + kChains <= weights.units) {
    if (first == 0) prefetch_bytes(at + kAhead, kColumnBytes * kChains);
    PHASOR_UNROLL
    for (int chain = 0; chain < kChains; ++chain) add_column(chain);
  }
  while (c < weights.units) add_column(0);
  PHASOR_UNROLL
  for (int t = 0; t < kCount; ++t) {
    PHASOR_UNROLL
    for (int chain = 1; chain < kChains; ++chain) {
      PHASOR_UNROLL
      for (int part = 0; part < kParts; ++part) sums[t][0][part] += sums[t][chain][part];
    }
    write_group(sums[t][0], results, group, first + t);
  }
}

template <class Type>
void stream_storage(const Weights& weights, const float* x, std::int64_t tokens,
                    std::int64_t x_stride, const Results& results) {
  constexpr int kChains = 4;
  for (std::int64_t g = 0; g < weights.groups; ++g) {
    std::int64_t t = 0;
    for (; t + 4 <= tokens; t += 4)
      stream_columns<Type, 4, 1>(weights, g, x + t * x_stride, x_stride, t, results);
    for (; t + 2 <= tokens; t += 2)
      stream_columns<Type, 2, kChains / 2>(weights, g, x + t * x_stride, x_stride, t, results);
    for (; t < tokens; ++t)
      stream_columns<Type, 1, kChains>(weights, g, x + t * x_stride, x_stride, t, results);
  }
}

void stream_floats(const Weights& weights, const float* x, std::int64_t tokens,
                   std::int64_t x_stride, const Results& results) {
  with_storage(weights.format, [&](auto type) {
    stream_storage<decltype(type)>(weights, x, tokens, x_stride, results);
  });
}

}  // namespace
