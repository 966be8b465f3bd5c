// A few queries against keys and values as they lie in memory: decoding reads every key once, and
// packing would read it twice.
#pragma once

#include "attention/kernels/exponential.hpp"
#include "attention/kernels/pack.hpp"

namespace {

// So far ahead of the row in hand: memory answers in about the time of sixteen rows.
constexpr std::int64_t kRowsAhead = 16;
// Values are weighed a tile at a time: where one vector's column does not reach across a row, the next
// finds the rows in the nearest cache.
constexpr std::int64_t kWeighedKeys = 64;

template <class Element>
inline void prefetch_row(const Element* row, std::int64_t dim) {
  for (std::int64_t byte = 0; byte < dim * static_cast<std::int64_t>(sizeof(Element)); byte += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(row) + byte);
}

template <class Type, int kCount>
void score_some(const float* q, std::int64_t q_stride, const Rows& keys, std::int64_t count,
                std::int64_t dim, float* scores, std::int64_t score_row) {
  using Element = typename Type::Element;
  const auto* const data = static_cast<const Element*>(keys.data);
  const std::int64_t whole = dim / kFloats * kFloats;
  for (std::int64_t j = 0; j < count; ++j) {
    const Element* const key = data + j * keys.stride;
    if (j + kRowsAhead < count) prefetch_row(key + kRowsAhead * keys.stride, dim);
    Float sums[kCount] = {};
    for (std::int64_t i = 0; i < whole; i += kFloats) {
      const Float value = in_register(Type::read(key + i));
      PHASOR_UNROLL
      for (int r = 0; r < kCount; ++r)
        sums[r] = mul_add(load<Float>(q + r * q_stride + i), value, sums[r]);
    }
    if (whole < dim) {
      const Float value = read_part<Type>(key + whole, dim - whole);
      PHASOR_UNROLL
      for (int r = 0; r < kCount; ++r)
        sums[r] = mul_add(load<Float>(q + r * q_stride + whole), value, sums[r]);
    }
    PHASOR_UNROLL
    for (int r = 0; r < kCount; ++r) scores[r * score_row + j] = sum_of_lanes(sums[r]);
  }
}

template <class Type, int kCount, int kColumns>
inline void weigh_columns(const float* p, std::int64_t p_row, const Rows& values,
                          std::int64_t count, std::int64_t column, float* out,
                          std::int64_t out_stride) {
  using Element = typename Type::Element;
  const auto* const data = static_cast<const Element*>(values.data) + column;
  Float sums[kCount][kColumns];
  PHASOR_UNROLL
  for (int r = 0; r < kCount; ++r) {
    PHASOR_UNROLL
    for (int v = 0; v < kColumns; ++v)
      sums[r][v] = load<Float>(out + r * out_stride + column + v * kFloats);
  }
  for (std::int64_t j = 0; j < count; ++j) {
    const Element* const row = data + j * values.stride;
    Float columns[kColumns];
    PHASOR_UNROLL
    for (int v = 0; v < kColumns; ++v) columns[v] = in_register(Type::read(row + v * kFloats));
    PHASOR_UNROLL
    for (int r = 0; r < kCount; ++r) {
      const Float weight = in_register(splat(p[r * p_row + j]));
      PHASOR_UNROLL
      for (int v = 0; v < kColumns; ++v) sums[r][v] = mul_add(weight, columns[v], sums[r][v]);
    }
  }
  PHASOR_UNROLL
  for (int r = 0; r < kCount; ++r) {
    PHASOR_UNROLL
    for (int v = 0; v < kColumns; ++v)
      store(out + r * out_stride + column + v * kFloats, sums[r][v]);
  }
}

template <class Type, int kCount>
void weigh_some(const float* p, std::int64_t p_row, const Rows& values, std::int64_t count,
                std::int64_t dim, float* out, std::int64_t out_stride) {
  using Element = typename Type::Element;
  for (std::int64_t first = 0; first < count; first += kWeighedKeys) {
    const std::int64_t here = count - first < kWeighedKeys ? count - first : kWeighedKeys;
    const auto* const data = static_cast<const Element*>(values.data) + first * values.stride;
    const std::int64_t next =
        count - first - here < kWeighedKeys ? count - first - here : kWeighedKeys;
    for (std::int64_t j = 0; j < next; ++j) prefetch_row(data + (here + j) * values.stride, dim);
    const Rows tile{data, values.stride, values.storage};
    std::int64_t column = 0;
    for (; column + kVectors * kFloats <= dim; column += kVectors * kFloats)
      weigh_columns<Type, kCount, kVectors>(p + first, p_row, tile, here, column, out, out_stride);
    for (; column + kFloats <= dim; column += kFloats)
      weigh_columns<Type, kCount, 1>(p + first, p_row, tile, here, column, out, out_stride);
    if (column == dim) continue;
    for (std::int64_t j = 0; j < here; ++j) {
      const Float value = read_part<Type>(data + j * values.stride + column, dim - column);
      for (int r = 0; r < kCount; ++r) {
        float* const to = out + r * out_stride + column;
        store(to, mul_add(splat(p[r * p_row + first + j]), value, load<Float>(to)));
      }
    }
  }
}

template <class Type>
void score_rows_of(const float* q, std::int64_t q_stride, std::int64_t rows, const Rows& keys,
                   std::int64_t count, std::int64_t dim, float* scores, std::int64_t score_row) {
  if (rows == 1) return score_some<Type, 1>(q, q_stride, keys, count, dim, scores, score_row);
  if (rows == 2) return score_some<Type, 2>(q, q_stride, keys, count, dim, scores, score_row);
  if (rows <= 4) return score_some<Type, 4>(q, q_stride, keys, count, dim, scores, score_row);
  score_some<Type, 6>(q, q_stride, keys, count, dim, scores, score_row);
}

void score_rows(const float* q, std::int64_t q_stride, std::int64_t rows, const Rows& keys,
                std::int64_t count, std::int64_t dim, float* scores, std::int64_t score_row) {
  if (keys.storage == Storage::f32)
    score_rows_of<F32>(q, q_stride, rows, keys, count, dim, scores, score_row);
  if (keys.storage == Storage::f16)
    score_rows_of<F16>(q, q_stride, rows, keys, count, dim, scores, score_row);
  if (keys.storage == Storage::bf16)
    score_rows_of<Bf16>(q, q_stride, rows, keys, count, dim, scores, score_row);
}

template <class Type>
void weigh_rows_of(const float* p, std::int64_t p_row, std::int64_t rows, const Rows& values,
                   std::int64_t count, std::int64_t dim, float* out, std::int64_t out_stride) {
  if (rows == 1) return weigh_some<Type, 1>(p, p_row, values, count, dim, out, out_stride);
  if (rows == 2) return weigh_some<Type, 2>(p, p_row, values, count, dim, out, out_stride);
  if (rows <= 4) return weigh_some<Type, 4>(p, p_row, values, count, dim, out, out_stride);
  weigh_some<Type, 6>(p, p_row, values, count, dim, out, out_stride);
}

void weigh_rows(const float* p, std::int64_t p_row, std::int64_t rows, const Rows& values,
                std::int64_t count, std::int64_t dim, float* out, std::int64_t out_stride) {
  if (values.storage == Storage::f32)
    weigh_rows_of<F32>(p, p_row, rows, values, count, dim, out, out_stride);
  if (values.storage == Storage::f16)
    weigh_rows_of<F16>(p, p_row, rows, values, count, dim, out, out_stride);
  if (values.storage == Storage::bf16)
    weigh_rows_of<Bf16>(p, p_row, rows, values, count, dim, out, out_stride);
}

// Scores to weights in place; returns the maximum and the sum of the weights. A row of nothing but
// hidden keys has the sum 0.
void exp_row(float* scores, std::int64_t count, float* maximum, float* sum) {
  float best = -__builtin_inff();
  std::int64_t j = 0;
  if (count >= kFloats) {
    Float top = load<Float>(scores);
    for (j = kFloats; j + kFloats <= count; j += kFloats)
      top = larger(top, load<Float>(scores + j));
    best = largest_of_lanes(top);
  }
  for (; j < count; ++j) best = scores[j] > best ? scores[j] : best;
  const float base = best == -__builtin_inff() ? 0.0F : best;
  Float total{};
  for (j = 0; j + kFloats <= count; j += kFloats) {
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

void soft_cap_row(float* scores, std::int64_t count, float cap) {
  std::int64_t j = 0;
  for (; j + kFloats <= count; j += kFloats)
    store(scores + j, soft_capped(load<Float>(scores + j), cap));
  if (j == count) return;
  const Float tail = soft_capped(read_part<F32>(scores + j, count - j), cap);
  for (std::int64_t lane = 0; lane < count - j; ++lane) scores[j + lane] = tail[lane];
}

}  // namespace
