// A weight matrix in the type of its file, and its products with activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "phasor/io/tensors.hpp"
#include "phasor/models/checkpoint.hpp"

namespace phasor::models {

// Rows [first, first + count) of a tensor, whose leading axes count as one: [.., columns].
struct TensorRows {
  const io::Tensor* tensor = nullptr;
  std::int64_t first = 0, count = 0;
};

// Weights [rows, columns], copied once into the order that the kernels of this machine read; the
// file's bytes are not needed afterwards. Every type keeps its bits and size (rows are padded to
// a multiple of 16 with zeros); f64 is rounded to f32. Copies share the weights.
class Matrix {
 public:
  Matrix() = default;
  // Concatenates the rows of parts of the same type and number of columns.
  //
  // throws   Error(shape_mismatch): no rows, ranges beyond a tensor, tensors of other widths;
  //          Error(unsupported): parts of several types, types without a product (f8, integers);
  //          Error(invalid_argument): a weight or the scale of a block that is not finite as f32, with
  //          its row; Error(io) as io::read_bytes()
  [[nodiscard]] static Matrix pack(std::span<const TensorRows> parts);
  [[nodiscard]] static Matrix pack(const io::Tensor& tensor);

  [[nodiscard]] std::int64_t rows() const noexcept;
  [[nodiscard]] std::int64_t columns() const noexcept;
  [[nodiscard]] io::TensorType type() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept;  // of the packed copy
  [[nodiscard]] bool empty() const noexcept { return packed_ == nullptr; }

  // Row `index` as float32, equal to to_floats().
  //
  // throws   Error(out_of_range); Error(shape_mismatch) when out is not columns() wide
  // cost     memory for 16 rows of floats, which the calling thread keeps, as in multiply()
  void row(std::int64_t index, std::span<float> out) const;

  struct Packed;

 private:
  std::shared_ptr<const Packed> packed_;
  friend void multiply(std::span<const struct Product> products, const float* x,
                       std::int64_t tokens, std::int64_t x_stride, const ComputeOptions& options);
};

// out[t * out_stride + r] = sum_c x[t * x_stride + c] w[r, c] + bias[r]
struct Product {
  const Matrix* matrix = nullptr;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  const float* bias = nullptr;  // [rows]; null: none
};

// Several matrices times the same activations x [tokens, columns]: x is prepared once. One or a few
// tokens stream the weights once, dequantised on the way; many are multiplied by a few dequantised
// rows at a time (with AVX-512 by the GEMM library) or, Precision::fast, in integers.
//
// error    f32, f16 and bf16 weights, both precisions: kExactProductError * sum_c |x_c w_c|.
//          Blocks, Precision::exact: kExactProductError * sum_c X_c W_c, where X_c is the largest
//          |x| of the 32 columns around c and W_c the largest |w| that c's block can say: a token
//          streamed has three steps of eight bits for x. Precision::fast: besides,
//          kFastProductError * sum_c X_c |w_c|, one step for many tokens; a few have two, and an
//          error 200 times smaller. Errors of the float32 sum are taken as independent: rows of
//          16384 columns and more may exceed the bound.
// special  an activation that is not finite makes every result of its token not finite, and no
//          other token's; blocks of 32 activations below 1e-31 may count as zeros
// throws   Error(shape_mismatch): matrices of different widths, strides below the width, tokens below
//          0; Error(invalid_argument): a product without a matrix; before an output is written.
//          std::bad_alloc, Error(internal) when the GEMM library fails: outputs are unspecified
// cost     no thread for less than 64 KiB of weights times tokens a thread; memory for
//          the prepared activations and a panel of rows stays with the calling thread
void multiply(std::span<const Product> products, const float* x, std::int64_t tokens,
              std::int64_t x_stride, const ComputeOptions& options = {});
inline constexpr double kExactProductError = 2e-6;

}  // namespace phasor::models
