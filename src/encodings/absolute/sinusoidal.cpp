// Sines and cosines of the position, at geometric frequencies.
//
//   RoFormer (4)   p(k)[2i] = sin(k w_i),  p(k)[2i+1] = cos(k w_i),  w_i = base^(-2i/dim)
//
// p(k + delta) = T(delta) p(k): each pair (sin, cos) is rotated by delta w_i, for every k.
#include <algorithm>
#include <cmath>
#include <utility>

#include "encodings/arithmetic.hpp"
#include "phasor/core/internal/angle_range.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::encodings {
namespace {

using Variant = Sinusoidal::Variant;

// Where the parts of a row are: sine i at i * stride, cosine i at cosine + i * stride.
struct Columns {
  std::int64_t sines = 0, cosines = 0;
  std::int64_t cosine = 0, stride = 1;
};

[[nodiscard]] Columns columns_of(const Sinusoidal& encoding) {
  const std::int64_t half = encoding.dim / 2, rest = encoding.dim - half;
  switch (encoding.variant) {
    case Variant::interleaved:
      return {rest, half, 1, 2};
    case Variant::concat:
      return {rest, half, rest, 1};
    case Variant::fairseq:
      break;
  }
  return {half, half, half, 1};  // an odd last column is zero
}

// The frequencies of a row, in pieces that the core takes at once.
[[nodiscard]] std::vector<core::Frequencies> frequencies_of(const Sinusoidal& encoding) {
  const std::int64_t count = columns_of(encoding).sines;
  // base^(-i / (half - 1)) is base^(-2i / width) with width = 2 (half - 1).
  const std::int64_t width = encoding.variant == Variant::fairseq ? 2 * (count - 1) : encoding.dim;
  std::vector<core::Frequencies> pieces;
  std::vector<double> values;
  for (const DoubleDouble& frequency :
       plain_frequencies<DoubleDouble>(encoding.base, width, count)) {
    values.push_back(static_cast<double>(frequency));
    if (values.size() == core::kMaxRotaryDim / 2) pieces.emplace_back(std::exchange(values, {}));
  }
  if (!values.empty()) pieces.emplace_back(std::move(values));
  return pieces;
}

void check_positions(const std::vector<core::Frequencies>& pieces,
                     std::span<const std::int64_t> positions) {
  if (positions.empty()) return;
  const auto [low, high] = std::minmax_element(positions.begin(), positions.end());
  for (const core::Frequencies& piece : pieces) {
    core::check_angle_range("sinusoidal", piece, static_cast<double>(*low),
                            static_cast<double>(*high));
  }
}

// Calls use(i, cos(position w_i), sin(position w_i)) for every frequency.
template <class T, class Use>
void for_each_frequency(const std::vector<core::Frequencies>& pieces, std::int64_t position,
                        const Use& use) {
  const double at = static_cast<double>(position);
  std::vector<T> cos, sin;
  std::int64_t i = 0;
  for (const core::Frequencies& piece : pieces) {
    cos.resize(static_cast<std::size_t>(piece.pairs()));
    sin.resize(cos.size());
    core::cos_sin(piece, {&at, 1}, std::span<T>(cos), std::span<T>(sin));
    for (std::size_t pair = 0; pair < cos.size(); ++pair) use(i++, cos[pair], sin[pair]);
  }
}

template <class T>
void write_rows(const Sinusoidal& encoding, std::span<const std::int64_t> positions, T* out) {
  validate(encoding);
  const std::vector<core::Frequencies> pieces = frequencies_of(encoding);
  check_positions(pieces, positions);
  const Columns columns = columns_of(encoding);
  for (const std::int64_t position : positions) {
    std::fill_n(out, encoding.dim, T(0));
    if (encoding.padding_row != position) {
      for_each_frequency<T>(pieces, position, [&](std::int64_t i, T cos, T sin) {
        out[i * columns.stride] = sin;  // (4)
        if (i < columns.cosines) out[columns.cosine + i * columns.stride] = cos;
      });
    }
    out += encoding.dim;
  }
}

// The odd column of fairseq is zero; an odd sine has no cosine to rotate with.
void require_whole_pairs(const Sinusoidal& encoding) {
  if (encoding.dim % 2 == 0 || encoding.variant == Variant::fairseq) return;
  refuse(ErrorCode::unsupported,
         message("sinusoidal: dim must be even for shifts and products, got ", encoding.dim));
}

}  // namespace

void validate(const Sinusoidal& encoding) {
  const std::int64_t least = encoding.variant == Variant::fairseq ? 4 : 1;
  if (encoding.dim < least) {
    refuse(message("sinusoidal: dim must be at least ", least,
                   least == 4 ? " for fairseq, got " : ", got ", encoding.dim));
  }
  if (!(std::isfinite(encoding.base) && encoding.base > 0.0)) {
    refuse(message("sinusoidal: base must be positive and finite, got ", encoding.base));
  }
  if (encoding.padding_row && encoding.variant != Variant::fairseq) {
    refuse(message("sinusoidal: only fairseq may have a padding_row, got ", *encoding.padding_row,
                   " with another variant"));
  }
}

void sinusoidal_rows(const Sinusoidal& encoding, std::span<const std::int64_t> positions,
                     float* out) {
  write_rows(encoding, positions, out);
}
void sinusoidal_rows(const Sinusoidal& encoding, std::span<const std::int64_t> positions,
                     double* out) {
  write_rows(encoding, positions, out);
}

std::vector<double> sinusoidal_shift(const Sinusoidal& encoding, std::int64_t delta) {
  validate(encoding);
  require_whole_pairs(encoding);
  const std::vector<core::Frequencies> pieces = frequencies_of(encoding);
  check_positions(pieces, {&delta, 1});
  const std::int64_t dim = encoding.dim;
  std::vector<double> shift(static_cast<std::size_t>(dim * dim), 0.0);
  const auto entry = [&](std::int64_t row, std::int64_t column) -> double& {
    return shift[static_cast<std::size_t>(row * dim + column)];
  };
  if (dim % 2 != 0) entry(dim - 1, dim - 1) = 1.0;
  const Columns columns = columns_of(encoding);
  for_each_frequency<double>(pieces, delta, [&](std::int64_t i, double cos, double sin) {
    const std::int64_t s = i * columns.stride, c = columns.cosine + i * columns.stride;
    entry(s, s) = cos;  // sin((k + delta) w) = cos(delta w) sin(k w) + sin(delta w) cos(k w)
    entry(s, c) = sin;
    entry(c, s) = -sin;  // cos((k + delta) w) = cos(delta w) cos(k w) - sin(delta w) sin(k w)
    entry(c, c) = cos;
  });
  return shift;
}

std::vector<double> sinusoidal_products(const Sinusoidal& encoding,
                                        std::span<const std::int64_t> deltas) {
  validate(encoding);
  require_whole_pairs(encoding);
  const std::vector<core::Frequencies> pieces = frequencies_of(encoding);
  check_positions(pieces, deltas);
  std::vector<double> products;
  products.reserve(deltas.size());
  for (const std::int64_t delta : deltas) {
    double sum = 0.0;
    for_each_frequency<double>(pieces, delta,
                               [&](std::int64_t, double cos, double) { sum += cos; });
    products.push_back(sum);
  }
  return products;
}

std::vector<std::int64_t> fairseq_positions(std::span<const std::int64_t> ids, std::int64_t batch,
                                            std::int64_t padding_id, std::int64_t past) {
  const auto size = static_cast<std::int64_t>(ids.size());
  if (batch < 1 || size % batch != 0) {
    refuse(ErrorCode::shape_mismatch, message("sinusoidal: ids must be [batch, tokens], got ", size,
                                              " ids in ", batch, " rows"));
  }
  if (past < 0) {
    refuse(message("sinusoidal: past must not be negative, got ", past));
  }
  std::vector<std::int64_t> positions;
  positions.reserve(ids.size());
  const std::int64_t tokens = size / batch;
  std::int64_t count = past;
  for (std::int64_t at = 0; at < size; ++at) {
    if (at % tokens == 0) count = past;
    const bool padding = ids[static_cast<std::size_t>(at)] == padding_id;
    if (!padding) ++count;
    positions.push_back(padding ? padding_id : padding_id + count);
  }
  return positions;
}

}  // namespace phasor::encodings
