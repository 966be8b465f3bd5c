// Transformer-XL: content and position, each with a trained bias in place of the query's position.
//
//   RoFormer (7)   s(m, n) = ((q_m + u) . k_n + (q_m + v) . R[m - n]) / sqrt(d)
//
// (6) with its four products gathered two by two. Row p of R is distance first_distance - p.
#include "encodings/relative/terms.hpp"

namespace phasor::encodings {

ScoreTerms transformer_xl_terms(std::string_view where, const TransformerXl& encoding,
                                const AttentionShape& shape) {
  const std::int64_t first = encoding.first_distance;
  require_distance(where, "first_distance", first, 0);
  // Down to distance 0 at least: the last query is at the last key. Rows after it are for
  // keys in the future, which a causal call never sees.
  require_table(where, "rows", encoding.rows, shape, first + 1, shape.head_dim, RowCount::at_least);
  check_table(where, "u", encoding.u, shape, 1, shape.head_dim);
  check_table(where, "v", encoding.v, shape, 1, shape.head_dim);
  ScoreTerms terms;
  terms.content_bias = encoding.u;
  terms.position_bias = encoding.v;
  terms.query_rows = RelativeRows{
      encoding.rows, refusing_map({first - encoding.rows.rows + 1, first}, shape,
                                  [&](std::int64_t distance) { return first - distance; })};
  terms.scale = plain_scale(shape);
  return terms;
}

ScoreTerms terms_of(const TransformerXl& encoding, const AttentionShape& shape) {
  return transformer_xl_terms("transformer_xl", encoding, shape);
}

}  // namespace phasor::encodings
