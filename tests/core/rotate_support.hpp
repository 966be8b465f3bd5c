// Tensors with strides, and the comparison of a kernel's output with the reference.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "phasor/core/reference.hpp"
#include "phasor/core/rotate.hpp"

namespace phasor::core::tests {

struct Shape {
  std::int64_t batch = 1, tokens = 1, heads = 1, head_dim = 2;
};

// Gaps are left between heads, tokens and batch rows, filled with a pattern that must survive.
enum class Strides : std::uint8_t { dense, padded, heads_first };

class Tensor {
 public:
  Tensor(DType dtype, Shape shape, Strides strides, std::uint64_t seed)
      : view_{nullptr, dtype, shape.batch, shape.tokens, shape.heads, shape.head_dim, 0, 0, 0} {
    const std::int64_t gap = strides == Strides::padded ? 3 : 0;
    if (strides == Strides::heads_first) {
      view_.token_stride = shape.head_dim;
      view_.head_stride = shape.tokens * shape.head_dim;
      view_.batch_stride = shape.heads * view_.head_stride;
    } else {
      view_.head_stride = shape.head_dim + gap;
      view_.token_stride = shape.heads * view_.head_stride + gap;
      view_.batch_stride = shape.tokens * view_.token_stride + gap;
    }
    size_ = shape.batch * std::max(view_.batch_stride, std::int64_t{1}) + 1;
    bytes_.resize(static_cast<std::size_t>(size_) * size_of(dtype));
    view_.data = bytes_.data();
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    for (std::int64_t i = 0; i < size_; ++i) set_element(view_, i, normal(random));
  }
  Tensor(const Tensor& other) : view_(other.view_), size_(other.size_), bytes_(other.bytes_) {
    view_.data = bytes_.data();
  }
  Tensor& operator=(const Tensor&) = delete;

  [[nodiscard]] HeadsView view() { return view_; }
  [[nodiscard]] ConstHeadsView view() const { return view_; }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }
  [[nodiscard]] std::int64_t size() const { return size_; }

  // The same numbers as float64, dense: what the reference works on.
  [[nodiscard]] std::vector<double> wide() const {
    std::vector<double> numbers;
    for_each([&](std::int64_t at) { numbers.push_back(element_of(view_, at)); });
    return numbers;
  }
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (std::int64_t b = 0; b < view_.batch; ++b) {
      for (std::int64_t t = 0; t < view_.tokens; ++t) {
        for (std::int64_t h = 0; h < view_.heads; ++h) {
          for (std::int64_t d = 0; d < view_.head_dim; ++d) {
            visit(b * view_.batch_stride + t * view_.token_stride + h * view_.head_stride + d);
          }
        }
      }
    }
  }

 private:
  HeadsView view_;
  std::int64_t size_ = 0;
  std::vector<std::byte> bytes_;
};

inline std::vector<double> reference_of(const Rotary& rotary, const Positions& positions,
                                        const Tensor& x, Direction direction,
                                        Role role = Role::query) {
  std::vector<double> y = x.wide();
  const ConstHeadsView v = x.view();
  const HeadsView view = heads_view(y.data(), v.batch, v.tokens, v.heads, v.head_dim);
  reference::rotate(rotary, positions, view, view, direction, role);
  return y;
}

// The allowed error at one element of a head: the bound of rotate.hpp, then one rounding to
// storage.
inline double allowed(DType dtype, double exact, double pair_length) {
  const double f32 = kRotateErrorF32 * 0x1p-23 * pair_length;
  switch (dtype) {
    case DType::f64:
      return kRotateErrorF64 * 0x1p-52 * pair_length + 1e-300;
    case DType::f32:
      return f32 + 1e-44;
    case DType::f16:
      return f32 + (std::fabs(exact) + f32) * 0x1p-11 + 0x1p-25;
    case DType::bf16:
      return f32 + (std::fabs(exact) + f32) * 0x1p-8 + 1e-40;
  }
  return 0.0;
}

// Element by element; `expected` is dense.
inline void expect_near_reference(const Rotary& rotary, const std::vector<double>& expected,
                                  const Tensor& got) {
  const ConstHeadsView v = got.view();
  std::size_t dense = 0;
  int reported = 0;
  got.for_each([&](std::int64_t at) {
    const std::size_t head_start =
        dense / static_cast<std::size_t>(v.head_dim) * static_cast<std::size_t>(v.head_dim);
    const auto d = static_cast<std::int64_t>(dense - head_start);
    const bool turns = d >= rotary.offset && d < rotary.offset + rotary.rotary_dim();
    const double value = element_of(v, at);
    if (!turns) {
      EXPECT_EQ(value, expected[dense]) << "feature " << d << " does not turn";
    } else {
      // The partner in the layout of the output.
      const std::int64_t block = 2 * rotary.frequencies.pairs() / rotary.blocks;
      const std::int64_t inside = (d - rotary.offset) % block;
      const std::int64_t start = d - inside;
      double length = std::fabs(expected[dense]);
      for (const std::int64_t partner :
           {start + (inside ^ 1),
            start + (inside + block / 2) % block}) {  // either layout's partner bounds it
        length = std::fmax(
            length,
            std::hypot(expected[dense], expected[head_start + static_cast<std::size_t>(partner)]));
      }
      if (!(std::fabs(value - expected[dense]) <= allowed(v.dtype, expected[dense], length)) &&
          reported++ < 3) {
        ADD_FAILURE() << "element " << dense << " (feature " << d << "): got " << value
                      << ", expected " << expected[dense] << ", pair length " << length;
      }
    }
    ++dense;
  });
}

}  // namespace phasor::core::tests
