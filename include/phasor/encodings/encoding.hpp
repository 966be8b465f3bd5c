// Every encoding other than RoPE as a value, and the terms that an encoding adds to attention.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "phasor/core/view.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/encodings/score_terms.hpp"
#include "phasor/export.h"

namespace phasor::encodings {

// Encodings that are added to the input, x_i + p_i, before the projections: RoFormer (3)(4).

// RoFormer (4), in the three forms that models use.
struct Sinusoidal {
  enum class Variant : std::uint8_t {
    interleaved,  // sin and cos alternate
    concat,       // [sin | cos]; odd dim: one sine more
    fairseq,      // [sin | cos], frequencies base^(-i / (dim/2 - 1)); odd dim: a zero column
  };
  std::int64_t dim = 0;
  double base = 10000.0;
  Variant variant = Variant::interleaved;
  std::optional<std::int64_t> padding_row = std::nullopt;  // fairseq: this position is all zeros
};

// throws   Error(invalid_argument): dim < 1 (fairseq: < 4), base not positive, a padding row that
//          is not fairseq's
PHASOR_API void validate(const Sinusoidal& encoding);

// shape    out [positions, dim]; angles exact, each value rounded once
PHASOR_API void sinusoidal_rows(const Sinusoidal& encoding, std::span<const std::int64_t> positions,
                                float* out);
PHASOR_API void sinusoidal_rows(const Sinusoidal& encoding, std::span<const std::int64_t> positions,
                                double* out);

// T(delta) with p(k + delta) = T(delta) p(k) for every k (seed: the shift is a rotation).
//
// shape    [dim, dim], row-major
// throws   also Error(unsupported) for an odd dim of interleaved or concat: one sine has no
//          cosine to rotate with
[[nodiscard]] PHASOR_API std::vector<double> sinusoidal_shift(const Sinusoidal& encoding,
                                                              std::int64_t delta);

// p(k) . p(k + delta) = sum_i cos(delta w_i): falls with distance, whatever k.
//
// throws   as sinusoidal_shift
[[nodiscard]] PHASOR_API std::vector<double> sinusoidal_products(
    const Sinusoidal& encoding, std::span<const std::int64_t> deltas);

// fairseq's positions: padding_id keeps its own value, other tokens count from padding_id + 1, after
// `past` earlier tokens.
//
// shape    ids, result [batch, tokens]
[[nodiscard]] PHASOR_API std::vector<std::int64_t> fairseq_positions(
    std::span<const std::int64_t> ids, std::int64_t batch, std::int64_t padding_id,
    std::int64_t past = 0);

// RoFormer (3): table[position + offset], trained. OPT's offset is 2.
struct LearnedAbsolute {
  Table rows;  // [1, positions, dim]
  std::int64_t offset = 0;
};
// shape    out [positions, dim]: copies of rows, to the bit
// throws   Error(out_of_range) naming the position and the table's length; nothing is written
PHASOR_API void learned_rows(const LearnedAbsolute& encoding,
                             std::span<const std::int64_t> positions, float* out);
// d_rows += the rows of d_out at their positions.
PHASOR_API void learned_rows_backward(const LearnedAbsolute& encoding,
                                      std::span<const std::int64_t> positions, const float* d_out,
                                      TableGradient d_rows);

// n trained rows p extended to n^2 positions: position i n + j is alpha u_i + (1 - alpha) u_j,
// u_i = (p_i - alpha p_0) / (1 - alpha). The first n positions are p itself.
struct HierarchicalAbsolute {
  Table rows;  // [1, n, dim]
  double alpha = 0.4;
};
// throws   Error(invalid_argument): alpha not in (0, 1);
//          Error(out_of_range): position not in [0, n^2)
PHASOR_API void hierarchical_rows(const HierarchicalAbsolute& encoding,
                                  std::span<const std::int64_t> positions, float* out);
PHASOR_API void hierarchical_rows_backward(const HierarchicalAbsolute& encoding,
                                           std::span<const std::int64_t> positions,
                                           const float* d_out, TableGradient d_rows);

// Encodings of relative position that read trained rows: Shaw (5), Transformer-XL (6)(7), XLNet,
// DeBERTa (10) and variants.

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
  // The first token ([CLS], at position 0) is untied: its row and column of the position part are
  // these.
  // [heads, 1, 1]
  Table first_row = {}, first_column = {};
};

// Any encoding that acts in attention.

struct NoEncoding {};  // RoFormer (2) alone

using Encoding = std::variant<NoEncoding, RopeSpec, Shaw, BertRelative, TransformerXl, Xlnet, T5,
                              Tupe, Deberta, Alibi, Kerple>;
[[nodiscard]] PHASOR_API std::string_view name_of(const Encoding& encoding) noexcept;

// Distances m - n of queries and keys, both ends included.
struct Distances {
  std::int64_t first = 0, last = 0;
  [[nodiscard]] std::int64_t count() const noexcept { return last - first + 1; }
  [[nodiscard]] bool operator==(const Distances&) const = default;
};

// The attention that an encoding is to serve.
struct AttentionShape {
  std::int64_t heads = 0, key_heads = 0;
  std::int64_t head_dim = 0, value_dim = 0;
  std::int64_t query_tokens = 0, key_tokens = 0;
  // For RoPE that depends on the context; none: context_for() the largest position below.
  std::optional<std::int64_t> context = std::nullopt;
  // Of the keys' position ids; none: keys are at 0 .. key_tokens - 1.
  std::optional<double> largest_position = std::nullopt;
  // Between position ids, see attention::attention_shape(); none: key n is at n, query i at
  // key_tokens - query_tokens + i.
  std::optional<Distances> distances = std::nullopt;
};
// The distances of a shape. Distance 0 is always included, even without tokens.
[[nodiscard]] PHASOR_API Distances distances_of(const AttentionShape& shape) noexcept;
// The sizes of attention over these views: q [batch, query_tokens, heads, head_dim], k [batch,
// key_tokens, key_heads, head_dim], v [batch, key_tokens, key_heads, value_dim].
[[nodiscard]] PHASOR_API AttentionShape attention_shape(const core::ConstHeadsView& q,
                                                        const core::ConstHeadsView& k,
                                                        const core::ConstHeadsView& v) noexcept;

// The terms are for attention of this shape; when a map was cut to it, attention over larger
// distances is refused.
//
// throws   Error naming the table and the sizes: heads, rows or dims that do not fit the shape,
//          rows that are not those of the clip range. Distances without a row are checked by
//          attention, which knows the ones that no query sees
[[nodiscard]] PHASOR_API ScoreTerms resolve(const Encoding& encoding, const AttentionShape& shape);

// Several encodings at once, such as RoPE with ALiBi. scale: the factor on q.k; none: their own.
//
// throws   also Error(unsupported) when two fill the same term, or have different scales of their own
//          and none is given
[[nodiscard]] PHASOR_API ScoreTerms resolve(std::span<const Encoding> encodings,
                                            const AttentionShape& shape,
                                            std::optional<double> scale = std::nullopt);

// Checks terms that were made by hand, as attention does before it starts.
PHASOR_API void validate(const ScoreTerms& terms, const AttentionShape& shape);

}  // namespace phasor::encodings
