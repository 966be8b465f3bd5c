#include "phasor/core/internal/positions.hpp"

#include <algorithm>
#include <cmath>

#include "phasor/core/error.hpp"

namespace phasor::core {

Positions positions_from(std::int64_t offset) noexcept {
  Positions positions;
  positions.offset = offset;
  return positions;
}

namespace {

Positions rows(const std::int64_t* integers, const double* floats, int axes, std::int64_t batch,
               std::int64_t tokens) noexcept {
  Positions positions;
  positions.kind = integers != nullptr ? Positions::Kind::integers : Positions::Kind::floats;
  positions.integers = integers;
  positions.floats = floats;
  positions.axes = axes;
  positions.batch = batch;
  positions.tokens = tokens;
  return positions;
}

}  // namespace

Positions positions_per_token(std::span<const std::int64_t> positions) noexcept {
  static constexpr std::int64_t kNone = 0;  // an empty span may have no address
  return rows(positions.empty() ? &kNone : positions.data(), nullptr, 1, 0,
              static_cast<std::int64_t>(positions.size()));
}
Positions positions_per_token(std::span<const double> positions) noexcept {
  return rows(nullptr, positions.data(), 1, 0, static_cast<std::int64_t>(positions.size()));
}
Positions positions_per_row(const std::int64_t* positions, int axes, std::int64_t batch,
                            std::int64_t tokens) noexcept {
  return rows(positions, nullptr, axes, batch, tokens);
}
Positions positions_per_row(const double* positions, int axes, std::int64_t batch,
                            std::int64_t tokens) noexcept {
  return rows(nullptr, positions, axes, batch, tokens);
}
Positions positions_packed(std::span<const std::int64_t> boundaries, std::int64_t offset) noexcept {
  Positions positions;
  positions.kind = Positions::Kind::packed;
  positions.integers = boundaries.data();
  positions.offset = offset;
  positions.sequences = static_cast<std::int64_t>(boundaries.size()) - 1;
  positions.tokens = boundaries.empty() ? 0 : boundaries.back();
  return positions;
}

namespace {

PositionBounds scan(const Positions& positions, std::int64_t count) {
  PositionBounds bounds;
  if (positions.kind == Positions::Kind::integers) {
    const auto [low, high] = std::minmax_element(positions.integers, positions.integers + count);
    bounds = {static_cast<double>(*low), static_cast<double>(*high), true};
    return bounds;
  }
  bounds = {positions.floats[0], positions.floats[0], false};
  for (std::int64_t i = 0; i < count; ++i) {
    const double position = positions.floats[i];
    if (!std::isfinite(position)) {
      throw Error(ErrorCode::invalid_argument,
                  message("rotate: positions must be finite, got ", position, " at index ", i));
    }
    bounds.low = std::min(bounds.low, position);
    bounds.high = std::max(bounds.high, position);
  }
  return bounds;
}

void check_packed(const Positions& positions, std::int64_t batch, std::int64_t tokens) {
  if (batch != 1) {
    throw Error(ErrorCode::shape_mismatch,
                message("rotate: packed sequences need batch 1, got ", batch));
  }
  const std::int64_t* boundaries = positions.integers;
  if (positions.sequences < 0 || boundaries[0] != 0 || boundaries[positions.sequences] != tokens) {
    throw Error(
        ErrorCode::shape_mismatch,
        message("rotate: packed boundaries must run from 0 to the token count ", tokens, ", got ",
                positions.sequences < 0
                    ? "none"
                    : message(boundaries[0], " to ", boundaries[positions.sequences])));
  }
  for (std::int64_t i = 0; i < positions.sequences; ++i) {
    if (boundaries[i + 1] < boundaries[i]) {
      throw Error(ErrorCode::invalid_argument,
                  message("rotate: packed boundaries must not decrease, got ", boundaries[i],
                          " then ", boundaries[i + 1]));
    }
  }
}

std::int64_t longest_sequence(const Positions& positions) {
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < positions.sequences; ++i) {
    longest = std::max(longest, positions.integers[i + 1] - positions.integers[i]);
  }
  return longest;
}

}  // namespace

PositionBounds check_positions(const Positions& positions, int axes, std::int64_t batch,
                               std::int64_t tokens) {
  switch (positions.kind) {
    case Positions::Kind::offset:
      return {static_cast<double>(positions.offset),
              static_cast<double>(positions.offset) +
                  static_cast<double>(std::max<std::int64_t>(tokens, 1) - 1),
              true};
    case Positions::Kind::packed:
      check_packed(positions, batch, tokens);
      return {static_cast<double>(positions.offset),
              static_cast<double>(positions.offset) +
                  static_cast<double>(std::max<std::int64_t>(longest_sequence(positions), 1) - 1),
              true};
    default:
      break;
  }
  // One row of text positions serves every axis of M-RoPE and images.
  if (positions.axes != axes && positions.axes != 1) {
    throw Error(ErrorCode::shape_mismatch,
                message("rotate: positions must have ", axes, " axes, got ", positions.axes));
  }
  if (positions.tokens != tokens || (positions.batch != 0 && positions.batch != batch)) {
    throw Error(ErrorCode::shape_mismatch,
                positions.batch == 0
                    ? message("rotate: positions must have one entry per token, got ",
                              positions.tokens, " for ", tokens, " tokens")
                    : message("rotate: positions must be [batch ", batch, ", tokens ", tokens,
                              "], got [", positions.batch, ", ", positions.tokens, "]"));
  }
  const std::int64_t count = positions.axes * std::max<std::int64_t>(positions.batch, 1) * tokens;
  if (count == 0) return {0.0, 0.0, true};
  return scan(positions, count);
}

PositionCursor::PositionCursor(const Positions& positions, int axes, std::int64_t tokens,
                               std::int64_t row)
    : positions_(positions), axes_(axes), tokens_(tokens), token_(row) {
  if (positions.kind == Positions::Kind::integers || positions.kind == Positions::Kind::floats) {
    if (positions.batch == 0 && row != 0) token_ = row % tokens;
    axis_stride_ = positions.axes == 1 ? 0 : std::max<std::int64_t>(positions.batch, 1) * tokens;
  } else if (positions.kind == Positions::Kind::offset) {
    if (row != 0) token_ = row % tokens;
  } else {
    const std::int64_t* boundaries = positions.integers;
    sequence_ =
        std::upper_bound(boundaries, boundaries + positions.sequences + 1, row) - boundaries - 1;
  }
}

}  // namespace phasor::core
