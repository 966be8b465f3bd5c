// Many tokens times weights, both as bytes: some rows times some tokens at once, sums in registers.
#pragma once

#include "models/kernels/stream.hpp"

namespace {

using phasor::models::kernels::TileBlock;
using phasor::models::kernels::TileTokens;

// Vectors of rows and tokens of a tile: its sums of integers and of floats and the current words
// fill the registers.
#if defined(__AVX512F__)
constexpr int kTileVectors = 2, kTileTokens = 6;
#else
constexpr int kTileVectors = 1, kTileTokens = 6;
#endif

// A group unpacked: for each block its scales, one or two for a row, its minimum, which holds the
// zero of the codes too, then eight words of codes.
template <class Type>
struct Unpacked {
  static constexpr bool kSigned = DotSum<Type::kBits>::kSigned;
  static constexpr bool kMinima = Type::kMinima || !kSigned;
  static constexpr int kHeadVectors = Type::kHalves * (kMinima ? 2 : 1);
  static constexpr std::int64_t kHeadBytes = kHeadVectors * kGroupRows * 4;
  static constexpr std::int64_t kBlockBytes = kHeadBytes + kWords * kGroupRows * 4;
};

std::int64_t unpacked_bytes(const Weights& weights) {
  std::int64_t bytes = 0;
  with_format(weights.format, [&](auto type) {
    using Type = decltype(type);
    bytes = weights.units * Type::kBlocks * Unpacked<Type>::kBlockBytes;
  });
  return bytes;
}

template <class Type>
void unpack_type(const Weights& weights, std::int64_t group, std::byte* out) {
  using To = Unpacked<Type>;
  for (int part = 0; part < kParts; ++part) {
    const std::byte* const data = weights.data + group * weights.group_bytes;
    std::byte* to = out + word_offset(part);
    for (std::int64_t u = 0; u < weights.units; ++u) {
      const typename Type::Head head = Type::head(data + head_offset(kLayout<Type>, u), part);
      const std::byte* code = data + code_offset(kLayout<Type>, u);
      for (int b = 0; b < Type::kBlocks; ++b) {
        PHASOR_UNROLL
        for (int half = 0; half < Type::kHalves; ++half) {
          const Float scale = head.scale_of(b, half);
          store(to + half * 64, scale);
          if constexpr (Type::kMinima) {
            store(to + Type::kHalves * 64, head.minimum_of(b));
          } else if constexpr (To::kMinima) {
            store(to + (Type::kHalves + half) * 64, scale * splat(-Type::kZero));
          }
        }
        Ints codes[kWords];
        read_codes<Type::kStored>(code + word_offset(part), codes);
        PHASOR_UNROLL
        for (int w = 0; w < kWords; ++w) store(to + To::kHeadBytes + w * 64, codes[w]);
        code += Type::kCodeBytes;
        to += To::kBlockBytes;
      }
    }
  }
}

void unpack(const Weights& weights, std::int64_t group, std::byte* out) {
  with_format(weights.format, [&](auto type) { unpack_type<decltype(type)>(weights, group, out); });
}

// The properties of a type that a tile depends on. With VNNI the width of the codes does not matter.
template <int kBits_, int kHalves_, bool kMinima_>
struct TileKind {
  static constexpr int kBits = kBits_, kHalves = kHalves_;
  static constexpr bool kMinima = kMinima_;
  static constexpr std::int64_t kHeadBytes = kHalves * (kMinima ? 2 : 1) * kGroupRows * 4;
  static constexpr std::int64_t kBlockBytes = kHeadBytes + kWords * kGroupRows * 4;
};
#if defined(PHASOR_DOTS_VNNI)
template <class Type>
using KindOf = TileKind<8, Type::kHalves, true>;
#else
template <class Type>
using KindOf = TileKind<Type::kBits, Type::kHalves, Unpacked<Type>::kMinima>;
#endif

// The number of block 0 of a token; its others are kTileTokens apart.
std::int64_t first_block(std::int64_t token, const TileTokens& x) {
  return token / kTileTokens * kTileTokens * x.blocks + token % kTileTokens;
}

void write_tile(const float* x, std::int64_t token, const TileTokens& out) {
  write_steps<1>(x, out.blocks, kTileTokens, out.first + first_block(token, out));
}

void write_second(const float* x, std::int64_t token, std::int64_t block, const TileTokens& out) {
  const std::int64_t at = first_block(token, out) + block * kTileTokens;
  ActivationBlock<2> both;
  write_block<2>(x + block * kBlock, both);
  __builtin_memcpy(out.second + at * kBlock, both.codes[1], kBlock);
  out.first[at].total = both.total;
  out.first[at].totals[0] = both.totals[0];
  out.first[at].totals[1] = both.totals[1];
}

// A block of kTileVectors vectors of rows, `apart` bytes from each other, times one step of a set of
// tokens, whose codes are `stride` bytes apart.
template <class Kind>
PHASOR_IN_PLACE void add_step(const std::byte* at, std::int64_t apart, int half, const TileBlock* x,
                              const std::int8_t* codes_at, std::int64_t stride, float ratio,
                              Float (&sums)[kTileTokens][kTileVectors]) {
  constexpr int kHalfWords = kWords / Kind::kHalves;
  DotSum<Kind::kBits> dots[kTileTokens][kTileVectors];
  PHASOR_UNROLL
  for (int w = 0; w < kHalfWords; ++w) {
    const int word = half * kHalfWords + w;
    Ints codes[kTileVectors];
    PHASOR_UNROLL
    for (int v = 0; v < kTileVectors; ++v)
      codes[v] = in_register(load<Ints>(at + v * apart + Kind::kHeadBytes + word * 64));
    PHASOR_UNROLL
    for (int t = 0; t < kTileTokens; ++t) {
      const Ints four = splat_codes(codes_at + t * stride + 4 * word);
      PHASOR_UNROLL
      for (int v = 0; v < kTileVectors; ++v) dots[t][v].add(codes[v], four, w);
    }
  }
  PHASOR_UNROLL
  for (int v = 0; v < kTileVectors; ++v) {
    Float scale = load<Float>(at + v * apart + half * 64);
    if (ratio != 1.0F) scale *= splat(ratio);
    PHASOR_UNROLL
    for (int t = 0; t < kTileTokens; ++t)
      sums[t][v] = mul_add(to_float(dots[t][v].value()) * splat(x[t].scale), scale, sums[t][v]);
  }
}

// The first step of every block.
template <class Kind>
PHASOR_IN_PLACE void tile_sums(const std::byte* at, std::int64_t apart, std::int64_t blocks,
                               const TileBlock* x, Float (&sums)[kTileTokens][kTileVectors]) {
  PHASOR_UNROLL
  for (int t = 0; t < kTileTokens; ++t) {
    PHASOR_UNROLL
    for (int v = 0; v < kTileVectors; ++v) sums[t][v] = Float{};
  }
  for (std::int64_t b = 0; b < blocks; ++b) {
    PHASOR_UNROLL
    for (int half = 0; half < Kind::kHalves; ++half) {
      add_step<Kind>(at, apart, half, x, x->codes[0], sizeof(TileBlock), 1.0F, sums);
      if constexpr (Kind::kMinima) {
        PHASOR_UNROLL
        for (int v = 0; v < kTileVectors; ++v) {
          const Float minimum = load<Float>(at + v * apart + (Kind::kHalves + half) * 64);
          PHASOR_UNROLL
          for (int t = 0; t < kTileTokens; ++t)
            sums[t][v] = mul_add(splat(Kind::kHalves == 2 ? x[t].totals[half] : x[t].total),
                                 minimum, sums[t][v]);
        }
      }
    }
    at += Kind::kBlockBytes;
    x += kTileTokens;
  }
}

// The second step of the heavy blocks, a loop of its own: a branch in the first one would push its
// sums out of the registers.
template <class Kind>
PHASOR_IN_PLACE void heavy_sums(const std::byte* at, std::int64_t apart, const std::int32_t* heavy,
                                const TileBlock* x, const std::int8_t* second,
                                Float (&sums)[kTileTokens][kTileVectors]) {
  for (std::int32_t i = 1; i <= heavy[0]; ++i) {
    const std::int64_t b = heavy[i];
    PHASOR_UNROLL
    for (int half = 0; half < Kind::kHalves; ++half)
      add_step<Kind>(at + b * Kind::kBlockBytes, apart, half, x + b * kTileTokens,
                     second + b * kTileTokens * kBlock, kBlock, kStepRatio, sums);
  }
}

template <class Kind>
void tile_kind(const std::byte* unpacked, std::int64_t group_bytes, std::int64_t groups,
               const TileTokens& x, std::int64_t tokens, const Results& results) {
  const std::int64_t blocks = group_bytes / Kind::kBlockBytes;
  const std::int64_t vectors = groups * kParts;
  const auto address = [&](std::int64_t vector) {
    return unpacked + vector / kParts * group_bytes +
           word_offset(static_cast<int>(vector % kParts));
  };
  for (std::int64_t first = 0; first < vectors; first += kTileVectors) {
    // A single vector at the end is multiplied twice and written once.
    const std::int64_t count = vectors - first < kTileVectors ? vectors - first : kTileVectors;
    const std::byte* const at = address(first);
    const std::int64_t apart = address(first + count - 1) - at;
    for (std::int64_t t = 0; t < tokens; t += kTileTokens) {
      const std::int64_t written = tokens - t < kTileTokens ? tokens - t : kTileTokens;
      // Prefetches the lines of the output while the sums are computed.
      for (std::int64_t i = 0; i < written; ++i) {
        for (std::int64_t v = 0; v < count; ++v)
          __builtin_prefetch(results.out + (t + i) * results.stride + (first + v) * kFloats, 1);
      }
      Float sums[kTileTokens][kTileVectors];
      const TileBlock* const set = x.first + t * blocks;
      tile_sums<Kind>(at, apart, blocks, set, sums);
      heavy_sums<Kind>(at, apart, x.heavy + t / kTileTokens * (blocks + 1), set,
                       x.second + t * blocks * kBlock, sums);
      for (std::int64_t i = 0; i < written; ++i) {
        for (std::int64_t v = 0; v < count; ++v)
          write_rows(sums[i][v], results, (first + v) * kFloats, t + i);
      }
    }
  }
}

void tile(const Weights& weights, const std::byte* unpacked, std::int64_t groups,
          const TileTokens& x, std::int64_t tokens, const Results& results) {
  with_format(weights.format, [&](auto type) {
    tile_kind<KindOf<decltype(type)>>(unpacked, unpacked_bytes(weights), groups, x, tokens,
                                      results);
  });
}

}  // namespace
