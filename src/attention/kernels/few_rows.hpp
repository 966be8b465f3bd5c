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

// Vectors of queries that stay in registers while keys are read.
constexpr int kMostHeld = kVectors == 4 ? 16 : 8;

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
  // Keys whose sums are joined: as many as make kFloats sums, at most those that a query's lanes hold.
  static constexpr int kMostKeys = kQueries < kFloats ? kFloats / kQueries : 1;
  static constexpr int kKeys = kMostKeys < kPart ? kMostKeys : kPart;
  // Keys whose rows are read side by side. For one query, one float row after the other: a CPU fetches
  // ahead of one reader (8 rows of 256 bytes took twice as long from the last cache of a Zen 4). With
  // several queries, and where 16-bit numbers are converted, the arithmetic takes as long as the reading:
  // it needs more sums that do not wait for each other.
  static constexpr bool kIsFloat = sizeof(typename Type::Element) == 4;
  static constexpr int kMostAbreast = kIsFloat ? (kCount < 4 ? kCount : 8) : (kQueries > 2 ? 2 : 4);
  static constexpr int kAbreast = kKeys < kMostAbreast ? kKeys : kMostAbreast;
  static constexpr int kJoined = kQueries * kKeys / kPart;  // vectors of joined sums
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

// A number that is known when the kernel is compiled, where others take a std::int64_t.
template <std::int64_t kValue>
struct Constant {
  constexpr operator std::int64_t() const { return kValue; }
};
template <class Number>
constexpr bool kIsKnown = !__is_same(Number, std::int64_t);

// The same address, whose origin the compiler does not know: GCC 12 would compute the places of all vectors
// of many rows ahead, and keep them in memory.
template <class Element>
inline const Element* opaque(const Element* at) {
  asm("" : "+r"(at));
  return at;
}

// Vectors of queries as put_beside() writes them: vector r of part `part`.
template <int kQueries>
struct QueriesInMemory {
  const float* at;
  Float vector(std::int64_t part, int r) const {
    return in_register(load<Float>(at + (part * kQueries + r) * kFloats));
  }
};
template <int kQueries, int kParts>
struct QueriesInRegisters {
  Float vectors[kParts * kQueries];
  explicit QueriesInRegisters(const float* at) {
    PHASOR_UNROLL
    for (int i = 0; i < kParts * kQueries; ++i) vectors[i] = load<Float>(at + i * kFloats);
  }
  Float vector(std::int64_t part, int r) const { return vectors[part * kQueries + r]; }
};
template <class S>
QueriesInMemory<S::kQueries> queries_of(const float* beside, std::int64_t) {
  return {beside};
}
template <class S, std::int64_t kDim>
auto queries_of(const float* beside, Constant<kDim>) {
  constexpr int kParts = static_cast<int>(kDim) / S::kPart;
  if constexpr (kParts * S::kQueries <= kMostHeld) {
    return QueriesInRegisters<S::kQueries, kParts>(beside);
  } else {
    return QueriesInMemory<S::kQueries>{beside};
  }
}

// The products of all queries with S::kAbreast keys, sums[j][r] of key j with the queries of vector r;
// next_row() is the next key. Fetches what is `ahead` elements after the keys; 0: nothing.
template <class Type, class S, class Queries, class NextRow, class Ahead, class Dim>
PHASOR_IN_PLACE void dot_products(const Queries& queries, const NextRow& next_row, Ahead ahead,
                                  Dim dim, Float (&sums)[S::kAbreast][S::kQueries]) {
  using Element = typename Type::Element;
  using Part = Step<Type, S::kPart>;
  const Element* keys[S::kAbreast];
  PHASOR_UNROLL
  for (int j = 0; j < S::kAbreast; ++j) {
    keys[j] = next_row();
    if constexpr (!__is_same(Ahead, Constant<0>)) prefetch_row(keys[j] + ahead, dim);
    if constexpr (kIsKnown<Dim>) continue;
    PHASOR_UNROLL
    for (int r = 0; r < S::kQueries; ++r) sums[j][r] = Float{};
  }
  const auto add = [&](std::int64_t i, const Element* const* at) __attribute__((always_inline)) {
    PHASOR_UNROLL
    for (int v = 0; v < Part::kVectors; ++v) {
      Float query[S::kQueries];
      PHASOR_UNROLL
      for (int r = 0; r < S::kQueries; ++r)
        query[r] = queries.vector(i / Part::kFeatures * Part::kVectors + v, r);
      PHASOR_UNROLL
      for (int j = 0; j < S::kAbreast; ++j) {
        Float value = Part::vector(Part::read(at[j]), v);
        if constexpr (S::kQueries > 1) value = in_register(value);
        PHASOR_UNROLL
        for (int r = 0; r < S::kQueries; ++r) {
          const bool is_first = kIsKnown<Dim> && i == 0 && v == 0;
          sums[j][r] = is_first ? query[r] * value : mul_add(query[r], value, sums[j][r]);
        }
      }
    }
  };
  const Element* at[S::kAbreast];
  const auto add_at = [&](std::int64_t i) __attribute__((always_inline)) {
    PHASOR_UNROLL
    for (int j = 0; j < S::kAbreast; ++j) at[j] = keys[j] + i;
    add(i, at);
  };
  if constexpr (kIsKnown<Dim>) {
    constexpr std::int64_t kDim = Dim{};
    PHASOR_UNROLL
    for (std::int64_t i = 0; i < kDim; i += Part::kFeatures) add_at(i);
  } else {
    constexpr std::int64_t kLine = 64 / sizeof(Element);
    std::int64_t i = 0;
    for (; i + kLine <= dim; i += kLine) {
      PHASOR_UNROLL
      for (std::int64_t part = 0; part < kLine; part += Part::kFeatures) add_at(i + part);
    }
    for (; i + Part::kFeatures <= dim; i += Part::kFeatures) add_at(i);
    if (i == dim) return;
    Element padded[S::kAbreast][Part::kFeatures] = {};
    for (int j = 0; j < S::kAbreast; ++j) {
      for (std::int64_t rest = i; rest < dim; ++rest) padded[j][rest - i] = keys[j][rest];
      at[j] = padded[j];
    }
    add(i, at);
  }
}

// Two vectors of sums, each of which is already joined over kSums keys or queries, as one.
template <int kSums>
PHASOR_IN_PLACE Float join_sums(Float a, Float b) {
  return join_units<(kSums < 4 ? 1 : 4)>(a, b, [](Float x, Float y) { return x + y; });
}

// kCount of them.
template <int kSums, int kCount>
PHASOR_IN_PLACE Float join_all(const Float* sums) {
  if constexpr (kCount == 1) {
    return sums[0];
  } else {
    return join_sums<kSums * kCount / 2>(join_all<kSums, kCount / 2>(sums),
                                         join_all<kSums, kCount / 2>(sums + kCount / 2));
  }
}

// The sums of the next kKeys keys, joined, a vector for each vector of queries. Joined as soon as
// two are there, not after the last key: rows are then read one after the other without a pause, which a
// CPU's own prefetching follows best, and few registers are needed.
template <class Type, class S, int kKeys, class Queries, class NextRow, class Ahead, class Dim>
PHASOR_IN_PLACE void joined_keys(const Queries& queries, const NextRow& next_row, Ahead ahead,
                                 Dim dim, Float (&joined)[S::kQueries]) {
  if constexpr (kKeys > S::kAbreast) {
    Float second[S::kQueries];
    joined_keys<Type, S, kKeys / 2>(queries, next_row, ahead, dim, joined);
    joined_keys<Type, S, kKeys / 2>(queries, next_row, ahead, dim, second);
    PHASOR_UNROLL
    for (int r = 0; r < S::kQueries; ++r)
      joined[r] = in_register(join_sums<kKeys / 2>(joined[r], second[r]));
  } else {
    Float sums[S::kAbreast][S::kQueries];
    dot_products<Type, S>(queries, next_row, ahead, dim, sums);
    PHASOR_UNROLL
    for (int r = 0; r < S::kQueries; ++r) {
      Float of_query[S::kAbreast];
      PHASOR_UNROLL
      for (int j = 0; j < S::kAbreast; ++j) of_query[j] = sums[j][r];
      joined[r] = in_register(join_all<1, S::kAbreast>(of_query));
    }
  }
}

// The sums of all queries with S::kKeys keys, joined: sum r * kKeys + j of the queries of vector r with
// key j is lane (r * kKeys + j) % kPart of each run of kPart lanes.
template <class Type, class S, class Queries, class NextRow, class Ahead, class Dim>
PHASOR_IN_PLACE void score_keys(const Queries& queries, const NextRow& next_row, Ahead ahead,
                                Dim dim, Float (&joined)[S::kJoined]) {
  Float sums[S::kQueries];
  joined_keys<Type, S, S::kKeys>(queries, next_row, ahead, dim, sums);
  constexpr int kEach = S::kQueries / S::kJoined;
  PHASOR_UNROLL
  for (int i = 0; i < S::kJoined; ++i) joined[i] = join_all<S::kKeys, kEach>(sums + i * kEach);
}

// Writes the first `count` keys' scores.
template <class S>
PHASOR_IN_PLACE void write_scores(const Float (&joined)[S::kJoined], int count, float* scores,
                                  std::int64_t score_row) {
  PHASOR_UNROLL
  for (int i = 0; i < S::kJoined; ++i) {
    alignas(64) float lanes[kFloats];
    store(lanes, joined[i]);
    // Four lanes are four sums of one of the queries beside each other.
    constexpr int kRun = S::kKeys < 4 ? S::kKeys : 4;
    PHASOR_UNROLL
    for (int lane = 0; lane < kFloats; lane += kRun) {
      const int sum = i * S::kPart + lane / (4 * S::kBeside) * 4 + lane % 4;
      const int row = sum / S::kKeys * S::kBeside + lane / 4 % S::kBeside, key = sum % S::kKeys;
      float* const to = scores + row * score_row + key;
      if (count == S::kKeys) {
        __builtin_memcpy(to, lanes + lane, kRun * sizeof(float));
      } else {
        for (int k = 0; k < kRun && key + k < count; ++k) to[k] = lanes[lane + k];
      }
    }
  }
}

template <class Type, int kCount, class Dim>
void score_some(const float* q, std::int64_t q_stride, const Rows& keys, std::int64_t count,
                Dim dim, std::int64_t ahead, float* beside, float* scores, std::int64_t score_row) {
  using Element = typename Type::Element;
  using S = Sums<Type, kCount>;
  put_beside<Type, S>(q, q_stride, dim, beside);
  const auto queries = queries_of<S>(beside, dim);
  const auto* const first = static_cast<const Element*>(keys.data);
  const Element* key = first;
  const std::int64_t stride = keys.stride;
  const auto next_row = [&]() __attribute__((always_inline)) {
    const Element* const at = opaque(key);
    key = at + stride;
    return at;
  };
  std::int64_t j = 0;
  const auto score = [&](auto elements_ahead) __attribute__((always_inline)) {
    Float joined[S::kJoined];
    score_keys<Type, S>(queries, next_row, elements_ahead, dim, joined);
    write_scores<S>(joined, S::kKeys, scores + j, score_row);
    j += S::kKeys;
  };
  if (ahead > 0) {
    while (j + ahead + S::kKeys <= count) score(ahead * stride);
  }
  for (;;) {
    while (j + S::kKeys <= count) score(Constant<0>{});
    if (j == count) return;
    if (count < S::kKeys) break;
    // Some are scored twice: every key has the same sums, wherever it is.
    j = count - S::kKeys;
    key = first + j * stride;
  }
  if constexpr (!kIsKnown<Dim>) {
    // The last key stands in for those after it.
    const auto left = static_cast<int>(count);
    int read = 0;
    const auto row_or_last = [&] {
      const Element* const at = key;
      if (++read < left) key += stride;
      return at;
    };
    Float joined[S::kJoined];
    score_keys<Type, S>(queries, row_or_last, Constant<0>{}, dim, joined);
    write_scores<S>(joined, left, scores, score_row);
  }
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
  const auto fetch = [&](std::int64_t j) __attribute__((always_inline)) {
    constexpr std::int64_t kBytes = kColumns * kFloats * static_cast<std::int64_t>(sizeof(Element));
    const auto* const row = reinterpret_cast<const char*>(data + (j + ahead) * values.stride);
    const std::int64_t at = column * static_cast<std::int64_t>(sizeof(Element));
    if constexpr (kBytes % 64 == 0) {
      PHASOR_UNROLL
      for (std::int64_t byte = 0; byte < kBytes; byte += 64) __builtin_prefetch(row + at + byte);
    } else {  // lines that begin in these columns
      for (std::int64_t byte = (at + 63) / 64 * 64; byte < at + kBytes; byte += 64)
        __builtin_prefetch(row + byte);
    }
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

template <class Type, int kCount>
void weigh_some(const float* p, std::int64_t p_row, const Rows& values, std::int64_t count,
                std::int64_t dim, std::int64_t rows_ahead, float* out, std::int64_t out_stride) {
  using Element = typename Type::Element;
  constexpr int kMost = kCount == 1 ? 8 : kWeighedSums / kCount;
  // Whole steps of the storage: 3 columns of bf16 would be one step and half of another.
  constexpr int kColumns = kMost - kMost % (kMost > 1 ? Step<Type, kFloats>::kVectors : 1);
  // One pass fetches rows that it reads soon; of several, each fetches its columns of the next tile.
  std::int64_t columns = kColumns;  // of the first pass
  while (columns > 1 && columns * kFloats > dim) columns = (columns + 1) / 2;
  const bool is_one_pass = columns * kFloats == dim;
  const std::int64_t ahead = is_one_pass ? rows_ahead : kWeighedKeys;
  const std::int64_t tile = is_one_pass ? count : kWeighedKeys;
  for (std::int64_t first = 0; first < count; first += tile) {
    const std::int64_t left = count - first;
    const std::int64_t here = left < tile ? left : tile;
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
void score_rows_of(const float* q, std::int64_t q_stride, std::int64_t rows, const Rows& keys,
                   std::int64_t count, std::int64_t dim, std::int64_t ahead, float* beside,
                   float* scores, std::int64_t score_row) {
  const auto score = [&]<int kCount>() {
    const auto score_dim = [&](auto of) {
      score_some<Type, kCount>(q, q_stride, keys, count, of, ahead, beside, scores, score_row);
    };
    // The usual sizes: without a loop over its lines, a key costs few instructions, and more keys are on
    // their way from memory at a time. More queries wait for their multiply-adds.
    using S = Sums<Type, kCount>;
    if constexpr (kCount < (S::kIsFloat ? 4 : 8)) {
      constexpr int kMostParts = 16;  // what PHASOR_UNROLL takes apart
      if constexpr (64 / S::kPart <= kMostParts) {
        if (dim == 64 && count >= kFloats) return score_dim(Constant<64>{});
      }
      if constexpr (128 / S::kPart <= kMostParts) {
        if (dim == 128 && count >= kFloats) return score_dim(Constant<128>{});
      }
    }
    score_dim(dim);
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
