// The products of a few queries with keys that are not packed.
#pragma once

#include "attention/kernels/few_rows_steps.hpp"

namespace {

using phasor::attention::kernels::RowWalk;

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
  static constexpr bool kIsFloat = sizeof(typename Type::Element) == 4;
  // At most two: with four, each product needs a load of its own, and a sixth more time (Zen 5, AVX-512).
  // Four queries fill vectors of 16 with the sums of four keys: repeating parts took a sixth more there.
  static constexpr int kBeside =
      kIsFloat && kFloats >= 8 && kCount % 2 == 0 && kCount * 4 != kFloats ? 2 : 1;
  static constexpr int kPart = kFloats / kBeside;
  static constexpr int kQueries = kCount / kBeside;  // vectors
  // Keys whose sums are joined: as many as make kFloats sums (of three queries kFloats each, which fill whole
  // vectors), at most those that a query's lanes hold.
  static constexpr int kMostKeys = kQueries == 3 ? kFloats : kFloats / kQueries;
  static constexpr int kKeys = kMostKeys < kPart ? kMostKeys : kPart;
  // Keys whose rows are read side by side. For one query, one float row after the other: a CPU fetches
  // ahead of one reader (8 rows of 256 bytes took twice as long from the last cache of a Zen 4). With
  // several queries, and where 16-bit numbers are converted, the arithmetic takes as long as the reading:
  // it needs more sums that do not wait for each other.
  static constexpr int kMostAbreast =
      kIsFloat ? (kCount == 3 ? 2 : kCount) : (kQueries > 2 ? 2 : 4);
  static constexpr int kAbreast = kKeys < kMostAbreast ? kKeys : kMostAbreast;
  static constexpr int kJoined = kQueries * kKeys / kPart;  // vectors of joined sums
};

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

// One query and the keys of the first half in turn with those of the second. Returns how many it scored:
// whole groups.
template <class Type, class S, class Queries, class Dim>
PHASOR_IN_PLACE std::int64_t score_halves(const Queries& queries,
                                          const typename Type::Element* keys, std::int64_t stride,
                                          std::int64_t count, Dim dim, std::int64_t ahead,
                                          float* scores) {
  using Element = typename Type::Element;
  static_assert(S::kJoined == 1 && S::kKeys == kFloats && S::kBeside == 1);
  constexpr int kEach = kFloats / 2;
  const std::int64_t half = count / kFloats * kEach;
  const Element *first = keys, *second = keys + half * stride;
  std::int64_t j = 0;
  const auto score = [&](auto elements_ahead) __attribute__((always_inline)) {
    int turn = 0;
    const auto next_row = [&]() __attribute__((always_inline)) {
      const Element*& key = turn++ % 2 == 0 ? first : second;
      const Element* const at = opaque(key);
      key = at + stride;
      return at;
    };
    Float joined[1];
    score_keys<Type, S>(queries, next_row, elements_ahead, dim, joined);
    alignas(64) float halves[2][kFloats];
    store(halves[0], every_other<0>(joined[0], joined[0], FloatLanes{}));
    store(halves[1], every_other<1>(joined[0], joined[0], FloatLanes{}));
    __builtin_memcpy(scores + j, halves[0], kEach * sizeof(float));
    __builtin_memcpy(scores + half + j, halves[1], kEach * sizeof(float));
    j += kEach;
  };
  if (ahead > 0) {
    while (j + ahead + kEach <= half) score(ahead * stride);
  }
  while (j < half) score(Constant<0>{});
  return 2 * half;
}

// kCount queries, as put_beside() writes them, and keys of which `left` follow each other in memory. Not
// inlined: in one function with the other cases its registers are saved on the stack, 30 cycles a call.
template <class Type, int kCount, class Dim>
[[gnu::noinline]] void score_some(const float* beside, const typename Type::Element* first,
                                  std::int64_t stride, std::int64_t count, std::int64_t left,
                                  Dim dim, const RowWalk& walk, float* scores,
                                  std::int64_t score_row) {
  using Element = typename Type::Element;
  using S = Sums<Type, kCount>;
  const auto queries = queries_of<S>(beside, dim);
  const Element* key = first;
  const auto next_row = [&]() __attribute__((always_inline)) {
    const Element* const at = opaque(key);
    key = at + stride;
    return at;
  };
  std::int64_t j = 0;
  if constexpr (kCount == 1) {
    if (walk.places == 2) {
      j = score_halves<Type, S>(queries, first, stride, count, dim, walk.ahead, scores);
      key = first + j * stride;
    }
  }
  const auto score = [&](auto elements_ahead) __attribute__((always_inline)) {
    Float joined[S::kJoined];
    score_keys<Type, S>(queries, next_row, elements_ahead, dim, joined);
    write_scores<S>(joined, S::kKeys, scores + j, score_row);
    j += S::kKeys;
  };
  if (walk.ahead > 0) {
    while (j + S::kKeys <= count && j + walk.ahead + S::kKeys <= left) score(walk.ahead * stride);
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
    int read = 0;
    const auto row_or_last = [&] {
      const Element* const at = key;
      if (++read < count) key += stride;
      return at;
    };
    Float joined[S::kJoined];
    score_keys<Type, S>(queries, row_or_last, Constant<0>{}, dim, joined);
    write_scores<S>(joined, static_cast<int>(count), scores, score_row);
  }
}

template <class Type>
void score_rows_of(const float* q, std::int64_t q_stride, std::int64_t rows, const Rows& keys,
                   std::int64_t count, std::int64_t dim, const RowWalk& walk, float* beside,
                   float* scores, std::int64_t score_row) {
  const std::int64_t part = phasor::attention::kernels::beside_floats(dim);
  // The sums of eight queries would need more registers than AVX2 has, and with AVX-512 more joins.
  constexpr int kTogether = 4;
  for_each_turn<kTogether>(
      rows, count, [&]<int kCount>(std::int64_t query, std::int64_t first, std::int64_t here) {
        float* const own_beside = beside + query * part;
        if (first == 0)
          put_beside<Type, Sums<Type, kCount>>(q + query * q_stride, q_stride, dim, own_beside);
        const auto* const from = static_cast<const typename Type::Element*>(keys.data);
        // What the first queries read is in the cache.
        const RowWalk own = {query == 0 ? walk.ahead : 0, walk.places};
        const auto score = [&](auto of) {
          score_some<Type, kCount>(own_beside, from + first * keys.stride, keys.stride, here,
                                   count - first, of, own, scores + query * score_row + first,
                                   score_row);
        };
        // The usual sizes: without a loop over its lines, a key costs few instructions, and more keys are on
        // their way from memory at a time.
        constexpr int kMostParts = 16;  // what PHASOR_UNROLL takes apart
        constexpr int kPart = Sums<Type, kCount>::kPart;
        if constexpr (64 / kPart <= kMostParts) {
          if (dim == 64 && here >= kFloats) return score(Constant<64>{});
        }
        if constexpr (128 / kPart <= kMostParts) {
          if (dim == 128 && here >= kFloats) return score(Constant<128>{});
        }
        score(dim);
      });
}

void score_rows(const float* q, std::int64_t q_stride, std::int64_t rows, const Rows& keys,
                std::int64_t count, std::int64_t dim, const RowWalk& walk, float* beside,
                float* scores, std::int64_t score_row) {
  if (keys.storage == Storage::f32)
    score_rows_of<F32>(q, q_stride, rows, keys, count, dim, walk, beside, scores, score_row);
  if (keys.storage == Storage::f16)
    score_rows_of<F16>(q, q_stride, rows, keys, count, dim, walk, beside, scores, score_row);
  if (keys.storage == Storage::bf16)
    score_rows_of<Bf16>(q, q_stride, rows, keys, count, dim, walk, beside, scores, score_row);
}

}  // namespace
