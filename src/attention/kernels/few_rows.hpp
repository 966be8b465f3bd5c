// A few queries against keys and values that are not packed: decoding reads every key once, and
// packing would read it twice.
#pragma once

#include "attention/kernels/pack.hpp"
#include "phasor/attention/internal/kernels/exponential.hpp"

namespace {

// Prefetch distance in rows: 4 KiB for a head of 64 floats.
constexpr std::int64_t kRowsAhead = 16;
// Values are weighted a tile at a time: if one product does not cover all columns of a row, the next
// one finds the rows in the L1 cache, beside those of the next tile.
constexpr std::int64_t kWeighedKeys = 48;
// Sums of all queries that stay in registers, beside a vector of each column and a weight.
constexpr int kWeighedSums = kVectors == 4 ? 16 : 12;

template <class Element>
inline void prefetch_row(const Element* row, std::int64_t dim) {
  for (std::int64_t byte = 0; byte < dim * static_cast<std::int64_t>(sizeof(Element)); byte += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(row) + byte);
}

// A vector that is used kUses times, read once.
template <int kUses>
inline Float load_once(const float* at) {
  if constexpr (kUses == 1) return load<Float>(at);
  return in_register(load<Float>(at));
}

// kCount queries against kKeys keys from `key` on.
template <class Type, int kCount, int kKeys>
inline void dot_products(const float* q, std::int64_t q_stride, const typename Type::Element* key,
                         std::int64_t stride, std::int64_t dim, Float (&sums)[kCount * kKeys]) {
  PHASOR_UNROLL
  for (int i = 0; i < kCount * kKeys; ++i) sums[i] = Float{};
  const std::int64_t whole = dim / kFloats * kFloats;
  for (std::int64_t i = 0; i < whole; i += kFloats) {
    Float values[kKeys];
    PHASOR_UNROLL
    for (int j = 0; j < kKeys; ++j) values[j] = in_register(Type::read(key + j * stride + i));
    PHASOR_UNROLL
    for (int r = 0; r < kCount; ++r) {
      const Float query = load_once<kKeys>(q + r * q_stride + i);
      PHASOR_UNROLL
      for (int j = 0; j < kKeys; ++j)
        sums[r * kKeys + j] = mul_add(query, values[j], sums[r * kKeys + j]);
    }
  }
  if (whole == dim) return;
  PHASOR_UNROLL
  for (int j = 0; j < kKeys; ++j) {
    const Float value = read_part<Type>(key + j * stride + whole, dim - whole);
    PHASOR_UNROLL
    for (int r = 0; r < kCount; ++r) {
      Float& sum = sums[r * kKeys + j];
      sum = mul_add(load<Float>(q + r * q_stride + whole), value, sum);
    }
  }
}

// As many keys at once as make a full vector of sums with the queries.
template <class Type, int kCount>
void score_some(const float* q, std::int64_t q_stride, const Rows& keys, std::int64_t count,
                std::int64_t dim, float* scores, std::int64_t score_row) {
  using Element = typename Type::Element;
  const auto* const data = static_cast<const Element*>(keys.data);
  std::int64_t j = 0;
  if constexpr (kCount <= kFloats) {
    constexpr int kKeys = kFloats / kCount;
    for (; j + kKeys <= count; j += kKeys) {
      const Element* const key = data + j * keys.stride;
      if (j + kRowsAhead + kKeys <= count) {
        for (int ahead = 0; ahead < kKeys; ++ahead)
          prefetch_row(key + (kRowsAhead + ahead) * keys.stride, dim);
      }
      Float sums[kFloats];
      dot_products<Type, kCount, kKeys>(q, q_stride, key, keys.stride, dim, sums);
      alignas(64) float lanes[kFloats];
      store(lanes, sums_of_lanes(sums));
      PHASOR_UNROLL
      for (int r = 0; r < kCount; ++r)
        __builtin_memcpy(scores + r * score_row + j, lanes + r * kKeys, kKeys * sizeof(float));
    }
  }
  for (; j < count; ++j) {
    Float sums[kCount];
    dot_products<Type, kCount, 1>(q, q_stride, data + j * keys.stride, keys.stride, dim, sums);
    for (int r = 0; r < kCount; ++r) scores[r * score_row + j] = sum_of_lanes(sums[r]);
  }
}

// The cache lines to fetch for a row while another is weighted: `count` from `first` on of the row
// `rows` after it.
struct Lines {
  std::int64_t rows, first, count;
};

// The columns [column, column + kColumns vectors) of a tile of values. The first `fetched` rows have a
// row to prefetch.
template <class Type, int kCount, int kColumns>
inline void weigh_columns(const float* p, std::int64_t p_row, const Rows& values,
                          std::int64_t count, std::int64_t fetched, Lines ahead,
                          std::int64_t column, float* out, std::int64_t out_stride) {
  using Element = typename Type::Element;
  const auto* const data = static_cast<const Element*>(values.data);
  Float sums[kCount][kColumns];
  PHASOR_UNROLL
  for (int r = 0; r < kCount; ++r) {
    PHASOR_UNROLL
    for (int v = 0; v < kColumns; ++v)
      sums[r][v] = load<Float>(out + r * out_stride + column + v * kFloats);
  }
  for (std::int64_t j = 0; j < count; ++j) {
    const Element* const row = data + j * values.stride;
    if (j < fetched) {
      const char* const line =
          reinterpret_cast<const char*>(row + ahead.rows * values.stride) + ahead.first * 64;
      for (std::int64_t l = 0; l < ahead.count; ++l) __builtin_prefetch(line + l * 64);
    }
    Float columns[kColumns];
    PHASOR_UNROLL
    for (int v = 0; v < kColumns; ++v)
      columns[v] = in_register(Type::read(row + column + v * kFloats));
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

// The columns of a tile from `column` on, kColumns vectors a pass, then fewer. Returns the first column
// that is left, less than a vector before `dim`.
template <class Type, int kCount, int kColumns>
inline std::int64_t weigh_tile(const float* p, std::int64_t p_row, const Rows& tile,
                               std::int64_t count, std::int64_t fetched, Lines ahead,
                               std::int64_t column, std::int64_t dim, float* out,
                               std::int64_t out_stride) {
  for (; column + kColumns * kFloats <= dim; column += kColumns * kFloats) {
    weigh_columns<Type, kCount, kColumns>(p, p_row, tile, count, fetched, ahead, column, out,
                                          out_stride);
    ahead.first += ahead.count;
  }
  if constexpr (kColumns > 1) {
    return weigh_tile<Type, kCount, (kColumns + 1) / 2>(p, p_row, tile, count, fetched, ahead,
                                                        column, dim, out, out_stride);
  }
  return column;
}

template <class Type, int kCount>
void weigh_some(const float* p, std::int64_t p_row, const Rows& values, std::int64_t count,
                std::int64_t dim, float* out, std::int64_t out_stride) {
  using Element = typename Type::Element;
  constexpr int kColumns = kCount == 1 ? 8 : kWeighedSums / kCount;
  const std::int64_t passes = (dim + kColumns * kFloats - 1) / (kColumns * kFloats);
  const std::int64_t lines = (dim * static_cast<std::int64_t>(sizeof(Element)) + 63) / 64;
  // One pass fetches rows that it reads soon; of several, each fetches its part of the next tile.
  const Lines ahead{passes == 1 ? kRowsAhead : kWeighedKeys, 0, (lines + passes - 1) / passes};
  for (std::int64_t first = 0; first < count; first += kWeighedKeys) {
    const std::int64_t left = count - first;
    const std::int64_t here = left < kWeighedKeys ? left : kWeighedKeys;
    const auto* const data = static_cast<const Element*>(values.data) + first * values.stride;
    const std::int64_t column =
        weigh_tile<Type, kCount, kColumns>(p + first, p_row, {data, values.stride, values.storage},
                                           here, left - ahead.rows, ahead, 0, dim, out, out_stride);
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
  score_some<Type, 8>(q, q_stride, keys, count, dim, scores, score_row);
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
  weigh_some<Type, 8>(p, p_row, values, count, dim, out, out_stride);
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

// Scores to weights in place, with the maximum and the sum of the weights. A row whose
// keys are all hidden has the sum 0.
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
