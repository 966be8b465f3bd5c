// One or a few tokens: every weight is read once, at the speed of the memory.
#pragma once

#include "models/kernels/activations.hpp"

namespace {

using phasor::models::kernels::Cache;
using phasor::models::kernels::Fetch;
using phasor::models::kernels::kMostStreamed;
using phasor::models::kernels::Results;
using phasor::models::kernels::StreamWalk;

// Vectors of rows that share a word of activations, of one group: memory is read in order.
constexpr int kSide = kParts < 2 ? kParts : 2;

// What comes `fetch.ahead` bytes after `at`. Inlined by force: GCC 12 drops calls of a function that does
// nothing but prefetch.
PHASOR_IN_PLACE void prefetch_bytes(const std::byte* at, std::int64_t bytes, Fetch fetch) {
  if (fetch.ahead == 0) return;
  at += fetch.ahead;
  if (fetch.into == Cache::first) {
    for (std::int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, 3);
  } else {
    for (std::int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, 2);
  }
}

inline Ints splat_codes(const void* at) {
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

// The sums of the steps as one number, times the scale of the activations.
template <int kSteps, class Dots>
PHASOR_IN_PLACE Float joined(const Dots* dots, const ActivationBlock<kSteps>& x) {
  Float value = to_float(dots[kSteps - 1].value());
  PHASOR_UNROLL
  for (int s = kSteps - 2; s >= 0; --s)
    value = mul_add(value, splat(kStepRatio), to_float(dots[s].value()));
  return value * splat(x.scale);
}

// What a sum starts from. The zero of the codes is taken off as an integer: as a float it would
// cancel digits.
template <class Type, int kSteps>
PHASOR_IN_PLACE std::int32_t start_of(const ActivationBlock<kSteps>& x, int step, int half) {
  constexpr int kZero = DotSum<Type::kBits>::kSigned ? 0 : Type::kZero;
  return Type::kHalves == 2 ? -kZero * x.sums[step][half]
                            : -kZero * (x.sums[step][0] + x.sums[step][1]);
}

#if defined(PHASOR_PAIR_DOTS)
// As add_block() below, for exact activations. The zero of the codes is taken off as an integer: as a
// float it would cancel digits.
template <class Type, int kCount>
PHASOR_IN_PLACE void add_exact_block(const typename Type::Head* heads, int block,
                                     const std::byte* const* codes, const ActivationBlock<3>& x,
                                     Float* sums) {
  constexpr bool kTwo = Type::kHalves == 2;
  constexpr int kHalfWords = kTwo ? kWords / 2 : kWords;
  PairDots<Type::kBits> dots[Type::kHalves][kCount];
  PHASOR_UNROLL
  for (int w = 0; w < kWords / 2; ++w) {
    Ints words[2][kCount];
    PHASOR_UNROLL
    for (int v = 0; v < kCount; ++v)
      BlockCodes<Type::kStored>(codes[v]).read(w, words[0][v], words[1][v]);
    PHASOR_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int word = 4 * half + w;
      Ints steps[3], pairs[2][2];
      PHASOR_UNROLL
      for (int s = 0; s < 3; ++s) steps[s] = splat_codes(x.codes[s] + 4 * word);
      PHASOR_UNROLL
      for (int i = 0; i < 2; ++i) {
        PHASOR_UNROLL
        for (int odd = 0; odd < 2; ++odd)
          pairs[i][odd] = splat_codes(x.pairs[i] + 4 * word + 2 * odd);
      }
      PHASOR_UNROLL
      for (int v = 0; v < kCount; ++v)
        dots[kTwo ? half : 0][v].template add<kHalfWords>(words[half][v], steps, pairs,
                                                          kTwo ? w : 2 * w + half);
    }
  }
  const Float scale = splat(x.scale * kStepRatio);
  PHASOR_UNROLL
  for (int half = 0; half < Type::kHalves; ++half) {
    Ints zeros[2];
    PHASOR_UNROLL
    for (int i = 0; i < 2; ++i)
      zeros[i] = splat_int(Type::kZero *
                           (kTwo ? x.pair_sums[i][half] : x.pair_sums[i][0] + x.pair_sums[i][1]));
    PHASOR_UNROLL
    for (int v = 0; v < kCount; ++v) {
      const Float value = mul_add(to_float(dots[half][v].second() - zeros[1]), splat(kStepRatio),
                                  to_float(dots[half][v].first() - zeros[0]));
      sums[v] = mul_add(value * scale, heads[v].scale_of(block, half), sums[v]);
    }
  }
  if constexpr (Type::kMinima) {
    PHASOR_UNROLL
    for (int v = 0; v < kCount; ++v)
      sums[v] = mul_add(splat(x.total), heads[v].minimum_of(block), sums[v]);
  }
}
#endif

// One block of weights for kCount vectors of rows times a block of activations. A word of codes is
// unpacked once for all steps, and one of activations is broadcast once for all rows.
template <class Type, int kSteps, int kCount>
PHASOR_IN_PLACE void add_block(const typename Type::Head* heads, int block,
                               const std::byte* const* codes, const ActivationBlock<kSteps>& x,
                               Float* sums) {
#if defined(PHASOR_PAIR_DOTS)
  if constexpr (kSteps == 3) {
    add_exact_block<Type, kCount>(heads, block, codes, x, sums);
    return;
  }
#endif
  using Dots = DotSum<Type::kBits>;
  constexpr bool kTwo = Type::kHalves == 2;
  Dots dots[Type::kHalves][kCount][kSteps];
  PHASOR_UNROLL
  for (int half = 0; half < Type::kHalves; ++half) {
    PHASOR_UNROLL
    for (int v = 0; v < kCount; ++v) {
      PHASOR_UNROLL
      for (int s = 0; s < kSteps; ++s) dots[half][v][s] = Dots(start_of<Type, kSteps>(x, s, half));
    }
  }
  PHASOR_UNROLL
  for (int w = 0; w < kWords / 2; ++w) {
    Ints low[kCount], high[kCount];
    PHASOR_UNROLL
    for (int v = 0; v < kCount; ++v) BlockCodes<Type::kStored>(codes[v]).read(w, low[v], high[v]);
    PHASOR_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      const Ints first = splat_codes(x.codes[s] + 4 * w);
      PHASOR_UNROLL
      for (int v = 0; v < kCount; ++v) dots[0][v][s].add(low[v], first, kTwo ? w : 2 * w);
      const Ints second = splat_codes(x.codes[s] + 16 + 4 * w);
      PHASOR_UNROLL
      for (int v = 0; v < kCount; ++v)
        dots[kTwo ? 1 : 0][v][s].add(high[v], second, kTwo ? w : 2 * w + 1);
    }
  }
  PHASOR_UNROLL
  for (int v = 0; v < kCount; ++v) {
    PHASOR_UNROLL
    for (int half = 0; half < Type::kHalves; ++half)
      sums[v] = mul_add(joined<kSteps>(dots[half][v], x), heads[v].scale_of(block, half), sums[v]);
    if constexpr (Type::kMinima)
      sums[v] = mul_add(splat(x.total), heads[v].minimum_of(block), sums[v]);
  }
}

// kSide vectors of rows from vector `first` on, of kPlaces groups that are `apart` groups from each other,
// for one token.
template <class Type, int kSteps, int kPlaces>
void stream_rows(const Weights& weights, std::int64_t group, std::int64_t apart, int first,
                 const ActivationBlock<kSteps>* x, Fetch fetch, const Results& results) {
  constexpr std::int64_t kBlockBytes = Type::kCodeBytes + Type::kHeadBytes / Type::kBlocks;
  constexpr int kTogether = kPlaces * kSide;
  // Vectors that share a word of activations: the registers have room for the sums of two.
  constexpr int kShare = kTogether < 2 ? kTogether : 2;
  const std::byte *data[kPlaces], *at[kPlaces];
  PHASOR_UNROLL
  for (int place = 0; place < kPlaces; ++place)
    at[place] = data[place] = weights.data + (group + place * apart) * weights.group_bytes;
  Float sums[kTogether] = {};
  for (std::int64_t u = 0; u < weights.units; ++u) {
    typename Type::Head heads[kTogether];
    const std::byte* code[kTogether];
    PHASOR_UNROLL
    for (int v = 0; v < kTogether; ++v) {
      const int part = first + v % kSide;
      heads[v] = Type::head(data[v / kSide] + head_offset(kLayout<Type>, u), part);
      code[v] = data[v / kSide] + code_offset(kLayout<Type>, u) + word_offset(part);
    }
    for (int b = 0; b < Type::kBlocks; ++b) {
      PHASOR_UNROLL
      for (int place = 0; place < kPlaces; ++place) {
        prefetch_bytes(at[place], kBlockBytes, fetch);
        at[place] += kBlockBytes;
      }
      PHASOR_UNROLL
      for (int v = 0; v < kTogether; v += kShare)
        add_block<Type, kSteps, kShare>(heads + v, b, code + v, *x, sums + v);
      PHASOR_UNROLL
      for (int v = 0; v < kTogether; ++v) code[v] += Type::kCodeBytes;
      ++x;
    }
  }
  PHASOR_UNROLL
  for (int v = 0; v < kTogether; ++v) {
    const std::int64_t row =
        (group + v / kSide * apart) * kGroupRows + (first + v % kSide) * kFloats;
    if (row < results.rows) write_rows(sums[v], results, row, 0);
  }
}

// With narrower vectors the arithmetic takes longer than the reading.
constexpr bool kReadsTwoPlaces = kFloats >= 8;

// All groups, for one token.
template <class Type, int kSteps>
void stream_token(const Weights& weights, const ActivationBlock<kSteps>* x, StreamWalk walk,
                  const Results& results) {
  const std::int64_t half = kReadsTwoPlaces && walk.places == 2 ? weights.groups / 2 : 0;
  if constexpr (kReadsTwoPlaces) {
    for (std::int64_t g = 0; g < half; ++g) {
      for (int part = 0; part < kParts; part += kSide)
        stream_rows<Type, kSteps, 2>(weights, g, half, part, x, walk.fetch, results);
    }
  }
  for (std::int64_t g = 2 * half; g < weights.groups; ++g) {
    for (int part = 0; part < kParts; part += kSide)
      stream_rows<Type, kSteps, 1>(weights, g, 0, part, x, walk.fetch, results);
  }
}

// A group for all tokens: their sums are kept in memory.
template <class Type, int kSteps>
void stream_group(const Weights& weights, std::int64_t group, const ActivationBlock<kSteps>* x,
                  std::int64_t tokens, Fetch fetch, const Results& results) {
  const std::byte* const data = weights.data + group * weights.group_bytes;
  Float sums[kMostStreamed][kParts];
  for (std::int64_t t = 0; t < tokens; ++t) {
    PHASOR_UNROLL
    for (int part = 0; part < kParts; ++part) sums[t][part] = Float{};
  }
  for (std::int64_t u = 0; u < weights.units; ++u) {
    const std::byte* const head = data + head_offset(kLayout<Type>, u);
    const std::byte* code = data + code_offset(kLayout<Type>, u);
    for (int b = 0; b < Type::kBlocks; ++b) {
      prefetch_bytes(code, Type::kCodeBytes, fetch);
      for (int part = 0; part < kParts; ++part) {
        const typename Type::Head own = Type::head(head, part);
        const std::byte* const codes = code + word_offset(part);
        for (std::int64_t t = 0; t < tokens; ++t)
          add_block<Type, kSteps, 1>(&own, b, &codes, x[t], &sums[t][part]);
      }
      code += Type::kCodeBytes;
      x += tokens;
    }
  }
  for (std::int64_t t = 0; t < tokens; ++t) write_group(sums[t], results, group, t);
}

template <int kSteps>
void stream(const Weights& weights, const void* x, std::int64_t tokens, StreamWalk walk,
            const Results& results) {
  const auto* const blocks = static_cast<const ActivationBlock<kSteps>*>(x);
  with_format(weights.format, [&](auto type) {
    using Type = decltype(type);
    if (tokens == 1) return stream_token<Type, kSteps>(weights, blocks, walk, results);
    for (std::int64_t g = 0; g < weights.groups; ++g)
      stream_group<Type, kSteps>(weights, g, blocks, tokens, walk.fetch, results);
  });
}

// Weights that are floats: kCount tokens from `first` on, times kPlaces groups that are `apart` groups
// from each other. kChains independent sums each, so that additions overlap.
template <class Type, int kCount, int kChains, int kPlaces>
PHASOR_IN_PLACE void stream_columns(const Weights& weights, std::int64_t group, std::int64_t apart,
                                    const float* x, std::int64_t x_stride, std::int64_t first,
                                    Fetch fetch, const Results& results) {
  using Element = typename Type::Element;
  constexpr std::int64_t kColumnBytes = kGroupRows * static_cast<std::int64_t>(sizeof(Element));
  const std::byte* at[kPlaces];
  PHASOR_UNROLL
  for (int place = 0; place < kPlaces; ++place)
    at[place] = weights.data + (group + place * apart) * weights.group_bytes;
  Float sums[kPlaces][kCount][kChains][kParts] = {};
  std::int64_t c = 0;
  const auto add_column = [&](int chain) __attribute__((always_inline)) {
    PHASOR_UNROLL
    for (int place = 0; place < kPlaces; ++place) {
      PHASOR_UNROLL
      for (int part = 0; part < kParts; ++part) {
        const auto* const elements = reinterpret_cast<const Element*>(at[place]);
        const Float column = in_register(Type::read(elements + part * kFloats));
        PHASOR_UNROLL
        for (int t = 0; t < kCount; ++t) {
          Float& sum = sums[place][t][chain][part];
          sum = mul_add(column, splat(x[t * x_stride + c]), sum);
        }
      }
      at[place] += kColumnBytes;
    }
    ++c;
  };
  while (c + kChains <= weights.units) {
    if (first == 0) {
      PHASOR_UNROLL
      for (int place = 0; place < kPlaces; ++place)
        prefetch_bytes(at[place], kColumnBytes * kChains, fetch);
    }
    PHASOR_UNROLL
    for (int chain = 0; chain < kChains; ++chain) add_column(chain);
  }
  while (c < weights.units) add_column(0);
  PHASOR_UNROLL
  for (int place = 0; place < kPlaces; ++place) {
    PHASOR_UNROLL
    for (int t = 0; t < kCount; ++t) {
      Float* const sum = sums[place][t][0];
      PHASOR_UNROLL
      for (int chain = 1; chain < kChains; ++chain) {
        PHASOR_UNROLL
        for (int part = 0; part < kParts; ++part) sum[part] += sums[place][t][chain][part];
      }
      write_group(sum, results, group + place * apart, first + t);
    }
  }
}

template <class Type>
void stream_storage(const Weights& weights, const float* x, std::int64_t tokens,
                    std::int64_t x_stride, StreamWalk walk, const Results& results) {
  constexpr int kChains = 4;
  const Fetch fetch = walk.fetch;
  // kChains in both, so that the bits do not depend on the walk.
  const std::int64_t half =
      kReadsTwoPlaces && tokens == 1 && walk.places == 2 ? weights.groups / 2 : 0;
  if constexpr (kReadsTwoPlaces) {
    for (std::int64_t g = 0; g < half; ++g)
      stream_columns<Type, 1, kChains, 2>(weights, g, half, x, x_stride, 0, fetch, results);
  }
  for (std::int64_t g = 2 * half; g < weights.groups; ++g) {
    std::int64_t t = 0;
    for (; t + 4 <= tokens; t += 4)
      stream_columns<Type, 4, 1, 1>(weights, g, 0, x + t * x_stride, x_stride, t, fetch, results);
    for (; t + 2 <= tokens; t += 2)
      stream_columns<Type, 2, kChains / 2, 1>(weights, g, 0, x + t * x_stride, x_stride, t, fetch,
                                              results);
    for (; t < tokens; ++t)
      stream_columns<Type, 1, kChains, 1>(weights, g, 0, x + t * x_stride, x_stride, t, fetch,
                                          results);
  }
}

void stream_floats(const Weights& weights, const float* x, std::int64_t tokens,
                   std::int64_t x_stride, StreamWalk walk, const Results& results) {
  with_storage(weights.format, [&](auto type) {
    stream_storage<decltype(type)>(weights, x, tokens, x_stride, walk, results);
  });
}

}  // namespace
