// The kernels of linear attention, RoFormer (17)-(19). Included by the kernel sources alone;
// everything has internal linkage.
#pragma once

#include "attention/kernels/kernels.hpp"
#include "attention/kernels/linear_kernels.hpp"
#include "phasor/attention/internal/kernels/exponential.hpp"
#include "phasor/attention/internal/kernels/product.hpp"

namespace {
namespace linear {

using phasor::attention::kernels::kPanelRows;
using phasor::attention::kernels::kWidest;
using phasor::attention::kernels::LinearKernels;
using phasor::attention::kernels::Matrix;
using phasor::attention::kernels::rounded_up;

static_assert(kRows == kPanelRows);

constexpr float kLargestFloat = 3.402823466e38F;

inline std::int64_t lesser(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

std::int64_t all_finite(const float* x, std::int64_t stride, std::int64_t count) {
  Float probe{};  // 0 x is 0 for a finite x and NaN for another
  for (std::int64_t i = 0; i < count * stride; i += kFloats) {
    probe = mul_add(load<Float>(x + i), Float{}, probe);
  }
  return sum_of_lanes(probe) == 0.0F ? 1 : 0;
}

void largest(const float* x, std::int64_t stride, std::int64_t count, std::int64_t dim,
             float* out) {
  const Float none = splat(-kLargestFloat);
  for (std::int64_t r = 0; r < count; ++r) {
    const float* row = x + r * stride;
    Float most = none;
    std::int64_t i = 0;
    for (; i + kFloats <= dim; i += kFloats) {
      const Float value = load<Float>(row + i);
      most = larger(value <= splat(kLargestFloat) ? value : none, most);
    }
    float result = largest_of_lanes(most);
    for (; i < dim; ++i) {
      if (row[i] > result && row[i] <= kLargestFloat) result = row[i];
    }
    out[r] = result;
  }
}

// exp(x) 2^-e, 0 below 2^kSmallestExponent (-infinity included). x = t ln 2 + r, |r| <= ln 2 / 2,
// with ln 2 in two parts: rounding x log2(e) would cost as many last places as x has bits before
// the point. The polynomial is off by at most 3.1e-9 of the value.
// precondition  x log2(e) - e < 127
inline Float exp_scaled_of(Float x, Float e) {
  const Float magic = splat(0x1.8p23F);
  const Float t = mul_add(x, splat(1.44269504F), magic) - magic;
  Float r = mul_add(t, splat(-0.693145752F), x);
  r = mul_add(t, splat(-1.42860677e-6F), r);
  Float p = splat(1.38145406e-3F);
  p = mul_add(p, r, splat(8.36874545e-3F));
  p = mul_add(p, r, splat(4.1668389e-2F));
  p = mul_add(p, r, splat(1.66665211e-1F));
  p = mul_add(p, r, splat(4.9999994e-1F));
  p = mul_add(p * r, r, r) + splat(1.0F);
  const Float exponent = t - e;
  // In [2^23, 2^24) a float's low bits are its integer.
  const Bits power = reinterpret_cast<Bits>(exponent + splat(0x1p23F + 127.0F)) << 23;
  const Float scaled = p * reinterpret_cast<Float>(power);
  return exponent < splat(kSmallestExponent) ? Float{} : scaled;
}

inline void clear_padding(float* row, std::int64_t dim, std::int64_t stride) {
  for (std::int64_t i = dim; i < stride; ++i) row[i] = 0.0F;
}

void elu_plus_one(float* x, std::int64_t stride, std::int64_t count, std::int64_t dim) {
  for (std::int64_t r = 0; r < count; ++r) {
    float* row = x + r * stride;
    for (std::int64_t i = 0; i < dim; i += kFloats) {
      const Float value = load<Float>(row + i);
      // The precondition of exp holds in the lanes that count.
      const Float below = value > Float{} ? Float{} : value;
      store(row + i, value > Float{} ? value + splat(1.0F) : exp_scaled_of(below, Float{}));
    }
    clear_padding(row, dim, stride);
  }
}

void exp_scaled(float* x, std::int64_t stride, std::int64_t count, std::int64_t dim,
                const float* exponents, std::int64_t exponent_step) {
  for (std::int64_t r = 0; r < count; ++r) {
    float* row = x + r * stride;
    const Float e = splat(exponents[r * exponent_step]);
    for (std::int64_t i = 0; i < dim; i += kFloats) {
      store(row + i, exp_scaled_of(load<Float>(row + i), e));
    }
    clear_padding(row, dim, stride);
  }
}

void times_exp_slope(const float* phi, float* gradient, std::int64_t floats) {
  for (std::int64_t i = 0; i < floats; i += kFloats) {
    store(gradient + i, load<Float>(gradient + i) * load<Float>(phi + i));
  }
}
void times_elu_slope(const float* phi, float* gradient, std::int64_t floats) {
  for (std::int64_t i = 0; i < floats; i += kFloats) {
    const Float value = load<Float>(phi + i);
    const Float slope = value > splat(1.0F) ? splat(1.0F) : value;
    store(gradient + i, load<Float>(gradient + i) * slope);
  }
}

void running_sums(const float* x, std::int64_t stride, std::int64_t count, std::int64_t dim,
                  const float* base, float* out, std::int64_t out_stride, float* total) {
  for (std::int64_t i = 0; i < dim; i += kFloats) {
    const Float start = load<Float>(base + i);
    Float sum{};
    for (std::int64_t r = 0; r < count; ++r) {
      sum += load<Float>(x + r * stride + i);
      store(out + r * out_stride + i, start + sum);
    }
    store(total + i, sum);
  }
}

void dots(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride,
          std::int64_t count, std::int64_t dim, float* out) {
  for (std::int64_t r = 0; r < count; ++r) {
    Float sum{};
    for (std::int64_t i = 0; i < dim; i += kFloats) {
      sum = mul_add(load<Float>(a + r * a_stride + i), load<Float>(b + r * b_stride + i), sum);
    }
    out[r] = sum_of_lanes(sum);
  }
}

void scaled_rows(const float* x, std::int64_t x_stride, const float* factors,
                 std::int64_t factor_step, std::int64_t count, std::int64_t dim, float* y,
                 std::int64_t y_stride, std::int64_t adds) {
  for (std::int64_t r = 0; r < count; ++r) {
    const Float factor = splat(factors[r * factor_step]);
    const float* from = x + r * x_stride;
    float* to = y + r * y_stride;
    for (std::int64_t i = 0; i < dim; i += kFloats) {
      const Float value = load<Float>(from + i);
      store(to + i, adds != 0 ? mul_add(factor, value, load<Float>(to + i)) : factor * value);
    }
  }
}

void stream_scaled_rows(const float* x, std::int64_t x_stride, const float* factors,
                        std::int64_t count, std::int64_t dim, float* y, std::int64_t y_stride) {
  for (std::int64_t r = 0; r < count; ++r) {
    const Float factor = splat(factors[r]);
    for (std::int64_t i = 0; i < dim; i += kFloats) {
      stream(y + r * y_stride + i, factor * load<Float>(x + r * x_stride + i));
    }
  }
}

void transpose(const float* x, std::int64_t stride, std::int64_t count, std::int64_t dim,
               float* out, std::int64_t out_stride) {
  for (std::int64_t r = 0; r < count; r += kFloats) {
    for (std::int64_t i = 0; i < dim; i += kFloats) {
      Float rows[kFloats];
      PHASOR_UNROLL
      for (int lane = 0; lane < kFloats; ++lane) {
        rows[lane] = load<Float>(x + (r + lane) * stride + i);
      }
      transpose_square(rows);
      PHASOR_UNROLL
      for (int lane = 0; lane < kFloats; ++lane)
        store(out + (i + lane) * out_stride + r, rows[lane]);
    }
  }
}

// One row of A: decoding would waste five rows of a panel.
void multiply_row(const float* a, std::int64_t a_step, const Matrix& b, float* c,
                  std::int64_t depth, std::int64_t columns, std::int64_t adds) {
  constexpr int kAtOnce = 4;
  for (std::int64_t first = 0; first < columns; first += kAtOnce * kFloats) {
    const auto vectors = static_cast<int>(lesser(kAtOnce, (columns - first) / kFloats));
    Float sum[kAtOnce] = {};
    for (int v = 0; v < vectors && adds != 0; ++v) sum[v] = load<Float>(c + first + v * kFloats);
    for (std::int64_t k = 0; k < depth; ++k) {
      const Float factor = splat(a[k * a_step]);
      const float* row = b.data + k * b.row + first;
      if (vectors == kAtOnce) {
        PHASOR_UNROLL
        for (int v = 0; v < kAtOnce; ++v)
          sum[v] = mul_add(factor, load<Float>(row + v * kFloats), sum[v]);
      } else {
        for (int v = 0; v < vectors; ++v)
          sum[v] = mul_add(factor, load<Float>(row + v * kFloats), sum[v]);
      }
    }
    for (int v = 0; v < vectors; ++v) store(c + first + v * kFloats, sum[v]);
  }
}

inline Product panel(const Matrix& a, const Matrix& b, const Matrix& c, std::int64_t first,
                     std::int64_t depth) {
  return {a.data + first * a.row, a.row, a.step, b.data, b.row, kFloats,
          c.data + first * c.row, c.row, depth};
}

void multiply(const Matrix& a, const Matrix& b, const Matrix& c, std::int64_t rows,
              std::int64_t depth, std::int64_t columns, std::int64_t adds) {
  if (rows == 1) return multiply_row(a.data, a.step, b, c.data, depth, columns, adds);
  const std::int64_t vectors = columns / kFloats;
  for (std::int64_t first = 0; first < rows; first += kRows) {
    const Product p = panel(a, b, c, first, depth);
    adds != 0 ? wide_product<Start::sum>(p, vectors) : wide_product<Start::zero>(p, vectors);
  }
}

void causal_weights(const Matrix& a, const Matrix& b, const Matrix& w, std::int64_t tokens,
                    std::int64_t depth) {
  for (std::int64_t first = 0; first < tokens; first += kRows) {
    const std::int64_t end = lesser(first + kRows, rounded_up(tokens, kWidest));
    wide_product<Start::zero>(panel(a, b, w, first, depth), (end + kFloats - 1) / kFloats);
    for (std::int64_t m = first; m < first + kRows; ++m) {
      for (std::int64_t n = m + 1; n < end; ++n) w.data[m * w.row + n] = 0.0F;
    }
  }
}

void add_weighted(const Matrix& w, const Matrix& x, const Matrix& c, std::int64_t tokens,
                  std::int64_t columns) {
  for (std::int64_t first = 0; first < tokens; first += kRows) {
    wide_product<Start::sum>(panel(w, x, c, first, lesser(first + kRows, tokens)),
                             columns / kFloats);
  }
}

void add_weighted_transposed(const Matrix& w, const Matrix& x, const Matrix& c, std::int64_t tokens,
                             std::int64_t columns) {
  for (std::int64_t first = 0; first < tokens; first += kRows) {
    const Matrix a{w.data + first * w.row, w.step, w.row};
    const Matrix b{x.data + first * x.row, x.row, 1};
    wide_product<Start::sum>(panel(a, b, c, first, tokens - first), columns / kFloats);
  }
}

// sum += x - (what was rounded away before). Kahan.
inline void carry_into(float* sums, float* carry, Float x) {
  const Float wanted = x - load<Float>(carry);
  const Float before = load<Float>(sums);
  const Float after = before + wanted;
  store(carry, (after - before) - wanted);
  store(sums, after);
}

void add_carried(const float* x, std::int64_t floats, float* sums, float* carry) {
  for (std::int64_t i = 0; i < floats; i += kFloats) {
    carry_into(sums + i, carry + i, load<Float>(x + i));
  }
}

// The most columns of one panel of new sums, which stay in the L1 cache.
constexpr std::int64_t kPanelColumns = 256;

void add_product(const Matrix& a, const Matrix& b, const Matrix& sums, float* carry,
                 std::int64_t rows, std::int64_t depth, std::int64_t columns) {
  if (depth == 1) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const Float factor = splat(a.data[r * a.row]);
      for (std::int64_t i = 0; i < columns; i += kFloats) {
        carry_into(sums.data + r * sums.row + i, carry + r * sums.row + i,
                   factor * load<Float>(b.data + i));
      }
    }
    return;
  }
  alignas(64) float fresh[kRows * kPanelColumns];
  for (std::int64_t left = 0; left < columns; left += kPanelColumns) {
    const std::int64_t width = lesser(kPanelColumns, columns - left);
    for (std::int64_t first = 0; first < rows; first += kRows) {
      wide_product<Start::zero>({a.data + first * a.row, a.row, a.step, b.data + left, b.row,
                                 kFloats, fresh, width, depth},
                                width / kFloats);
      for (std::int64_t r = 0; r < kRows; ++r) {
        const std::int64_t at = (first + r) * sums.row + left;
        add_carried(fresh + r * width, width, sums.data + at, carry + at);
      }
    }
  }
}

}  // namespace linear

constexpr phasor::attention::kernels::LinearKernels kLinearKernels = {
    .all_finite = linear::all_finite,
    .largest = linear::largest,
    .elu_plus_one = linear::elu_plus_one,
    .exp_scaled = linear::exp_scaled,
    .times_exp_slope = linear::times_exp_slope,
    .times_elu_slope = linear::times_elu_slope,
    .running_sums = linear::running_sums,
    .dots = linear::dots,
    .scaled_rows = linear::scaled_rows,
    .stream_scaled_rows = linear::stream_scaled_rows,
    .fence = fence,
    .transpose = linear::transpose,
    .multiply = linear::multiply,
    .causal_weights = linear::causal_weights,
    .add_weighted = linear::add_weighted,
    .add_weighted_transposed = linear::add_weighted_transposed,
    .add_product = linear::add_product,
    .add_carried = linear::add_carried,
};

}  // namespace
