// The kernels of linear attention for an instruction set. Matrices are float32 scratch:
// their strides are multiples of kWidest, columns after the last are zeros, and products may read
// and write whole panels of kPanelRows rows.
#pragma once

#include <cstdint>

namespace phasor::attention::kernels {

struct Matrix {
  float* data;
  std::int64_t row;   // floats from one row to the next
  std::int64_t step;  // and from one column to the next: 1 unless A is transposed
};

struct LinearKernels {
  // Whether every number of `count` rows is finite. 0 or 1.
  std::int64_t (*all_finite)(const float* x, std::int64_t stride, std::int64_t count);
  // The largest finite number of each row's first `dim`; -FLT_MAX where there is none.
  void (*largest)(const float* x, std::int64_t stride, std::int64_t count, std::int64_t dim,
                  float* largest);
  // phi in place; features after `dim` become zeros.
  void (*elu_plus_one)(float* x, std::int64_t stride, std::int64_t count, std::int64_t dim);
  // exp(x) 2^-e, row r with e = exponents[r * exponent_step].
  void (*exp_scaled)(float* x, std::int64_t stride, std::int64_t count, std::int64_t dim,
                     const float* exponents, std::int64_t exponent_step);
  // gradient = slope(phi) * gradient, the slope is phi, or min(phi, 1) for elu_plus_one.
  void (*times_exp_slope)(const float* phi, float* gradient, std::int64_t floats);
  void (*times_elu_slope)(const float* phi, float* gradient, std::int64_t floats);
  // out row r = base + x_0 + ... + x_r, and total = x_0 + ... + x_(count - 1). Strides may be
  // negative.
  void (*running_sums)(const float* x, std::int64_t stride, std::int64_t count, std::int64_t dim,
                       const float* base, float* out, std::int64_t out_stride, float* total);
  // out[r] = a_r . b_r
  void (*dots)(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride,
               std::int64_t count, std::int64_t dim, float* out);
  // y_r (+)= factors[r * factor_step] x_r; `adds` 0: y_r is overwritten.
  void (*scaled_rows)(const float* x, std::int64_t x_stride, const float* factors,
                      std::int64_t factor_step, std::int64_t count, std::int64_t dim, float* y,
                      std::int64_t y_stride, std::int64_t adds);
  // The same with streaming stores: y is aligned to the widest vector in every row, and dim a multiple of
  // it. fence() makes such stores of this thread visible to the others.
  void (*stream_scaled_rows)(const float* x, std::int64_t x_stride, const float* factors,
                             std::int64_t count, std::int64_t dim, float* y, std::int64_t y_stride);
  void (*fence)();
  // out [dim][out_stride] = the transpose of x [count][stride], whole blocks of kWidest.
  void (*transpose)(const float* x, std::int64_t stride, std::int64_t count, std::int64_t dim,
                    float* out, std::int64_t out_stride);
  // C [rows, columns] (+)= A [rows, depth] B [depth, columns].
  void (*multiply)(const Matrix& a, const Matrix& b, const Matrix& c, std::int64_t rows,
                   std::int64_t depth, std::int64_t columns, std::int64_t adds);
  // W = A B^T of a chunk: row m, columns 0 .. m; the rest of its panel is zeros.
  void (*causal_weights)(const Matrix& a, const Matrix& b, const Matrix& w, std::int64_t tokens,
                         std::int64_t depth);
  // C += W X, and C += W^T X, for W of causal_weights.
  void (*add_weighted)(const Matrix& w, const Matrix& x, const Matrix& c, std::int64_t tokens,
                       std::int64_t columns);
  void (*add_weighted_transposed)(const Matrix& w, const Matrix& x, const Matrix& c,
                                  std::int64_t tokens, std::int64_t columns);
  // sums += A B with the rounding errors kept in `carry`, which has the layout of sums.
  void (*add_product)(const Matrix& a, const Matrix& b, const Matrix& sums, float* carry,
                      std::int64_t rows, std::int64_t depth, std::int64_t columns);
  void (*add_carried)(const float* x, std::int64_t floats, float* sums, float* carry);
};

}  // namespace phasor::attention::kernels
