// Attention planned once and run many times:
//
//   AttentionPlan plan(terms, {.queries = n, .keys = n, .heads = 8, .key_heads = 8,
//                              .head_dim = 64, .value_dim = 64},
//                      {.causality = Causality::bottom_right});
//   for (Layer& layer : layers) plan.run(layer.q, layer.k, layer.v, layer.out);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "phasor/attention/softmax.hpp"
#include "phasor/core/view.hpp"
#include "phasor/encodings/encoding.hpp"
#include "phasor/encodings/score_terms.hpp"
#include "phasor/export.h"

namespace phasor::attention {

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
[[nodiscard]] PHASOR_API encodings::AttentionShape attention_shape(
    const AttentionSizes& sizes, const AttentionOptions& options = {});
// The same for attend(terms, q, k, v, ...), which checks the sizes.
[[nodiscard]] PHASOR_API encodings::AttentionShape attention_shape(
    const core::ConstHeadsView& q, const core::ConstHeadsView& k, const core::ConstHeadsView& v,
    const AttentionOptions& options = {});

// The passes a plan allocates for.
enum class AttentionPasses : std::uint8_t { forward, forward_and_backward };

// Tables that differ by head are packed for all heads at once if that takes at most so many bytes
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
  // options  workspace and rotations are not read: the plan owns its memory
  // throws   Error(invalid_argument | shape_mismatch | unsupported | out_of_range) as attend();
  //          std::bad_alloc
  AttentionPlan(encodings::ScoreTerms terms, const AttentionSizes& sizes,
                const AttentionOptions& options = {},
                AttentionPasses passes = AttentionPasses::forward);
  ~AttentionPlan();
  AttentionPlan(AttentionPlan&&) noexcept;
  AttentionPlan& operator=(AttentionPlan&&) noexcept;

  [[nodiscard]] const AttentionSizes& sizes() const noexcept;
  // Memory that the plan holds, in bytes: all that its runs need, with the exception of run() below.
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
