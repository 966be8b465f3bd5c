// Every form of a cos/sin table, in every type, with further axes: the same numbers come back.
#include "phasor/porting/internal/table_forms.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "phasor/core/error.hpp"
#include "support/errors.hpp"

namespace phasor::porting {
namespace {

using io::NpyArray;
using io::NpyType;
using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kRows = 5, kPairs = 4;

// Numbers that every type stores exactly, all different.
double cos_at(std::int64_t row, std::int64_t pair) {
  return 0.25 * static_cast<double>(row * kPairs + pair) + 1.0;
}
double sin_at(std::int64_t row, std::int64_t pair) { return -cos_at(row, pair); }

NpyArray filled(NpyType type, const Shape& shape, const std::vector<double>& values) {
  NpyArray array = io::make_npy(type, shape);
  const std::size_t width = array.bytes.size() / values.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::byte* const at = array.bytes.data() + i * width;
    if (width == sizeof(double)) {
      std::memcpy(at, &values[i], width);
    } else if (width == sizeof(float)) {
      const auto value = static_cast<float>(values[i]);
      std::memcpy(at, &value, width);
    } else if (type == NpyType::f16) {
      const core::Half value = core::to_half(static_cast<float>(values[i]));
      std::memcpy(at, &value, width);
    } else {
      const core::BFloat16 value = core::to_bfloat16(static_cast<float>(values[i]));
      std::memcpy(at, &value, width);
    }
  }
  return array;
}

// The numbers of one row of a form, of cos or of sin.
std::vector<double> doubled(TableForm form, double (*value)(std::int64_t, std::int64_t)) {
  std::vector<double> all;
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t i = 0; i < 2 * kPairs; ++i)
      all.push_back(value(row, form == TableForm::concatenated ? i % kPairs : i / 2));
  }
  return all;
}
std::vector<double> single(double (*value)(std::int64_t, std::int64_t)) {
  std::vector<double> all;
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t pair = 0; pair < kPairs; ++pair) all.push_back(value(row, pair));
  return all;
}

std::vector<double> joined(std::vector<double> a, const std::vector<double>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void expect_numbers(const TableReading& reading, TableForm form) {
  EXPECT_EQ(reading.form, form);
  EXPECT_EQ(reading.rows, kRows);
  EXPECT_EQ(reading.cos, single(cos_at));
  EXPECT_EQ(reading.sin, single(sin_at));
  EXPECT_FALSE(reading.copies.has_value());
}

class TableForms : public ::testing::TestWithParam<NpyType> {};

TEST_P(TableForms, CosAndSinInTwoArrays) {
  for (const Shape& front : {Shape{}, Shape{1}, Shape{1, 1}}) {
    for (const TableForm form :
         {TableForm::pairs, TableForm::concatenated, TableForm::interleaved}) {
      Shape shape = front;
      shape.push_back(kRows);
      shape.push_back(form == TableForm::pairs ? kPairs : 2 * kPairs);
      const auto numbers = [&](double (*value)(std::int64_t, std::int64_t)) {
        return form == TableForm::pairs ? single(value) : doubled(form, value);
      };
      const NpyArray cos = filled(GetParam(), shape, numbers(cos_at)),
                     sin = filled(GetParam(), shape, numbers(sin_at));
      expect_numbers(read_table(cos, &sin, kPairs), form);
      expect_numbers(read_table(cos, &sin, kPairs, form), form);

      Shape both = shape;
      both.insert(both.begin(), 2);
      const NpyArray one = filled(GetParam(), both, joined(numbers(cos_at), numbers(sin_at)));
      expect_numbers(read_table(one, nullptr, kPairs), form);
    }
  }
}

TEST_P(TableForms, CosAndSinInOneArray) {
  std::vector<double> last, halves, swapped;
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t pair = 0; pair < kPairs; ++pair) {
      last.push_back(cos_at(row, pair));
      last.push_back(sin_at(row, pair));
    }
    for (std::int64_t i = 0; i < 2 * kPairs; ++i) {
      halves.push_back(i < kPairs ? cos_at(row, i) : sin_at(row, i - kPairs));
      swapped.push_back(i < kPairs ? sin_at(row, i) : cos_at(row, i - kPairs));
    }
  }
  expect_numbers(read_table(filled(GetParam(), {kRows, kPairs, 2}, last), nullptr, kPairs),
                 TableForm::last_axis);
  expect_numbers(read_table(filled(GetParam(), {1, kRows, kPairs, 2}, last), nullptr, kPairs),
                 TableForm::last_axis);
  expect_numbers(read_table(filled(GetParam(), {kRows, 2 * kPairs}, halves), nullptr, kPairs),
                 TableForm::cos_sin);
  expect_numbers(read_table(filled(GetParam(), {kRows, 1, 2 * kPairs}, halves), nullptr, kPairs),
                 TableForm::cos_sin);
  expect_numbers(read_table(filled(GetParam(), {kRows, 2 * kPairs}, swapped), nullptr, kPairs,
                            TableForm::sin_cos),
                 TableForm::sin_cos);
}

INSTANTIATE_TEST_SUITE_P(Types, TableForms,
                         ::testing::Values(NpyType::f64, NpyType::f32, NpyType::f16, NpyType::bf16,
                                           NpyType::u16),
                         [](const auto& info) { return std::string(io::name_of(info.param)); });

TEST(TableForms, Complex) {
  std::vector<double> numbers;
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t pair = 0; pair < kPairs; ++pair) {
      numbers.push_back(cos_at(row, pair));
      numbers.push_back(sin_at(row, pair));
    }
  }
  for (const auto& [type, part, stored] :
       {std::tuple{NpyType::c64, NpyType::f32, core::DType::f32},
        std::tuple{NpyType::c128, NpyType::f64, core::DType::f64}}) {
    NpyArray table = filled(part, {kRows, kPairs, 2}, numbers);
    table.type = type;
    table.shape = {1, kRows, kPairs};
    const TableReading reading = read_table(table, nullptr, kPairs);
    expect_numbers(reading, TableForm::complex);
    EXPECT_EQ(reading.stored, stored);
    tests::expect_error(ErrorCode::shape_mismatch, {"complex", "[1, 5, 4]"},
                        [&] { return read_table(table, nullptr, 8); });
  }
}

TEST(TableForms, TypesAreKept) {
  const std::vector<double> numbers = joined(single(cos_at), single(sin_at));
  for (const auto& [type, stored] : {std::pair{NpyType::f64, core::DType::f64},
                                     {NpyType::f32, core::DType::f32},
                                     {NpyType::f16, core::DType::f16},
                                     {NpyType::bf16, core::DType::bf16},
                                     {NpyType::u16, core::DType::bf16}}) {
    const NpyArray table = filled(type, {2, kRows, kPairs}, numbers);
    EXPECT_EQ(read_table(table, nullptr, kPairs).stored, stored);
  }
  tests::expect_error(ErrorCode::unsupported, {"int32"}, [&] {
    return read_table(io::make_npy(NpyType::i32, {2, kRows, kPairs}), nullptr, kPairs);
  });
}

TEST(TableForms, AnAmbiguousShapeNamesTheFlag) {
  // Two pairs at two positions: [2, positions, pairs] and [positions, pairs, 2] are one shape.
  const NpyArray table = filled(NpyType::f32, {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  tests::expect_error(ErrorCode::invalid_argument, {"--form", "pairs", "last_axis", "[2, 2, 2]"},
                      [&] { return read_table(table, nullptr, 2); });
  EXPECT_EQ(read_table(table, nullptr, 2, TableForm::pairs).cos, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(read_table(table, nullptr, 2, TableForm::last_axis).cos,
            (std::vector<double>{1, 3, 5, 7}));
  // Equal frequencies: the halves and the neighbours are equal, and give other tables.
  const std::vector<double> both = {1, 1, 2, 2, 1, 1, 2, 2};
  const NpyArray equal = filled(NpyType::f32, {1, 8}, both);
  tests::expect_error(ErrorCode::invalid_argument, {"--form", "concatenated", "interleaved"},
                      [&] { return read_table(equal, &equal, 4); });
}

TEST(TableForms, CosAloneIsNoTable) {
  const NpyArray cos =
      filled(NpyType::f32, {kRows, 2 * kPairs}, doubled(TableForm::concatenated, cos_at));
  tests::expect_error(ErrorCode::invalid_argument, {"cos"},
                      [&] { return read_table(cos, nullptr, kPairs); });
}

TEST(TableForms, CopiesThatDifferAreReported) {
  for (const TableForm form : {TableForm::concatenated, TableForm::interleaved}) {
    std::vector<double> numbers = doubled(form, cos_at);
    numbers[2 * 2 * kPairs + (form == TableForm::concatenated ? kPairs + 1 : 3)] += 1.0;
    const NpyArray cos = filled(NpyType::f64, {kRows, 2 * kPairs}, numbers),
                   sin = filled(NpyType::f64, {kRows, 2 * kPairs}, doubled(form, sin_at));
    const TableReading reading = read_table(cos, &sin, kPairs);
    EXPECT_EQ(reading.form, form);
    ASSERT_TRUE(reading.copies.has_value());
    EXPECT_EQ(reading.copies->row, 2);
    EXPECT_EQ(reading.copies->count, 1);
    EXPECT_EQ(reading.copies->first, form == TableForm::concatenated ? 1 : 2);
    EXPECT_EQ(reading.copies->second_value, reading.copies->first_value + 1.0);
  }
  // Nothing is repeated: no form can be told.
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < kRows * 2 * kPairs; ++i) numbers.push_back(static_cast<double>(i));
  const NpyArray table = filled(NpyType::f64, {kRows, 2 * kPairs}, numbers);
  tests::expect_error(ErrorCode::invalid_argument, {"--form", "40"},
                      [&] { return read_table(table, &table, kPairs); });
}

TEST(TableForms, ShapesThatFitNoForm) {
  const auto shaped = [](const Shape& shape) { return io::make_npy(NpyType::f32, shape); };
  for (const Shape& shape :
       {Shape{2, 3, 5}, Shape{3, 7}, Shape{8}, Shape{}, Shape{2, 2, 3, 4}, Shape{3, 3, 4}}) {
    tests::expect_error(ErrorCode::shape_mismatch, {"4 pairs"},
                        [&] { return read_table(shaped(shape), nullptr, 4); });
  }
  const NpyArray cos = shaped({3, 4}), sin = shaped({4, 4});
  tests::expect_error(ErrorCode::shape_mismatch, {"[3, 4]", "[4, 4]"},
                      [&] { return read_table(cos, &sin, 4); });
  EXPECT_EQ(read_table(shaped({2, 0, 4}), nullptr, 4).rows, 0);
}

}  // namespace
}  // namespace phasor::porting
