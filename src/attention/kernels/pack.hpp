// Rows of any storage to float32 and back, and the packing of rows as columns.
#pragma once

#include "attention/kernels/kernels.hpp"
#include "phasor/attention/internal/kernels/product.hpp"

namespace {

using phasor::attention::kernels::Rows;
using phasor::attention::kernels::Storage;

// A whole vector of which the first `count` lanes are in memory: the others are zeros.
template <class Type>
inline Float read_part(const typename Type::Element* at, std::int64_t count) {
  typename Type::Element padded[kFloats] = {};
  for (std::int64_t i = 0; i < count; ++i) padded[i] = at[i];
  return Type::read(padded);
}

template <class Type>
void read_rows_of(const Rows& rows, std::int64_t count, std::int64_t dim, float* out,
                  std::int64_t out_stride) {
  for (std::int64_t r = 0; r < count; ++r) {
    const auto* in = static_cast<const typename Type::Element*>(rows.data) + r * rows.stride;
    float* to = out + r * out_stride;
    std::int64_t i = 0;
    for (; i + kFloats <= dim; i += kFloats) store(to + i, Type::read(in + i));
    if (i < dim) {
      const Float tail = read_part<Type>(in + i, dim - i);
      for (std::int64_t lane = 0; lane < dim - i; ++lane) to[i + lane] = tail[lane];
    }
  }
}

void read_rows(const Rows& rows, std::int64_t count, std::int64_t dim, float* out,
               std::int64_t out_stride) {
  if (rows.storage == Storage::f32) read_rows_of<F32>(rows, count, dim, out, out_stride);
  if (rows.storage == Storage::f16) read_rows_of<F16>(rows, count, dim, out, out_stride);
  if (rows.storage == Storage::bf16) read_rows_of<Bf16>(rows, count, dim, out, out_stride);
}

template <class Type>
void write_rows_of(const float* in, std::int64_t in_stride, std::int64_t count, std::int64_t dim,
                   void* out, std::int64_t out_stride) {
  for (std::int64_t r = 0; r < count; ++r) {
    const float* from = in + r * in_stride;
    auto* to = static_cast<typename Type::Element*>(out) + r * out_stride;
    std::int64_t i = 0;
    for (; i + kFloats <= dim; i += kFloats)
      Type::template write<false>(to + i, load<Float>(from + i));
    if (i < dim) {
      typename Type::Element padded[kFloats];
      Type::template write<false>(padded, read_part<F32>(from + i, dim - i));
      for (std::int64_t lane = 0; lane < dim - i; ++lane) to[i + lane] = padded[lane];
    }
  }
}

void write_rows(const float* in, std::int64_t in_stride, std::int64_t count, std::int64_t dim,
                Storage storage, void* out, std::int64_t out_stride) {
  if (storage == Storage::f32) write_rows_of<F32>(in, in_stride, count, dim, out, out_stride);
  if (storage == Storage::f16) write_rows_of<F16>(in, in_stride, count, dim, out, out_stride);
  if (storage == Storage::bf16) write_rows_of<Bf16>(in, in_stride, count, dim, out, out_stride);
}

// out = factor (in + bias), `dim` features of each row; bias may be null.
void scale_rows(const float* in, std::int64_t in_stride, const float* bias, float factor,
                std::int64_t count, std::int64_t dim, float* out, std::int64_t out_stride) {
  for (std::int64_t r = 0; r < count; ++r) {
    const float* const from = in + r * in_stride;
    float* const to = out + r * out_stride;
    std::int64_t i = 0;
    for (; i + kFloats <= dim; i += kFloats) {
      const Float value = load<Float>(from + i);
      store(to + i, splat(factor) * (bias == nullptr ? value : value + load<Float>(bias + i)));
    }
    for (; i < dim; ++i) to[i] = factor * (bias == nullptr ? from[i] : from[i] + bias[i]);
  }
}

// out += factor in. Products are rounded before they are added, at every level.
void add_rows(const float* in, std::int64_t in_stride, float factor, std::int64_t count,
              std::int64_t dim, float* out, std::int64_t out_stride) {
  for (std::int64_t r = 0; r < count; ++r) {
    const float* const from = in + r * in_stride;
    float* const to = out + r * out_stride;
    std::int64_t i = 0;
    for (; i + kFloats <= dim; i += kFloats)
      store(to + i, load<Float>(to + i) + splat(factor) * load<Float>(from + i));
    for (; i < dim; ++i) to[i] += factor * from[i];
  }
}

// sums[e] += weight * row[e]; products of two floats are exact in double.
void sum_rows(const float* rows, std::int64_t stride, const float* weights, std::int64_t count,
              std::int64_t dim, double* sums) {
  const auto weight = [weights](std::int64_t r) {
    return weights == nullptr ? 1.0 : static_cast<double>(weights[r * 2]);
  };
  std::int64_t i = 0;
  for (; i + kDoubles <= dim; i += kDoubles) {
    Double sum = load<Double>(sums + i);
    for (std::int64_t r = 0; r < count; ++r) {
      const HalfFloat row = load<HalfFloat>(rows + r * stride + i);
      sum += weight(r) * __builtin_convertvector(row, Double);
    }
    store(sums + i, sum);
  }
  for (; i < dim; ++i) {
    for (std::int64_t r = 0; r < count; ++r)
      sums[i] += weight(r) * static_cast<double>(rows[r * stride + i]);
  }
}

// [count][row_stride] -> [count / vector][depth][vector], so that a product reads its columns
// contiguously. Columns after the last are zeros up to kWidest, whatever the level.
void pack_columns(const float* rows, std::int64_t row_stride, std::int64_t count,
                  std::int64_t depth, float factor, float* columns) {
  const std::int64_t padded =
      phasor::attention::kernels::rounded_up(count, phasor::attention::kernels::kWidest);
  for (std::int64_t first = 0; first < padded; first += kFloats) {
    float* const out = columns + first * depth;
    const std::int64_t here = count - first < kFloats ? count - first : kFloats;
    std::int64_t done = 0;  // features
    for (; here == kFloats && done + kFloats <= depth; done += kFloats) {
      Float square[kFloats];
      PHASOR_UNROLL
      for (int lane = 0; lane < kFloats; ++lane)
        square[lane] = splat(factor) * load<Float>(rows + (first + lane) * row_stride + done);
      transpose_square(square);
      PHASOR_UNROLL
      for (int lane = 0; lane < kFloats; ++lane) store(out + (done + lane) * kFloats, square[lane]);
    }
    for (std::int64_t i = done; i < depth; ++i) {
      for (std::int64_t lane = 0; lane < kFloats; ++lane) {
        out[i * kFloats + lane] =
            lane < here ? factor * rows[(first + lane) * row_stride + i] : 0.0F;
      }
    }
  }
}

// Rows as rows [first, first + count) of a tile [dim / vector][kTileKeys][vector], so that a product
// reads two vectors of a row from two streams. Features after the last are zeros.
template <class Type>
void pack_values_of(const Rows& rows, std::int64_t first, std::int64_t count, std::int64_t dim,
                    float* tile) {
  constexpr std::int64_t kVector = phasor::attention::kernels::kTileKeys * kFloats;
  for (std::int64_t r = 0; r < count; ++r) {
    const auto* const in = static_cast<const typename Type::Element*>(rows.data) + r * rows.stride;
    float* to = tile + (first + r) * kFloats;
    std::int64_t i = 0;
    for (; i + kFloats <= dim; i += kFloats, to += kVector) store(to, Type::read(in + i));
    if (i < dim) store(to, read_part<Type>(in + i, dim - i));
  }
}

void pack_values(const Rows& rows, std::int64_t first, std::int64_t count, std::int64_t dim,
                 float* tile) {
  if (rows.data == nullptr) {
    for (std::int64_t i = 0; i < dim; i += kFloats)
      store(tile + i * phasor::attention::kernels::kTileKeys + first * kFloats, Float{});
    return;
  }
  if (rows.storage == Storage::f32) pack_values_of<F32>(rows, first, count, dim, tile);
  if (rows.storage == Storage::f16) pack_values_of<F16>(rows, first, count, dim, tile);
  if (rows.storage == Storage::bf16) pack_values_of<Bf16>(rows, first, count, dim, tile);
}

}  // namespace
