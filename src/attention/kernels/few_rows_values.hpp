// The sums of values that are not packed, weighted for a few queries.
#pragma once

#include "attention/kernels/few_rows_steps.hpp"

namespace {

// Vectors of columns of a pass: their sums of all queries stay in registers, beside the columns and a weight.
constexpr int columns_of_pass(int queries) {
  if (queries == 1) return 8;
  if (kVectors == 4) return 16 / queries / 2 * 2;
  // 6 for two queries would leave 2 of 64 features, whose four sums wait for each other.
  return queries == 2 ? 4 : 3;
}

// The columns [column, column + kColumns vectors) of a tile of values. Of the first `fetched` rows, the
// same columns `ahead` rows later are fetched.
template <class Type, int kCount, int kColumns>
inline void weigh_columns(const float* p, std::int64_t p_row, const Rows& values,
                          std::int64_t count, std::int64_t fetched, std::int64_t ahead,
                          std::int64_t column, float* out, std::int64_t out_stride) {
  using Element = typename Type::Element;
  const auto* const data = static_cast<const Element*>(values.data);
  using Part = Step<Type, kFloats>;
  // Columns as steps of the storage hold them; a lone column is read as any other number.
  constexpr int kVectorsOfStep = kColumns % Part::kVectors == 0 ? Part::kVectors : 1;
  const auto read_column = [](const Element* at, int v) __attribute__((always_inline)) {
    if constexpr (kVectorsOfStep == 1) {
      return Type::read(at + v * kFloats);
    } else {
      return Part::vector(Part::read(at + v / 2 * Part::kFeatures), v % 2);
    }
  };
  Float sums[kCount][kColumns];
  PHASOR_UNROLL
  for (int r = 0; r < kCount; ++r) {
    PHASOR_UNROLL
    for (int v = 0; v < kColumns; ++v)
      sums[r][v] = load<Float>(out + r * out_stride + column + v * kFloats);
    if constexpr (kVectorsOfStep == 2) {
      PHASOR_UNROLL
      for (int v = 0; v < kColumns; v += 2) {
        const Float first = sums[r][v], second = sums[r][v + 1];
        sums[r][v] = every_other<0>(first, second, FloatLanes{});
        sums[r][v + 1] = every_other<1>(first, second, FloatLanes{});
      }
    }
  }
  // Lines that begin in these columns, the last one twice if there are fewer than there may be.
  constexpr std::int64_t kBytes = kColumns * kFloats * static_cast<std::int64_t>(sizeof(Element));
  constexpr int kLines = (kBytes + 63) / 64;
  const std::int64_t at = column * static_cast<std::int64_t>(sizeof(Element));
  std::int64_t lines[kLines];
  PHASOR_UNROLL
  for (int i = 0; i < kLines; ++i) {
    const std::int64_t line = (at + 63) / 64 + i, last = (at + kBytes - 1) / 64;
    lines[i] = 64 * (line < last ? line : last);
  }
  const auto fetch = [&](std::int64_t j) __attribute__((always_inline)) {
    const auto* const row = reinterpret_cast<const char*>(data + (j + ahead) * values.stride);
    PHASOR_UNROLL
    for (int i = 0; i < kLines; ++i) __builtin_prefetch(row + lines[i]);
  };
  const auto add_row = [&](std::int64_t j) __attribute__((always_inline)) {
    const Element* const row = data + j * values.stride;
    if constexpr (kCount == 1) {
      // Each column is used once: held all at a time, they would leave no register for the last sum,
      // and a sum that waits for memory waits four times as long.
      const Float weight = in_register(splat(p[j]));
      PHASOR_UNROLL
      for (int v = 0; v < kColumns; ++v)
        sums[0][v] = mul_add(weight, read_column(row + column, v), sums[0][v]);
      return;
    }
    Float columns[kColumns];
    PHASOR_UNROLL
    for (int v = 0; v < kColumns; ++v) columns[v] = in_register(read_column(row + column, v));
    PHASOR_UNROLL
    for (int r = 0; r < kCount; ++r) {
      const Float weight = in_register(splat(p[r * p_row + j]));
      PHASOR_UNROLL
      for (int v = 0; v < kColumns; ++v) sums[r][v] = mul_add(weight, columns[v], sums[r][v]);
    }
  };
  std::int64_t j = 0;
  for (; j < fetched; ++j) {
    fetch(j);
    add_row(j);
  }
  for (; j < count; ++j) add_row(j);
  PHASOR_UNROLL
  for (int r = 0; r < kCount; ++r) {
    if constexpr (kVectorsOfStep == 2) {
      PHASOR_UNROLL
      for (int v = 0; v < kColumns; v += 2) {
        const Float even = sums[r][v], odd = sums[r][v + 1];
        sums[r][v] = zip_first(even, odd, FloatLanes{});
        sums[r][v + 1] = zip_second(even, odd, FloatLanes{});
      }
    }
    PHASOR_UNROLL
    for (int v = 0; v < kColumns; ++v)
      store(out + r * out_stride + column + v * kFloats, sums[r][v]);
  }
}

// The columns of a tile from `column` on, kColumns vectors a pass, then fewer. Returns the first column
// that is left, less than a vector before `dim`.
template <class Type, int kCount, int kColumns>
inline std::int64_t weigh_tile(const float* p, std::int64_t p_row, const Rows& tile,
                               std::int64_t count, std::int64_t fetched, std::int64_t ahead,
                               std::int64_t column, std::int64_t dim, float* out,
                               std::int64_t out_stride) {
  for (; column + kColumns * kFloats <= dim; column += kColumns * kFloats) {
    weigh_columns<Type, kCount, kColumns>(p, p_row, tile, count, fetched, ahead, column, out,
                                          out_stride);
  }
  if constexpr (kColumns > 1) {
    return weigh_tile<Type, kCount, (kColumns + 1) / 2>(p, p_row, tile, count, fetched, ahead,
                                                        column, dim, out, out_stride);
  }
  return column;
}

// kCount queries and values of which `left` follow each other in memory. If one pass does not cover all
// columns of a row, the next one finds the rows in the first cache, beside those of the next tile. Not
// inlined, as score_some().
template <class Type, int kCount>
[[gnu::noinline]] void weigh_some(const float* p, std::int64_t p_row, const Rows& values,
                                  std::int64_t count, std::int64_t left, std::int64_t dim,
                                  std::int64_t rows_ahead, float* out, std::int64_t out_stride) {
  using Element = typename Type::Element;
  constexpr int kMost = columns_of_pass(kCount);
  // Whole steps of the storage: 3 columns of bf16 would be one step and half of another.
  constexpr int kColumns = kMost - kMost % (kMost > 1 ? Step<Type, kFloats>::kVectors : 1);
  // One pass fetches rows that it reads soon; of several, each fetches its columns of the next tile.
  std::int64_t columns = kColumns;  // of the first pass
  while (columns > 1 && columns * kFloats > dim) columns = (columns + 1) / 2;
  const bool is_one_pass = columns * kFloats == dim;
  const std::int64_t ahead = is_one_pass ? rows_ahead : kRowsInCache;
  const std::int64_t tile = is_one_pass ? count : kRowsInCache;
  for (std::int64_t first = 0; first < count; first += tile, left -= tile) {
    const std::int64_t here = count - first < tile ? count - first : tile;
    const std::int64_t can_fetch = rows_ahead == 0 || left < ahead ? 0 : left - ahead;
    const auto* const data = static_cast<const Element*>(values.data) + first * values.stride;
    const std::int64_t column = weigh_tile<Type, kCount, kColumns>(
        p + first, p_row, {data, values.stride, values.storage}, here,
        can_fetch < here ? can_fetch : here, ahead, 0, dim, out, out_stride);
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
void weigh_rows_of(const float* p, std::int64_t p_row, std::int64_t rows, const Rows& values,
                   std::int64_t count, std::int64_t dim, std::int64_t ahead, float* out,
                   std::int64_t out_stride) {
  constexpr int kTogether = kVectors == 4 ? 8 : 4;  // as registers allow
  for_each_turn<kTogether>(
      rows, count, [&]<int kCount>(std::int64_t query, std::int64_t first, std::int64_t here) {
        const auto* const data = static_cast<const typename Type::Element*>(values.data);
        weigh_some<Type, kCount>(p + query * p_row + first, p_row,
                                 {data + first * values.stride, values.stride, values.storage},
                                 here, count - first, dim, query == 0 ? ahead : 0,
                                 out + query * out_stride, out_stride);
      });
}

void weigh_rows(const float* p, std::int64_t p_row, std::int64_t rows, const Rows& values,
                std::int64_t count, std::int64_t dim, std::int64_t ahead, float* out,
                std::int64_t out_stride) {
  if (values.storage == Storage::f32)
    weigh_rows_of<F32>(p, p_row, rows, values, count, dim, ahead, out, out_stride);
  if (values.storage == Storage::f16)
    weigh_rows_of<F16>(p, p_row, rows, values, count, dim, ahead, out, out_stride);
  if (values.storage == Storage::bf16)
    weigh_rows_of<Bf16>(p, p_row, rows, values, count, dim, ahead, out, out_stride);
}

}  // namespace
