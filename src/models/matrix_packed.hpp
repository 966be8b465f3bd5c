// A matrix in the order of the kernels.
#pragma once

#include <cstddef>
#include <memory>

#include "models/kernels/kernels.hpp"
#include "phasor/models/matrix.hpp"

namespace phasor::models {

struct Matrix::Packed {
  io::TensorType type = io::TensorType::f32;  // of the file
  std::int64_t rows = 0, columns = 0;
  kernels::Weights weights{};  // rows that fill up the last group are zeros
  std::shared_ptr<std::byte[]> memory;
};

[[nodiscard]] constexpr std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Weights of the shape, with memory whose content is up to the caller.
//
// throws   std::bad_alloc
[[nodiscard]] std::shared_ptr<Matrix::Packed> make_packed(io::TensorType type, std::int64_t rows,
                                                          std::int64_t columns);

// Rows [first_row, first_row + count) of the packed matrix from the bytes of a file. Ranges of
// whole groups may be written by several threads.
void pack_rows(Matrix::Packed& packed, std::int64_t first_row, std::int64_t count,
               const std::byte* bytes);

// Memory of the calling thread that its next call finds again: fresh pages would cost more than the
// products of a small matrix. Valid until the thread's next call.
//
// throws   std::bad_alloc
[[nodiscard]] std::byte* thread_scratch(std::size_t bytes);

}  // namespace phasor::models
