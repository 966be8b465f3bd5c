// The kernels of the models for every instruction set: plain structs and function pointers, no
// templates (see core/kernels/kernels.hpp).
//
// Weights are stored in groups of 16 rows, lane = row, so that a vector of sums needs no reduction. A
// group is a run of one or two units after the other: their heads (scales), then their codes. In a block
// of 32 columns, bits above the fourth come first, in words of their own; after them, word w of a row
// holds in its byte j column 4w + j in the low nibble and column 16 + 4w + j in the high one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace phasor::models::kernels {

inline constexpr std::int64_t kGroupRows = 16;
inline constexpr std::int64_t kBlock = 32;  // columns that share a scale of the activations
// Steps of eight bits per activation: as exact as a float, and as many as Precision::fast uses when it
// streams. Tiles use one step, and the second for blocks far above the others of their token, whose
// error dominates.
inline constexpr int kExactSteps = 3;
inline constexpr int kFastSteps = 2;
// Each step of an activation writes the rest of the one before with a scale 254 times finer.
inline constexpr int kStepInverse = 254;
inline constexpr float kStepRatio = 1.0F / kStepInverse;
inline constexpr std::int64_t kMostStreamed = 32;  // tokens of one streaming product

enum class Format : std::uint8_t {
  f32,
  f16,
  bf16,
  q8_0,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl
};

// The size of a unit of 16 rows. f16 scales and minima are 32 bytes, words of 32 bits 64.
struct Layout {
  std::int64_t columns;     // of a unit
  std::int64_t head_bytes;  // scales
  std::int64_t code_bytes;
};
[[nodiscard]] constexpr Layout layout_of(Format format) noexcept {
  switch (format) {
    case Format::f32:
      return {1, 0, 64};
    case Format::f16:
    case Format::bf16:
      return {1, 0, 32};
    case Format::q8_0:
      return {32, 32, 512};
    case Format::q4_0:
    case Format::iq4_nl:
      return {32, 32, 256};
    case Format::q4_1:
      return {32, 64, 256};
    case Format::q5_0:
      return {32, 32, 256 + 64};
    case Format::q5_1:
      return {32, 64, 256 + 64};
    case Format::q4_k:  // two halves and three words of 6-bit scales and minima
      return {256, 64 + 3 * 64, 8 * 256};
    case Format::q5_k:
      return {256, 64 + 3 * 64, 8 * (256 + 64)};
    case Format::q6_k:  // one half and four words of 8-bit scales
      return {256, 32 + 4 * 64, 8 * (256 + 2 * 64)};
  }
  return {};
}

// A group is read from its first byte to its last, which CPUs prefetch best: Q6_K whose upper bits came
// after the nibbles of a block, but were read before them, took 1.9 times as long on a Zen 4. Two units
// where the scales of one end in the middle of a cache line.
[[nodiscard]] constexpr std::int64_t units_of_run(const Layout& layout) noexcept {
  return layout.head_bytes % 64 == 0 ? 1 : 2;
}
[[nodiscard]] constexpr std::int64_t run_offset(const Layout& layout, std::int64_t unit) noexcept {
  const std::int64_t run = units_of_run(layout);
  return unit / run * run * (layout.head_bytes + layout.code_bytes);
}
[[nodiscard]] constexpr std::int64_t head_offset(const Layout& layout, std::int64_t unit) noexcept {
  return run_offset(layout, unit) + unit % units_of_run(layout) * layout.head_bytes;
}
[[nodiscard]] constexpr std::int64_t code_offset(const Layout& layout, std::int64_t unit) noexcept {
  const std::int64_t run = units_of_run(layout);
  return run_offset(layout, unit) + run * layout.head_bytes + unit % run * layout.code_bytes;
}

// One matrix, or a run of its groups.
struct Weights {
  const std::byte* data;  // of the first group, at a multiple of 64
  std::int64_t groups;
  std::int64_t units;        // of a group: columns / layout.columns
  std::int64_t group_bytes;  // a multiple of 64
  Format format;
};

// How a streaming product walks through its weights. Which of kWalks is fastest depends on the CPU; the
// numbers do not.
enum class Cache : std::uint8_t { first, second };
struct Fetch {  // prefetches what comes `ahead` bytes after the weights at hand; 0: nothing
  std::int32_t ahead;
  Cache into;
};
struct StreamWalk {
  Fetch fetch;
  // 2: a single token reads the first and the second half of the groups in turn, so that a core has lines
  // of two places of the memory on their way.
  int places;
};
inline constexpr StreamWalk kWalks[] = {{{0, Cache::first}, 1},     {{4096, Cache::first}, 1},
                                        {{4096, Cache::second}, 1}, {{12288, Cache::first}, 1},
                                        {{0, Cache::first}, 2},     {{4096, Cache::first}, 2},
                                        {{8192, Cache::first}, 2},  {{12288, Cache::first}, 2}};
inline constexpr int kWalksOfOnePlace = 4;  // the first ones

// The three steps as two numbers, which levels without a dot product of bytes use:
// x = scale (pairs[0] + pairs[1] / 254) / 254, pairs[0] = 254 codes[0] + codes[1], pairs[1] =
// codes[2]. Of the four columns of a word the even ones come first, then the odd ones.
template <int kSteps>
struct ActivationPairs {};
template <>
struct ActivationPairs<kExactSteps> {
  std::int16_t pairs[2][kBlock];
  std::int32_t pair_sums[2][2];  // of each number and half of the columns
};
// 32 activations: x = scale (codes[0] + codes[1] / 254 + codes[2] / 254^2). The blocks of the
// tokens of a set are interleaved: block b of token t is number b * set + t.
template <int kSteps>
struct ActivationBlock : ActivationPairs<kSteps> {
  std::int8_t codes[kSteps][kBlock];
  float scale;
  float total;                   // of the 32 values as written, for the minima of the weights
  float totals[2];               // of each half
  std::int16_t sums[kSteps][2];  // of the codes of each half
};
// Tokens of tiles in sets of tile_tokens. The second step's codes are stored separately; only the
// blocks listed in `heavy` use them.
using TileBlock = ActivationBlock<1>;
struct TileTokens {
  TileBlock* first;     // block b of token t of set s: number (s * blocks + b) * tile_tokens + t
  std::int8_t* second;  // kBlock codes a block, in the same order
  std::int32_t* heavy;  // of each set blocks + 1 numbers: how many, then which
  std::int64_t blocks;
};

// Columns of a set of float tiles are rounded up to these, on every level.
inline constexpr std::int64_t kSetColumns = 16;
// Tokens of float tiles, in sets of Kernels::set_tokens.
struct FloatTokens {
  const float* data;
  std::int64_t tokens;
  std::int64_t columns;       // of a set: those of a token, rounded up to kSetColumns
  std::int64_t first_column;  // of the product; above 0 its sums are added to the results
};

// Where results go: row r of token t at out + t * stride + r, plus bias[r].
struct Results {
  float* out;
  std::int64_t stride;
  std::int64_t rows;  // of these groups; the last may have fewer than 16
  const float* bias;  // null: none
};

struct LayerKernels {
  double (*sum_of_squares)(const float* x, std::int64_t count, double minus);
  double (*sum)(const float* x, std::int64_t count);
  // out = (x - minus) * scale * (offset + weight) + bias
  void (*normalise)(const float* x, std::int64_t count, double minus, double scale, float offset,
                    const float* weight, const float* bias, float* out);
  // x = f(x) * by; a null `by` is 1. In the order of models::Activation.
  void (*activate[4])(float* x, const float* by, std::int64_t count);
  // d_x = d_out * by * f'(x), d_by = d_out * f(x); without `by`, whose d_by is not written, by = 1.
  void (*activate_backward[4])(const float* x, const float* by, const float* d_out,
                               std::int64_t count, float* d_x, float* d_by);
  // The gradient of `normalise`; d_weight and d_bias are added to. A null d_bias: an RMS norm, which
  // has no mean. d_x = plus + the gradient; a null `plus` is 0, and may be d_x itself.
  void (*normalise_backward)(const float* x, const float* d_out, std::int64_t count, double minus,
                             double scale, const float* weight, const float* plus, float* d_x,
                             float* d_weight, float* d_bias);
  // x = e^(x - minus) * scale - uniform, for x <= minus.
  void (*softmax_backward)(float* x, std::int64_t count, float minus, float scale, float uniform);
  // out = plus + x * scale, where the hash of (key, first + i) is at least `dropped_below`; plus else.
  void (*drop)(const float* x, const float* plus, std::int64_t count, std::uint32_t first,
               std::uint64_t key, std::uint32_t dropped_below, float scale, float* out);
  void (*add)(float* x, const float* y, std::int64_t count);
  double (*sum_of_exponentials)(const float* x, std::int64_t count, float minus);
  bool (*all_finite)(const float* x, std::int64_t count);
};

struct Kernels {
  // 32-column blocks of x to activation blocks `set` apart.
  void (*write_exact)(const float* x, std::int64_t blocks, std::int64_t set, void* out);
  void (*write_fast)(const float* x, std::int64_t blocks, std::int64_t set, void* out);
  // The first step of token number `token`, and the second of one of its blocks.
  void (*write_tile)(const float* x, std::int64_t token, const TileTokens& out);
  void (*write_second)(const float* x, std::int64_t token, std::int64_t block,
                       const TileTokens& out);
  // Weights times `tokens` <= kMostStreamed activations, exact in the weights and in the
  // steps: `x` is a set of `tokens`.
  void (*stream_exact)(const Weights& weights, const void* x, std::int64_t tokens, StreamWalk walk,
                       const Results& results);
  void (*stream_fast)(const Weights& weights, const void* x, std::int64_t tokens, StreamWalk walk,
                      const Results& results);
  // The same for f32, f16 and bf16 weights and float activations.
  void (*stream_floats)(const Weights& weights, const float* x, std::int64_t tokens,
                        std::int64_t x_stride, StreamWalk walk, const Results& results);
  // One group as [columns, 16] floats, rows of `stride`.
  void (*dequantise)(const Weights& weights, std::int64_t group, float* out, std::int64_t stride);

  // Many tokens: groups are unpacked to bytes and floats (unpacked_bytes of them each), tokens come
  // in sets of tile_tokens, the last filled up with blocks of zeros.
  std::int64_t tile_tokens;
  std::int64_t (*unpacked_bytes)(const Weights& weights);
  void (*unpack)(const Weights& weights, std::int64_t group, std::byte* out);
  // `groups` unpacked groups times all tokens.
  void (*tile)(const Weights& weights, const std::byte* unpacked, std::int64_t groups,
               const TileTokens& x, std::int64_t tokens, const Results& results);

  // Many tokens times weights as floats. Tokens are written in sets of set_tokens, columns rounded
  // up to kSetColumns.
  std::int64_t set_tokens;
  void (*write_floats)(const float* x, std::int64_t x_stride, std::int64_t tokens,
                       std::int64_t columns, float* out);
  // `panel` has room for panel_groups groups of floats. The bias is added with the first columns.
  std::int64_t panel_groups;
  void (*float_tile)(const Weights& weights, const FloatTokens& x, float* panel,
                     const Results& results);
  // False: the GEMM library is preferred where there is one.
  bool prefers_float_tiles;
  LayerKernels layer;
};

}  // namespace phasor::models::kernels
