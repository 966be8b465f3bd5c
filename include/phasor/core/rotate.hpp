// Rotates queries and keys by the angles of their positions.
#pragma once

#include <cstdint>
#include <span>

#include "phasor/core/angles.hpp"
#include "phasor/core/instruction_set.hpp"
#include "phasor/core/positions.hpp"
#include "phasor/core/rotary.hpp"
#include "phasor/core/view.hpp"
#include "phasor/export.h"

namespace phasor::core {

enum class Direction : std::uint8_t {
  forward,    // a R_m x
  transpose,  // a R_m^T x: the backward pass
  inverse,    // (1/a) R_m^T x: undoes forward for every amplitude a
};
enum class Role : std::uint8_t { query, key };  // they differ under xPos only

struct RotateOptions {
  Direction direction = Direction::forward;
  AngleMode angles = AngleMode::exact;
  // Rows are read from the table if there is one, else computed per token. A table must be built
  // from the same frequencies.
  const CosSinTable* table = nullptr;
  // 0: as many as the machine has if the work is large enough to gain; n: at most n, the calling
  // thread included.
  int threads = 0;
  InstructionSet isa = InstructionSet::best;
};

// One tensor to rotate: in place when in and out are the same view.
struct Rotation {
  ConstHeadsView in;
  HeadsView out;
  Role role = Role::query;
};

// RoFormer (34)   y[a] = x[a] cos(mθ) - x[b] sin(mθ)
//                 y[b] = x[b] cos(mθ) + x[a] sin(mθ)      (a, b) = pair i in rotary.layout
//
// Rotates queries, keys, or both in one call (grouped heads: each tensor has its own head count);
// each token's row of cos and sin is computed once.
//
// shape    every view [batch, tokens, heads, rotary.head_dim]; batch and tokens agree between tensors
// touches  features [offset, offset + rotary_dim) of each head; in place, the rest is unchanged,
//          out of place it is copied
// error    |y - exact| <= kRotateErrorF32 * epsilon(f32) * (length of the exact output pair), f32
//          storage; f16 and bf16: the same, then one rounding to nearest even; f64: kRotateErrorF64
//          * epsilon(f64)
// throws   Error(invalid_argument | shape_mismatch | out_of_range | unsupported), before an output
//          is written; views that overlap without being the same view are an error
// cost     one read and one write; no allocation; no thread for work below kThreadBytes per thread
PHASOR_API void rotate(const Rotary& rotary, const Positions& positions,
                       std::span<const Rotation> rotations, const RotateOptions& options = {});
// In place.
PHASOR_API void rotate(const Rotary& rotary, const Positions& positions, HeadsView x,
                       const RotateOptions& options = {});
PHASOR_API void rotate(const Rotary& rotary, const Positions& positions, ConstHeadsView in,
                       HeadsView out, const RotateOptions& options = {});
// cos and sin that the caller has computed: element (batch b, token t, pair i) is at cos +
// b*batch_stride + t*token_stride + i*pair_stride, counted in elements. Stride 0: one row for all.
struct CosSinRows {
  const void* cos = nullptr;
  const void* sin = nullptr;
  DType dtype =
      DType::f32;  // f16 and bf16 are widened; f64 is rounded once unless the data are f64
  std::int64_t pairs = 0;
  std::int64_t batch_stride = 0, token_stride = 0, pair_stride = 1;
};
// As rotate(), with the caller's cos and sin: for code that keeps its own tables. Rotates features
// [offset, offset + 2 pairs) of each head. Direction::inverse is not supported: the amplitude of the
// rows is unknown.
//
// options  table and angles are not read
PHASOR_API void rotate_by(const CosSinRows& rows, PairLayout layout, std::int64_t offset,
                          std::span<const Rotation> rotations, const RotateOptions& options = {});
// q and k in place.
PHASOR_API void rotate_qk(const Rotary& rotary, const Positions& positions, HeadsView q,
                          HeadsView k, const RotateOptions& options = {});

// Table entry, product and sum each round by at most epsilon/2 of the pair's length
// (Cauchy-Schwarz): 1.5; the rest covers a table entry scaled by 1/a^2 for Direction::inverse.
inline constexpr double kRotateErrorF32 = 2.0;
inline constexpr double kRotateErrorF64 = 3.0;
inline constexpr std::int64_t kThreadBytes = std::int64_t{256} * 1024;

}  // namespace phasor::core
