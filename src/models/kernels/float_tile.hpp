// Many tokens times weights as floats: some rows are unpacked, then multiplied by six tokens at once,
// sums in registers.
#pragma once

#include "models/kernels/dequantise.hpp"
#include "models/kernels/stream.hpp"

namespace {

using phasor::models::kernels::FloatTokens;
using phasor::models::kernels::kSetColumns;

// Groups whose vectors one product takes.
constexpr std::int64_t kPanelGroups = kVectors > kParts ? kVectors / kParts : 1;
static_assert(kSetColumns % kFloats == 0);
static_assert(kPanelGroups == 1 ? kParts % kVectors == 0 : kParts == 1 && kVectors == 4);

// Sets of kRows tokens in blocks [kRows][kFloats] of columns; the last set and the last block are
// filled up with zeros.
void write_floats(const float* x, std::int64_t x_stride, std::int64_t tokens, std::int64_t columns,
                  float* out) {
  const std::int64_t padded = (columns + kSetColumns - 1) / kSetColumns * kSetColumns;
  for (std::int64_t t = 0; t < tokens; t += kRows) {
    for (std::int64_t c = 0; c < padded; c += kFloats) {
      for (std::int64_t r = 0; r < kRows; ++r, out += kFloats) {
        const float* const from = x + (t + r) * x_stride + c;
        if (t + r < tokens && c + kFloats <= columns) {
          store(out, load<Float>(from));
          continue;
        }
        for (std::int64_t i = 0; i < kFloats; ++i)
          out[i] = t + r < tokens && c + i < columns ? from[i] : 0.0F;
      }
    }
  }
}

// `tokens` of a set times kCount vectors of rows from `row` on. What a sum is added to comes last, so
// that it is rounded once: the bias, or the result of the columns before.
template <int kCount>
PHASOR_IN_PLACE void multiply_set(Product product_of, std::int64_t tokens, const FloatTokens& x,
                                  std::int64_t row, const Results& results) {
  const bool adds = x.first_column > 0;
  const float* const bias = results.bias == nullptr ? nullptr : results.bias + row;
  float* const out = product_of.c;
  if (tokens >= kRows && results.rows - row >= kCount * kFloats) {
    product<kCount, Start::zero, Walk::blocks>(product_of, nullptr, adds ? out : bias,
                                               adds ? product_of.c_row : 0);
    return;
  }
  float edge[kRows * kCount * kFloats];
  const std::int64_t stride = product_of.c_row;
  product_of.c = edge;
  product_of.c_row = kCount * kFloats;
  product<kCount, Start::zero, Walk::blocks>(product_of, nullptr, nullptr, 0);
  const std::int64_t rows =
      results.rows - row < kCount * kFloats ? results.rows - row : kCount * kFloats;
  for (std::int64_t t = 0; t < (tokens < kRows ? tokens : kRows); ++t) {
    for (std::int64_t r = 0; r < rows; ++r) {
      float& to = out[t * stride + r];
      const float before = adds ? to : bias == nullptr ? 0.0F : bias[r];
      to = edge[t * kCount * kFloats + r] + before;
    }
  }
}

void float_tile(const Weights& weights, const FloatTokens& x, float* panel,
                const Results& results) {
  const std::int64_t columns = weights.units * layout_of(weights.format).columns;
  const std::int64_t part = columns * kFloats;  // floats of a vector of rows
  for (std::int64_t g = 0; g < weights.groups; g += kPanelGroups) {
    const std::int64_t groups =
        weights.groups - g < kPanelGroups ? weights.groups - g : kPanelGroups;
    for (std::int64_t i = 0; i < groups; ++i)
      dequantise_parts(weights, g + i, panel + i * kParts * part, kFloats, part);
    const std::int64_t vectors = groups * kParts;
    for (std::int64_t t = 0; t < x.tokens; t += kRows) {
      for (std::int64_t v = 0; v < vectors; v += kVectors) {
        const std::int64_t row = g * kGroupRows + v * kFloats;
        float* const out = results.out + t * results.stride + row;
        // The lines of the results arrive while the sums are computed.
        for (std::int64_t r = 0; r < kRows && t + r < x.tokens; ++r) {
          __builtin_prefetch(out + r * results.stride, 1);
          __builtin_prefetch(out + r * results.stride + kVectors * kFloats - 1, 1);
        }
        const Product of{x.data + t * x.columns + x.first_column * kRows,
                         0,
                         0,
                         panel + v * part,
                         0,
                         part,
                         out,
                         results.stride,
                         columns};
        if constexpr (kPanelGroups > 1) {  // one vector is one group
          if (vectors == 1) multiply_set<1>(of, x.tokens - t, x, row, results);
          if (vectors == 2) multiply_set<2>(of, x.tokens - t, x, row, results);
          if (vectors == 3) multiply_set<3>(of, x.tokens - t, x, row, results);
          if (vectors == 4) multiply_set<4>(of, x.tokens - t, x, row, results);
        } else {
          multiply_set<kVectors>(of, x.tokens - t, x, row, results);
        }
      }
    }
  }
}

}  // namespace
