// TUPE: words with words, positions with positions, and nothing between the two.
//
//   RoFormer (9)   s(m, n) = (q_m . k_n + (p_m U_q) . (p_n U_k)) / sqrt(2 d) + b[bucket(n - m)]
//
// The second product is q.k with more features; the first token may have learned scores instead of positions.
#include "encodings/relative/terms.hpp"

namespace phasor::encodings {

ScoreTerms terms_of(const Tupe& encoding, const AttentionShape& shape) {
  const Table &queries = encoding.query_positions, &keys = encoding.key_positions;
  if (queries.given() && queries.dim < 1) {
    refuse(ErrorCode::shape_mismatch,
           message("tupe: query_positions must have dim 1 or more, got ", queries.dim));
  }
  // With position ids a row per position: attention checks them.
  const bool by_token = !shape.distances;
  require_table("tupe", "query_positions", queries, shape, by_token ? shape.query_tokens : 1,
                queries.dim, RowCount::at_least);
  require_table("tupe", "key_positions", keys, shape, by_token ? shape.key_tokens : 1, queries.dim,
                RowCount::at_least);
  check_table("tupe", "first_row", encoding.first_row, shape, 1, 1);
  check_table("tupe", "first_column", encoding.first_column, shape, 1, 1);
  ScoreTerms terms;
  terms.extra_query = queries;
  terms.extra_key = keys;
  if (encoding.bias) terms.bias = t5_rows("tupe", *encoding.bias, shape);
  terms.first_row = encoding.first_row;
  terms.first_column = encoding.first_column;
  terms.scale = 1.0 / std::sqrt(2.0 * static_cast<double>(shape.head_dim));
  return terms;
}

}  // namespace phasor::encodings
