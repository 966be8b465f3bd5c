// T5: a trained number for each bucket of distances.
//
//   RoFormer (8)   s(m, n) = q_m . k_n + b[bucket(n - m)]
#include "encodings/relative/log_ratio.hpp"
#include "encodings/relative/terms.hpp"

namespace phasor::encodings {
namespace {

// The buckets of one direction: `exact` of one distance each, the rest growing by a power.
struct Buckets {
  std::int64_t count = 0, exact = 0;
};

[[nodiscard]] Buckets buckets_of_a_side(std::string_view where, std::int64_t buckets,
                                        std::int64_t max_distance, BucketRange range) {
  const std::int64_t sides = range == BucketRange::bidirectional ? 2 : 1;
  if (buckets < 2 * sides) {
    refuse(message(where, ": buckets must be at least ", 2 * sides,
                   sides == 2 ? " in two directions, got " : " in one direction, got ", buckets));
  }
  const Buckets side{buckets / sides, buckets / sides / 2};
  if (max_distance <= side.exact) {
    refuse(message(where, ": max_distance must be above the ", side.exact, " exact buckets, got ",
                   max_distance));
  }
  return side;
}

// distance >= 0:  itself below exact, else
//   exact + floor(ln(distance / exact) / ln(max_distance / exact) (count - exact)),
// at most count - 1
[[nodiscard]] std::int64_t bucket_of(std::uint64_t distance, const Buckets& side,
                                     std::int64_t max_distance) {
  if (distance >= static_cast<std::uint64_t>(max_distance)) return side.count - 1;
  const auto exact = static_cast<std::uint64_t>(side.exact);
  if (distance < exact) return static_cast<std::int64_t>(distance);
  const std::int64_t steps =
      log_ratio(distance, static_cast<std::uint64_t>(max_distance), exact, side.count - side.exact)
          .floor;
  return std::min(side.exact + steps, side.count - 1);
}

[[nodiscard]] std::int64_t bucket_of_relative(std::int64_t relative_position, const Buckets& side,
                                              std::int64_t max_distance, BucketRange range) {
  const bool future = relative_position > 0;
  if (future && range == BucketRange::past_only) return 0;
  // Negated as unsigned: the smallest integer has no positive counterpart.
  const auto bits = static_cast<std::uint64_t>(relative_position);
  const std::int64_t bucket = bucket_of(future ? bits : 0 - bits, side, max_distance);
  return future ? side.count + bucket : bucket;
}

}  // namespace

std::int64_t t5_bucket(std::int64_t relative_position, std::int64_t buckets,
                       std::int64_t max_distance, BucketRange range) {
  const Buckets side = buckets_of_a_side("t5", buckets, max_distance, range);
  return bucket_of_relative(relative_position, side, max_distance, range);
}

RelativeRows t5_rows(std::string_view where, const T5& encoding, const AttentionShape& shape) {
  const Table& bias = encoding.bias;
  const std::int64_t max_distance = encoding.max_distance;
  const BucketRange range = encoding.range;
  require_distance(where, "max_distance", max_distance, 1);
  require_table(where, "bias", bias, shape, 1, 1, RowCount::at_least);
  const Buckets side = buckets_of_a_side(where, bias.rows, max_distance, range);
  const Distances varying{range == BucketRange::past_only ? 0 : -max_distance, max_distance};
  return {bias, clamping_map(varying, shape, [&](std::int64_t distance) {
            return bucket_of_relative(-distance, side, max_distance, range);
          })};
}

ScoreTerms terms_of(const T5& encoding, const AttentionShape& shape) {
  ScoreTerms terms;
  terms.bias = t5_rows("t5", encoding, shape);
  terms.scale = 1.0;  // folded into the initial weights instead
  return terms;
}

}  // namespace phasor::encodings
