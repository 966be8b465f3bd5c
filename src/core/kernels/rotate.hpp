// The rotation, RoFormer (34), on one token's heads. Included by kernels.cpp alone.
//
// cos and sin stay in registers while the loop runs over the heads, so that each element of x costs
// one load, two multiplications and one store.
#pragma once

#include "phasor/core/internal/kernels/kernels.hpp"
#include "phasor/core/internal/kernels/vector.hpp"

namespace {

using phasor::core::kernels::Heads;
using phasor::core::kernels::Store;

// Vectors of cos (and as many of sin) per pass over the heads: a whole head of 128 features, so that
// loads follow each other in memory. What does not fit the registers comes from the L1 cache: with 16
// registers of 8 floats that took 1.2 times an in-place scale of a tensor in the L3 cache, four passes
// over parts of the heads with everything in registers 1.6.
constexpr int kRowVectors = kVectorBytes == 64 ? 8 : 16;

// A row is cos[pairs], sin[pairs]; it is rearranged for the layout while it is loaded.
struct Plain {
  static Float vector(const float* row, int v) { return load<Float>(row + v * kFloats); }
};
// Interleaved features: each entry twice, from whole vectors of the row: those that begin in the middle of
// one would straddle cache lines.
template <int kHalf, int... Lane>
inline Float twice(Float x, Lanes<Lane...>) {  // a b c d -> a a b b, or c c d d
  return __builtin_shufflevector(x, x, (kHalf * kFloats / 2 + Lane / 2)...);
}
struct Twice {
  static Float vector(const float* row, int v) {
    const Float both = Plain::vector(row, v / 2);
    return v % 2 == 0 ? twice<0>(both, FloatLanes{}) : twice<1>(both, FloatLanes{});
  }
};
// sin of interleaved features, as turned() expects it.
template <int... Lane>
inline Float minus_plus(Lanes<Lane...>) {  // - + - +
  return Float{(Lane % 2 == 0 ? -1.0F : 1.0F)...};
}
struct SinTwice {
  static Float vector(const float* row, int v) {
#if defined(__FMA__)
    return Twice::vector(row, v);
#else
    return Twice::vector(row, v) * minus_plus(FloatLanes{});
#endif
  }
};
// (34) on interleaved features: x cos - swap(x) sin in even lanes, x cos + swap(x) sin in odd ones.
inline Float turned(Float x, Float cos, Float sin) {
  const Float other = swap_pairs(x) * sin;
#if defined(__AVX512F__)
  return reinterpret_cast<Float>(_mm512_fmaddsub_ps(
      reinterpret_cast<__m512>(x), reinterpret_cast<__m512>(cos), reinterpret_cast<__m512>(other)));
#elif defined(__FMA__)
  return reinterpret_cast<Float>(_mm256_fmaddsub_ps(
      reinterpret_cast<__m256>(x), reinterpret_cast<__m256>(cos), reinterpret_cast<__m256>(other)));
#else
  return mul_add(x, cos, other);
#endif
}
// Two features in a lane (bf16, half): a vector of even entries, then one of odd ones.
template <int kParity, int... Lane>
inline Float every_other(Float low, Float high, Lanes<Lane...>) {
  return __builtin_shufflevector(low, high, (2 * Lane + kParity)...);
}
struct Split {
  static Float vector(const float* row, int v) {
    const Float low = Plain::vector(row, v & ~1), high = Plain::vector(row, v | 1);
    return v % 2 == 0 ? every_other<0>(low, high, FloatLanes{})
                      : every_other<1>(low, high, FloatLanes{});
  }
};

// The vectors of a window's cos or sin. One row for every window is loaded once and kept; if each
// window has its own row, a vector is read when it is used: the compiler must assume that the window's
// stores change the row, and would spill a whole row that was read before them.
template <class Arranged, int kVectors, bool kMoving>
class Row {
 public:
  explicit Row(const float* row) : row_(row) {
    if constexpr (!kMoving) {
      for (int v = 0; v < kVectors; ++v) kept_[v] = Arranged::vector(row, v);
    }
  }
  void advance(std::int64_t floats) { row_ += floats; }
  Float operator[](int v) const {
    if constexpr (kMoving) return Arranged::vector(row_, v);
    return kept_[v];
  }

 private:
  const float* row_;
  Float kept_[kMoving ? 1 : kVectors];
};

inline void prefetch(const void* address, std::int64_t ahead) {
  __builtin_prefetch(static_cast<const char*>(address) + ahead);
}

// half: pair i = (i, i + pairs). `first` is the first pair of this block. Blocks take Heads by
// value: through a reference the compiler must assume that a store to x changes it, and would
// read it again for every head. They are inlined: with a copy made for
// each call, 64 tokens took a tenth longer (AVX2).
template <class T, int kVectors, bool kStream, bool kAhead, bool kMoving>
__attribute__((always_inline)) inline void half_block(Heads heads, std::int64_t pairs,
                                                      std::int64_t first, const float* cos,
                                                      const float* sin, std::int64_t ahead) {
  using Element = typename T::Element;
  Row<Plain, kVectors, kMoving> c(cos + first), s(sin + first);
  const Element* in = static_cast<const Element*>(heads.in) + first;
  Element* out = static_cast<Element*>(heads.out) + first;
  // A cache line of one half is finished before the other half's is begun: streaming stores need
  // whole lines.
  constexpr int kLine = kVectors * kVectorBytes < 64 ? kVectors : 64 / kVectorBytes;
  for (std::int64_t head = 0; head < heads.heads; ++head) {
    for (int line = 0; line < kVectors; line += kLine) {
      Float y_a[kLine], y_b[kLine];
      for (int v = 0; v < kLine; ++v) {
        const std::int64_t at = (line + v) * kFloats;
        if constexpr (kAhead) {
          if (at * sizeof(Element) % 64 == 0) {
            prefetch(in + at, ahead);
            prefetch(in + pairs + at, ahead);
          }
        }
        const Float a = in_register(T::read(in + at));
        const Float b = in_register(T::read(in + pairs + at));
        y_a[v] = mul_add(a, c[line + v], -(b * s[line + v]));
        y_b[v] = mul_add(b, c[line + v], a * s[line + v]);
      }
      for (int v = 0; v < kLine; ++v)
        T::template write<kStream>(out + (line + v) * kFloats, y_a[v]);
      for (int v = 0; v < kLine; ++v) {
        T::template write<kStream>(out + pairs + (line + v) * kFloats, y_b[v]);
      }
    }
    in += heads.in_stride;
    out += heads.out_stride;
    c.advance(heads.row_stride);
    s.advance(heads.row_stride);
  }
}

// interleaved: pair i = (2i, 2i+1). cos and sin are duplicated.
template <class T, int kVectors, bool kStream, bool kAhead, bool kMoving>
__attribute__((always_inline)) inline void interleaved_block(Heads heads, std::int64_t first,
                                                             const float* cos, const float* sin,
                                                             std::int64_t ahead) {
  using Element = typename T::Element;
  Row<Twice, kVectors, kMoving> c(cos + first / 2);
  Row<SinTwice, kVectors, kMoving> s(sin + first / 2);
  const Element* in = static_cast<const Element*>(heads.in) + first;
  Element* out = static_cast<Element*>(heads.out) + first;
  for (std::int64_t head = 0; head < heads.heads; ++head) {
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = v * kFloats;
      if constexpr (kAhead) {
        if (at * sizeof(Element) % 64 == 0) prefetch(in + at, ahead);
      }
      const Float x = in_register(T::read(in + at));
      T::template write<kStream>(out + at, turned(x, c[v], s[v]));
    }
    in += heads.in_stride;
    out += heads.out_stride;
    c.advance(heads.row_stride);
    s.advance(heads.row_stride);
  }
}

// bf16, half: a lane holds two neighbouring features, and a group is 2 * kFloats pairs.
template <int kGroups, bool kStream, bool kAhead, bool kMoving>
__attribute__((always_inline)) inline void half_block_bf16(Heads heads, std::int64_t pairs,
                                                           std::int64_t first, const float* cos,
                                                           const float* sin, std::int64_t ahead) {
  Row<Split, 2 * kGroups, kMoving> c(cos + first), s(sin + first);
  const std::uint16_t* in = static_cast<const std::uint16_t*>(heads.in) + first;
  std::uint16_t* out = static_cast<std::uint16_t*>(heads.out) + first;
  for (std::int64_t head = 0; head < heads.heads; ++head) {
    for (int g = 0; g < kGroups; ++g) {
      const std::int64_t at = 2 * g * kFloats;
      if constexpr (kAhead) {
        if (at * 2 % 64 == 0) {
          prefetch(in + at, ahead);
          prefetch(in + pairs + at, ahead);
        }
      }
      const Bits a = load<Bits>(in + at);
      const Bits b = load<Bits>(in + pairs + at);
      const Float c_even = c[2 * g], c_odd = c[2 * g + 1], s_even = s[2 * g], s_odd = s[2 * g + 1];
      const Float a_even = low_bf16(a), a_odd = high_bf16(a), b_even = low_bf16(b),
                  b_odd = high_bf16(b);
      const Bits y_a = join_bf16(mul_add(a_even, c_even, -(b_even * s_even)),
                                 mul_add(a_odd, c_odd, -(b_odd * s_odd)));
      const Bits y_b =
          join_bf16(mul_add(b_even, c_even, a_even * s_even), mul_add(b_odd, c_odd, a_odd * s_odd));
      if constexpr (kStream) {
        stream(out + at, y_a);
        stream(out + pairs + at, y_b);
      } else {
        store(out + at, y_a);
        store(out + pairs + at, y_b);
      }
    }
    in += heads.in_stride;
    out += heads.out_stride;
    c.advance(heads.row_stride);
    s.advance(heads.row_stride);
  }
}

// bf16, interleaved: a lane is a pair.
template <int kVectors, bool kStream, bool kAhead, bool kMoving>
__attribute__((always_inline)) inline void interleaved_block_bf16(Heads heads, std::int64_t first,
                                                                  const float* cos,
                                                                  const float* sin,
                                                                  std::int64_t ahead) {
  Row<Plain, kVectors, kMoving> c(cos + first), s(sin + first);
  const std::uint16_t* in = static_cast<const std::uint16_t*>(heads.in) + 2 * first;
  std::uint16_t* out = static_cast<std::uint16_t*>(heads.out) + 2 * first;
  for (std::int64_t head = 0; head < heads.heads; ++head) {
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = 2 * v * kFloats;
      if constexpr (kAhead) {
        if (at * 2 % 64 == 0) prefetch(in + at, ahead);
      }
      const Bits x = load<Bits>(in + at);
      const Float a = low_bf16(x), b = high_bf16(x);
      const Bits y = join_bf16(mul_add(a, c[v], -(b * s[v])), mul_add(b, c[v], a * s[v]));
      if constexpr (kStream) {
        stream(out + at, y);
      } else {
        store(out + at, y);
      }
    }
    in += heads.in_stride;
    out += heads.out_stride;
    c.advance(heads.row_stride);
    s.advance(heads.row_stride);
  }
}

// Runs `block` for each piece of `count` items, kStep items a vector, in the widest register blocks
// that fit, and returns how many items were done.
template <int kVectors, int kStep, class Block>
inline std::int64_t run_blocks(std::int64_t count, std::int64_t first, const Block& block) {
  for (; count - first >= kVectors * kStep; first += kVectors * kStep) {
    block.template operator()<kVectors>(first);
  }
  if constexpr (kVectors > 1) return run_blocks<kVectors / 2, kStep>(count, first, block);
  return first;
}

// Fewer items than a vector: block(copy, row) does the same arithmetic on a copy of them, padded
// with zeros. The pieces of a head begin at `offsets`, are `count` elements long and are kRoom
// apart in the copy.
template <class Element, int kRoom, int kPieces, class Block>
inline void on_padded_copy(Heads heads, const std::int64_t (&offsets)[kPieces], std::int64_t count,
                           const Block& block) {
  alignas(64) Element copy[kPieces * kRoom] = {};
  const auto* in = static_cast<const Element*>(heads.in);
  auto* out = static_cast<Element*>(heads.out);
  for (std::int64_t head = 0; head < heads.heads; ++head) {
    for (int piece = 0; piece < kPieces; ++piece) {
      for (std::int64_t i = 0; i < count; ++i) copy[piece * kRoom + i] = in[offsets[piece] + i];
    }
    block(Heads{copy, copy, 0, 0, 1}, head * heads.row_stride);
    for (int piece = 0; piece < kPieces; ++piece) {
      for (std::int64_t i = 0; i < count; ++i) out[offsets[piece] + i] = copy[piece * kRoom + i];
    }
    in += heads.in_stride;
    out += heads.out_stride;
  }
}

template <class T>
struct Half {
  template <bool kStream, bool kAhead, bool kMoving>
  static void run(const Heads& heads, std::int64_t pairs, const float* cos, const float* sin,
                  std::int64_t ahead) {
    const std::int64_t done =
        run_blocks<kRowVectors, kFloats>(pairs, 0, [&]<int kVectors>(std::int64_t first) {
          half_block<T, kVectors, kStream, kAhead, kMoving>(heads, pairs, first, cos, sin, ahead);
        });
    if (done == pairs) return;
    on_padded_copy<typename T::Element, kFloats>(
        heads, {done, pairs + done}, pairs - done, [&](const Heads& copy, std::int64_t row) {
          half_block<T, 1, false, false, false>(copy, kFloats, 0, cos + row + done,
                                                sin + row + done, 0);
        });
  }
};
template <class T>
struct Interleaved {
  template <bool kStream, bool kAhead, bool kMoving>
  static void run(const Heads& heads, std::int64_t pairs, const float* cos, const float* sin,
                  std::int64_t ahead) {
    const std::int64_t done =
        run_blocks<kRowVectors, kFloats>(2 * pairs, 0, [&]<int kVectors>(std::int64_t first) {
          interleaved_block<T, kVectors, kStream, kAhead, kMoving>(heads, first, cos, sin, ahead);
        });
    if (done == 2 * pairs) return;
    on_padded_copy<typename T::Element, kFloats>(
        heads, {done}, 2 * pairs - done, [&](const Heads& copy, std::int64_t row) {
          interleaved_block<T, 1, false, false, false>(copy, 0, cos + row + done / 2,
                                                       sin + row + done / 2, 0);
        });
  }
};
struct HalfBf16 {
  template <bool kStream, bool kAhead, bool kMoving>
  static void run(const Heads& heads, std::int64_t pairs, const float* cos, const float* sin,
                  std::int64_t ahead) {
    const std::int64_t done =
        run_blocks<kRowVectors / 2, 2 * kFloats>(pairs, 0, [&]<int kGroups>(std::int64_t first) {
          half_block_bf16<kGroups, kStream, kAhead, kMoving>(heads, pairs, first, cos, sin, ahead);
        });
    if (done == pairs) return;
    on_padded_copy<std::uint16_t, 2 * kFloats>(
        heads, {done, pairs + done}, pairs - done, [&](const Heads& copy, std::int64_t row) {
          half_block_bf16<1, false, false, false>(copy, 2 * kFloats, 0, cos + row + done,
                                                  sin + row + done, 0);
        });
  }
};
struct InterleavedBf16 {
  template <bool kStream, bool kAhead, bool kMoving>
  static void run(const Heads& heads, std::int64_t pairs, const float* cos, const float* sin,
                  std::int64_t ahead) {
    const std::int64_t done =
        run_blocks<kRowVectors, kFloats>(pairs, 0, [&]<int kVectors>(std::int64_t first) {
          interleaved_block_bf16<kVectors, kStream, kAhead, kMoving>(heads, first, cos, sin, ahead);
        });
    if (done == pairs) return;
    on_padded_copy<std::uint16_t, 2 * kFloats>(
        heads, {2 * done}, 2 * (pairs - done), [&](const Heads& copy, std::int64_t row) {
          interleaved_block_bf16<1, false, false, false>(copy, 0, cos + row + done,
                                                         sin + row + done, 0);
        });
  }
};

// One entry of the table of kernels: picks the variant for this call.
template <class Rotation>
void rotate(const Heads& heads, std::int64_t pairs, const void* cos, const void* sin,
            std::int64_t ahead, Store store) {
  const auto* c = static_cast<const float*>(cos);
  const auto* s = static_cast<const float*>(sin);
  const bool streams = store == Store::streaming, moves = heads.row_stride != 0;
  if (ahead == 0) {
    if (moves) {
      streams ? Rotation::template run<true, false, true>(heads, pairs, c, s, 0)
              : Rotation::template run<false, false, true>(heads, pairs, c, s, 0);
    } else {
      streams ? Rotation::template run<true, false, false>(heads, pairs, c, s, 0)
              : Rotation::template run<false, false, false>(heads, pairs, c, s, 0);
    }
  } else if (moves) {
    streams ? Rotation::template run<true, true, true>(heads, pairs, c, s, ahead)
            : Rotation::template run<false, true, true>(heads, pairs, c, s, ahead);
  } else {
    streams ? Rotation::template run<true, true, false>(heads, pairs, c, s, ahead)
            : Rotation::template run<false, true, false>(heads, pairs, c, s, ahead);
  }
}

// float64: not optimised; vectorisation is left to the compiler.
template <bool kHalf>
void rotate_f64(const Heads& heads, std::int64_t pairs, const void* cos, const void* sin,
                std::int64_t, Store) {
  const auto* c = static_cast<const double*>(cos);
  const auto* s = static_cast<const double*>(sin);
  const auto* in = static_cast<const double*>(heads.in);
  auto* out = static_cast<double*>(heads.out);
  for (std::int64_t head = 0; head < heads.heads; ++head) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      const std::int64_t at_a = kHalf ? i : 2 * i;
      const std::int64_t at_b = kHalf ? i + pairs : 2 * i + 1;
      const double a = in[at_a], b = in[at_b];
      out[at_a] = a * c[i] - b * s[i];
      out[at_b] = b * c[i] + a * s[i];
    }
    in += heads.in_stride;
    out += heads.out_stride;
  }
}

}  // namespace
