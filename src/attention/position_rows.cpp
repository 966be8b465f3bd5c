#include "attention/position_rows.hpp"

#include <algorithm>
#include <cmath>

#include "phasor/core/internal/angle_range.hpp"
#include "phasor/core/internal/positions.hpp"

namespace phasor::attention {

void check_position_bounds(double low, double high, const std::optional<core::Rotary>& rotary,
                           core::AngleMode angles) {
  if (rotary) {
    core::check_angle_range("cache", rotary->frequencies, low, high, angles);
  } else if (!(std::fmax(std::fabs(low), std::fabs(high)) < core::kMaxPosition)) {
    throw Error(
        ErrorCode::out_of_range,
        message("cache: positions must be below 2^53 in magnitude, got ", low, " to ", high));
  }
}

void check_position_range(const core::Positions& positions, int axes, std::int64_t batch,
                          std::int64_t tokens, const std::optional<core::Rotary>& rotary,
                          core::AngleMode angles) {
  const core::PositionBounds bounds = core::check_positions(positions, axes, batch, tokens);
  if (tokens > 0) check_position_bounds(bounds.low, bounds.high, rotary, angles);
}

PositionRows::PositionRows(int axes, std::int64_t capacity)
    : axes_(axes),
      capacity_(capacity),
      values_(static_cast<std::size_t>(axes) * static_cast<std::size_t>(capacity)) {}

double PositionRows::largest(std::int64_t token) const noexcept {
  double largest = *from(0, token);
  for (int axis = 1; axis < axes_; ++axis) largest = std::max(largest, *from(axis, token));
  return largest;
}

PositionRows::Bounds PositionRows::bounds(std::int64_t first, std::int64_t count) const noexcept {
  Bounds bounds{*from(0, first), *from(0, first)};
  for (int axis = 0; axis < axes_; ++axis) {
    const auto [low, high] = std::minmax_element(from(axis, first), from(axis, first) + count);
    bounds = {std::min(bounds.low, *low), std::max(bounds.high, *high)};
  }
  return bounds;
}

void PositionRows::copy(std::int64_t first, std::int64_t count, double* out) const noexcept {
  for (int axis = 0; axis < axes_; ++axis)
    std::copy_n(from(axis, first), count, out + axis * count);
}

std::vector<double> PositionRows::dense(std::int64_t first, std::int64_t count) const {
  std::vector<double> rows;
  rows.reserve(static_cast<std::size_t>(axes_ * count));
  for (int axis = 0; axis < axes_; ++axis) {
    rows.insert(rows.end(), from(axis, first), from(axis, first) + count);
  }
  return rows;
}

std::vector<double> PositionRows::dense_for(int axes, std::int64_t count) const {
  if (axes == axes_) return dense(0, count);
  for (int axis = 1; axis < axes_; ++axis) {
    const auto [here, there] = std::mismatch(from(0, 0), from(0, count), from(axis, 0));
    if (here != from(0, count)) {
      throw Error(ErrorCode::shape_mismatch,
                  message("cache: a rotary of ", axes, " axes instead of ", axes_,
                          " needs new positions unless every token's axes agree, got ", *here,
                          " and ", *there, " for token ", here - from(0, 0)));
    }
  }
  std::vector<double> rows;
  rows.reserve(static_cast<std::size_t>(axes * count));
  for (int axis = 0; axis < axes; ++axis) rows.insert(rows.end(), from(0, 0), from(0, count));
  return rows;
}

void PositionRows::write(std::int64_t first, const core::Positions& positions, std::int64_t batch,
                         std::int64_t count, const std::optional<core::Rotary>& rotary,
                         core::AngleMode angles) {
  check_position_range(positions, axes_, batch, count, rotary, angles);
  core::PositionCursor cursor(positions, axes_, count, 0);
  double token[core::kMaxAxes];
  for (std::int64_t b = 0; b < std::max<std::int64_t>(positions.batch, 1); ++b) {
    for (std::int64_t t = 0; t < count; ++t) {
      cursor.next(token);
      for (int axis = 0; axis < axes_; ++axis) {
        double& kept = at(axis, first + t);
        if (b == 0) kept = token[axis];
        if (kept != token[axis]) {
          throw Error(ErrorCode::unsupported,
                      message("cache: positions must be the same in every batch row, got ", kept,
                              " and ", token[axis], " for token ", t));
        }
      }
    }
  }
}

void PositionRows::assign(std::int64_t first, const std::vector<double>& positions) noexcept {
  const auto count = static_cast<std::int64_t>(positions.size()) / axes_;
  for (int axis = 0; axis < axes_; ++axis) {
    std::copy_n(positions.begin() + axis * count, count, &at(axis, 0) + first);
  }
}

void PositionRows::add(std::int64_t first, std::int64_t count, double delta) noexcept {
  for (int axis = 0; axis < axes_; ++axis) {
    double* const row = &at(axis, 0) + first;
    for (std::int64_t t = 0; t < count; ++t) row[t] += delta;
  }
}

void PositionRows::close_gap(std::int64_t first, std::int64_t last, std::int64_t count) noexcept {
  for (int axis = 0; axis < axes_; ++axis) {
    const double* begin = from(axis, last);
    std::copy(begin, begin + count, &at(axis, 0) + first);
  }
}

}  // namespace phasor::attention
