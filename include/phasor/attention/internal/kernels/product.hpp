// The one product of attention: six rows of A times a few vectors of B, sums in registers. Every
// matrix that a pass reads transposed or along its diagonals is this product with other strides.
// Included by the kernel sources alone; everything has internal linkage.
#pragma once

#include "phasor/core/internal/kernels/vector.hpp"

// A loop over registers, to be unrolled.
#if defined(__clang__)
#define PHASOR_UNROLL _Pragma("clang loop unroll(full)")
#else
#define PHASOR_UNROLL _Pragma("GCC unroll 16")
#endif

// A function to be inlined: GCC makes clones of the product that keep fewer sums in
// registers, a tenth of the whole attention with relative rows.
#define PHASOR_IN_PLACE __attribute__((always_inline)) inline

namespace {

constexpr int kRows = 6;
// 6 x 4 sums, 4 of B and 1 of A fill 32 registers; 6 x 2 sums, 2 and 1 fill 16.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kVectors = 4;
#else
constexpr int kVectors = 2;
#endif

// x - 0 is x, also for x = -0: the compiler sees a broadcast.
inline Float splat(float value) { return value - Float{}; }

struct Product {
  const float* a;  // element (row, k) at a + row * a_row + k * a_step
  std::int64_t a_row, a_step;
  const float* b;  // vector v of row k at b + k * b_step + v * b_vector
  std::int64_t b_step, b_vector;
  float* c;  // vector v of row r at c + r * c_row + v * kFloats
  std::int64_t c_row;
  std::int64_t depth;  // k runs over [0, depth)
};

// What the sums start from: nothing, C, or C times a factor for each row.
enum class Start { zero, sum, scaled };

// How A and B are read along k. Steps that are known are constants of the loop: it is unrolled, and
// addresses are displacements from a few pointers. Little more than loads and multiply-adds remains:
// a core that another thread shares decodes half as many instructions.
enum class Walk {
  any,
  packed,  // a_step = 1, b_step = kFloats
  panels,  // a_row = 1, a_step = kPitch, b_step = kFloats
  blocks,  // A in blocks [kRows][kFloats], one for each kFloats of k; b_step = kFloats
  fixed,   // a_row, a_step and b_vector are constants of the caller
};
// Floats from one k to the next in rows of A packed as columns: six of them, where one vector writes
// them (gaps would fill the first cache), otherwise whole vectors.
constexpr int kPitch = kFloats >= kRows ? kRows : (kRows + kFloats - 1) / kFloats * kFloats;

// sum[v] += a columns[v].
template <int kCount>
PHASOR_IN_PLACE void accumulate(Float* sum, const float* a, const Float* columns) {
  // The sums, the columns and one value fill the registers: in an unrolled loop GCC copies some and
  // spills some (4 % of a product from the first cache at AVX-512).
#if defined(__AVX512F__)
  if constexpr (kCount == 4) {
    Float value, sum0 = sum[0], sum1 = sum[1], sum2 = sum[2], sum3 = sum[3];
    asm("vbroadcastss %5, %4\n\tvfmadd231ps %6, %4, %0\n\tvfmadd231ps %7, %4, %1\n\t"
        "vfmadd231ps %8, %4, %2\n\tvfmadd231ps %9, %4, %3"
        : "+v"(sum0), "+v"(sum1), "+v"(sum2), "+v"(sum3), "=&v"(value)
        : "m"(*a), "v"(columns[0]), "v"(columns[1]), "v"(columns[2]), "v"(columns[3]));
    sum[0] = sum0;
    sum[1] = sum1;
    sum[2] = sum2;
    sum[3] = sum3;
    return;
  }
#elif defined(__FMA__)
  if constexpr (kCount == 2) {
    Float value, sum0 = sum[0], sum1 = sum[1];
    asm("vbroadcastss %3, %2\n\tvfmadd231ps %4, %2, %0\n\tvfmadd231ps %5, %2, %1"
        : "+x"(sum0), "+x"(sum1), "=&x"(value)
        : "m"(*a), "x"(columns[0]), "x"(columns[1]));
    sum[0] = sum0;
    sum[1] = sum1;
    return;
  }
#endif
  const Float value = in_register(splat(*a));
  PHASOR_UNROLL
  for (int v = 0; v < kCount; ++v) sum[v] = mul_add(value, columns[v], sum[v]);
}

// C = start + A B (+ add: row r of it at add + r * add_row). The addend comes last, so that it is
// rounded once and not with every product.
template <int kCount, Start kStart, Walk kWalk = Walk::any>
PHASOR_IN_PLACE void product(const Product& p, const float* factors, const float* add,
                             std::int64_t add_row) {
  Float sum[kRows][kCount];
  PHASOR_UNROLL
  for (int r = 0; r < kRows; ++r) {
    PHASOR_UNROLL
    for (int v = 0; v < kCount; ++v) {
      if constexpr (kStart == Start::zero) {
        sum[r][v] = Float{};
      } else {
        sum[r][v] = load<Float>(p.c + r * p.c_row + v * kFloats);
        if constexpr (kStart == Start::scaled) sum[r][v] *= splat(factors[r]);
      }
    }
  }
  constexpr bool kIsGiven = kWalk == Walk::any || kWalk == Walk::fixed;
  constexpr bool kKnowsRows = kWalk == Walk::panels || kWalk == Walk::blocks;
  const std::int64_t a_row = kKnowsRows ? kWalk == Walk::panels ? 1 : kFloats : p.a_row;
  const std::int64_t a_step = kIsGiven ? p.a_step : kWalk == Walk::panels ? kPitch : 1;
  const std::int64_t b_step = kIsGiven ? p.b_step : kFloats;
  const float* a = p.a;
  const float* a3 = p.a + 3 * a_row;
  const float* b = p.b;
  const float* b3 = p.b + 3 * p.b_vector;
  const auto add_products = [&](std::int64_t k) __attribute__((always_inline)) {
    Float columns[kCount];
    PHASOR_UNROLL
    for (int v = 0; v < kCount; ++v)
      columns[v] = in_register(load<Float>((v < 3 ? b + v * p.b_vector : b3) + k * b_step));
    PHASOR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float* const row =
          r < 3 || kKnowsRows || kWalk == Walk::fixed ? a + r * a_row : a3 + (r - 3) * a_row;
      accumulate<kCount>(sum[r], row + k * a_step, columns);
    }
  };
  const auto advance = [&](std::int64_t a_by, std::int64_t steps) __attribute__((always_inline)) {
    a += a_by;
    a3 += a_by;
    b += steps * b_step;
    b3 += steps * b_step;
  };
  std::int64_t k = 0;
  if constexpr (kWalk != Walk::any) {
    constexpr int kAtOnce = kWalk == Walk::blocks ? kFloats : 4;
    for (; k + kAtOnce <= p.depth; k += kAtOnce) {
      PHASOR_UNROLL
      for (int i = 0; i < kAtOnce; ++i) add_products(i);
      advance(kWalk == Walk::blocks ? kRows * kFloats : kAtOnce * a_step, kAtOnce);
    }
  }
  for (; k < p.depth; ++k) {
    add_products(0);
    advance(a_step, 1);
  }
  PHASOR_UNROLL
  for (int r = 0; r < kRows; ++r) {
    PHASOR_UNROLL
    for (int v = 0; v < kCount; ++v) {
      if (add != nullptr) sum[r][v] += load<Float>(add + r * add_row + v * kFloats);
      store(p.c + r * p.c_row + v * kFloats, sum[r][v]);
    }
  }
}

// The same over any number of vectors of columns.
template <Start kStart, Walk kWalk = Walk::any>
PHASOR_IN_PLACE void wide_product(Product p, std::int64_t vectors, const float* factors = nullptr,
                                  const float* add = nullptr, std::int64_t add_row = 0) {
  for (; vectors >= kVectors; vectors -= kVectors) {
    product<kVectors, kStart, kWalk>(p, factors, add, add_row);
    p.b += kVectors * p.b_vector;
    p.c += kVectors * kFloats;
    if (add != nullptr) add += kVectors * kFloats;
  }
  if constexpr (kVectors == 4) {
    if (vectors == 3) product<3, kStart, kWalk>(p, factors, add, add_row);
    if (vectors == 2) product<2, kStart, kWalk>(p, factors, add, add_row);
  }
  if (vectors == 1) product<1, kStart, kWalk>(p, factors, add, add_row);
}

// (a0 b0 a1 b1 ...) of the first halves of a and b, and of the second.
template <int... Lane>
inline Float zip_first(Float a, Float b, Lanes<Lane...>) {
  return __builtin_shufflevector(a, b, (Lane / 2 + (Lane % 2) * kFloats)...);
}
template <int... Lane>
inline Float zip_second(Float a, Float b, Lanes<Lane...>) {
  return __builtin_shufflevector(a, b, (kFloats / 2 + Lane / 2 + (Lane % 2) * kFloats)...);
}
// Zipping row i with row i + half rotates the bits of (row, lane) by one: log2(kFloats) times
// exchanges the two.
template <int kRounds>
inline void zip_rows(Float (&rows)[kFloats]) {
  if constexpr (kRounds > 1) {
    Float zipped[kFloats];
    PHASOR_UNROLL
    for (int i = 0; i < kFloats / 2; ++i) {
      zipped[2 * i] = zip_first(rows[i], rows[i + kFloats / 2], FloatLanes{});
      zipped[2 * i + 1] = zip_second(rows[i], rows[i + kFloats / 2], FloatLanes{});
    }
    PHASOR_UNROLL
    for (int i = 0; i < kFloats; ++i) rows[i] = zipped[i];
    zip_rows<kRounds / 2>(rows);
  }
}
inline void transpose_square(Float (&rows)[kFloats]) { zip_rows<kFloats>(rows); }

}  // namespace
