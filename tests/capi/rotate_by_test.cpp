// Rotation by given rows of cos and sin, and sixteen-bit floats, through phasor.h.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "capi/support.hpp"
#include "phasor/core/rotate.hpp"

namespace phasor::capi {
namespace {

using testing::expect_status;
using testing::Tensor;

constexpr std::int64_t kRowTokens = 3, kPairs = 3, kOffset = 2;

class CapiRotateBy : public ::testing::Test {
 protected:
  CapiRotateBy() {
    for (std::size_t i = 0; i < cos_.size(); ++i) {
      cos_[i] = std::cos(0.3 * static_cast<double>(i));
      sin_[i] = std::sin(0.3 * static_cast<double>(i));
    }
    rows_ = {.cos = cos_.data(),
             .sin = sin_.data(),
             .dtype = PHASOR_F64,
             .pairs = kPairs,
             .batch_stride = 0,
             .token_stride = kPairs,
             .pair_stride = 1};
  }
  phasor_status rotate(const phasor_rotate_options* options = nullptr) {
    return phasor_rotate_by(&rows_, layout_, kOffset, &rotate_, 1, options);
  }

  std::vector<double> cos_ = std::vector<double>(kRowTokens * kPairs), sin_ = cos_;
  phasor_cos_sin_rows rows_{};
  phasor_pair_layout layout_ = PHASOR_INTERLEAVED;
  Tensor x_{kRowTokens, 2, 0.1F, 8, 2}, y_{kRowTokens, 2, 0.2F, 8, 2};
  phasor_rotation rotate_{&x_.c, &y_.c, PHASOR_QUERY};
};

TEST_F(CapiRotateBy, GivesTheCoresOwnBits) {
  const core::CosSinRows rows{cos_.data(), sin_.data(), core::DType::f64, kPairs, 0, kPairs, 1};
  for (const auto layout : {core::PairLayout::interleaved, core::PairLayout::half}) {
    for (const auto direction : {core::Direction::forward, core::Direction::transpose}) {
      Tensor expected(kRowTokens, 2, 0.3F, 8, 2);
      const core::Rotation rotation{x_.cpp, expected.cpp, core::Role::query};
      core::rotate_by(rows, layout, kOffset, {&rotation, 1}, {.direction = direction});
      layout_ = static_cast<phasor_pair_layout>(layout);
      phasor_rotate_options options{};
      options.struct_size = sizeof(options);
      options.direction = static_cast<phasor_direction>(direction);
      ASSERT_EQ(rotate(&options), PHASOR_OK) << phasor_last_error();
      EXPECT_EQ(y_.values, expected.values);
    }
  }
}

TEST_F(CapiRotateBy, RefusesBeforeWriting) {
  const std::vector<float> before = y_.values;
  layout_ = PHASOR_LAYOUT_UNSET;
  expect_status(rotate(), PHASOR_INVALID_ARGUMENT, {"layout", "PHASOR_LAYOUT_UNSET"});
  layout_ = 3;
  expect_status(rotate(), PHASOR_INVALID_ARGUMENT, {"layout", "2", "3"});
  layout_ = PHASOR_HALF;
  phasor_rotate_options options{};
  options.struct_size = sizeof(options);
  options.direction = PHASOR_INVERSE;
  EXPECT_NE(rotate(&options), PHASOR_OK);
  rows_.dtype = 4;
  expect_status(rotate(), PHASOR_INVALID_ARGUMENT, {"dtype", "3", "4"});
  rows_.dtype = PHASOR_F64;
  rows_.pairs = 4;  // features [2, 10) of 8
  EXPECT_NE(rotate(), PHASOR_OK);
  rows_.pairs = kPairs;
  rows_.cos = nullptr;
  expect_status(rotate(), PHASOR_INVALID_ARGUMENT, {"rows.cos", "NULL"});
  rows_.cos = cos_.data();
  rows_.sin = nullptr;
  expect_status(rotate(), PHASOR_INVALID_ARGUMENT, {"rows.sin", "NULL"});
  rows_.sin = sin_.data();
  expect_status(phasor_rotate_by(nullptr, layout_, 0, &rotate_, 1, nullptr),
                PHASOR_INVALID_ARGUMENT, {"rows", "NULL"});
  expect_status(phasor_rotate_by(&rows_, layout_, 0, nullptr, 1, nullptr), PHASOR_INVALID_ARGUMENT,
                {"rotations", "NULL"});
  EXPECT_EQ(y_.values, before);
}

TEST(CapiFloats, SixteenBitsRoundToNearestEven) {
  EXPECT_EQ(phasor_float_to_bf16(1.0F), 0x3f80);
  EXPECT_EQ(phasor_float_to_f16(1.0F), 0x3c00);
  EXPECT_EQ(phasor_float_to_bf16(1.00390625F), 0x3f80);  // halfway: to even
  EXPECT_EQ(phasor_float_to_bf16(1.01171875F), 0x3f82);
  EXPECT_EQ(phasor_f16_to_float(0x7bff), 65504.0F);
  EXPECT_EQ(phasor_bf16_to_float(0xc000), -2.0F);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(phasor_f16_to_float(phasor_float_to_f16(nan))));
  EXPECT_TRUE(std::isnan(phasor_bf16_to_float(phasor_float_to_bf16(nan))));
}

}  // namespace
}  // namespace phasor::capi
