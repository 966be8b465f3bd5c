// Softmax attention with every encoding, in tiles: memory grows linearly with the number of tokens.
// attend() is one call; AttentionPlan is for calls of the same sizes made many times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "phasor/core/cpu.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/core/view.hpp"
#include "phasor/encodings/encoding.hpp"
#include "phasor/encodings/score_terms.hpp"
#include "phasor/export.h"

namespace phasor::attention {

// Memory that calls of attention use again.

struct CallMemory;
class SharedRows;

// Scratch of attend() and KVCache::attend, kept between calls: a call with the sizes of an earlier
// one allocates nothing, and KVCache::attend makes it large enough for the cache's whole capacity at
// once. Holds no results and no reference to an input. Used by one call at a time. A call that
// throws leaves it fit for the next.
class PHASOR_API AttentionWorkspace {
 public:
  AttentionWorkspace() noexcept;
  ~AttentionWorkspace();
  AttentionWorkspace(AttentionWorkspace&&) noexcept;
  AttentionWorkspace& operator=(AttentionWorkspace&&) noexcept;

  // Allocated on first use.
  //
  // throws   std::bad_alloc
  [[nodiscard]] CallMemory& memory();
  // Memory that it holds.
  [[nodiscard]] std::size_t bytes() const noexcept;

 private:
  std::unique_ptr<CallMemory> memory_;
};

// Rows of cos and sin that the steps of a model share. Given to KVCache::append and, in
// AttentionOptions, to KVCache::attend: the rows of a step's tokens are computed once for the keys
// and queries of all layers that have the same rotary, since rows are found again by the values of
// rotary and positions. One object per sequence of a batch; used by one call at a time. A call that
// throws leaves it fit for the next.
class PHASOR_API StepRotations {
 public:
  StepRotations() noexcept;
  ~StepRotations();
  StepRotations(StepRotations&&) noexcept;
  StepRotations& operator=(StepRotations&&) noexcept;

  // Allocated on first use.
  //
  // throws   std::bad_alloc
  [[nodiscard]] SharedRows& rows();

 private:
  std::unique_ptr<SharedRows> rows_;
};

enum class Causality : std::uint8_t {
  none,          // every query sees every key
  bottom_right,  // causal mask, aligned bottom-right: query i of Nq sees keys 0 .. Nk - Nq + i, or
                 // with query_offset keys 0 .. query_offset + i
};
// Whether the keys given to attention are rotated.
enum class KeyState : std::uint8_t {
  raw,      // not yet: attention rotates them like the queries
  rotated,  // already, when they were appended to a cache
};

// Values for (query, key); element (b, h, i, j) is at data + b*batch_stride + h*head_stride +
// i*query_stride + j*key_stride. A stride of 0 broadcasts its axis.
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
  std::int64_t keys = 0;  // columns of the mask; keys at or after this are hidden
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
  // Query i of Nq sees key j only if |Nk - Nq + i - j| < window. Causality and window count tokens,
  // not position ids.
  std::optional<std::int64_t> window = std::nullopt;
  // The token of query 0 among the keys, in place of Nk - Nq: negative before the first key, Nk or more
  // after the last. For calls over a part of the keys; not with key_lengths or packed sequences.
  std::optional<std::int64_t> query_offset = std::nullopt;
  std::optional<double> scale = std::nullopt;  // none: that of the encoding
  double soft_cap = 0.0;  // c > 0: scores become c tanh(s / c), before masks; 0: none
  Mask mask = {};
  // [batch]: keys at or after `length` are padding; the last query has the position of key
  // `length - 1`.
  std::span<const std::int64_t> key_lengths = {};
  // [batch, keys]: 0 hides the key (left or right padding). Tokens are counted as before; a left-padded
  // batch gives its own position ids.
  std::span<const std::uint8_t> key_padding = {};
  // Packed sequences, batch 1: boundaries [0, ..., tokens] of queries and of keys. Sequence s of
  // the queries sees sequence s of the keys only; relative positions count inside a sequence.
  std::span<const std::int64_t> query_boundaries = {}, key_boundaries = {};
  // Position ids: of the rotation, and of every term that reads a distance or a position. None: keys at
  // 0, 1, ..., queries as in bottom_right (in packed sequences: inside each sequence). Terms other than
  // the rotation need whole numbers on one axis, within 2^28 of each other in each sequence. Ids that
  // count up from any number cost nothing; tiles of others read their tables pair by pair, see
  // docs/attention.md. resolve() an encoding for attention_shape(): its maps are cut to the
  // distances.
  std::optional<core::Positions> query_positions = std::nullopt, key_positions = std::nullopt;
  KeyState keys = KeyState::raw;
  core::AngleMode angles = core::AngleMode::exact;
  // [batch, tokens]: XLNet's segments; required if the encoding has segment_rows.
  std::span<const std::int32_t> query_segments = {}, key_segments = {};
  int threads = 0;  // as core::RotateOptions; results have the same bits with any number
  core::InstructionSet isa = core::InstructionSet::best;
  // Scratch of earlier calls; null: the call allocates its own. Not read by attend_backward. Plans with
  // the same workspace share their scratch of f32 arithmetic: it must outlive them, one of them runs at a
  // time, and the largest is planned first.
  AttentionWorkspace* workspace = nullptr;
  // Rows of cos and sin that layers share. Read only if `keys` are rotated; not read by plans.
  StepRotations* rotations = nullptr;
};

// Optional outputs; null: not wanted. [batch, heads, queries(, keys)], dense.
struct AttentionExtras {
  float* log_sum_exp = nullptr;  // natural logarithm of the softmax denominator; -inf for a row
                                 // that sees no key. Backward needs it.
  // s before soft cap and masks, and after the soft cap: for every pair of a sequence, hidden ones
  // too. 0 for pairs of different sequences and for padding; undefined for hidden pairs whose
  // distance has no row in query_rows or key_rows.
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
//          f64: arithmetic is float64, and tables are read from their `wide` numbers if given
// rows     a query that sees no key gets zeros; a NaN in q stays in its row; a NaN in k or v flows
//          to every query that sees the key and may reach others, but never from a key that
//          key_padding or key_lengths exclude
// throws   Error(invalid_argument | shape_mismatch | unsupported | out_of_range) with the sizes,
//          before out is written; out must not overlap an input; unsupported: f64 combined with
//          another type, position ids with fractions or several axes for terms that read distances;
//          out_of_range: a distance that is seen has no row. std::bad_alloc: out and extras hold any
//          numbers
// error    f64: |out - exact| <= kAttendErrorF64 * (the largest |v + C|) if the terms of a score
//          sum to at most 100; extras of float: then one rounding
// memory   up to four queries without tables of distances: a row of scores per thread. Otherwise
//          keys, values and each table with a row per distance, once more as float32, for one key
//          head per thread; tables that heads or sequences share: once for all, see
//          kPackedTableBytes. f64: rotated q and k, tables without `wide`, and a row of scores per
//          thread. All in the workspace if there is one; extras are the caller's
// cost     a plan that is run once. f64: plain loops, without vector instructions
PHASOR_API void attend(const encodings::ScoreTerms& terms, core::ConstHeadsView q,
                       core::ConstHeadsView k, core::ConstHeadsView v, core::HeadsView out,
                       const AttentionOptions& options = {}, const AttentionExtras& extras = {});

// A score of 100 rounds by 100 epsilon(f64) / 2 for each of some tens of additions; its weight has
// the same relative error.
inline constexpr double kAttendErrorF64 = 1e-13;

// Inputs of the backward pass besides q, k and v: results of the forward pass, and the gradient of
// its output.
struct AttentionForward {
  core::ConstHeadsView out;
  const float* log_sum_exp = nullptr;  // [batch, heads, queries]
  core::ConstHeadsView d_out;
  const double* wide_log_sum_exp = nullptr;  // f64 views: in place of log_sum_exp
};
// Outputs of the backward pass: overwritten, with the shapes of q, k and v; f32, f16 or bf16, or f64
// if q, k and v are. Table gradients are added to; f64 calls write to `wide` if it is given.
struct AttentionGradients {
  core::HeadsView d_q, d_k, d_v;
  encodings::ScoreTermGradients terms;
};

// The gradient of sum(out * d_out). Tiles of the scores are recomputed from the log-sum-exp; with
// D_m = d_out_m . out_m and dP(m, n) = d_out_m . (v_n + C):   dS = P (dP - D).
//
// Masks have no gradient.
//
// throws   as attend; also Error(unsupported) for KeyState::rotated with a rotation: the gradient
//          would be that of the cache. std::bad_alloc: all gradients hold any numbers
// memory   three times that of attend; f64: the gradients of the tables, for one key head per
//          thread, and those of rotated q and k if there are tables
PHASOR_API void attend_backward(const encodings::ScoreTerms& terms, core::ConstHeadsView q,
                                core::ConstHeadsView k, core::ConstHeadsView v,
                                const AttentionForward& forward,
                                const AttentionGradients& gradients,
                                const AttentionOptions& options = {});

// Attention planned once and run many times:
//
//   AttentionPlan plan(terms, {.queries = n, .keys = n, .heads = 8, .key_heads = 8,
//                              .head_dim = 64, .value_dim = 64},
//                      {.causality = Causality::bottom_right});
//   for (Layer& layer : layers) plan.run(layer.q, layer.k, layer.v, layer.out);

// The sizes of q [batch, queries, heads, head_dim], k [batch, keys, key_heads, head_dim],
// v [batch, keys, key_heads, value_dim] and out [batch, queries, heads, value_dim].
struct AttentionSizes {
  std::int64_t batch = 1, queries = 0, keys = 0;
  std::int64_t heads = 0, key_heads = 0;  // heads: a multiple of key_heads
  std::int64_t head_dim = 0, value_dim = 0;
  // f32: every view is f32, f16 or bf16, each its own; f64: all views are f64.
  core::DType arithmetic = core::DType::f32;
};

// The shape to resolve an encoding for. With position ids (options.query_positions or key_positions):
// their distances and the largest of the keys; ids that are not whole numbers, have several axes or
// are more than 2^28 apart give no distances, and attend() refuses an encoding that reads them.
//
// throws   Error(shape_mismatch | invalid_argument) for position ids that do not fit the sizes
// cost     one read of the position ids
[[nodiscard]] PHASOR_API encodings::AttentionShape attention_shape(const AttentionSizes& sizes,
                                                                   const AttentionOptions& options);
// The same for attend(terms, q, k, v, ..., options), which checks the sizes.
[[nodiscard]] PHASOR_API encodings::AttentionShape attention_shape(const core::ConstHeadsView& q,
                                                                   const core::ConstHeadsView& k,
                                                                   const core::ConstHeadsView& v,
                                                                   const AttentionOptions& options);

// The passes a plan allocates for.
enum class AttentionPasses : std::uint8_t { forward, forward_and_backward };

// Tables that differ by head are packed for all heads at once if that takes at most this many bytes
// per table, and head by head in every run otherwise. A table that all heads share is packed once.
inline constexpr std::int64_t kPackedTableBytes = std::int64_t{16} << 20;

// What does not change between calls of the same sizes: checked terms and options, rows of cos and
// sin, packed tables, scratch.
//
// The plan copies `terms`, and of `options` key_lengths, boundaries and positions. It keeps views of
// the numbers of the tables, and of mask, key_padding and segments: those must outlive the plan.
// Mask, padding and segments are read by each run and may change between runs; tables may change if
// update_tables() is called before the next run. Used by one call at a time. A plan that was moved
// from can be assigned to or destroyed, nothing else.
class PHASOR_API AttentionPlan {
 public:
  // options  rotations are not read; without a workspace the plan owns all its memory
  // throws   Error(invalid_argument | shape_mismatch | unsupported | out_of_range) as attend();
  //          std::bad_alloc
  AttentionPlan(encodings::ScoreTerms terms, const AttentionSizes& sizes,
                const AttentionOptions& options = {},
                AttentionPasses passes = AttentionPasses::forward);
  ~AttentionPlan();
  AttentionPlan(AttentionPlan&&) noexcept;
  AttentionPlan& operator=(AttentionPlan&&) noexcept;

  [[nodiscard]] const AttentionSizes& sizes() const noexcept;
  // Memory that the plan holds, in bytes: all that its runs need, with the exception of run() below and
  // of a workspace.
  [[nodiscard]] std::size_t bytes() const noexcept;

  // attend() with the plan's terms and options.
  //
  // shape    as sizes(); strides may differ from run to run
  // throws   Error(invalid_argument | shape_mismatch | unsupported) for views without data, of other
  //          sizes or types, or an output that overlaps an input, before out is written;
  //          Error(out_of_range) if padding shows a key at a distance without a row
  // cost     no allocation, except for the first run that asks for scores with up to four queries
  void run(core::ConstHeadsView q, core::ConstHeadsView k, core::ConstHeadsView v,
           core::HeadsView out, const AttentionExtras& extras = {});
  // attend_backward() with the plan's terms and options.
  //
  // throws   as run(); Error(invalid_argument) for a plan of AttentionPasses::forward
  // cost     no allocation
  void run_backward(core::ConstHeadsView q, core::ConstHeadsView k, core::ConstHeadsView v,
                    const AttentionForward& forward, const AttentionGradients& gradients);
  // Reads the tables again, after their numbers have changed. No allocation.
  void update_tables();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace phasor::attention
