// Encodings that are added to the input, x_i + p_i, before the projections: RoFormer (3)(4).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "phasor/encodings/trained_table.hpp"
#include "phasor/export.h"

namespace phasor::encodings {

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

}  // namespace phasor::encodings
