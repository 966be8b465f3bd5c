#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "core/rotate/rotate_support.hpp"
#include "support/errors.hpp"

namespace phasor::core {
namespace {

constexpr std::int64_t kDim = 8;

Rotary rotary() { return {make_frequencies({kDim, 10000.0}), PairLayout::half, kDim}; }

// Expects Error(code) with these values in its message, and not a byte of the output changed.
template <class Call>
void expect_refusal(std::vector<float>& buffer, ErrorCode code,
                    std::initializer_list<std::string_view> values, const Call& call) {
  const std::vector<float> before = buffer;
  phasor::tests::expect_error(code, values, call);
  EXPECT_EQ(buffer, before) << "written before the call was refused";
}

constexpr ErrorCode kShape = ErrorCode::shape_mismatch;
constexpr ErrorCode kInvalid = ErrorCode::invalid_argument;
constexpr ErrorCode kRange = ErrorCode::out_of_range;
constexpr ErrorCode kUnsupported = ErrorCode::unsupported;

class RotateRefusals : public testing::Test {
 protected:
  std::vector<float> x_ = std::vector<float>(2 * 3 * 2 * kDim, 1.5F);
  HeadsView view_ = heads_view(x_.data(), 2, 3, 2, kDim);
  void refused(ErrorCode code, std::initializer_list<std::string_view> values,
               const Positions& positions, const RotateOptions& options = {}) {
    expect_refusal(x_, code, values, [&] { rotate(rotary(), positions, view_, options); });
  }
};

TEST_F(RotateRefusals, ViewsThatReachFurtherThanMemory) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  const HeadsView good = view_;
  for (const auto member :
       {&HeadsView::batch_stride, &HeadsView::token_stride, &HeadsView::head_stride}) {
    for (const std::int64_t stride : {kHuge, -kHuge, kHuge / 2, kLeast}) {
      view_ = good;
      view_.*member = stride;
      refused(kRange, {"2^56", std::to_string(stride)}, positions_from(0));
      const HeadsView odd = view_;
      expect_refusal(x_, kRange, {std::to_string(stride)},
                     [&] { rotate(rotary(), positions_from(0), odd, good); });
    }
  }
  view_ = good;
  view_.batch = view_.tokens = std::int64_t{1} << 40;
  view_.batch_stride = view_.token_stride = 0;
  refused(kRange, {"1099511627776"}, positions_from(0));
  const float rows[8] = {};
  CosSinRows given{.cos = rows, .sin = rows, .dtype = DType::f32, .pairs = kDim / 2};
  given.pair_stride = 1;
  given.token_stride = kHuge;
  expect_refusal(x_, kRange, {"2^56", std::to_string(kHuge)}, [&] {
    const Rotation rotation{good, good, Role::query};
    rotate_by(given, PairLayout::half, 0, {&rotation, 1});
  });
  // Without a head, tokens take no time.
  view_ = good;
  view_.heads = 0;
  view_.tokens = std::int64_t{1} << 40;
  EXPECT_NO_THROW(rotate(rotary(), positions_from(0), view_));
  // A stride that is never used may have any value.
  view_ = heads_view(x_.data(), 1, 3, 1, kDim);
  view_.batch_stride = kLeast;
  view_.head_stride = kHuge;
  EXPECT_NO_THROW(rotate(rotary(), positions_from(0), view_));
}

TEST_F(RotateRefusals, PositionsOfTheWrongShape) {
  const std::vector<std::int64_t> ids(18, 1);
  refused(kShape, {"[4]", "tokens 3"}, positions_per_token(std::span(ids).first(4)));
  refused(kShape, {"[3, 3]", "batch 2"}, positions_per_row(ids.data(), 1, 3, 3));
  refused(kShape, {"3 axes", "1"}, positions_per_row(ids.data(), 3, 2, 3));
}

TEST_F(RotateRefusals, PositionsThatAreNoNumbersOrTooLarge) {
  std::vector<double> ids = {0.0, std::nan(""), 1.0};
  refused(kInvalid, {"nan", "index 1"}, positions_per_token(ids));
  ids[1] = std::numeric_limits<double>::infinity();
  refused(kInvalid, {"inf", "index 1"}, positions_per_token(ids));
  refused(kRange, {"2^53", "9007199254740994"}, positions_from(std::int64_t{1} << 53));
  refused(kRange, {"2^53", "9.2233720368547758e+18"},
          positions_from(std::numeric_limits<std::int64_t>::max()));
  refused(kRange, {"2^48", "1125899906842626", "frequency 1"},
          positions_from(std::int64_t{1} << 50));
}

TEST_F(RotateRefusals, TablesThatDoNotFit) {
  const CosSinTable table = CosSinTable::build(rotary().frequencies, {0, 10});
  refused(kRange, {"[0, 10)", "8", "10"}, positions_from(8), {.table = &table});
  refused(kRange, {"[0, 10)", "-1", "1"}, positions_from(-1), {.table = &table});
  const std::vector<double> halves = {0.5, 1.5, 2.5};
  refused(kUnsupported, {"table", "float"}, positions_per_token(halves), {.table = &table});
  const CosSinTable other = CosSinTable::build(make_frequencies({kDim, 500.0}), {0, 10});
  refused(kInvalid, {"table", "4 pairs", "amplitude 1"}, positions_from(0), {.table = &other});
  std::vector<double> wide(kDim);
  const HeadsView f64 = heads_view(wide.data(), 1, 1, 1, kDim);
  expect_refusal(x_, kUnsupported, {"table", "float64"},
                 [&] { rotate(rotary(), positions_from(0), f64, {.table = &table}); });
  Rotary growing = rotary();
  growing.growth = Growth{{0.1, 0.1, 0.1, 0.1}, 0.0};
  expect_refusal(x_, kUnsupported, {"table", "xPos"},
                 [&] { rotate(growing, positions_from(0), view_, {.table = &table}); });
}

TEST_F(RotateRefusals, ShapesThatDisagree) {
  HeadsView wrong = view_;
  wrong.head_dim = 6;
  expect_refusal(x_, kShape, {"head_dim", "8", "6"},
                 [&] { rotate(rotary(), positions_from(0), wrong); });
  std::vector<float> y(x_.size());
  HeadsView out = heads_view(y.data(), 2, 3, 1, kDim);
  expect_refusal(y, kShape, {"[2, 3, 2, 8]", "[2, 3, 1, 8]"},
                 [&] { rotate(rotary(), positions_from(0), view_, out); });
  HeadsView k = heads_view(y.data(), 2, 2, 1, kDim);
  expect_refusal(x_, kShape, {"[2, 3, 2, 8]", "[2, 2, 1, 8]"},
                 [&] { rotate_qk(rotary(), positions_from(0), view_, k); });
  HeadsView halves = view_;
  halves.data = y.data();
  halves.dtype = DType::f16;
  expect_refusal(x_, kShape, {"dtype", "f32", "f16"},
                 [&] { rotate(rotary(), positions_from(0), view_, halves); });
  HeadsView negative = view_;
  negative.tokens = -1;
  expect_refusal(x_, kShape, {"[2, -1, 2, 8]"},
                 [&] { rotate(rotary(), positions_from(0), negative); });
  expect_refusal(x_, kInvalid, {"null", "[1, 1, 1, 8]"}, [&] {
    rotate(rotary(), positions_from(0), heads_view<float>(nullptr, 1, 1, 1, kDim));
  });
}

TEST_F(RotateRefusals, ViewsThatOverlap) {
  HeadsView shifted = heads_view(x_.data() + 1, 1, 2, 2, kDim);
  expect_refusal(x_, kInvalid, {"input and output", "overlap"}, [&] {
    rotate(rotary(), positions_from(0), heads_view(x_.data(), 1, 2, 2, kDim), shifted);
  });
  HeadsView transposed = view_;
  std::swap(transposed.token_stride, transposed.head_stride);
  transposed.tokens = 2;
  HeadsView square = view_;
  square.tokens = 2;
  expect_refusal(x_, kInvalid, {"input and output", "overlap"},
                 [&] { rotate(rotary(), positions_from(0), square, transposed); });
  HeadsView repeated = view_;
  repeated.head_stride = 0;
  expect_refusal(x_, kInvalid, {"[48, 16, 0, 1]", "[2, 3, 2, 8]"},
                 [&] { rotate(rotary(), positions_from(0), repeated); });
  expect_refusal(x_, kInvalid, {"another tensor", "overlap"},
                 [&] { rotate_qk(rotary(), positions_from(0), view_, view_); });
}

TEST_F(RotateRefusals, PackedBoundariesThatDoNotCoverTheTokens) {
  HeadsView one = heads_view(x_.data(), 1, 6, 2, kDim);
  const auto packed = [&](ErrorCode code, std::initializer_list<std::string_view> values,
                          const std::vector<std::int64_t>& boundaries, HeadsView view) {
    expect_refusal(x_, code, values, [&] { rotate(rotary(), positions_packed(boundaries), view); });
  };
  packed(kShape, {"boundaries", "6", "0 to 4"}, {0, 4}, one);
  packed(kShape, {"boundaries", "6", "1 to 6"}, {1, 6}, one);
  packed(kInvalid, {"boundaries", "5", "3"}, {0, 5, 3, 6}, one);
  packed(kShape, {"boundaries", "6 tokens"}, {}, one);
  packed(kShape, {"packed", "batch 1", "2"}, {0, 3}, view_);
}

TEST_F(RotateRefusals, ThreadsBelowZero) {
  refused(kInvalid, {"threads", "-1"}, positions_from(0), {.threads = -1});
  view_ = heads_view(x_.data(), 1, 1, 2, kDim);  // a decode step has its own path
  refused(kInvalid, {"threads", "-1"}, positions_from(0), {.threads = -1});
}

}  // namespace
}  // namespace phasor::core
