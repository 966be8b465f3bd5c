// What softmax attention is compared with. Forward: RoFormer (2) as it is printed, an explicit
// [queries, keys] matrix of scores, rotations in the relative form (16). Gradients: attend_backward()
// over float64 views, which wide_test.cpp compares with derivatives in dual numbers.
#pragma once

#include <vector>

#include "attention/reference/tokens.hpp"
#include "phasor/attention/softmax.hpp"

namespace phasor::attention::tests {

// As attend(), in float64 (tables too, if they have `wide` numbers): out [batch, Nq, heads, dv],
// extras [batch, heads, Nq(, Nk)]. Scores of keys outside the query's sequence are 0.
struct ReferenceResult {
  std::vector<double> out;
  std::vector<double> scores, capped_scores, masked_scores, probabilities;
  std::vector<double> log_sum_exp;
};
[[nodiscard]] ReferenceResult attend_reference(const encodings::ScoreTerms& terms,
                                               const core::ConstHeadsView& q,
                                               const core::ConstHeadsView& k,
                                               const core::ConstHeadsView& v,
                                               const AttentionOptions& options = {});

// The derivative of sum(out * d_out) along a direction of q, k, v or a table of the terms.
[[nodiscard]] double attend_reference_slope(
    const encodings::ScoreTerms& terms, const core::ConstHeadsView& q,
    const core::ConstHeadsView& k, const core::ConstHeadsView& v, const std::vector<double>& d_out,
    const AttentionOptions& options, const Direction& direction);

// The gradients of sum(out * d_out) by attend_backward() in float64. Tables' gradients are dense
// [heads, rows, dim] of their table, empty if the terms have no such table.
struct ReferenceGradients {
  std::vector<double> d_q, d_k, d_v;
  std::vector<double> content_bias, position_bias, query_rows, key_rows, bias, extra_query,
      extra_key, first_row, first_column, segment_rows, segment_bias, value_rows;
};
[[nodiscard]] ReferenceGradients attend_backward_reference(const encodings::ScoreTerms& terms,
                                                           const core::ConstHeadsView& q,
                                                           const core::ConstHeadsView& k,
                                                           const core::ConstHeadsView& v,
                                                           const core::ConstHeadsView& d_out,
                                                           const AttentionOptions& options = {});

}  // namespace phasor::attention::tests
