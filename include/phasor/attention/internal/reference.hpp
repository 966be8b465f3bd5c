// Attention by its definition: float64, the whole score matrix, no tiles. The measure of the fast
// one.
#pragma once

#include <vector>

#include "phasor/attention/softmax.hpp"
#include "phasor/export.h"

namespace phasor::attention {

// As attend(), in float64 throughout (tables too, where they have `wide` numbers), out [batch, Nq,
// heads, dv]; turns by the complex form (12).
// Extras are dense [batch, heads, Nq, Nk].
struct ReferenceResult {
  std::vector<double> out;
  std::vector<double> scores, capped_scores, masked_scores, probabilities;
  std::vector<double> log_sum_exp;  // [batch, heads, Nq]
};
[[nodiscard]] PHASOR_API ReferenceResult attend_reference(const encodings::ScoreTerms& terms,
                                                          core::ConstHeadsView q,
                                                          core::ConstHeadsView k,
                                                          core::ConstHeadsView v,
                                                          const AttentionOptions& options = {});

// The gradients of sum(out * d_out) by the chain rule over the whole matrix, float64. Tables'
// gradients are dense [heads, rows, dim] of their table (heads = 1 where the table is shared),
// empty where the terms have no such table.
struct ReferenceGradients {
  std::vector<double> d_q, d_k, d_v;
  std::vector<double> content_bias, position_bias, query_rows, key_rows, bias, extra_query,
      extra_key, first_row, first_column, segment_rows, segment_bias, value_rows;
};
[[nodiscard]] PHASOR_API ReferenceGradients attend_backward_reference(
    const encodings::ScoreTerms& terms, core::ConstHeadsView q, core::ConstHeadsView k,
    core::ConstHeadsView v, core::ConstHeadsView d_out, const AttentionOptions& options = {});

}  // namespace phasor::attention
