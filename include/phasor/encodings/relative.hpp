// Encodings of relative position that read trained rows: Shaw (5), Transformer-XL (6)(7), XLNet,
// DeBERTa (10) and variants.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "phasor/encodings/trained_table.hpp"
#include "phasor/export.h"

namespace phasor::encodings {

// RoFormer (5): k_n + aK[clip(n - m, -left, right) + left], and the same of values with aV.
struct Shaw {
  Table keys;    // [1 or heads, left + 1 + right, head_dim]
  Table values;  // the same with value_dim, or none
  std::int64_t left = 0, right = 0;
};

// BERT's relative_key and relative_key_query: row m - n + max_positions - 1, no clipping: a longer
// distance is refused.
struct BertRelative {
  enum class Kind : std::uint8_t {
    key,        // q_m . row
    key_query,  // q_m . row + k_n . row
  };
  Table rows;  // [1 or heads, 2 max_positions - 1, head_dim]
  std::int64_t max_positions = 0;
  Kind kind = Kind::key;
};

// RoFormer (6)(7): (q_m + u) . k_n + (q_m + v) . R[m - n]. Row p is distance first_distance - p, as
// the reference keeps it; distances without a row are refused. With first_distance = key tokens - 1
// this is Transformer-XL with memories (causal), with rows after distance 0 it is the conformer's
// bidirectional form.
struct TransformerXl {
  Table rows;  // [1 or heads, rows, head_dim], already multiplied by W_r
  Table u, v;  // [heads, 1, head_dim], or none
  std::int64_t first_distance = 0;
};

// As Transformer-XL, and (q_m + w) . E[0 or 1] for tokens of the same or of different segments.
struct Xlnet {
  TransformerXl relative;
  Table segment_rows;  // [heads, 2, head_dim], or none
  Table segment_bias;  // [heads, 1, head_dim], or none
};

// RoFormer (10): q_m . pos_k[x] + k_n . pos_q[x], x = clip(r(m - n) + size, 0, 2 size - 1); the
// whole sum is divided by sqrt(head_dim (1 + number of terms)). Both terms use r(m - n), as the
// reference code does (the paper writes r(n - m) in the second).
struct Deberta {
  enum class Version : std::uint8_t {
    v1,  // size = max_relative_positions; no distance is clipped because there are few tokens
    v2,  // size = position_buckets when > 0 (log buckets), else max_relative_positions
  };
  Version version = Version::v2;
  Table keys;     // c2p: [heads, 2 size, head_dim], or none
  Table queries;  // p2c: [heads, 2 size, head_dim], or none
  std::int64_t max_relative_positions = 0;
  std::int64_t position_buckets = 0;  // v2; <= 0: none
};

// DeBERTa v2's bucket of a distance m - n: itself up to buckets / 2, then logarithmic up to
// max_position. Exact: near the edge of a bucket powers are compared in integers.
//
// throws   Error(invalid_argument): buckets odd or < 4, max_position not above buckets / 2 + 1
[[nodiscard]] PHASOR_API std::int64_t deberta_log_bucket(std::int64_t distance,
                                                         std::int64_t buckets,
                                                         std::int64_t max_position);

// Encodings that add a number to a score: T5 (8), ALiBi, KERPLE, TUPE (9).

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

// KERPLE (Chi et al. 2022), logarithmic kernel: -r1_h ln(1 + r2_h |m - n|), added after q.k is
// scaled, as the authors' code does. r1 and r2 are trained, positive and finite.
//
// resolve() computes the bias in float64 and rounds each number to float32 once: row p of the term
// `bias` is distance p. Attention in float64 reads the unrounded numbers. The rows are those of the
// shape: attention over larger distances is refused.
//
// cost     12 bytes and one logarithm for each head and distance
struct Kerple {
  Table r1, r2;  // [1 or heads, 1, 1]
};

// The gradients of r1 and r2 from the gradient of the rows, which attend_backward() adds to
// ScoreTermGradients::bias:
//
//   d_r1 = -sum_p d_rows[p] ln(1 + r2 p)        d_r2 = -sum_p d_rows[p] r1 p / (1 + r2 p)
//
// Summed in float64, over the heads too if they share a parameter, and added to d_r1 and d_r2. In
// each of the three, `wide` is used instead of `data` if it is given.
//
// shape    d_rows [heads of the bias, distances, 1]; d_r1 and d_r2 like r1 and r2, null: not wanted
// throws   Error as resolve(), and Error(shape_mismatch), before a gradient is touched
PHASOR_API void kerple_backward(const Kerple& encoding, const TableGradient& d_rows,
                                const TableGradient& d_r1, const TableGradient& d_r2);

// RoFormer (9): the position-position product added to q.k, both over sqrt(2 d), and a T5 bias.
struct Tupe {
  // [heads, tokens, any dim]: the rows of the call's tokens; if attention is given position ids of the
  // queries or keys, row p of that table is position p.
  Table query_positions, key_positions;
  std::optional<T5> bias = std::nullopt;
  // The first token ([CLS], at position 0) is untied: its row and column of the position part are these.
  // [heads, 1, 1]
  Table first_row = {}, first_column = {};
};

}  // namespace phasor::encodings
