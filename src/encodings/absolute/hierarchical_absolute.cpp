// Su's hierarchical positions: n trained rows reach n^2 positions.
//
//   position i n + j:   alpha u_i + (1 - alpha) u_j,   u_i = (p_i - alpha p_0) / (1 - alpha)
//                     = p_j + ratio (p_i - p_0),       ratio = alpha / (1 - alpha)
//
// The second line is the first with u written out; the first n positions are seen to be p itself.
#include "encodings/absolute/absolute_rows.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::encodings {
namespace {

void check(const HierarchicalAbsolute& encoding, std::span<const std::int64_t> positions) {
  require_shared_rows("hierarchical", encoding.rows);
  if (!(encoding.alpha > 0.0 && encoding.alpha < 1.0)) {
    refuse(message("hierarchical: alpha must be between 0 and 1, got ", encoding.alpha));
  }
  const std::int64_t n = encoding.rows.rows;
  for (const std::int64_t position : positions) {
    if (position >= 0 && position / n < n) continue;  // n^2 itself may not fit an integer
    refuse(ErrorCode::out_of_range,
           message("hierarchical: positions must be from 0 to n^2 - 1 with n = ", n, " rows, got ",
                   position));
  }
}

[[nodiscard]] double ratio_of(const HierarchicalAbsolute& encoding) {
  return encoding.alpha / (1.0 - encoding.alpha);
}

}  // namespace

void hierarchical_rows(const HierarchicalAbsolute& encoding,
                       std::span<const std::int64_t> positions, float* out) {
  check(encoding, positions);
  const std::int64_t n = encoding.rows.rows, dim = encoding.rows.dim;
  const double ratio = ratio_of(encoding);
  const float* p_0 = encoding.rows.row(0, 0);
  for (const std::int64_t position : positions) {
    const float *p_i = encoding.rows.row(0, position / n),
                *p_j = encoding.rows.row(0, position % n);
    for (std::int64_t c = 0; c < dim; ++c) {
      const double step = static_cast<double>(p_i[c]) - static_cast<double>(p_0[c]);
      out[c] = position < n ? p_j[c] : static_cast<float>(p_j[c] + ratio * step);
    }
    out += dim;
  }
}

void hierarchical_rows_backward(const HierarchicalAbsolute& encoding,
                                std::span<const std::int64_t> positions, const float* d_out,
                                TableGradient d_rows) {
  check(encoding, positions);
  require_same_shape("hierarchical", encoding.rows, d_rows);
  const std::int64_t n = encoding.rows.rows, dim = encoding.rows.dim;
  const double ratio = ratio_of(encoding);
  // Every position from n on writes to p_0: summed in double, since that may be n^2 of them.
  std::vector<double> d_first(static_cast<std::size_t>(dim), 0.0);
  for (const std::int64_t position : positions) {
    float *d_i = d_rows.row(0, position / n), *d_j = d_rows.row(0, position % n);
    for (std::int64_t c = 0; c < dim; ++c) {
      d_j[c] += d_out[c];
      if (position < n) continue;
      d_i[c] += static_cast<float>(ratio * d_out[c]);
      d_first[static_cast<std::size_t>(c)] -= ratio * d_out[c];
    }
    d_out += dim;
  }
  float* d_0 = d_rows.row(0, 0);
  for (std::int64_t c = 0; c < dim; ++c) {
    d_0[c] += static_cast<float>(d_first[static_cast<std::size_t>(c)]);
  }
}

}  // namespace phasor::encodings
