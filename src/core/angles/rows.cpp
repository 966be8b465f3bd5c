#include "core/angles/rows.hpp"

#include <algorithm>
#include <cmath>

#include "core/angles/float32_engine.hpp"
#include "phasor/core/internal/angle_range.hpp"
#include "phasor/core/internal/stored.hpp"

namespace phasor::core {
namespace {

void row_f64(const RotateCall& call, Role role, const double* positions, RowBuffersF64& row) {
  const Frequencies& frequencies = call.rotary->frequencies;
  if (call.options.angles != AngleMode::exact) {
    float cos[kMaxPairs], sin[kMaxPairs];
    float32_row(frequencies, positions, call.options.angles, cos, sin);
    std::copy_n(cos, frequencies.pairs(), row.cos);
    std::copy_n(sin, frequencies.pairs(), row.sin);
  } else {
    call.kernels.row_f64(kernel_angles(frequencies), positions, row.cos, row.sin);
  }
  if (call.grows()) {
    apply_growth(*call.rotary->growth, positions[0], role, call.options.direction, row.cos,
                 row.sin);
  }
  const double sin_scale = call.scale * call.sin_sign;
  for (std::int64_t i = 0; i < frequencies.pairs(); ++i) {
    row.cos[i] *= call.scale;
    row.sin[i] *= sin_scale;
  }
}

// Rows out of a table: one row, or one entry per axis.
RowPointers table_row(const RotateCall& call, const std::int64_t* positions, RowBuffers& buffers) {
  const CosSinTable& table = *call.options.table;
  const Frequencies& frequencies = call.rotary->frequencies;
  if (frequencies.axis_count() == 1)
    return {table.cos(positions[0]).data(), table.sin(positions[0]).data()};
  const auto axes = frequencies.axes();
  for (std::size_t i = 0; i < axes.size(); ++i) {
    buffers.cos[i] = table.cos(positions[axes[i]])[i];
    buffers.sin[i] = table.sin(positions[axes[i]])[i];
  }
  return {buffers.cos, buffers.sin};
}

template <class From, class To>
void copy_rows(const CosSinRows& rows, std::int64_t start, float sin_sign, To* cos, To* sin) {
  const auto copy = [&](const void* from, To sign, To* to) {
    const From* const row = static_cast<const From*>(from) + start;
    for (std::int64_t i = 0; i < rows.pairs; ++i) {
      to[i] = sign * static_cast<To>(widened(row[i * rows.pair_stride]));
    }
  };
  copy(rows.cos, To{1}, cos);
  copy(rows.sin, static_cast<To>(sin_sign), sin);
}

// The caller's row of one token; transpose changes the sign of sin.
template <class To>
void given_row(const RotateCall& call, Token at, To* cos, To* sin) {
  const CosSinRows& rows = *call.rows;
  const std::int64_t start = at.batch * rows.batch_stride + at.token * rows.token_stride;
  with_element(rows.dtype, [&](auto element) {
    copy_rows<decltype(element)>(rows, start, call.sin_sign, cos, sin);
  });
}

// The row for the direction: transpose changes the sign of sin, inverse also divides by the
// amplitude.
RowPointers directed(const RotateCall& call, RowPointers row, RowBuffers& buffers) {
  if (call.options.direction == Direction::forward) return row;
  const auto scale = static_cast<float>(call.scale);
  const float sin_scale = scale * call.sin_sign;
  for (std::int64_t i = 0; i < call.window.pairs; ++i) {
    buffers.cos[i] = row.cos[i] * scale;
    buffers.sin[i] = row.sin[i] * sin_scale;
  }
  return {buffers.cos, buffers.sin};
}

}  // namespace

void apply_growth(const Growth& growth, double position, Role role, Direction direction,
                  double* cos, double* sin) noexcept {
  const bool shrink = (role == Role::key) != (direction == Direction::inverse);
  const double distance = (position - growth.centre) * (shrink ? -1.0 : 1.0);
  for (std::size_t i = 0; i < growth.rates.size(); ++i) {
    const double factor = std::exp(growth.rates[i] * distance);
    cos[i] *= factor;
    sin[i] *= factor;
  }
}

RowPointers compute_row(const RotateCall& call, Token at, PositionCursor& cursor,
                        RowBuffers& buffers) {
  if (call.rows != nullptr) {
    given_row(call, at, buffers.cos, buffers.sin);
    return {buffers.cos, buffers.sin};
  }
  if (call.options.table != nullptr) {
    std::int64_t positions[kMaxAxes];
    cursor.next(positions);
    return directed(call, table_row(call, positions, buffers), buffers);
  }
  double positions[kMaxAxes];
  cursor.next(positions);
  if (call.options.angles != AngleMode::exact) {
    float32_row(call.rotary->frequencies, positions, call.options.angles, buffers.cos, buffers.sin);
  } else {
    call.kernels.row_f32(kernel_angles(call.rotary->frequencies), positions, buffers.cos,
                         buffers.sin);
  }
  return directed(call, {buffers.cos, buffers.sin}, buffers);
}

void make_row_f64(const RotateCall& call, Role role, Token at, const double* positions,
                  RowBuffersF64& row) {
  call.rows != nullptr ? given_row(call, at, row.cos, row.sin)
                       : row_f64(call, role, positions, row);
}

}  // namespace phasor::core
