// What the two encodings of trained absolute positions ask of their tables.
#pragma once

#include <string_view>

#include "phasor/core/error.hpp"
#include "phasor/encodings/trained_table.hpp"

namespace phasor::encodings {

// throws   Error(shape_mismatch): no table, one per head, or an empty one
inline void require_shared_rows(std::string_view where, const Table& rows) {
  const auto refuse = [&](const std::string& text) {
    throw Error(ErrorCode::shape_mismatch, message(where, ": rows must ", text));
  };
  if (!rows.given()) refuse("be given, got none");
  if (rows.heads != 1) refuse(message("have no heads of their own, got ", rows.heads));
  if (rows.rows < 1 || rows.dim < 1) {
    refuse(message("have at least 1 row of dim 1, got ", rows.rows, " of dim ", rows.dim));
  }
}

// throws   Error(shape_mismatch): a gradient that has not the shape of its table
inline void require_same_shape(std::string_view where, const Table& rows,
                               const TableGradient& gradient) {
  if (gradient.given() && gradient.heads == 1 && gradient.rows == rows.rows &&
      gradient.dim == rows.dim) {
    return;
  }
  throw Error(ErrorCode::shape_mismatch,
              message(where, ": d_rows must be [1, ", rows.rows, ", ", rows.dim, "] as rows, got [",
                      gradient.heads, ", ", gradient.rows, ", ", gradient.dim, "]",
                      gradient.given() ? "" : " without data"));
}

}  // namespace phasor::encodings
