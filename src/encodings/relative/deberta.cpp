// DeBERTa: content with content, content with position and position with content.
//
//   RoFormer (10)   s(m, n) = (q_m . k_n + q_m . pos_k[x] + k_n . pos_q[x]) / sqrt(d (1 + terms))
//                   x = clip(r(m - n) + size, 0, 2 size - 1)
//
// The reference of version 1 clips to span = min(tokens, size) around the middle of the table. Its
// distances reach tokens - 1 at most, so a span below size never clips and the rows read are those of
// version 2; distances of position ids may be larger and read their own rows too.
#include "encodings/relative/log_ratio.hpp"
#include "encodings/relative/terms.hpp"

namespace phasor::encodings {
namespace {

void check_buckets(std::int64_t buckets, std::int64_t max_position) {
  if (buckets < 4 || buckets % 2 != 0) {
    refuse(message("deberta: buckets must be even and at least 4, got ", buckets));
  }
  if (max_position <= buckets / 2 + 1) {
    refuse(message("deberta: max_position must be above buckets / 2 + 1 = ", buckets / 2 + 1,
                   ", got ", max_position));
  }
}

// middle = buckets / 2:  distance itself up to middle, else, with the sign of the distance,
//   middle + ceil(ln(|distance| / middle) / ln((max_position - 1) / middle) (middle - 1))
[[nodiscard]] std::int64_t log_bucket(std::int64_t distance, std::int64_t buckets,
                                      std::int64_t max_position) {
  const std::int64_t middle = buckets / 2;
  if (-middle <= distance && distance <= middle) return distance;
  // Negated as unsigned: the smallest integer has no positive counterpart.
  const auto bits = static_cast<std::uint64_t>(distance);
  const LogRatio ratio =
      log_ratio(distance > 0 ? bits : 0 - bits, static_cast<std::uint64_t>(max_position - 1),
                static_cast<std::uint64_t>(middle), middle - 1);
  const std::int64_t bucket = middle + ratio.floor + (ratio.whole ? 0 : 1);
  return distance > 0 ? bucket : -bucket;
}

[[nodiscard]] RelativeMap map_of(const Deberta& encoding, std::int64_t size,
                                 const AttentionShape& shape) {
  const auto row = [&](std::int64_t r) {
    return std::clamp<std::int64_t>(r + size, 0, 2 * size - 1);
  };
  if (encoding.position_buckets <= 0) return clamping_map({-size, size - 1}, shape, row);
  // max_position - 1 is the last distance below bucket `size`, where the rows end.
  const std::int64_t reach = encoding.max_relative_positions;
  return clamping_map({-reach, reach - 1}, shape, [&](std::int64_t distance) {
    return row(log_bucket(distance, size, reach));
  });
}

}  // namespace

std::int64_t deberta_log_bucket(std::int64_t distance, std::int64_t buckets,
                                std::int64_t max_position) {
  check_buckets(buckets, max_position);
  return log_bucket(distance, buckets, max_position);
}

ScoreTerms terms_of(const Deberta& encoding, const AttentionShape& shape) {
  const bool bucketed = encoding.position_buckets > 0;
  require_distance("deberta", "max_relative_positions", encoding.max_relative_positions, 1);
  if (bucketed && encoding.version == Deberta::Version::v1) {
    refuse(ErrorCode::unsupported, message("deberta: version 1 must have no position_buckets, got ",
                                           encoding.position_buckets));
  }
  if (bucketed) check_buckets(encoding.position_buckets, encoding.max_relative_positions);
  if (!encoding.keys.given() && !encoding.queries.given()) {
    refuse(ErrorCode::shape_mismatch, "deberta: keys and queries are both missing");
  }
  const std::int64_t size = bucketed ? encoding.position_buckets : encoding.max_relative_positions;
  check_table("deberta", "keys", encoding.keys, shape, 2 * size, shape.head_dim);
  check_table("deberta", "queries", encoding.queries, shape, 2 * size, shape.head_dim);
  const RelativeMap map = map_of(encoding, size, shape);
  ScoreTerms terms;
  int products = 1;
  if (encoding.keys.given()) {
    terms.query_rows = RelativeRows{encoding.keys, map};
    ++products;
  }
  if (encoding.queries.given()) {
    terms.key_rows = RelativeRows{encoding.queries, map};
    ++products;
  }
  terms.scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim * products));
  return terms;
}

}  // namespace phasor::encodings
