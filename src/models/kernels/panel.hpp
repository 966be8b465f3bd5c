// Many tokens times weights, both as floats: panels of dequantised groups times sets of six tokens.
#pragma once

#include "models/kernels/dequantise.hpp"

namespace {

using phasor::models::kernels::Panels;
using phasor::models::kernels::Results;

constexpr int kTileRows = kVectors * kFloats;  // weight rows of a tile
constexpr int kPanelGroups = kVectors > kParts ? kVectors / kParts : 1;

// Columns of up to six tokens interleaved; missing tokens are zeros.
void write_set(const float* x, std::int64_t tokens, std::int64_t columns, std::int64_t x_stride,
               float* out) {
  if (tokens >= kRows) {
    for (std::int64_t c = 0; c < columns; ++c, ++x, out += kRows) {
      PHASOR_UNROLL
      for (int t = 0; t < kRows; ++t) out[t] = x[t * x_stride];
    }
    return;
  }
  for (std::int64_t c = 0; c < columns; ++c, ++x, out += kRows) {
    for (int t = 0; t < kRows; ++t) out[t] = t < tokens ? x[t * x_stride] : 0.0F;
  }
}

// A tile that reaches beyond the last row or token is computed elsewhere, and what exists is copied.
template <Start kStart>
void edge_tile(Product tile, const Results& results, std::int64_t row, std::int64_t token,
               std::int64_t tokens) {
  float sums[kRows * kTileRows] = {}, bias[kTileRows] = {};
  const std::int64_t rows = results.rows - row < kTileRows ? results.rows - row : kTileRows;
  const std::int64_t count = tokens - token < kRows ? tokens - token : kRows;
  float* const out = results.out + token * results.stride + row;
  for (std::int64_t t = 0; t < count && kStart != Start::zero; ++t) {
    for (std::int64_t r = 0; r < rows; ++r) sums[t * kTileRows + r] = out[t * results.stride + r];
  }
  for (std::int64_t r = 0; r < rows && results.bias != nullptr; ++r)
    bias[r] = results.bias[row + r];
  tile.c = sums;
  tile.c_row = kTileRows;
  product<kVectors, kStart>(tile, nullptr, results.bias == nullptr ? nullptr : bias, 0);
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t r = 0; r < rows; ++r) out[t * results.stride + r] = sums[t * kTileRows + r];
  }
}

template <Start kStart>
void panel_products(const Panels& panels, const Results& results) {
  const std::int64_t vectors = panels.count * kParts;
  for (std::int64_t first = 0; first < vectors; first += kVectors) {
    const std::int64_t row = first * kFloats;
    if (row >= results.rows) return;
    const bool whole = results.rows - row >= kTileRows;
    const float* const weights =
        panels.groups + first / kParts * panels.group_stride + first % kParts * kFloats;
    const float* const bias = results.bias == nullptr ? nullptr : results.bias + row;
    for (std::int64_t t = 0; t < panels.tokens; t += kRows) {
      const Product tile{panels.sets + t * panels.columns,
                         1,
                         kRows,
                         weights,
                         kGroupRows,
                         kParts < kVectors ? panels.group_stride : kFloats,
                         results.out + t * results.stride + row,
                         results.stride,
                         panels.columns};
      if (whole && panels.tokens - t >= kRows) {
        product<kVectors, kStart>(tile, nullptr, bias, 0);
      } else {
        edge_tile<kStart>(tile, results, row, t, panels.tokens);
      }
    }
  }
}

void multiply_panels(const Panels& panels, const Results& results) {
  panels.adds ? panel_products<Start::sum>(panels, results)
              : panel_products<Start::zero>(panels, results);
}

}  // namespace
