// A few queries against keys and values that are not packed: decoding reads every key once, and
// packing would read it twice.
#pragma once

#include "attention/kernels/pack.hpp"
#include "phasor/attention/internal/kernels/exponential.hpp"

namespace {

// Values are weighted a tile at a time: if one product does not cover all columns of a row, the next
// one finds the rows in the L1 cache, beside those of the next tile.
constexpr std::int64_t kWeighedKeys = 48;
// Sums of all queries that stay in registers, beside a vector of each column and a weight.
constexpr int kWeighedSums = kVectors == 4 ? 16 : 12;

// Inlined by force: GCC 12 drops calls of a function that does nothing but prefetch.
template <class Element>
PHASOR_IN_PLACE void prefetch_row(const Element* row, std::int64_t dim) {
  for (std::int64_t byte = 0; byte < dim * static_cast<std::int64_t>(sizeof(Element)); byte += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(row) + byte);
}

// How the products of kCount queries with keys are summed. A vector holds kPart features of kBeside
// queries, side by side, and meets the same kPart features of a key, repeated: a sum is then spread over
// kPart lanes only, and few shuffles join them. Keys of 16 bits are converted a whole vector at a time,
// so that repeating their parts would cost more than it saves.
template <class Type, int kCount>
struct Sums {
  // Two: with four, each product needs a load of its own, and a sixth more time (Zen 5, AVX-512).
  static constexpr int kMostBeside = sizeof(typename Type::Element) == 4 && kFloats >= 8 ? 2 : 1;
  static constexpr int kBeside = kCount < kMostBeside ? kCount : kMostBeside;
  static constexpr int kPart = kFloats / kBeside;
  static constexpr int kQueries = kCount / kBeside;  // vectors
  // Keys at once: as many as make kFloats sums, which are joined kPart at a time. More than eight are
  // slower where fewer are enough: with sixteen, four queries took 1.3 times as long (AVX-512).
  static constexpr int kMostKeys = kQueries < kFloats ? kFloats / kQueries : 1;
  static constexpr int kKeys = kMostKeys > 8 && kPart <= 8 * kQueries ? 8 : kMostKeys;
  static constexpr int kAll = kQueries * kKeys;
  // Keys whose rows are read side by side. Memory is read in order as far as the sums allow: a CPU
  // fetches ahead of one reader. Two rows of 256 bytes instead of four took 0.7 of the time with
  // AVX-512, from the last cache of a Zen 4, and instead of eight half of it with AVX2. The sums of other
  // keys do not wait for these. Rows of 16-bit numbers are half as long, and their conversion takes longer
  // than the reading: more sums at a time hide it.
  static constexpr int kMostAbreast = sizeof(typename Type::Element) == 4 ? 2 : 8;
  static constexpr int kAbreast = kQueries > 1 || kKeys < kMostAbreast ? kKeys : kMostAbreast;
};

// kPart features of a row, as often as they fit a vector.
template <class Type, int kPart>
inline Float read_repeated(const typename Type::Element* at) {
  if constexpr (kPart == kFloats) {
    return Type::read(at);
  } else {
#if defined(__AVX512F__)
    return reinterpret_cast<Float>(_mm512_maskz_broadcast_f32x8(kAllLanes, load<__m256>(at)));
#elif defined(__AVX2__)
    return reinterpret_cast<Float>(_mm256_broadcast_ps(reinterpret_cast<const __m128*>(at)));
#endif
  }
}

// The features of a row that are read at once: kPart of them in one vector, or, of bf16, two in each
// lane of 32 bits, which a shift and a mask take apart into two vectors.
template <class Type, int kPart>
struct Step {
  static constexpr int kVectors = 1, kFeatures = kPart;
  static Float read(const typename Type::Element* at) { return read_repeated<Type, kPart>(at); }
  static Float vector(Float features, int) { return features; }
};
template <int kPart>
struct Step<Bf16, kPart> {
  static_assert(kPart == kFloats);
  static constexpr int kVectors = 2, kFeatures = 2 * kPart;
  static Bits read(const Bf16::Element* at) { return load<Bits>(at); }
  static Float vector(Bits features, int which) {
    return which == 0 ? low_bf16(features) : high_bf16(features);
  }
};

// The lanes 2 i + kOdd of a, then those of b.
template <int kOdd, int... Lane>
inline Float every_other(Float a, Float b, Lanes<Lane...>) {
  return __builtin_shufflevector(a, b, (2 * Lane + kOdd)...);
}

// q as the sums read it: [dim / step][vectors of a step][kQueries][kBeside][kPart], zeros after the last
// feature.
template <class Type, class S>
void put_beside(const float* q, std::int64_t q_stride, std::int64_t dim, float* out) {
  constexpr int kStep = Step<Type, S::kPart>::kFeatures;
  constexpr int kRows = S::kQueries * S::kBeside;
  for (std::int64_t i = 0; i < dim; i += kStep, out += kRows * kStep) {
    for (int r = 0; r < kRows; ++r) {
      const float* const from = q + r * q_stride + i;
      if constexpr (kStep == S::kPart) {
        __builtin_memcpy(out + r * kStep, from, kStep * sizeof(float));
      } else {
        const Float first = load<Float>(from);
        const Float second = i + kFloats < dim ? load<Float>(from + kFloats) : Float{};
        store(out + r * kFloats, every_other<0>(first, second, FloatLanes{}));
        store(out + (kRows + r) * kFloats, every_other<1>(first, second, FloatLanes{}));
      }
    }
  }
}

// The sums of all queries with S::kKeys keys, sum r * kKeys + j of the queries of vector r; row(j) is
// key j. Fetches what is `ahead` elements after the keys; 0: nothing.
template <class Type, class S, class Row>
PHASOR_IN_PLACE void dot_products(const float* beside, const Row& row, std::int64_t ahead,
                                  std::int64_t dim, Float (&sums)[S::kAll]) {
  using Element = typename Type::Element;
  using Part = Step<Type, S::kPart>;
  PHASOR_UNROLL
  for (int i = 0; i < S::kAll; ++i) sums[i] = Float{};
  PHASOR_UNROLL
  for (int first = 0; first < S::kKeys; first += S::kAbreast) {
    if (ahead != 0) {
      PHASOR_UNROLL
      for (int j = first; j < first + S::kAbreast; ++j) prefetch_row(row(j) + ahead, dim);
    }
    const float* queries_at = beside;
    const auto add = [&](auto at) __attribute__((always_inline)) {
      PHASOR_UNROLL
      for (int v = 0; v < Part::kVectors; ++v) {
        Float queries[S::kQueries];
        PHASOR_UNROLL
        for (int r = 0; r < S::kQueries; ++r)
          queries[r] = in_register(load<Float>(queries_at + r * kFloats));
        queries_at += S::kQueries * kFloats;
        PHASOR_UNROLL
        for (int j = first; j < first + S::kAbreast; ++j) {
          const Float value = in_register(Part::vector(Part::read(at(j)), v));
          PHASOR_UNROLL
          for (int r = 0; r < S::kQueries; ++r)
            sums[r * S::kKeys + j] = mul_add(queries[r], value, sums[r * S::kKeys + j]);
        }
      }
    };
    const auto add_at = [&](std::int64_t i) __attribute__((always_inline)) {
      add([&](int j) __attribute__((always_inline)) { return row(j) + i; });
    };
    constexpr std::int64_t kLine = 64 / sizeof(Element);
    std::int64_t i = 0;
    for (; i + kLine <= dim; i += kLine) {
      PHASOR_UNROLL
      for (std::int64_t part = 0; part < kLine; part += Part::kFeatures) add_at(i + part);
    }
    for (; i + Part::kFeatures <= dim; i += Part::kFeatures) add_at(i);
    if (i == dim) continue;
    Element padded[S::kAbreast][Part::kFeatures] = {};
    for (int j = 0; j < S::kAbreast; ++j) {
      for (std::int64_t rest = i; rest < dim; ++rest) padded[j][rest - i] = row(first + j)[rest];
    }
    add([&](int j) { return padded[j - first]; });
  }
}

// Joins the lanes of the sums and writes the first `count` keys' scores.
template <class S>
PHASOR_IN_PLACE void write_scores(Float (&sums)[S::kAll], int count, float* scores,
                                  std::int64_t score_row) {
  const auto plus = [](Float a, Float b) { return a + b; };
  PHASOR_UNROLL
  for (int first = 0; first < S::kAll; first += S::kPart) {
    Float* const x = sums + first;
    join_units<1, S::kPart / 2>(x, plus);
    join_units<1, S::kPart / 4>(x, plus);
    if constexpr (S::kPart >= 8) join_units<4, S::kPart / 8>(x, plus);
    if constexpr (S::kPart >= 16) join_units<4, S::kPart / 16>(x, plus);
    alignas(64) float lanes[kFloats];
    store(lanes, x[0]);
    // Four lanes are four sums of one of the queries beside each other.
    constexpr int kRun = S::kKeys < 4 ? S::kKeys : 4;
    PHASOR_UNROLL
    for (int lane = 0; lane < kFloats; lane += kRun) {
      const int sum = first + lane / (4 * S::kBeside) * 4 + lane % 4;
      const int row = sum / S::kKeys * S::kBeside + lane / 4 % S::kBeside, key = sum % S::kKeys;
      float* const to = scores + row * score_row + key;
      if (count == S::kKeys) {
        __builtin_memcpy(to, lanes + lane, kRun * sizeof(float));
      } else {
        for (int i = 0; i < kRun && key + i < count; ++i) to[i] = lanes[lane + i];
      }
    }
  }
}

template <class Type, int kCount>
void score_some(const float* q, std::int64_t q_stride, const Rows& keys, std::int64_t count,
                std::int64_t dim, std::int64_t ahead, float* beside, float* scores,
                std::int64_t score_row) {
  using Element = typename Type::Element;
  using S = Sums<Type, kCount>;
  put_beside<Type, S>(q, q_stride, dim, beside);
  const std::int64_t stride = keys.stride;
  const auto* key = static_cast<const Element*>(keys.data);
  std::int64_t j = 0;
  for (; j + S::kKeys <= count; j += S::kKeys, key += S::kKeys * stride) {
    const bool has_next = j + ahead + S::kKeys <= count;
    Float sums[S::kAll];
    dot_products<Type, S>(
        beside, [&](int i) __attribute__((always_inline)) { return key + i * stride; },
        has_next ? ahead * stride : 0, dim, sums);
    write_scores<S>(sums, S::kKeys, scores + j, score_row);
  }
  if (j == count) return;
  // The last key stands in for those after it: every key has the same sums, wherever it is.
  const auto left = static_cast<int>(count - j);
  Float sums[S::kAll];
  dot_products<Type, S>(
      beside, [&](int i) { return key + (i < left ? i : left - 1) * stride; }, 0, dim, sums);
  write_scores<S>(sums, left, scores + j, score_row);
}

// The cache lines to fetch for a row while another is weighted: `count` from `first` on of the row
// `rows` after it. Each of `passes` over the columns fetches its share of the `lines` of a row: memory
// is read all the time.
struct Lines {
  std::int64_t rows, lines, passes;
  std::int64_t first = 0, count = 0;
  std::int64_t owed = passes - 1;  // in lines / passes

  void begin_pass() {
    first += count;
    owed += lines;
    for (count = 0; owed >= passes; owed -= passes) ++count;
  }
};

// The columns [column, column + kColumns vectors) of a tile of values. The first `fetched` rows have a
// row to prefetch.
template <class Type, int kCount, int kColumns>
inline void weigh_columns(const float* p, std::int64_t p_row, const Rows& values,
                          std::int64_t count, std::int64_t fetched, const Lines& ahead,
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
  for (std::int64_t j = 0; j < count; ++j) {
    const Element* const row = data + j * values.stride;
    if (j < fetched) {
      const char* const line =
          reinterpret_cast<const char*>(row + ahead.rows * values.stride) + ahead.first * 64;
      for (std::int64_t l = 0; l < ahead.count; ++l) __builtin_prefetch(line + l * 64);
    }
    if constexpr (kCount == 1) {
      // Each column is used once: held all at a time, they would leave no register for the last sum,
      // and a sum that waits for memory waits four times as long.
      const Float weight = in_register(splat(p[j]));
      PHASOR_UNROLL
      for (int v = 0; v < kColumns; ++v)
        sums[0][v] = mul_add(weight, read_column(row + column, v), sums[0][v]);
      continue;
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
  }
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
                               std::int64_t count, std::int64_t fetched, Lines ahead,
                               std::int64_t column, std::int64_t dim, float* out,
                               std::int64_t out_stride) {
  for (; column + kColumns * kFloats <= dim; column += kColumns * kFloats) {
    ahead.begin_pass();
    weigh_columns<Type, kCount, kColumns>(p, p_row, tile, count, fetched, ahead, column, out,
                                          out_stride);
  }
  if constexpr (kColumns > 1) {
    return weigh_tile<Type, kCount, (kColumns + 1) / 2>(p, p_row, tile, count, fetched, ahead,
                                                        column, dim, out, out_stride);
  }
  return column;
}

template <class Type, int kCount>
void weigh_some(const float* p, std::int64_t p_row, const Rows& values, std::int64_t count,
                std::int64_t dim, std::int64_t rows_ahead, float* out, std::int64_t out_stride) {
  using Element = typename Type::Element;
  constexpr int kMost = kCount == 1 ? 8 : kWeighedSums / kCount;
  // Whole steps of the storage: 3 columns of bf16 would be one step and half of another.
  constexpr int kColumns = kMost - kMost % (kMost > 1 ? Step<Type, kFloats>::kVectors : 1);
  const std::int64_t passes = (dim + kColumns * kFloats - 1) / (kColumns * kFloats);
  const std::int64_t lines = (dim * static_cast<std::int64_t>(sizeof(Element)) + 63) / 64;
  // One pass fetches rows that it reads soon; of several, each fetches its part of the next tile.
  const Lines ahead{passes == 1 ? rows_ahead : kWeighedKeys, lines, passes};
  for (std::int64_t first = 0; first < count; first += kWeighedKeys) {
    const std::int64_t left = count - first;
    const std::int64_t here = left < kWeighedKeys ? left : kWeighedKeys;
    const auto* const data = static_cast<const Element*>(values.data) + first * values.stride;
    const std::int64_t column = weigh_tile<Type, kCount, kColumns>(
        p + first, p_row, {data, values.stride, values.storage}, here,
        rows_ahead == 0 ? 0 : left - ahead.rows, ahead, 0, dim, out, out_stride);
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
                   std::int64_t count, std::int64_t dim, std::int64_t ahead, float* beside,
                   float* scores, std::int64_t score_row) {
  const auto score = [&]<int kCount>() {
    score_some<Type, kCount>(q, q_stride, keys, count, dim, ahead, beside, scores, score_row);
  };
  if (rows == 1) return score.template operator()<1>();
  if (rows == 2) return score.template operator()<2>();
  if (rows <= 4) return score.template operator()<4>();
  score.template operator()<8>();
}

void score_rows(const float* q, std::int64_t q_stride, std::int64_t rows, const Rows& keys,
                std::int64_t count, std::int64_t dim, std::int64_t ahead, float* beside,
                float* scores, std::int64_t score_row) {
  if (keys.storage == Storage::f32)
    score_rows_of<F32>(q, q_stride, rows, keys, count, dim, ahead, beside, scores, score_row);
  if (keys.storage == Storage::f16)
    score_rows_of<F16>(q, q_stride, rows, keys, count, dim, ahead, beside, scores, score_row);
  if (keys.storage == Storage::bf16)
    score_rows_of<Bf16>(q, q_stride, rows, keys, count, dim, ahead, beside, scores, score_row);
}

template <class Type>
void weigh_rows_of(const float* p, std::int64_t p_row, std::int64_t rows, const Rows& values,
                   std::int64_t count, std::int64_t dim, std::int64_t ahead, float* out,
                   std::int64_t out_stride) {
  if (rows == 1) return weigh_some<Type, 1>(p, p_row, values, count, dim, ahead, out, out_stride);
  if (rows == 2) return weigh_some<Type, 2>(p, p_row, values, count, dim, ahead, out, out_stride);
  if (rows <= 4) return weigh_some<Type, 4>(p, p_row, values, count, dim, ahead, out, out_stride);
  weigh_some<Type, 8>(p, p_row, values, count, dim, ahead, out, out_stride);
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

// The largest of scores[0 .. count); -infinity if there is none. Several maxima at a time: one alone
// would wait for itself.
inline float largest_of(const float* scores, std::int64_t count) {
  constexpr int kChains = 4;
  const Float lowest = splat(-__builtin_inff());
  Float top[kChains] = {lowest, lowest, lowest, lowest};
  std::int64_t j = 0;
  for (; j + kChains * kFloats <= count; j += kChains * kFloats) {
    PHASOR_UNROLL
    for (int i = 0; i < kChains; ++i)
      top[i] = larger(top[i], load<Float>(scores + j + i * kFloats));
  }
  for (; j + kFloats <= count; j += kFloats) top[0] = larger(top[0], load<Float>(scores + j));
  float best = largest_of_lanes(larger(larger(top[0], top[1]), larger(top[2], top[3])));
  for (; j < count; ++j) best = scores[j] > best ? scores[j] : best;
  return best;
}

// Scores to weights in place, with the maximum and the sum of the weights. A row whose
// keys are all hidden has the sum 0.
void exp_row(float* scores, std::int64_t count, float* maximum, float* sum) {
  const float best = largest_of(scores, count);
  const float base = best == -__builtin_inff() ? 0.0F : best;
  Float total{};
  std::int64_t j = 0;
  for (; j + kFloats <= count; j += kFloats) {
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
