// Softmax attention with every encoding, in tiles: memory grows with the number of tokens, never
// with its square.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "phasor/attention/workspace.hpp"
#include "phasor/core/instruction_set.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/core/view.hpp"
#include "phasor/encodings/score_terms.hpp"
#include "phasor/export.h"

namespace phasor::attention {

enum class Causality : std::uint8_t {
  none,          // every query sees every key
  bottom_right,  // query i of Nq sees keys 0 .. Nk - Nq + i: the last query sees them all
};
// What attention is given as keys.
enum class KeyState : std::uint8_t {
  raw,      // turned here, as the queries are
  rotated,  // turned when they were appended to a cache
};

// Values for (query, key), broadcast where a stride is 0; element (b, h, i, j) lies at data +
// b*batch_stride + h*head_stride + i*query_stride + j*key_stride.
struct Mask {
  enum class Kind : std::uint8_t {
    none,
    boolean,       // uint8_t: 0 hides the key
    additive,      // float: added to the score; -infinity hides the key
    additive_f64,  // double, for views of f64
  };
  Kind kind = Kind::none;
  const void* data = nullptr;
  std::int64_t batch_stride = 0, head_stride = 0, query_stride = 0, key_stride = 1;
  std::int64_t keys = 0;  // the columns that the mask has; keys behind them are hidden
};
// shape    mask of rank 2 ([queries, keys]), 3 ([heads, ...]) or 4 ([batch, ...]); an axis of length
//          1 is broadcast
// throws   Error(shape_mismatch) naming the shapes when the rank or an axis does not fit
[[nodiscard]] PHASOR_API Mask boolean_mask(const std::uint8_t* data,
                                           std::span<const std::int64_t> shape, std::int64_t batch,
                                           std::int64_t heads, std::int64_t queries,
                                           std::int64_t keys);
[[nodiscard]] PHASOR_API Mask additive_mask(const float* data, std::span<const std::int64_t> shape,
                                            std::int64_t batch, std::int64_t heads,
                                            std::int64_t queries, std::int64_t keys);
[[nodiscard]] PHASOR_API Mask additive_mask(const double* data, std::span<const std::int64_t> shape,
                                            std::int64_t batch, std::int64_t heads,
                                            std::int64_t queries, std::int64_t keys);

struct AttentionOptions {
  Causality causality = Causality::none;
  // Key j is hidden from query position i unless |i - j| < window; the positions are those of
  // Causality::bottom_right.
  std::optional<std::int64_t> window = std::nullopt;
  std::optional<double> scale = std::nullopt;  // none: the encoding's own
  double soft_cap = 0.0;  // c > 0: scores become c tanh(s / c), before masks; 0: none
  Mask mask = {};
  // [batch]: keys behind are padding; the last query stands beside the last key that counts.
  std::span<const std::int64_t> key_lengths = {};
  // [batch, keys]: 0 hides the key (left or right padding); positions do not move.
  std::span<const std::uint8_t> key_padding = {};
  // Packed sequences, batch 1: boundaries [0, ..., tokens] of queries and of keys. Sequence s of
  // the queries sees sequence s of the keys only; relative positions count inside a sequence.
  std::span<const std::int64_t> query_boundaries = {}, key_boundaries = {};
  // Where tokens stand for `turn`. None: keys at 0 .., queries behind them as in bottom_right (in
  // packed sequences: inside each sequence).
  std::optional<core::Positions> query_positions = std::nullopt, key_positions = std::nullopt;
  KeyState keys = KeyState::raw;
  core::AngleMode angles = core::AngleMode::exact;
  // [batch, tokens]: XLNet's segments; needed when the encoding has segment_rows.
  std::span<const std::int32_t> query_segments = {}, key_segments = {};
  int threads = 0;  // as core::RotateOptions
  core::InstructionSet isa = core::InstructionSet::best;
  // Scratch of earlier calls; none: the call allocates its own. Not read by backward.
  AttentionWorkspace* workspace = nullptr;
};

// What attention may write beside its output; null: not wanted. [batch, heads, queries(, keys)],
// dense.
struct AttentionExtras {
  float* log_sum_exp = nullptr;  // natural logarithm of the softmax denominator; -inf for a row
                                 // that sees no key. Backward needs it.
  // s before soft cap and masks, and after the soft cap: for every pair of a sequence, hidden ones
  // too. 0 for pairs that never meet (padding, keys behind key_lengths, other packed sequences);
  // meaningless for hidden pairs whose distance has no row in query_rows or key_rows.
  float* scores = nullptr;
  float* capped_scores = nullptr;
  float* masked_scores = nullptr;  // after both
  float* probabilities = nullptr;
  double* wide_log_sum_exp = nullptr;  // log_sum_exp of f64 views, whose backward needs it
};

// RoFormer (2) with the terms of encodings/score_terms.hpp:
//   o_m = sum_n exp(s(m, n)) (v_n + C) / sum_n exp(s(m, n)), in one pass over the keys.
//
// shape    q [batch, Nq, heads, d], k [batch, Nk, key_heads, d], v [batch, Nk, key_heads, dv],
//          out [batch, Nq, heads, dv]; heads a multiple of key_heads: query head h reads key head
//          h / (heads / key_heads). f32, f16 or bf16, each its own: arithmetic is float32. Or all
//          f64: arithmetic is float64, and tables are read from their `wide` numbers where they
//          have them
// rows     a query that sees no key gets zeros; a NaN in q stays in its row; a NaN in k or v flows
//          to every query that sees the key and may reach others, but never from a key that
//          key_padding or key_lengths leave out
// throws   Error(invalid_argument | shape_mismatch | unsupported | out_of_range) with the sizes,
//          before out is touched; out must not overlap an input; unsupported: f64 beside another
//          type. std::bad_alloc: out and extras hold any numbers
// error    f64: |out - exact| <= kAttendErrorF64 * (the largest |v + C|) where the terms of a score
//          come to 100 at most; extras of float: then one rounding
// memory   up to four queries and a term that needs no table of distances: a row of scores per
//          thread, in the workspace where there is one. Otherwise keys, values and each table with a
//          row per distance, once more as float32, for one key head per thread; f64: q and k where they turn, tables without `wide`, and a row of scores
//          per thread; extras are the caller's
// cost     f64: plain loops over every pair that meets, without vector instructions
PHASOR_API void attend(const encodings::ScoreTerms& terms, core::ConstHeadsView q,
                       core::ConstHeadsView k, core::ConstHeadsView v, core::HeadsView out,
                       const AttentionOptions& options = {}, const AttentionExtras& extras = {});

// A score of 100 rounds by 100 epsilon(f64) / 2 for each of some tens of additions that matter, and
// its weight by as much in proportion.
inline constexpr double kAttendErrorF64 = 1e-13;

// What backward is given beside the inputs: the forward's results and the gradient of its output.
struct AttentionForward {
  core::ConstHeadsView out;
  const float* log_sum_exp = nullptr;  // [batch, heads, queries]
  core::ConstHeadsView d_out;
  const double* wide_log_sum_exp = nullptr;  // f64 views: in place of log_sum_exp
};
// Where the gradients go: overwritten, with the shapes of q, k and v; f32, f16 or bf16, or f64 as
// they are. Tables of f64 calls: to the `wide` numbers of a gradient that has them.
struct AttentionGradients {
  core::HeadsView d_q, d_k, d_v;
  encodings::ScoreTermGradients terms;
};

// The gradient of sum(out * d_out). Tiles of the scores are recomputed from the log-sum-exp; with
// D_m = d_out_m . out_m and dP(m, n) = d_out_m . (v_n + C):   dS = P (dP - D).
//
// Masks have no gradient.
//
// throws   as attend; also Error(unsupported) for KeyState::turned with a `turn`: the gradient
//          would be that of the cache. std::bad_alloc: all gradients hold any numbers
// memory   as attend, three times over; f64: the gradients of the tables, for one key head per
//          thread, and those of q and k where they turn and meet tables
PHASOR_API void attend_backward(const encodings::ScoreTerms& terms, core::ConstHeadsView q,
                                core::ConstHeadsView k, core::ConstHeadsView v,
                                const AttentionForward& forward,
                                const AttentionGradients& gradients,
                                const AttentionOptions& options = {});

}  // namespace phasor::attention
