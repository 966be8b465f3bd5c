// A trained row for each position.
//
//   RoFormer (3)   x_i + p_i,  p_i = rows[i + offset]
#include <algorithm>

#include "encodings/absolute/absolute_rows.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::encodings {
namespace {

void check(const LearnedAbsolute& encoding, std::span<const std::int64_t> positions) {
  require_shared_rows("learned", encoding.rows);
  const std::int64_t rows = encoding.rows.rows, offset = encoding.offset;
  if (offset < 0) {
    refuse(message("learned: offset must not be negative, got ", offset));
  }
  for (const std::int64_t position : positions) {
    if (-offset <= position && position < rows - offset) continue;
    refuse(ErrorCode::out_of_range,
           message("learned: positions must be from ", -offset, " to ", rows - offset - 1,
                   " (a table of ", rows, " rows, offset ", offset, "), got ", position));
  }
}

}  // namespace

void learned_rows(const LearnedAbsolute& encoding, std::span<const std::int64_t> positions,
                  float* out) {
  check(encoding, positions);
  const std::int64_t dim = encoding.rows.dim;
  for (const std::int64_t position : positions) {
    out = std::copy_n(encoding.rows.row(0, position + encoding.offset), dim, out);
  }
}

void learned_rows_backward(const LearnedAbsolute& encoding, std::span<const std::int64_t> positions,
                           const float* d_out, TableGradient d_rows) {
  check(encoding, positions);
  require_same_shape("learned", encoding.rows, d_rows);
  const std::int64_t dim = encoding.rows.dim;
  for (const std::int64_t position : positions) {
    float* row = d_rows.row(0, position + encoding.offset);
    for (std::int64_t c = 0; c < dim; ++c) row[c] += d_out[c];
    d_out += dim;
  }
}

}  // namespace phasor::encodings
