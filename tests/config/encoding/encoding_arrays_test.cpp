// Tables in the caller's memory: which numbers are read in place, and which are copied.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "phasor/config/encoding.hpp"
#include "support/errors.hpp"

namespace phasor::config {
namespace {

using core::DType;
using encodings::Shaw;
using encodings::T5;
using encodings::Table;

constexpr std::array<std::int64_t, 2> kShape = {3, 4};
const std::string kShaw = R"({"encoding": "shaw", "clip": 1, "rel_k": {"array": "rows"}})";

LoadedEncoding loaded_with(const NamedTable& table, const std::string& text = kShaw) {
  EncodingRequest request;
  request.tables = {&table, 1};
  return parse_encoding(text, ".", "e", request).value_or_throw();
}

void expect_refused(ErrorCode code, std::initializer_list<std::string_view> values,
                    const NamedTable& table, const std::string& text = kShaw) {
  EncodingRequest request;
  request.tables = {&table, 1};
  tests::expect_error(code, values, parse_encoding(text, ".", "e", request));
}

Table rows_of(const LoadedEncoding& loaded) { return std::get<Shaw>(loaded.parts.at(0)).keys; }

template <class T>
std::vector<T> counted(std::size_t size) {
  std::vector<T> numbers(size);
  std::iota(numbers.begin(), numbers.end(), T{1});
  return numbers;
}

TEST(EncodingArrays, FloatsAreReadInPlace) {
  std::vector<float> numbers = counted<float>(12);
  const LoadedEncoding loaded = loaded_with({"rows", numbers.data(), DType::f32, kShape, {}});
  const Table rows = rows_of(loaded);
  EXPECT_EQ(rows.data, numbers.data());
  EXPECT_EQ(rows.wide, nullptr);
  EXPECT_TRUE(loaded.storage.empty());
  EXPECT_EQ(rows.rows, 3);
  EXPECT_EQ(rows.dim, 4);
  EXPECT_EQ(rows.row_stride, 4);
}

TEST(EncodingArrays, StridesAreKeptWhereFeaturesAreTogether) {
  std::vector<float> numbers = counted<float>(30);
  const std::array<std::int64_t, 2> apart = {-10, 1};
  const LoadedEncoding loaded =
      loaded_with({"rows", numbers.data() + 20, DType::f32, kShape, apart});
  EXPECT_TRUE(loaded.storage.empty());
  EXPECT_EQ(*rows_of(loaded).row(0, 2), 1.0F);
  EXPECT_EQ(rows_of(loaded).row(0, 1)[3], 14.0F);
  // [bucket, head] has no features: a transposed array is read in place too.
  const std::array<std::int64_t, 2> shape = {8, 2}, transposed = {1, 8};
  const LoadedEncoding biases =
      loaded_with({"b", numbers.data(), DType::f32, shape, transposed},
                  R"({"encoding": "t5", "relative_attention_bias": {"array": "b"}})");
  EXPECT_TRUE(biases.storage.empty());
  const Table bias = std::get<T5>(biases.parts.at(0)).bias;
  EXPECT_EQ(bias.data, numbers.data());
  EXPECT_EQ(*bias.row(1, 3), 12.0F);
}

TEST(EncodingArrays, FeaturesApartAreCopied) {
  std::vector<float> numbers = counted<float>(12);
  const std::array<std::int64_t, 2> transposed = {1, 3};
  const LoadedEncoding loaded =
      loaded_with({"rows", numbers.data(), DType::f32, kShape, transposed});
  ASSERT_EQ(loaded.storage.size(), 1u);
  EXPECT_EQ(loaded.storage[0], (std::vector<float>{1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12}));
  EXPECT_EQ(rows_of(loaded).data, loaded.storage[0].data());
}

TEST(EncodingArrays, DoublesAreKeptWithTheirFloats) {
  std::vector<double> numbers = counted<double>(12);
  numbers[0] = 0.1;
  numbers[1] = 1e300;
  const LoadedEncoding loaded = loaded_with({"rows", numbers.data(), DType::f64, kShape, {}});
  const Table rows = rows_of(loaded);
  EXPECT_EQ(rows.wide, numbers.data());
  EXPECT_EQ(rows.data[0], 0.1F);
  EXPECT_EQ(rows.data[1], std::numeric_limits<float>::infinity());
  EXPECT_TRUE(loaded.wide_storage.empty());
  // `wide` and `data` share one layout, so doubles with gaps are copied.
  const std::array<std::int64_t, 2> transposed = {1, 3};
  const LoadedEncoding copied =
      loaded_with({"rows", numbers.data(), DType::f64, kShape, transposed});
  ASSERT_EQ(copied.wide_storage.size(), 1u);
  EXPECT_EQ(rows_of(copied).wide, copied.wide_storage[0].data());
  EXPECT_EQ(copied.wide_storage[0][0], 0.1);
  EXPECT_EQ(copied.wide_storage[0][4], 1e300);
}

TEST(EncodingArrays, SixteenBitsAreWidened) {
  std::vector<core::BFloat16> numbers(12);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = core::to_bfloat16(static_cast<float>(i));
  const LoadedEncoding loaded = loaded_with({"rows", numbers.data(), DType::bf16, kShape, {}});
  EXPECT_EQ(rows_of(loaded).row(0, 2)[3], 11.0F);
  EXPECT_EQ(rows_of(loaded).wide, nullptr);
}

TEST(EncodingArrays, ListsKeepTheDigitsOfTheirText) {
  const LoadedEncoding loaded =
      loaded_with({}, R"({"encoding": "shaw", "clip": 0, "rel_k": [[0.1, 0.2]]})");
  EXPECT_EQ(rows_of(loaded).wide[1], 0.2);
  EXPECT_EQ(rows_of(loaded).data[1], 0.2F);
}

TEST(EncodingArrays, Refusals) {
  const std::vector<float> numbers = counted<float>(12);
  const std::array<std::int64_t, 1> flat = {12};
  const std::array<std::int64_t, 2> none = {0, 4};
  const NamedTable good{"rows", numbers.data(), DType::f32, kShape, {}};
  constexpr ErrorCode kBadShape = ErrorCode::shape_mismatch;
  constexpr ErrorCode kBadValue = ErrorCode::invalid_argument;
  expect_refused(kBadValue, {"rel_k", "\"rows\""},
                 {"others", numbers.data(), DType::f32, kShape, {}});
  expect_refused(kBadShape, {"rel_k", "[12]"}, {"rows", numbers.data(), DType::f32, flat, {}});
  expect_refused(kBadShape, {"rel_k", "[0, 4]"}, {"rows", numbers.data(), DType::f32, none, {}});
  expect_refused(kBadValue, {"relative_attention_bias", "{\"table\":\"b\"}"}, good,
                 R"({"encoding": "t5", "relative_attention_bias": {"table": "b"}})");
  expect_refused(kBadValue, {"rel_k", "x"}, good, R"({"encoding": "shaw", "clip": 1,
                                                      "rel_k": {"array": "rows", "x": 1}})");
}

}  // namespace
}  // namespace phasor::config
