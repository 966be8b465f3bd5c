// BERT's position_embedding_type "relative_key" and "relative_key_query": RoFormer (5) without
// clipping.
//
//   s(m, n) = (q_m . k_n + q_m . a[x] (+ k_n . a[x])) / sqrt(d)      x = m - n + max_positions - 1
#include "encodings/relative/terms.hpp"

namespace phasor::encodings {

ScoreTerms terms_of(const BertRelative& encoding, const AttentionShape& shape) {
  const std::int64_t positions = encoding.max_positions;
  require_distance("bert_relative", "max_positions", positions, 1);
  require_table("bert_relative", "rows", encoding.rows, shape, 2 * positions - 1, shape.head_dim);
  const RelativeMap map =
      refusing_map({1 - positions, positions - 1}, shape,
                   [&](std::int64_t distance) { return distance + positions - 1; });
  ScoreTerms terms;
  terms.query_rows = RelativeRows{encoding.rows, map};
  if (encoding.kind == BertRelative::Kind::key_query) {
    terms.key_rows = RelativeRows{encoding.rows, map};
  }
  terms.scale = plain_scale(shape);
  return terms;
}

}  // namespace phasor::encodings
