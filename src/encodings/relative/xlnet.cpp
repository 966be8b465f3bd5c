// XLNet: Transformer-XL, and whether two tokens belong to the same segment.
//
//   s(m, n) = ((q_m + u) . k_n + (q_m + v) . R[m - n] + (q_m + w) . E[segments differ]) / sqrt(d)
#include "encodings/relative/terms.hpp"

namespace phasor::encodings {

ScoreTerms terms_of(const Xlnet& encoding, const AttentionShape& shape) {
  ScoreTerms terms = transformer_xl_terms("xlnet", encoding.relative, shape);
  check_table("xlnet", "segment_rows", encoding.segment_rows, shape, 2, shape.head_dim);
  check_table("xlnet", "segment_bias", encoding.segment_bias, shape, 1, shape.head_dim);
  if (encoding.segment_bias.given() && !encoding.segment_rows.given()) {
    refuse("xlnet: segment_bias needs segment_rows, which is missing");
  }
  terms.segment_rows = encoding.segment_rows;
  terms.segment_bias = encoding.segment_bias;
  return terms;
}

}  // namespace phasor::encodings
