#include "lab/nn/ops.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <type_traits>

#include "phasor/core/cancellation.hpp"
#include "phasor/core/error.hpp"
#include "phasor/models/internal/gemm.hpp"

namespace phasor::lab {
namespace {

template <class T>
constexpr bool kIsFloat = std::is_same_v<T, float>;

// Rows of a piece: enough that the library packs the other factor seldom, and at least two pieces as
// soon as there is work for two threads.
[[nodiscard]] std::int64_t rows_of_piece(std::int64_t rows) {
  constexpr std::int64_t kMost = 512, kLeast = 64;
  const std::int64_t pieces = std::max((rows + kMost - 1) / kMost, rows >= 2 * kLeast ? 2L : 1L);
  const std::int64_t even = pieces > 2 ? (pieces + 1) / 2 * 2 : pieces;
  return ((rows + even - 1) / even + 15) / 16 * 16;
}

constexpr std::int64_t kReadWhole = 512;
constexpr std::int64_t kColumnsOfPiece = 64;
constexpr std::int64_t kElementsOfPiece = std::int64_t{1} << 15;

[[nodiscard]] std::int64_t rows_of_elements(std::int64_t width) {
  return std::max<std::int64_t>(1, kElementsOfPiece / std::max<std::int64_t>(1, width));
}

// Where the rows [first, ..) of the product's left factor begin.
template <class T>
[[nodiscard]] const T* rows_from(const Factor<T>& a, std::int64_t first) {
  return a.data + (a.order == Factor<T>::Order::transposed ? first : first * a.stride);
}

// Where the columns [first, ..) of its right factor begin.
template <class T>
[[nodiscard]] const T* columns_from(const Factor<T>& b, std::int64_t first) {
  return b.data + (b.order == Factor<T>::Order::transposed ? first * b.stride : first);
}

template <class T>
[[nodiscard]] T element(const Factor<T>& a, std::int64_t row, std::int64_t column) {
  return a.order == Factor<T>::Order::transposed ? a.data[column * a.stride + row]
                                                 : a.data[row * a.stride + column];
}

template <class T>
void plain_product(std::int64_t m, std::int64_t n, std::int64_t k, const Factor<T>& a,
                   const Factor<T>& b, T* c, std::int64_t c_stride, Add add) {
  for (std::int64_t i = 0; i < m; ++i) {
    T* const row = c + i * c_stride;
    if (add == Add::no) std::fill(row, row + n, T{0});
    for (std::int64_t l = 0; l < k; ++l) {
      const T left = element(a, i, l);
      for (std::int64_t j = 0; j < n; ++j) row[j] += left * element(b, l, j);
    }
  }
}

void product(std::int64_t m, std::int64_t n, std::int64_t k, const Factor<float>& a,
             const Factor<float>& b, float* c, std::int64_t c_stride, Add add) {
  if (!models::has_gemm()) return plain_product(m, n, k, a, b, c, c_stride, add);
  const auto operand = [](const Factor<float>& factor) {
    return models::Operand{factor.data, factor.stride,
                           factor.order == Factor<float>::Order::transposed
                               ? models::Operand::Order::transposed
                               : models::Operand::Order::as_stored};
  };
  if (models::gemm(m, n, k, operand(a), operand(b), c, c_stride,
                   add == Add::yes ? models::Into::add : models::Into::overwrite,
                   core::InstructionSet::best)) {
    return;
  }
  refuse(ErrorCode::internal,
         message("the GEMM library failed for a product of ", m, " x ", k, " and ", k, " x ", n));
}
void product(std::int64_t m, std::int64_t n, std::int64_t k, const Factor<double>& a,
             const Factor<double>& b, double* c, std::int64_t c_stride, Add add) {
  plain_product(m, n, k, a, b, c, c_stride, add);
}

template <class T>
void add_row(T* x, const T* y, std::int64_t count) {
  if constexpr (kIsFloat<T>) {
    models::add_to({x, static_cast<std::size_t>(count)}, y);
  } else {
    for (std::int64_t i = 0; i < count; ++i) x[i] += y[i];
  }
}

// The definitions in double.

struct Moments {
  double mean = 0.0, scale = 1.0;
};
[[nodiscard]] Moments moments_of(NormKind kind, const double* x, std::int64_t width) {
  const auto count = static_cast<double>(width);
  double mean = 0.0, square = 0.0;
  for (std::int64_t i = 0; kind == NormKind::layer && i < width; ++i) mean += x[i] / count;
  for (std::int64_t i = 0; i < width; ++i) square += (x[i] - mean) * (x[i] - mean) / count;
  return {mean, 1.0 / std::sqrt(square + kNormEpsilon)};
}

void normalise_rows(NormKind kind, std::int64_t rows, std::int64_t width, const double* x,
                    const double* weight, const double* bias, double* out) {
  for (std::int64_t at = 0; at < rows * width; at += width) {
    const Moments row = moments_of(kind, x + at, width);
    for (std::int64_t i = 0; i < width; ++i) {
      const double normal = (x[at + i] - row.mean) * row.scale;
      out[at + i] = normal * weight[i] + (bias == nullptr ? 0.0 : bias[i]);
    }
  }
}
void normalise_rows(NormKind kind, std::int64_t rows, std::int64_t width, const float* x,
                    const float* weight, const float* bias, float* out) {
  const models::Rows all{rows, width, width};
  if (kind == NormKind::rms) return models::rms_norm(all, x, weight, 0.0F, kNormEpsilon, out);
  models::layer_norm(all, x, weight, bias, kNormEpsilon, out);
}

void normalise_rows_backward(NormKind kind, std::int64_t rows, std::int64_t width, const double* x,
                             const double* weight, const double* d_out, const double* plus,
                             double* d_x, double* d_weight, double* d_bias) {
  const auto count = static_cast<double>(width);
  for (std::int64_t at = 0; at < rows * width; at += width) {
    const Moments row = moments_of(kind, x + at, width);
    double along = 0.0, level = 0.0;
    for (std::int64_t i = 0; i < width; ++i) {
      const double normal = (x[at + i] - row.mean) * row.scale;
      along += d_out[at + i] * weight[i] * normal / count;
      if (kind == NormKind::layer) level += d_out[at + i] * weight[i] / count;
      d_weight[i] += d_out[at + i] * normal;
      if (kind == NormKind::layer) d_bias[i] += d_out[at + i];
    }
    for (std::int64_t i = 0; i < width; ++i) {
      const double normal = (x[at + i] - row.mean) * row.scale;
      const double d = (d_out[at + i] * weight[i] - normal * along - level) * row.scale;
      d_x[at + i] = d + (plus == nullptr ? 0.0 : plus[at + i]);
    }
  }
}
void normalise_rows_backward(NormKind kind, std::int64_t rows, std::int64_t width, const float* x,
                             const float* weight, const float* d_out, const float* plus, float* d_x,
                             float* d_weight, float* d_bias) {
  const models::Rows all{rows, width, width};
  if (kind == NormKind::rms) {
    return models::rms_norm_backward(all, x, weight, kNormEpsilon, d_out, plus, d_x, d_weight);
  }
  models::layer_norm_backward(all, x, weight, kNormEpsilon, d_out, plus, d_x, d_weight, d_bias);
}

struct ValueAndSlope {
  double value, slope;
};
[[nodiscard]] ValueAndSlope activation_at(models::Activation f, double x) {
  switch (f) {
    case models::Activation::silu: {
      const double s = 1.0 / (1.0 + std::exp(-x));
      return {x * s, s * (1.0 + x * (1.0 - s))};
    }
    case models::Activation::gelu: {
      const double below = std::erfc(-x / std::numbers::sqrt2) / 2.0;
      const double density = std::exp(-x * x / 2.0) / std::sqrt(2.0 * std::numbers::pi);
      return {x * below, below + x * density};
    }
    case models::Activation::gelu_tanh: {
      const double c = std::sqrt(2.0 / std::numbers::pi);
      const double t = std::tanh(c * (x + 0.044715 * x * x * x));
      const double inner = c * (1.0 + 3.0 * 0.044715 * x * x);
      return {x * (1.0 + t) / 2.0, (1.0 + t) / 2.0 + x * (1.0 - t * t) * inner / 2.0};
    }
    case models::Activation::relu:
      return {x > 0.0 ? x : 0.0, x > 0.0 ? 1.0 : 0.0};
  }
  return {};
}

void activate_row(models::Activation f, std::int64_t width, const double* x, const double* up,
                  double* out) {
  for (std::int64_t i = 0; i < width; ++i) {
    out[i] = activation_at(f, x[i]).value * (up == nullptr ? 1.0 : up[i]);
  }
}
void activate_row(models::Activation f, std::int64_t width, const float* x, const float* up,
                  float* out) {
  std::copy(x, x + width, out);
  models::activate_gate(f, {out, static_cast<std::size_t>(width)}, up);
}
void activate_row_backward(models::Activation f, std::int64_t width, const double* x,
                           const double* up, const double* d_out, double* d_x, double* d_up) {
  for (std::int64_t i = 0; i < width; ++i) {
    const ValueAndSlope at = activation_at(f, x[i]);
    d_x[i] = d_out[i] * at.slope * (up == nullptr ? 1.0 : up[i]);
    if (up != nullptr) d_up[i] = d_out[i] * at.value;
  }
}
void activate_row_backward(models::Activation f, std::int64_t width, const float* x,
                           const float* up, const float* d_out, float* d_x, float* d_up) {
  models::activate_gate_backward(f, {x, static_cast<std::size_t>(width)}, up, d_out, d_x, d_up);
}

}  // namespace

template <class T>
void multiply(const Workers& workers, std::int64_t m, std::int64_t n, std::int64_t k,
              const Factor<T>& a, const Factor<T>& b, T* c, std::int64_t c_stride, Add add,
              const T* bias) {
  const TimedPart timed = workers.timed(Part::products);
  // A transposed left factor of few columns is read whole: a part of its columns would be read from a
  // few sets of the cache.
  if (a.order == Factor<T>::Order::transposed && m <= kReadWhole && bias == nullptr) {
    return workers.for_runs(n, rows_of_piece(n), [&](std::int64_t first, std::int64_t count) {
      core::throw_if_cancelled();
      const Factor<T> right{columns_from(b, first), b.stride, b.order};
      product(m, count, k, a, right, c + first, c_stride, add);
    });
  }
  workers.for_runs(m, rows_of_piece(m), [&](std::int64_t first, std::int64_t count) {
    core::throw_if_cancelled();
    const Factor<T> left{rows_from(a, first), a.stride, a.order};
    T* const rows = c + first * c_stride;
    product(count, n, k, left, b, rows, c_stride, add);
    for (std::int64_t i = 0; bias != nullptr && i < count; ++i) {
      add_row(rows + i * c_stride, bias, n);
    }
  });
}

template <class T>
void add_columns(const Workers& workers, std::int64_t rows, std::int64_t n, const T* x,
                 std::int64_t stride, T* sums) {
  const TimedPart timed = workers.timed(Part::elementwise);
  workers.for_runs(n, kColumnsOfPiece, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t row = 0; row < rows; ++row)
      add_row(sums + first, x + row * stride + first, count);
  });
}

template <class T>
void normalise(const Workers& workers, NormKind kind, std::int64_t rows, std::int64_t width,
               const T* x, const T* weight, const T* bias, T* out) {
  const TimedPart timed = workers.timed(Part::elementwise);
  workers.for_runs(rows, rows_of_elements(width), [&](std::int64_t first, std::int64_t count) {
    normalise_rows(kind, count, width, x + first * width, weight, bias, out + first * width);
  });
}

template <class T>
void normalise_backward(const Workers& workers, NormKind kind, std::int64_t rows,
                        std::int64_t width, const T* x, const T* weight, const T* d_out,
                        const T* plus, T* d_x, T* d_weight, T* d_bias) {
  const TimedPart timed = workers.timed(Part::elementwise);
  // A partial sum of each piece, added in order.
  constexpr std::int64_t kPieces = 16;
  const std::int64_t piece = std::max(rows_of_elements(width), (rows + kPieces - 1) / kPieces);
  const std::int64_t pieces = (rows + piece - 1) / piece;
  std::vector<T> sums(static_cast<std::size_t>(2 * pieces * width));
  workers.for_pieces(pieces, [&](std::int64_t index) {
    const std::int64_t first = index * piece * width;
    T* const partial = sums.data() + 2 * index * width;
    normalise_rows_backward(kind, std::min(piece, rows - index * piece), width, x + first, weight,
                            d_out + first, plus == nullptr ? nullptr : plus + first, d_x + first,
                            partial, kind == NormKind::layer ? partial + width : nullptr);
  });
  for (std::int64_t index = 0; index < pieces; ++index) {
    const T* const partial = sums.data() + 2 * index * width;
    add_row(d_weight, partial, width);
    if (kind == NormKind::layer) add_row(d_bias, partial + width, width);
  }
}

template <class T>
void activate(const Workers& workers, models::Activation f, Gate gate, std::int64_t rows,
              std::int64_t width, const T* x, T* out) {
  const TimedPart timed = workers.timed(Part::elementwise);
  const std::int64_t stride = gate == Gate::half ? 2 * width : width;
  workers.for_runs(rows, rows_of_elements(stride), [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t row = first; row < first + count; ++row) {
      const T* const from = x + row * stride;
      activate_row(f, width, from, gate == Gate::half ? from + width : nullptr, out + row * width);
    }
  });
}

template <class T>
void activate_backward(const Workers& workers, models::Activation f, Gate gate, std::int64_t rows,
                       std::int64_t width, const T* x, const T* d_out, T* d_x) {
  const TimedPart timed = workers.timed(Part::elementwise);
  const std::int64_t stride = gate == Gate::half ? 2 * width : width;
  workers.for_runs(rows, rows_of_elements(stride), [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t row = first; row < first + count; ++row) {
      const T* const from = x + row * stride;
      T* const to = d_x + row * stride;
      const bool gated = gate == Gate::half;
      activate_row_backward(f, width, from, gated ? from + width : nullptr, d_out + row * width, to,
                            gated ? to + width : nullptr);
    }
  });
}

template <class T>
void drop(const Workers& workers, const models::Dropout& dropout, std::int64_t first_index,
          std::int64_t count, const T* x, const T* plus, T* out) {
  const TimedPart timed = workers.timed(Part::elementwise);
  workers.for_runs(count, kElementsOfPiece, [&](std::int64_t first, std::int64_t size) {
    if constexpr (kIsFloat<T>) {
      models::drop(dropout, {x + first, static_cast<std::size_t>(size)}, first_index + first,
                   plus == nullptr ? nullptr : plus + first, out + first);
    } else {
      // The same numbers are dropped: the mask of the kernel, applied to ones.
      const std::vector<float> ones(static_cast<std::size_t>(size), 1.0F);
      std::vector<float> kept(ones.size());
      models::drop(dropout, ones, first_index + first, nullptr, kept.data());
      for (std::int64_t i = 0; i < size; ++i) {
        const bool keeps = kept[static_cast<std::size_t>(i)] != 0.0F;
        out[first + i] = (plus == nullptr ? 0.0 : plus[first + i]) +
                         (keeps ? x[first + i] / (1.0 - dropout.rate) : 0.0);
      }
    }
  });
}

template <class T>
models::CrossEntropy cross_entropy(std::span<T> logits, std::int64_t label, double smoothing,
                                   double scale) {
  if constexpr (kIsFloat<T>) {
    return models::cross_entropy(logits, label, smoothing, scale);
  } else {
    const auto highest = std::max_element(logits.begin(), logits.end());
    const auto largest = highest - logits.begin();
    const double top = *highest, count = static_cast<double>(logits.size());
    double sum = 0.0, mean = 0.0;
    for (const double value : logits) sum += std::exp(value - top);
    for (const double value : logits) mean += value / count;
    const double normaliser = top + std::log(sum);
    const double plain = normaliser - logits[static_cast<std::size_t>(label)];
    for (double& value : logits) {
      value = scale * (std::exp(value - normaliser) - smoothing / count);
    }
    logits[static_cast<std::size_t>(label)] -= scale * (1.0 - smoothing);
    return {(1.0 - smoothing) * plain + smoothing * (normaliser - mean), plain, largest};
  }
}

template <class T>
void gather(const Workers& workers, std::span<const std::int32_t> ids, std::int64_t width,
            const T* rows, T* out, Add add) {
  const TimedPart timed = workers.timed(Part::elementwise);
  const auto count = static_cast<std::int64_t>(ids.size());
  workers.for_runs(count, rows_of_elements(width), [&](std::int64_t first, std::int64_t size) {
    for (std::int64_t i = first; i < first + size; ++i) {
      const T* const row = rows + ids[static_cast<std::size_t>(i)] * width;
      if (add == Add::yes) {
        add_row(out + i * width, row, width);
      } else {
        std::copy(row, row + width, out + i * width);
      }
    }
  });
}

template <class T>
void scatter_add(const Workers& workers, std::span<const std::int32_t> ids, std::int64_t width,
                 const T* d_out, T* d_rows) {
  const TimedPart timed = workers.timed(Part::elementwise);
  // Columns are shared out, not rows: each sum is in the order of the ids.
  workers.for_runs(width, kColumnsOfPiece, [&](std::int64_t first, std::int64_t count) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      add_row(d_rows + ids[i] * width + first, d_out + static_cast<std::int64_t>(i) * width + first,
              count);
    }
  });
}

#define PHASOR_LAB_OPS(T)                                                                          \
  template void multiply(const Workers&, std::int64_t, std::int64_t, std::int64_t,                 \
                         const Factor<T>&, const Factor<T>&, T*, std::int64_t, Add, const T*);     \
  template void add_columns(const Workers&, std::int64_t, std::int64_t, const T*, std::int64_t,    \
                            T*);                                                                   \
  template void normalise(const Workers&, NormKind, std::int64_t, std::int64_t, const T*,          \
                          const T*, const T*, T*);                                                 \
  template void normalise_backward(const Workers&, NormKind, std::int64_t, std::int64_t, const T*, \
                                   const T*, const T*, const T*, T*, T*, T*);                      \
  template void activate(const Workers&, models::Activation, Gate, std::int64_t, std::int64_t,     \
                         const T*, T*);                                                            \
  template void activate_backward(const Workers&, models::Activation, Gate, std::int64_t,          \
                                  std::int64_t, const T*, const T*, T*);                           \
  template void drop(const Workers&, const models::Dropout&, std::int64_t, std::int64_t, const T*, \
                     const T*, T*);                                                                \
  template models::CrossEntropy cross_entropy(std::span<T>, std::int64_t, double, double);         \
  template void gather(const Workers&, std::span<const std::int32_t>, std::int64_t, const T*, T*,  \
                       Add);                                                                       \
  template void scatter_add(const Workers&, std::span<const std::int32_t>, std::int64_t, const T*, \
                            T*);

PHASOR_LAB_OPS(float)
PHASOR_LAB_OPS(double)

}  // namespace phasor::lab
