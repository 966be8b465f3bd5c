// The comparison of a kernel's output with the reference.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "phasor/core/internal/reference.hpp"
#include "phasor/core/rotate.hpp"
#include "support/tensor.hpp"

namespace phasor::core::tests {

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
    const bool rotations = d >= rotary.offset && d < rotary.offset + rotary.rotary_dim();
    const double value = element_of(v, at);
    if (!rotations) {
      EXPECT_EQ(value, expected[dense]) << "feature " << d << " is not rotated";
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
