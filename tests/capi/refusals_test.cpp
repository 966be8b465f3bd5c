// Errors of the C API: NULL, numbers outside a list, structs of other versions, and errors of the
// C++ API.
#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <thread>

#include "capi/support.hpp"
#include "phasor/phasor.h"

namespace {

using phasor::capi::testing::expect_status;
using phasor::capi::testing::Values;

class CapiRefuses : public ::testing::Test {
 protected:
  CapiRefuses() {
    phasor_rope_spec_init(&spec_, sizeof(spec_));
    spec_.head_dim = 4;
    spec_.layout = PHASOR_HALF;
    EXPECT_EQ(phasor_rope_create(&spec_, 0, &rope_), PHASOR_OK) << phasor_last_error();
    EXPECT_EQ(phasor_table_create(rope_, 0, 4, PHASOR_ANGLES_EXACT, 1, &table_), PHASOR_OK);
    options_.struct_size = sizeof(options_);
  }
  ~CapiRefuses() override {
    phasor_table_destroy(table_);
    phasor_rope_destroy(rope_);
  }

  void expect_spec(phasor_status expected, const Values& values) {
    auto* const same = phasor::capi::testing::untouched<phasor_rope>();
    phasor_rope* rope = same;
    expect_status(phasor_rope_create(&spec_, 0, &rope), expected, values);
    EXPECT_EQ(rope, same);
  }
  // Every refusal leaves x as it was.
  void expect_rotate(phasor_status expected, const Values& values) {
    float before[8];
    std::memcpy(before, x_, sizeof(x_));
    expect_status(phasor_rotate_in_place(rope_, &positions_, &view_, nullptr, &options_), expected,
                  values);
    EXPECT_EQ(std::memcmp(before, x_, sizeof(x_)), 0);
  }

  float x_[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  phasor_rope_spec spec_{};
  phasor_rope* rope_ = nullptr;
  phasor_table* table_ = nullptr;
  phasor_heads view_ = phasor_dense_heads(x_, PHASOR_F32, 1, 2, 1, 4);
  phasor_positions positions_ = phasor_positions_from(0);
  phasor_rotate_options options_{};
};

TEST_F(CapiRefuses, NullEverywhere) {
  phasor_rope* rope = nullptr;
  phasor_table* table = nullptr;
  phasor_rope_info info{};
  info.struct_size = sizeof(info);
  double number = 0.0;
  float real = 0.0F;
  std::uint8_t byte = 0;
  std::int64_t integer = 0;
  std::size_t size = 0;
  const float* row = nullptr;
  const phasor_rotation rotation{nullptr, &view_, PHASOR_QUERY};
  const phasor_rotation nothing{nullptr, nullptr, PHASOR_QUERY};
  const phasor_status all[] = {
      phasor_resolve_instruction_set(PHASOR_ISA_BEST, nullptr),
      phasor_rope_spec_init(nullptr, sizeof(phasor_rope_spec)),
      phasor_rope_create(nullptr, 0, &rope),
      phasor_rope_create(&spec_, 0, nullptr),
      phasor_rope_from_config_text(nullptr, 0, nullptr, PHASOR_HALF, 0, &rope),
      phasor_rope_from_config_text("{}", 2, nullptr, PHASOR_HALF, 0, nullptr),
      phasor_rope_from_config_file(nullptr, nullptr, PHASOR_HALF, 0, &rope),
      phasor_rope_from_config_file("x", nullptr, PHASOR_HALF, 0, nullptr),
      phasor_rope_describe(nullptr, &info),
      phasor_rope_describe(rope_, nullptr),
      phasor_rope_frequencies(nullptr, &number, 1),
      phasor_rope_frequencies(rope_, nullptr, 2),
      phasor_rope_axes(nullptr, &byte, 1),
      phasor_rope_axes(rope_, nullptr, 2),
      phasor_cos_sin_f32(nullptr, &number, 1, 0, &real, &real, 1),
      phasor_cos_sin_f32(rope_, nullptr, 1, 0, &real, &real, 2),
      phasor_cos_sin_f32(rope_, &number, 1, 0, nullptr, &real, 2),
      phasor_cos_sin_f32(rope_, &number, 1, 0, &real, nullptr, 2),
      phasor_cos_sin_f64(nullptr, &number, 1, &number, &number, 1),
      phasor_cos_sin_f64(rope_, nullptr, 1, &number, &number, 2),
      phasor_cos_sin_f64(rope_, &number, 1, nullptr, &number, 2),
      phasor_cos_sin_f64(rope_, &number, 1, &number, nullptr, 2),
      phasor_table_create(nullptr, 0, 1, 0, 0, &table),
      phasor_table_create(rope_, 0, 1, 0, 0, nullptr),
      phasor_table_grow(nullptr, 0, 1, 0, &table),
      phasor_table_grow(table_, 0, 1, 0, nullptr),
      phasor_table_from_rows(nullptr, &real, 1, 1, 0, &table),
      phasor_table_from_rows(&real, nullptr, 1, 1, 0, &table),
      phasor_table_from_rows(&real, &real, 1, 1, 0, nullptr),
      phasor_table_range(nullptr, &integer, &integer),
      phasor_table_range(table_, nullptr, &integer),
      phasor_table_range(table_, &integer, nullptr),
      phasor_table_rows(nullptr, 0, &row, &row, &size),
      phasor_table_rows(table_, 0, nullptr, &row, &size),
      phasor_table_rows(table_, 0, &row, nullptr, &size),
      phasor_table_rows(table_, 0, &row, &row, nullptr),
      phasor_rotate(nullptr, &positions_, &rotation, 1, nullptr),
      phasor_rotate(rope_, nullptr, &rotation, 1, nullptr),
      phasor_rotate(rope_, &positions_, nullptr, 1, nullptr),
      phasor_rotate(rope_, &positions_, &nothing, 1, nullptr),
      phasor_rotate_in_place(rope_, &positions_, nullptr, nullptr, nullptr),
      phasor_rerotate(nullptr, &positions_, rope_, &positions_, &view_, 0),
      phasor_rerotate(rope_, nullptr, rope_, &positions_, &view_, 0),
      phasor_rerotate(rope_, &positions_, nullptr, &positions_, &view_, 0),
      phasor_rerotate(rope_, &positions_, rope_, nullptr, &view_, 0),
      phasor_rerotate(rope_, &positions_, rope_, &positions_, nullptr, 0),
      phasor_mean_partial_sums(nullptr, &number, 1, &number),
      phasor_mean_partial_sums(rope_, nullptr, 1, &number),
      phasor_mean_partial_sums(rope_, &number, 1, nullptr),
      phasor_abel_bounds(rope_, nullptr, &number, 4, &number, 1, &number),
      phasor_abel_bounds(rope_, &number, nullptr, 4, &number, 1, &number),
      phasor_rotated_scores(rope_, nullptr, &number, 4, &number, 1, &number),
      phasor_rotated_scores(rope_, &number, nullptr, 4, &number, 1, &number),
      phasor_mean_rotated_scores(nullptr, 0.0, 1.0, 0, &number, 1, &number),
  };
  for (std::size_t i = 0; i < std::size(all); ++i) EXPECT_EQ(all[i], PHASOR_INVALID_ARGUMENT) << i;
  EXPECT_EQ(rope, nullptr);
  EXPECT_EQ(table, nullptr);
  expect_status(phasor_rope_create(nullptr, 0, &rope), PHASOR_INVALID_ARGUMENT,
                {"phasor_rope_create", "spec", "NULL"});
}

TEST_F(CapiRefuses, ALayoutThatWasNotSet) {
  phasor_rope_spec_init(&spec_, sizeof(spec_));
  spec_.head_dim = 4;
  expect_spec(PHASOR_INVALID_ARGUMENT, "layout");
}

TEST_F(CapiRefuses, NumbersOutsideTheLists) {
  const phasor_rope_spec good = spec_;
  const auto with = [&](std::int32_t phasor_rope_spec::*member, std::int32_t value,
                        const Values& values) {
    spec_ = good;
    spec_.*member = value;
    expect_spec(PHASOR_INVALID_ARGUMENT, values);
  };
  with(&phasor_rope_spec::layout, 3, {"layout", "2", "3"});
  with(&phasor_rope_spec::layout, -2, "layout");
  with(&phasor_rope_spec::scaling, 99, {"scaling", "99"});
  with(&phasor_rope_spec::scaling, -1, "scaling");
  with(&phasor_rope_spec::axes, 7, {"axes", "6", "7"});
  with(&phasor_rope_spec::xpos, 4, {"xpos", "3", "4"});
  spec_ = good;
  spec_.scaling = PHASOR_SCALING_YARN;
  spec_.yarn_bounds = 2;
  expect_spec(PHASOR_INVALID_ARGUMENT, {"yarn_bounds", "1", "2"});

  options_.direction = 3;
  expect_rotate(PHASOR_INVALID_ARGUMENT, {"direction", "2", "3"});
  options_.direction = 0;
  options_.angles = 2;
  expect_rotate(PHASOR_INVALID_ARGUMENT, "angles");
  options_.angles = 0;
  options_.isa = 5;
  expect_rotate(PHASOR_INVALID_ARGUMENT, "isa");
  options_.isa = 0;
  options_.threads = -1;
  expect_rotate(PHASOR_INVALID_ARGUMENT, {"threads", "-1"});
  options_.threads = 0;
  view_.dtype = 4;
  expect_rotate(PHASOR_INVALID_ARGUMENT, {"dtype", "3", "4"});
  view_.dtype = PHASOR_F32;
  positions_.kind = 4;
  expect_rotate(PHASOR_INVALID_ARGUMENT, "positions.kind");
}

TEST_F(CapiRefuses, StridesThatReachFurtherThanMemory) {
  const phasor_heads good = view_;
  for (const std::int64_t stride : {std::int64_t{1} << 62, -(std::int64_t{1} << 62),
                                    std::numeric_limits<std::int64_t>::min()}) {
    const std::string shown = std::to_string(stride);
    view_ = good;
    view_.token_stride = stride;
    expect_rotate(PHASOR_OUT_OF_RANGE, {"2^56", shown});
    float y[8] = {};
    const phasor_heads out = phasor_dense_heads(y, PHASOR_F32, 1, 2, 1, 4);
    expect_status(phasor_attend(nullptr, &view_, &good, &good, &out, nullptr), PHASOR_OUT_OF_RANGE,
                  shown);
    expect_status(phasor_attend(nullptr, &good, &good, &good, &view_, nullptr), PHASOR_OUT_OF_RANGE,
                  shown);
    expect_status(phasor_linear_attend(rope_, &good, &view_, &good, &out, nullptr),
                  PHASOR_OUT_OF_RANGE, shown);
    expect_status(phasor_rerotate(rope_, &positions_, rope_, &positions_, &view_, 1),
                  PHASOR_OUT_OF_RANGE, shown);
    phasor_text* text = nullptr;
    expect_status(phasor_diagnose_json(&good, &view_, nullptr, nullptr, nullptr, 0, &text),
                  PHASOR_OUT_OF_RANGE, shown);
    const float numbers[4] = {};
    phasor_mask mask = phasor_dense_mask(numbers, PHASOR_MASK_ADDITIVE, 1, 1, 2, 2);
    mask.query_stride = stride;
    phasor_attend_options attend{};
    attend.struct_size = sizeof(attend);
    attend.mask = &mask;
    expect_status(phasor_attend(nullptr, &good, &good, &good, &out, &attend), PHASOR_OUT_OF_RANGE,
                  {"mask", shown});
    phasor_cache_spec spec{};
    spec.struct_size = sizeof(spec);
    spec.dtype = PHASOR_F32;
    spec.batch = spec.key_heads = 1;
    spec.head_dim = spec.value_dim = 4;
    spec.capacity = 4;
    phasor_cache* cache = nullptr;
    ASSERT_EQ(phasor_cache_create(&spec, &cache), PHASOR_OK);
    expect_status(phasor_cache_append(cache, &good, &view_, nullptr, 1), PHASOR_OUT_OF_RANGE,
                  {"v", shown});
    phasor_cache_destroy(cache);
    for (const float value : y) EXPECT_EQ(value, 0.0F);
  }
  phasor_linear_state* state = nullptr;
  EXPECT_EQ(phasor_linear_state_create(std::int64_t{1} << 32, std::int64_t{1} << 32, 4, 4, &state),
            PHASOR_INTERNAL);
  EXPECT_EQ(state, nullptr);
}

TEST_F(CapiRefuses, StructsOfTheWrongSize) {
  spec_.struct_size = 4;
  expect_spec(PHASOR_INVALID_ARGUMENT, {"struct_size", "spec"});
  spec_.struct_size = 0;
  expect_spec(PHASOR_INVALID_ARGUMENT, "struct_size");
  options_.struct_size = 0;
  expect_rotate(PHASOR_INVALID_ARGUMENT, {"struct_size", "options"});
  options_.struct_size = sizeof(options_);
  positions_.struct_size = 8;
  expect_rotate(PHASOR_INVALID_ARGUMENT, {"struct_size", "positions"});
}

TEST_F(CapiRefuses, WhatTheRoomsRefuse) {
  const phasor_rope_spec good = spec_;
  spec_.rotary_dim = 3;
  expect_spec(PHASOR_INVALID_ARGUMENT, "3");
  spec_.rotary_dim = 6;
  expect_spec(PHASOR_INVALID_ARGUMENT, "6");
  spec_ = good;
  spec_.base = -1.0;
  expect_spec(PHASOR_INVALID_ARGUMENT, "-1");
  spec_.base = std::numeric_limits<double>::quiet_NaN();
  expect_spec(PHASOR_INVALID_ARGUMENT, "base");
  spec_ = good;
  spec_.head_dim = std::numeric_limits<std::int64_t>::min();
  spec_.rotary_offset = 1;
  expect_spec(PHASOR_INVALID_ARGUMENT, "rotary_offset");
  phasor_rope* rope = nullptr;
  expect_status(phasor_rope_create(&good, -1, &rope), PHASOR_INVALID_ARGUMENT, "context");

  view_.head_dim = 2;
  expect_rotate(PHASOR_SHAPE_MISMATCH, "head_dim");
  view_.head_dim = 4;
  options_.table = table_;
  positions_.offset = 3;
  expect_rotate(PHASOR_OUT_OF_RANGE, "4");
  options_.table = nullptr;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double floats[] = {0.0, nan};
  positions_ = phasor_positions_floats(floats, 1, 0, 2);
  expect_rotate(PHASOR_INVALID_ARGUMENT, "nan");
  positions_ = phasor_positions_floats(nullptr, 1, 0, 2);
  expect_rotate(PHASOR_INVALID_ARGUMENT, {"positions.floats", "NULL"});
  positions_ = phasor_positions_integers(nullptr, 1, 0, -1);
  expect_rotate(PHASOR_INVALID_ARGUMENT, "positions.tokens");
  positions_ = phasor_positions_packed(nullptr, 1, 0);
  expect_rotate(PHASOR_INVALID_ARGUMENT, {"positions.integers", "NULL"});
  positions_ = phasor_positions_from(0);
  view_.data = nullptr;
  expect_status(phasor_rotate_in_place(rope_, &positions_, &view_, nullptr, nullptr),
                PHASOR_INVALID_ARGUMENT, {"out.data", "NULL"});
}

TEST_F(CapiRefuses, WrongCountsBeforeWriting) {
  double frequencies[3] = {7.0, 7.0, 7.0};
  expect_status(phasor_rope_frequencies(rope_, frequencies, 3), PHASOR_SHAPE_MISMATCH,
                {"count", "2", "3"});
  EXPECT_EQ(frequencies[0], 7.0);
  std::uint8_t axes[1] = {9};
  expect_status(phasor_rope_axes(rope_, axes, 1), PHASOR_SHAPE_MISMATCH, {"count", "2", "1"});
  EXPECT_EQ(axes[0], 9);
}

TEST_F(CapiRefuses, NoEmptyTensor) {
  const phasor_heads empty = phasor_dense_heads(nullptr, PHASOR_F32, 1, 0, 1, 4);
  EXPECT_EQ(phasor_rotate_in_place(rope_, &positions_, &empty, nullptr, nullptr), PHASOR_OK)
      << phasor_last_error();
}

TEST_F(CapiRefuses, AndReportsToEachThreadItsOwnError) {
  expect_status(phasor_rope_create(nullptr, 0, &rope_), PHASOR_INVALID_ARGUMENT, "spec");
  std::string before, after;
  std::thread other([&] {
    before = phasor_last_error();
    phasor_table_destroy(nullptr);
    std::int64_t number = 0;
    phasor_table_range(nullptr, &number, &number);
    after = phasor_last_error();
  });
  other.join();
  EXPECT_EQ(before, "");
  EXPECT_NE(after.find("phasor_table_range"), std::string::npos);
  EXPECT_NE(std::string_view(phasor_last_error()).find("phasor_rope_create"),
            std::string_view::npos);
}

}  // namespace
