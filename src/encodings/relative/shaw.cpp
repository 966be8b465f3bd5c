// Shaw et al.: relative positions as trained rows, clipped.
//
//   RoFormer (5)   s(m, n) = q_m . (k_n + aK[x]) / sqrt(d)
//                  o(m)    = sum_n p(m, n) (v_n + aV[x])
//                  x = clip(n - m, -left, right) + left
#include "encodings/relative/terms.hpp"

namespace phasor::encodings {

ScoreTerms terms_of(const Shaw& encoding, const AttentionShape& shape) {
  const Table &keys = encoding.keys, &values = encoding.values;
  const std::int64_t left = encoding.left, right = encoding.right;
  require_distance("shaw", "left", left, 0);
  require_distance("shaw", "right", right, 0);
  const std::int64_t rows = left + 1 + right;
  if (!values.given() || keys.given()) {
    require_table("shaw", "keys", keys, shape, rows, shape.head_dim);
  }
  check_table("shaw", "values", values, shape, rows, shape.value_dim);
  // A distance is m - n: it is clipped on the other side.
  const RelativeMap map = clamping_map({-right, left}, shape, [&](std::int64_t distance) {
    return std::clamp(-distance, -left, right) + left;
  });
  ScoreTerms terms;
  if (keys.given()) terms.query_rows = RelativeRows{keys, map};
  if (values.given()) terms.value_rows = RelativeRows{values, map};
  terms.scale = plain_scale(shape);
  return terms;
}

}  // namespace phasor::encodings
