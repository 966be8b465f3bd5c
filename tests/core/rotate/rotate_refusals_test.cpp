#include <gtest/gtest.h>

#include <limits>

#include "core/rotate/rotate_support.hpp"

namespace phasor::core {
namespace {

constexpr std::int64_t kDim = 8;

Rotary rotary() { return {make_frequencies({kDim, 10000.0}), PairLayout::half, kDim}; }

// The message of the refusal, after making sure that not a byte of the output changed.
template <class Call>
std::string refusal(std::vector<float>& buffer, const Call& call) {
  const std::vector<float> before = buffer;
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(buffer, before) << "touched before refusing";
    return error.what();
  }
  return "accepted";
}

class RotateRefusals : public testing::Test {
 protected:
  std::vector<float> x_ = std::vector<float>(2 * 3 * 2 * kDim, 1.5F);
  HeadsView view_ = heads_view(x_.data(), 2, 3, 2, kDim);
  std::string refuse(const Positions& positions, const RotateOptions& options = {}) {
    return refusal(x_, [&] { rotate(rotary(), positions, view_, options); });
  }
};

TEST_F(RotateRefusals, PositionsOfTheWrongShape) {
  const std::vector<std::int64_t> ids(12, 1);
  EXPECT_EQ(refuse(positions_per_token(std::span(ids).first(4))),
            "rotate: positions must have one entry per token, got 4 for 3 tokens");
  EXPECT_EQ(refuse(positions_per_row(ids.data(), 1, 3, 3)),
            "rotate: positions must be [batch 2, tokens 3], got [3, 3]");
  EXPECT_EQ(refuse(positions_per_row(ids.data(), 3, 2, 3)),
            "rotate: positions must have 1 axes, got 3");
}

TEST_F(RotateRefusals, PositionsThatAreNoNumbersOrTooLarge) {
  std::vector<double> ids = {0.0, std::nan(""), 1.0};
  EXPECT_EQ(refuse(positions_per_token(ids)),
            "rotate: positions must be finite, got nan at index 1");
  ids[1] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(refuse(positions_per_token(ids)),
            "rotate: positions must be finite, got inf at index 1");
  EXPECT_EQ(refuse(positions_from(std::int64_t{1} << 53)),
            "rotate: positions must be below 2^53 in magnitude, got 9007199254740994");
  EXPECT_EQ(refuse(positions_from(std::numeric_limits<std::int64_t>::max())),
            "rotate: positions must be below 2^53 in magnitude, got 9.2233720368547758e+18");
  EXPECT_EQ(refuse(positions_from(std::int64_t{1} << 50)),
            "rotate: position x frequency must be at most 2^48 rad, got position 1125899906842626 "
            "with frequency 1");
}

TEST_F(RotateRefusals, TablesThatDoNotFit) {
  const CosSinTable table = CosSinTable::build(rotary().frequencies, {0, 10});
  EXPECT_EQ(refuse(positions_from(8), {.table = &table}),
            "rotate: positions must lie in the table's [0, 10), got 8 to 10");
  EXPECT_EQ(refuse(positions_from(-1), {.table = &table}),
            "rotate: positions must lie in the table's [0, 10), got -1 to 1");
  const std::vector<double> halves = {0.5, 1.5, 2.5};
  EXPECT_EQ(refuse(positions_per_token(halves), {.table = &table}),
            "rotate: a table serves integer positions, got floats");
  const CosSinTable other = CosSinTable::build(make_frequencies({kDim, 500.0}), {0, 10});
  EXPECT_EQ(refuse(positions_from(0), {.table = &other}),
            "rotate: the table must be built from the same frequencies, got one with 4 pairs and "
            "amplitude 1");
  std::vector<double> wide(kDim);
  const HeadsView f64 = heads_view(wide.data(), 1, 1, 1, kDim);
  EXPECT_EQ(refusal(x_, [&] { rotate(rotary(), positions_from(0), f64, {.table = &table}); }),
            "rotate: a float32 table cannot turn float64 data exactly, expected no table");
  Rotary growing = rotary();
  growing.growth = Growth{{0.1, 0.1, 0.1, 0.1}, 0.0};
  EXPECT_EQ(refusal(x_, [&] { rotate(growing, positions_from(0), view_, {.table = &table}); }),
            "rotate: a table holds no xPos growth, expected no table");
}

TEST_F(RotateRefusals, ShapesThatDisagree) {
  HeadsView wrong = view_;
  wrong.head_dim = 6;
  EXPECT_EQ(refusal(x_, [&] { rotate(rotary(), positions_from(0), wrong); }),
            "rotate: head_dim must be 8, got 6");
  std::vector<float> y(x_.size());
  HeadsView out = heads_view(y.data(), 2, 3, 1, kDim);
  EXPECT_EQ(refusal(y, [&] { rotate(rotary(), positions_from(0), view_, out); }),
            "rotate: input and output shapes must agree, got [2, 3, 2, 8] and [2, 3, 1, 8]");
  HeadsView k = heads_view(y.data(), 2, 2, 1, kDim);
  EXPECT_EQ(
      refusal(x_, [&] { rotate_qk(rotary(), positions_from(0), view_, k); }),
      "rotate: batch and tokens must agree between tensors, got [2, 3, 2, 8] and [2, 2, 1, 8]");
  HeadsView halves = view_;
  halves.data = y.data();
  halves.dtype = DType::f16;
  EXPECT_EQ(refusal(x_, [&] { rotate(rotary(), positions_from(0), view_, halves); }),
            "rotate: all tensors must have one dtype, got f32 and f16");
  HeadsView negative = view_;
  negative.tokens = -1;
  EXPECT_EQ(refusal(x_, [&] { rotate(rotary(), positions_from(0), negative); }),
            "rotate: sizes must not be negative, got [2, -1, 2, 8]");
  EXPECT_EQ(
      refusal(
          x_,
          [&] { rotate(rotary(), positions_from(0), heads_view<float>(nullptr, 1, 1, 1, kDim)); }),
      "rotate: data must not be null, got null for shape [1, 1, 1, 8]");
}

TEST_F(RotateRefusals, ViewsThatOverlap) {
  HeadsView shifted = heads_view(x_.data() + 1, 1, 2, 2, kDim);
  EXPECT_EQ(
      refusal(x_,
              [&] {
                rotate(rotary(), positions_from(0), heads_view(x_.data(), 1, 2, 2, kDim), shifted);
              }),
      "rotate: input and output must be the same view or not overlap, got views that overlap");
  HeadsView transposed = view_;
  std::swap(transposed.token_stride, transposed.head_stride);
  transposed.tokens = 2;
  HeadsView square = view_;
  square.tokens = 2;
  EXPECT_EQ(
      refusal(x_, [&] { rotate(rotary(), positions_from(0), square, transposed); }),
      "rotate: input and output must be the same view or not overlap, got views that overlap");
  HeadsView repeated = view_;
  repeated.head_stride = 0;
  EXPECT_EQ(refusal(x_, [&] { rotate(rotary(), positions_from(0), repeated); }),
            "rotate: an output's elements must be distinct, got strides [48, 16, 0, 1] for shape "
            "[2, 3, 2, 8]");
  EXPECT_EQ(
      refusal(x_, [&] { rotate_qk(rotary(), positions_from(0), view_, view_); }),
      "rotate: tensors of one call must not overlap, got an output that overlaps another tensor");
}

TEST_F(RotateRefusals, PackedBoundariesThatDoNotCoverTheTokens) {
  HeadsView one = heads_view(x_.data(), 1, 6, 2, kDim);
  const auto refuse_packed = [&](const std::vector<std::int64_t>& boundaries, HeadsView view) {
    return refusal(x_, [&] { rotate(rotary(), positions_packed(boundaries), view); });
  };
  EXPECT_EQ(refuse_packed({0, 4}, one),
            "rotate: packed boundaries must run from 0 to the token count 6, got 0 to 4");
  EXPECT_EQ(refuse_packed({1, 6}, one),
            "rotate: packed boundaries must run from 0 to the token count 6, got 1 to 6");
  EXPECT_EQ(refuse_packed({0, 5, 3, 6}, one),
            "rotate: packed boundaries must not decrease, got 5 then 3");
  EXPECT_EQ(refuse_packed({}, one),
            "rotate: packed boundaries must run from 0 to the token count 6, got none");
  EXPECT_EQ(refuse_packed({0, 3}, view_), "rotate: packed sequences need batch 1, got 2");
}

TEST_F(RotateRefusals, ThreadsAndLevelsThatDoNotExist) {
  EXPECT_EQ(refuse(positions_from(0), {.threads = -1}),
            "rotate: threads must not be negative, got -1");
}

}  // namespace
}  // namespace phasor::core
