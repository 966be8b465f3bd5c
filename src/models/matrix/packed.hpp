// A matrix in the order of the kernels.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "models/kernels/kernels.hpp"
#include "phasor/core/internal/large_memory.hpp"
#include "phasor/core/internal/per_thread.hpp"
#include "phasor/models/internal/matrix.hpp"

namespace phasor::models {

struct Matrix::Packed {
  io::TensorType type = io::TensorType::f32;  // of the file
  std::int64_t rows = 0, columns = 0;
  kernels::Weights weights{};  // padding rows of the last group are zeros
  std::shared_ptr<std::byte[]> memory;
};

[[nodiscard]] constexpr std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// How the kernels keep weights of this type; none for types without a product (f8, integers).
[[nodiscard]] std::optional<kernels::Format> format_of(io::TensorType type) noexcept;

// Weights of the shape, with uninitialised memory.
//
// precondition  format_of(type) is a format
// throws   std::bad_alloc
[[nodiscard]] std::shared_ptr<Matrix::Packed> make_packed(io::TensorType type, std::int64_t rows,
                                                          std::int64_t columns);

// Rows [first_row, first_row + count) of the packed matrix from the bytes of a file. Ranges of
// whole groups may be written by several threads.
void pack_rows(Matrix::Packed& packed, std::int64_t first_row, std::int64_t count,
               const std::byte* bytes);

// Memory that is reused by later calls on this thread: new pages would cost more than the products of
// a small matrix. A call owns it while it runs, since a parallel-for of the program may run another
// call on this thread while it waits.
class ThreadScratch {
 public:
  ThreadScratch() noexcept {
    if (Kept* const kept = core::per_thread<Kept>()) own_ = std::exchange(*kept, {});
  }
  ~ThreadScratch() {
    if (Kept* const kept = core::per_thread<Kept>()) *kept = std::move(own_);
  }
  ThreadScratch(const ThreadScratch&) = delete;
  ThreadScratch& operator=(const ThreadScratch&) = delete;

  // throws   std::bad_alloc
  [[nodiscard]] std::byte* at_least(std::size_t bytes) {
    if (bytes > own_.size) {
      own_ = {};
      own_ = {core::allocate_large(bytes, 1), bytes};
    }
    return own_.memory.get();
  }

 private:
  struct Kept {
    std::shared_ptr<std::byte[]> memory;
    std::size_t size = 0;
  };
  Kept own_;
};

}  // namespace phasor::models
