// One token's cos and sin: from its angles, from a table, or from the caller.
#pragma once

#include <cstdint>

#include "core/rotate/rotate_call.hpp"
#include "phasor/core/internal/angle_rows.hpp"
#include "phasor/core/internal/positions.hpp"

namespace phasor::core {

inline constexpr std::int64_t kMaxPairs = kMaxRotaryDim / 2;

struct RowBuffers {
  alignas(64) float cos[kMaxPairs + kRowPadding];
  alignas(64) float sin[kMaxPairs + kRowPadding];
};
struct RowBuffersF64 {
  double cos[kMaxPairs];
  double sin[kMaxPairs];
};

struct RowPointers {
  const float* cos;
  const float* sin;
};

struct Token {
  std::int64_t batch, token;
};

// A row that is not in the table as it is.
[[nodiscard]] RowPointers compute_row(const RotateCall& call, Token at, PositionCursor& cursor,
                                      RowBuffers& buffers);

// The row for the direction, scale and sign included. In `buffers`, or in the table.
[[nodiscard]] inline RowPointers make_row(const RotateCall& call, Token at, PositionCursor& cursor,
                                          RowBuffers& buffers) {
  if (!call.rows_in_table) return compute_row(call, at, cursor, buffers);
  std::int64_t position = 0;
  cursor.next(&position);
  const float* const cos = call.options.table->cos(position).data();
  return {cos, cos + call.window.pairs};
}

// The same in float64, with xPos's growth for the role. `positions` are not read if the caller gave
// rows.
void make_row_f64(const RotateCall& call, Role role, Token at, const double* positions,
                  RowBuffersF64& row);

}  // namespace phasor::core
