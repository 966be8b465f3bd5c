// Arrays of any strides converted to the other layout.
#include "phasor/porting/convert.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "phasor/core/error.hpp"
#include "support/errors.hpp"

namespace phasor::porting {
namespace {

using core::PairLayout;
using Shape = std::vector<std::int64_t>;

template <class T>
StridedArray<const std::byte> input(const std::vector<T>& values, const Shape& shape,
                                    const Shape& strides, std::size_t first = 0) {
  return {reinterpret_cast<const std::byte*>(values.data() + first), sizeof(T), shape, strides};
}
template <class T>
StridedArray<std::byte> output(std::vector<T>& values, const Shape& shape, const Shape& strides) {
  return {reinterpret_cast<std::byte*>(values.data()), sizeof(T), shape, strides};
}

template <class T>
class LayoutOf : public ::testing::Test {};
using Sizes = ::testing::Types<std::uint8_t, std::uint16_t, float, double>;
TYPED_TEST_SUITE(LayoutOf, Sizes);

TYPED_TEST(LayoutOf, OneHeadByHand) {
  const Shape shape = {8}, strides = {1};
  const std::vector<TypeParam> interleaved = {10, 11, 0, 4, 1, 5, 2, 6};
  std::vector<TypeParam> half(8), back(8);
  // Features 2 to 7 are rotated: their pairs are (0, 4), (1, 5), (2, 6).
  const LayoutChange change{PairLayout::half, 1, 6, 2};
  convert_layout(change, 0, input(interleaved, shape, strides), output(half, shape, strides));
  EXPECT_EQ(half, (std::vector<TypeParam>{10, 11, 0, 1, 2, 4, 5, 6}));
  convert_layout({PairLayout::interleaved, 1, 6, 2}, 0, input(half, shape, strides),
                 output(back, shape, strides));
  EXPECT_EQ(back, interleaved);
}

TEST(Layout, AxesAndStridesDoNotMatter) {
  // [3, 8]: two heads of four along axis 1, the same array in every order of memory.
  const Shape shape = {3, 8};
  std::vector<float> rows(24), columns(24), gaps(48), expected(24);
  std::iota(rows.begin(), rows.end(), 0.0F);
  constexpr std::int64_t kTaken[] = {0, 2, 1, 3, 4, 6, 5, 7};
  for (std::size_t r = 0; r < 3; ++r) {
    for (std::size_t c = 0; c < 8; ++c) {
      columns[c * 3 + r] = rows[r * 8 + c];
      gaps[(2 - r) * 16 + (7 - c) * 2] = rows[r * 8 + c];
      expected[r * 8 + c] = rows[r * 8 + static_cast<std::size_t>(kTaken[c])];
    }
  }
  const LayoutChange change{PairLayout::half, 2};
  const Shape dense = {8, 1}, by_column = {1, 3}, backwards = {-16, -2};
  for (const auto& in : {input(rows, shape, dense), input(columns, shape, by_column),
                         input(gaps, shape, backwards, 46)}) {
    std::vector<float> got(24), across(24), copy(24);
    convert_layout(change, 1, in, output(got, shape, dense));
    EXPECT_EQ(got, expected);
    convert_layout(change, 1, in, output(across, shape, by_column));
    for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(across[i % 8 * 3 + i / 8], expected[i]);
    copy_dense(in, std::as_writable_bytes(std::span(copy)));
    EXPECT_EQ(copy, rows);
  }
  // Nothing in it, nothing done.
  std::vector<float> none(1);
  const Shape empty = {0, 8};
  convert_layout(change, 1, input(none, empty, dense), output(none, empty, dense));
  const float scalar = 3.0F;
  float copied = 0.0F;
  copy_dense({reinterpret_cast<const std::byte*>(&scalar), 4, {}, {}},
             std::as_writable_bytes(std::span(&copied, 1)));
  EXPECT_EQ(copied, 3.0F);
}

TEST(Layout, RefusesBeforeItWrites) {
  std::vector<float> in(16, 1.0F), out(16, 2.0F);
  const Shape shape = {16}, strides = {1}, shorter = {8};
  const auto refused = [&](const LayoutChange& change, std::int64_t axis, const Shape& from,
                           ErrorCode code, std::initializer_list<std::string_view> values) {
    tests::expect_error(code, values, [&] {
      convert_layout(change, axis, input(in, from, strides), output(out, shape, strides));
    });
    EXPECT_EQ(out, std::vector<float>(16, 2.0F));
  };
  refused({PairLayout::interleaved_to_half, 2}, 0, shape, ErrorCode::invalid_argument,
          {"interleaved_to_half"});
  refused({PairLayout::half, 3}, 0, shape, ErrorCode::shape_mismatch, {"heads", "16", "got 3"});
  refused({PairLayout::half, 0}, 0, shape, ErrorCode::shape_mismatch, {"heads", "got 0"});
  refused({PairLayout::half, 2, 3}, 0, shape, ErrorCode::invalid_argument, {"rotary_dim", "got 3"});
  refused({PairLayout::half, 2, 8, 2}, 0, shape, ErrorCode::invalid_argument, {"6", "got 8"});
  refused({PairLayout::half, 2, 2, 9}, 0, shape, ErrorCode::invalid_argument,
          {"rotary_offset", "8", "got 9"});
  refused({PairLayout::half, 2}, 1, shape, ErrorCode::invalid_argument, {"axis", "got 1"});
  refused({PairLayout::half, 2}, 0, shorter, ErrorCode::shape_mismatch, {"[8]", "[16]"});
  EXPECT_THROW(convert_layout({PairLayout::half, 2}, 0, input(in, shape, strides),
                              output(in, shape, strides)),
               Error);
  EXPECT_THROW(
      copy_dense(input(in, shape, strides), std::as_writable_bytes(std::span(out).first(3))),
      Error);
}

}  // namespace
}  // namespace phasor::porting
