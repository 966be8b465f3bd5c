#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "phasor/core/internal/positions.hpp"
#include "phasor/core/internal/reference.hpp"
#include "phasor/core/internal/rotations.hpp"

namespace phasor::core::reference {
namespace {

using Complex = std::complex<long double>;

struct PairFeatures {
  std::int64_t in_a, in_b, out_a, out_b;
};
// The features of pair i of the whole window, forward.
PairFeatures features_of(const Rotary& rotary, std::int64_t pair) {
  const std::int64_t block_pairs = rotary.frequencies.pairs() / rotary.blocks;
  const std::int64_t start = rotary.offset + pair / block_pairs * 2 * block_pairs;
  const std::int64_t i = pair % block_pairs;
  const std::int64_t side_a = start + 2 * i, side_b = side_a + 1;
  const std::int64_t half_a = start + i, half_b = half_a + block_pairs;
  switch (rotary.layout) {
    case PairLayout::interleaved:
      return {side_a, side_b, side_a, side_b};
    case PairLayout::half:
      return {half_a, half_b, half_a, half_b};
    case PairLayout::interleaved_to_half:
      return {side_a, side_b, half_a, half_b};
  }
  return {};
}

// a e^{imθ} of (12) for the direction, times the growth of xPos.
Complex phase(const Rotary& rotary, std::int64_t pair, const double* positions, Direction direction,
              Role role) {
  const auto axes = rotary.frequencies.axes();
  const auto i = static_cast<std::size_t>(pair);
  const long double position = positions[axes.empty() ? 0 : axes[i]];
  const long double angle =
      std::fmod(position * static_cast<long double>(rotary.frequencies.values()[i]),
                2 * std::numbers::pi_v<long double>);
  const Complex rotation = std::polar(1.0L, direction == Direction::forward ? angle : -angle);
  long double length = rotary.frequencies.amplitude();
  if (rotary.growth) {
    const long double distance = position - static_cast<long double>(rotary.growth->centre);
    const long double exponent = static_cast<long double>(rotary.growth->rates[i]) * distance;
    length *= std::exp(role == Role::query ? exponent : -exponent);
  }
  return rotation * (direction == Direction::inverse ? 1.0L / length : length);
}

}  // namespace

void rotate(const Rotary& rotary, const Positions& positions, ConstHeadsView in, HeadsView out,
            Direction direction, Role role) {
  validate(rotary);
  const Rotation rotation{in, out, role};
  check_rotations(rotary.head_dim, {&rotation, 1});
  const int axes = rotary.frequencies.axis_count();
  static_cast<void>(check_positions(positions, axes, in.batch, in.tokens));
  if (in.batch * in.tokens == 0) return;
  PositionCursor cursor(positions, axes, in.tokens, 0);
  std::vector<long double> head(static_cast<std::size_t>(in.head_dim));  // in may be out
  for (std::int64_t b = 0; b < in.batch; ++b) {
    for (std::int64_t t = 0; t < in.tokens; ++t) {
      double token_positions[kMaxAxes];
      cursor.next(token_positions);
      for (std::int64_t h = 0; h < in.heads; ++h) {
        const std::int64_t from = b * in.batch_stride + t * in.token_stride + h * in.head_stride;
        const std::int64_t to = b * out.batch_stride + t * out.token_stride + h * out.head_stride;
        for (std::int64_t d = 0; d < in.head_dim; ++d) head[d] = element_of(in, from + d);
        const std::int64_t window = rotary.offset + rotary.rotary_dim();
        for (std::int64_t d = 0; d < in.head_dim; ++d) {
          if (d < rotary.offset || d >= window)
            set_element(out, to + d, static_cast<double>(head[d]));
        }
        for (std::int64_t pair = 0; pair < rotary.frequencies.pairs(); ++pair) {
          PairFeatures at = features_of(rotary, pair);
          if (direction != Direction::forward) at = {at.out_a, at.out_b, at.in_a, at.in_b};
          const Complex y = Complex(head[at.in_a], head[at.in_b]) *
                            phase(rotary, pair, token_positions, direction, role);
          set_element(out, to + at.out_a, static_cast<double>(y.real()));
          set_element(out, to + at.out_b, static_cast<double>(y.imag()));
        }
      }
    }
  }
}

}  // namespace phasor::core::reference
