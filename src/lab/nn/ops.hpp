// The operations of a layer and their gradients, for rows of numbers in float (the kernels of room
// models and the GEMM library) or double (plain loops, to check gradients with).
//
// Work is cut into pieces whose number depends on the sizes alone, and partial sums are added in order:
// results do not depend on the number of threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "phasor/core/cpu.hpp"
#include "phasor/lab/internal/part_times.hpp"
#include "phasor/models/internal/layer_ops.hpp"

namespace phasor::lab {

// Threads that share the pieces of an operation.
class Workers {
 public:
  explicit Workers(int threads = 0, PartTimes* times = nullptr) noexcept
      : threads_(threads > 0 ? threads : core::available_threads()), times_(times) {}
  [[nodiscard]] int threads() const noexcept { return threads_; }
  // The time until the result is destroyed belongs to `part`.
  [[nodiscard]] TimedPart timed(Part part) const noexcept { return {times_, part}; }

  // Calls body(piece) once for each piece in [0, pieces).
  template <class Body>
  void for_pieces(std::int64_t pieces, const Body& body) const {
    const auto parts = static_cast<int>(pieces < threads_ ? pieces : threads_);
    if (parts <= 1) {
      for (std::int64_t piece = 0; piece < pieces; ++piece) body(piece);
      return;
    }
    struct Shared {
      const Body& body;
      std::int64_t pieces;
      std::atomic<std::int64_t> next{0};
    } shared{body, pieces};
    core::run_parts(
        parts,
        [](void* context, int, int) {
          auto& all = *static_cast<Shared*>(context);
          for (std::int64_t piece = all.next++; piece < all.pieces; piece = all.next++) {
            all.body(piece);
          }
        },
        &shared);
  }
  // Calls body(first, count) for runs of at most `piece` of `count` things.
  template <class Body>
  void for_runs(std::int64_t count, std::int64_t piece, const Body& body) const {
    for_pieces((count + piece - 1) / piece, [&](std::int64_t index) {
      const std::int64_t first = index * piece;
      body(first, count - first < piece ? count - first : piece);
    });
  }

 private:
  int threads_;
  PartTimes* times_;
};

// A row-major matrix in a product.
template <class T>
struct Factor {
  enum class Order : std::uint8_t { as_stored, transposed };
  const T* data = nullptr;
  std::int64_t stride = 0;
  Order order = Order::as_stored;
};
template <class T>
[[nodiscard]] Factor<T> stored(const T* data, std::int64_t stride) noexcept {
  return {data, stride, Factor<T>::Order::as_stored};
}
template <class T>
[[nodiscard]] Factor<T> transposed(const T* data, std::int64_t stride) noexcept {
  return {data, stride, Factor<T>::Order::transposed};
}
enum class Add : std::uint8_t { no, yes };  // overwrite the result, or add to it

// c[m, n] = a[m, k] b[k, n] + bias[n]; a null bias is 0.
//
// throws   std::bad_alloc, Error(internal) when the GEMM library fails
template <class T>
void multiply(const Workers& workers, std::int64_t m, std::int64_t n, std::int64_t k,
              const Factor<T>& a, const Factor<T>& b, T* c, std::int64_t c_stride,
              Add add = Add::no, const T* bias = nullptr);

// sums[n] += the columns of x [rows, n], rows `stride` apart.
template <class T>
void add_columns(const Workers& workers, std::int64_t rows, std::int64_t n, const T* x,
                 std::int64_t stride, T* sums);

enum class NormKind : std::uint8_t { layer, rms };  // with a bias; without mean and bias
inline constexpr double kNormEpsilon = 1e-5;
template <class T>
void normalise(const Workers& workers, NormKind kind, std::int64_t rows, std::int64_t width,
               const T* x, const T* weight, const T* bias, T* out);
// d_x = plus + the gradient; d_weight and d_bias are added to.
template <class T>
void normalise_backward(const Workers& workers, NormKind kind, std::int64_t rows,
                        std::int64_t width, const T* x, const T* weight, const T* d_out,
                        const T* plus, T* d_x, T* d_weight, T* d_bias);

// out [rows, width] = f(x), x [rows, width]; or with a gate: x [rows, 2 width] = (gate, up) and
// out = f(gate) up.
enum class Gate : std::uint8_t { none, half };
template <class T>
void activate(const Workers& workers, models::Activation f, Gate gate, std::int64_t rows,
              std::int64_t width, const T* x, T* out);
// d_x like x; it may not be d_out.
template <class T>
void activate_backward(const Workers& workers, models::Activation f, Gate gate, std::int64_t rows,
                       std::int64_t width, const T* x, const T* d_out, T* d_x);

// out = plus + dropped(x); a null `plus` is 0. Rate 0: a sum or a copy. `first` is the index of x[0] among
// the numbers that share a mask.
template <class T>
void drop(const Workers& workers, const models::Dropout& dropout, std::int64_t first,
          std::int64_t count, const T* x, const T* plus, T* out);

// As models::cross_entropy, of one row.
template <class T>
models::CrossEntropy cross_entropy(std::span<T> logits, std::int64_t label, double smoothing,
                                   double scale);

// out[i] = rows[ids[i]], and its gradient d_rows[ids[i]] += d_out[i]; rows are `width` wide.
template <class T>
void gather(const Workers& workers, std::span<const std::int32_t> ids, std::int64_t width,
            const T* rows, T* out, Add add);
template <class T>
void scatter_add(const Workers& workers, std::span<const std::int32_t> ids, std::int64_t width,
                 const T* d_out, T* d_rows);

}  // namespace phasor::lab
