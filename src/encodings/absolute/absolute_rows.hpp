// Checks of the tables of trained absolute positions.
#pragma once

#include <string_view>

#include "phasor/core/error.hpp"
#include "phasor/encodings/score_terms.hpp"

namespace phasor::encodings {

// throws   Error(shape_mismatch): no table, one per head, or an empty one
inline void require_shared_rows(std::string_view where, const Table& rows) {
  const auto mismatch = [&](const std::string& text) {
    refuse(ErrorCode::shape_mismatch, message(where, ": rows ", text));
  };
  if (!rows.given()) mismatch("is missing");
  if (rows.heads != 1) mismatch(message("must have heads 1, got ", rows.heads));
  if (rows.rows < 1 || rows.dim < 1) {
    mismatch(message("must have at least 1 row of dim 1, got ", rows.rows, " of dim ", rows.dim));
  }
}

// throws   Error(shape_mismatch): the gradient's shape is not that of its table
inline void require_same_shape(std::string_view where, const Table& rows,
                               const TableGradient& gradient) {
  if (gradient.given() && gradient.heads == 1 && gradient.rows == rows.rows &&
      gradient.dim == rows.dim) {
    return;
  }
  refuse(ErrorCode::shape_mismatch,
         message(where, ": d_rows must be [1, ", rows.rows, ", ", rows.dim, "] as rows, got [",
                 gradient.heads, ", ", gradient.rows, ", ", gradient.dim, "]",
                 gradient.given() ? "" : " without data"));
}

}  // namespace phasor::encodings
