// Encodings that add a number to a score: T5 (8), ALiBi, TUPE (9).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "phasor/encodings/trained_table.hpp"
#include "phasor/export.h"

namespace phasor::encodings {

enum class BucketRange : std::uint8_t {
  past_only,      // distances into the future read bucket 0
  bidirectional,  // half of the buckets for each direction
};

// RoFormer (8): b[bucket(n - m), head]; T5 does not scale q.k.
struct T5 {
  Table bias;  // [heads, buckets, 1]
  std::int64_t max_distance = 128;
  BucketRange range = BucketRange::bidirectional;
};

// The bucket of a relative position n - m (key minus query). Exact: near the edge of a bucket
// powers are compared in integers.
//
// throws   Error(invalid_argument): too few buckets, max_distance not above the exact ones
[[nodiscard]] PHASOR_API std::int64_t t5_bucket(std::int64_t relative_position,
                                                std::int64_t buckets, std::int64_t max_distance,
                                                BucketRange range);

// -slope_h |m - n|; causal models see only m >= n.
struct Alibi {
  double max_bias = 8.0;
};

// 2^(-max_bias i / n), i = 1 .. n, for n heads a power of two; otherwise in the order that BLOOM
// or MPT have: `bloom` takes those of the power below, then every second one of the next; `mpt`
// every second one of the next power, then the others.
//
// throws   Error(invalid_argument): heads < 1, max_bias not finite and positive
enum class SlopeOrder : std::uint8_t { bloom, mpt };
[[nodiscard]] PHASOR_API std::vector<double> alibi_slopes(std::int64_t heads, double max_bias = 8.0,
                                                          SlopeOrder order = SlopeOrder::bloom);

// RoFormer (9): the position-position product added to q.k, both over sqrt(2 d), and a T5 bias.
struct Tupe {
  Table query_positions, key_positions;  // [heads, tokens, any dim]; rows of this call's tokens
  std::optional<T5> bias = std::nullopt;
  // The first token ([CLS]) is untied: its row and column of the position part are these.
  // [heads, 1, 1]
  Table first_row = {}, first_column = {};
};

}  // namespace phasor::encodings
