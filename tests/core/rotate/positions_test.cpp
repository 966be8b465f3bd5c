#include "phasor/core/positions.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "phasor/core/internal/positions.hpp"
#include "phasor/core/rotate.hpp"
#include "support/errors.hpp"

namespace phasor::core {
namespace {

using OneRow = PositionsShape::OneRow;
using Integers = std::vector<std::int64_t>;

Integers counted(std::int64_t count, std::int64_t first = 0) {
  Integers numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

TEST(Positions, ShapeOfEachKind) {
  const Integers numbers = counted(24);
  const std::vector<double> floats = {0.5, 1.5, 2.5};
  EXPECT_EQ(positions_counted(5, 4).shape(), (Integers{4}));
  EXPECT_EQ(positions_counted(5, 0).shape(), (Integers{0}));
  EXPECT_EQ(positions_per_token(floats).shape(), (Integers{3}));
  EXPECT_EQ(positions_of_shape(numbers.data(), Integers{24}).shape(), (Integers{24}));
  EXPECT_EQ(positions_of_shape(numbers.data(), Integers{4, 6}).shape(), (Integers{4, 6}));
  EXPECT_EQ(positions_of_shape(numbers.data(), Integers{3, 2, 4}).shape(), (Integers{3, 2, 4}));
  EXPECT_EQ(positions_of_shape(numbers.data(), Integers{0, 4}).shape(), (Integers{0, 4}));
  EXPECT_EQ(positions_packed(Integers{0, 2, 2, 7}).shape(), (Integers{7}));
}

TEST(Positions, AtAgreesWithTheCursor) {
  const Integers numbers = counted(24, 100), boundaries = {0, 2, 2, 8};
  std::vector<double> floats(numbers.begin(), numbers.end());
  for (double& value : floats) value += 0.25;
  struct Case {
    Positions positions;
    int axes;
    std::int64_t batch, tokens;
  };
  const std::vector<Case> cases = {
      {positions_from(-3), 3, 2, 4},
      {positions_counted(7, 4), 2, 3, 4},
      {positions_per_token(std::span(numbers).first(4)), 3, 2, 4},
      {positions_per_token(std::span(floats).first(4)), 1, 2, 4},
      {positions_per_row(numbers.data(), 3, 2, 4), 3, 2, 4},
      {positions_per_row(floats.data(), 3, 2, 4), 3, 2, 4},
      {positions_per_row(floats.data(), 3, 0, 8), 3, 2, 8},
      {positions_per_row(floats.data(), 1, 2, 4), 3, 2, 4},
      {positions_packed(boundaries, 10), 2, 1, 8},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& [positions, axes, batch, tokens] = cases[i];
    const PositionBounds bounds = check_positions(positions, axes, batch, tokens);
    PositionCursor cursor(positions, axes, tokens, 0);
    double largest = -1e300;
    for (std::int64_t row = 0; row < batch; ++row) {
      for (std::int64_t token = 0; token < tokens; ++token) {
        double expected[kMaxAxes];
        cursor.next(expected);
        for (int axis = 0; axis < axes; ++axis) {
          EXPECT_EQ(positions.at(axis, row, token), expected[axis])
              << "case " << i << " at [" << axis << ", " << row << ", " << token << "]";
          largest = std::max(largest, expected[axis]);
        }
      }
    }
    EXPECT_EQ(positions.largest(tokens), largest) << "case " << i;
    EXPECT_EQ(bounds.high, largest) << "case " << i;
  }
}

TEST(Positions, Largest) {
  EXPECT_EQ(positions_from(5).largest(3), 7.0);
  EXPECT_EQ(positions_from(5).largest(0), std::nullopt);
  EXPECT_EQ(positions_counted(-9, 5).largest(), -5.0);
  EXPECT_EQ(positions_counted(4, 0).largest(), std::nullopt);
  EXPECT_EQ(positions_per_token(std::span<const double>()).largest(), std::nullopt);
  EXPECT_EQ(positions_packed(Integers{0, 0}).largest(), std::nullopt);
}

TEST(Positions, OwnTheirNumbersWhenAVectorIsGiven) {
  std::optional<Positions> made = positions_of_shape(counted(6, 40), Integers{2, 3});
  const Positions copy = *made;
  EXPECT_EQ(copy.integers, made->integers) << "a copy shares the numbers";
  made.reset();
  EXPECT_EQ(copy.at(0, 1, 2), 45.0);
  const Positions view = positions_per_token(std::span<const double>());
  EXPECT_EQ(view.keeper, nullptr);
}

TEST(Positions, RefuseShapesThatAreNone) {
  const Integers numbers = counted(24);
  const auto refused = [&](const Integers& shape, std::string_view text) {
    phasor::tests::expect_error(ErrorCode::shape_mismatch, {text},
                                [&] { return positions_of_shape(numbers.data(), shape); });
  };
  refused({}, "[]");
  refused({2, 3, 2, 2}, "[2, 3, 2, 2]");
  refused({kMaxAxes + 1, 1, 2}, "[9, 1, 2]");
  refused({-1, 2}, "[-1, 2]");
  phasor::tests::expect_error(ErrorCode::shape_mismatch, {"[4]", "3"},
                              [] { return positions_of_shape(counted(3), Integers{4}); });
}

TEST(Positions, RangesAreChecked) {
  phasor::tests::expect_error(ErrorCode::invalid_argument, {"-1"},
                              [] { return positions_counted(7, -1); });
  const std::int64_t far = std::int64_t{1} << 53;
  EXPECT_EQ(positions_counted(far - 1, 1).largest(), kMaxPosition - 1.0);
  phasor::tests::expect_error(ErrorCode::out_of_range, {"9007199254740994"},
                              [=] { return positions_counted(0, far + 2); });
  phasor::tests::expect_error(ErrorCode::out_of_range, {"-9223372036854775808"}, [] {
    return positions_counted(std::numeric_limits<std::int64_t>::min(), 1);
  });
}

// The shapes that fit, and what the axes, rows and tokens of each one are.
TEST(Positions, FitTheShapeOfACall) {
  const Integers numbers = counted(24);
  const auto fit = [&](const Integers& shape, const PositionsShape& wanted) {
    return fit_positions(positions_of_shape(numbers.data(), shape), wanted);
  };
  // text
  EXPECT_EQ(fit({5}, {1, std::nullopt, 5}).at(0, 0, 4), 4.0);
  EXPECT_EQ(fit({1, 5}, {1, std::nullopt, 5}).at(0, 0, 4), 4.0);
  EXPECT_EQ(fit({5}, {1, 2, 5}).at(0, 1, 4), 4.0);
  EXPECT_EQ(fit({2, 5}, {1, 2, 5}).at(0, 1, 4), 9.0);
  // M-RoPE
  EXPECT_EQ(fit({5}, {3, 2, 5}).at(2, 1, 4), 4.0);
  EXPECT_EQ(fit({2, 4}, {3, 2, 4}).at(2, 1, 3), 7.0);
  EXPECT_EQ(fit({3, 5}, {3, std::nullopt, 5}).at(2, 0, 4), 14.0);
  EXPECT_EQ(fit({3, 1, 5}, {3, std::nullopt, 5}).at(2, 0, 4), 14.0);
  EXPECT_EQ(fit({3, 2, 4}, {3, 2, 4}).at(2, 1, 3), 23.0);
  // images
  EXPECT_EQ(fit({2, 5}, {2, std::nullopt, 5, OneRow::serves_one_axis}).at(1, 0, 4), 9.0);
  // no batch row, and offsets that count as many tokens as there are
  EXPECT_EQ(fit({0, 5}, {1, 0, 5}).largest(), std::nullopt);
  EXPECT_EQ(fit_positions(positions_from(3), {3, 2, 5}).at(2, 1, 4), 7.0);
  EXPECT_EQ(fit_positions(positions_counted(3, 5), {3, 2, 5}).at(2, 1, 4), 7.0);
}

TEST(Positions, RefuseAnotherShapeAndNameTheShapesThatFit) {
  const Integers numbers = counted(24);
  const auto refused = [&](const Integers& shape, const PositionsShape& wanted,
                           std::initializer_list<std::string_view> values) {
    phasor::tests::expect_error(ErrorCode::shape_mismatch, values, [&] {
      return fit_positions(positions_of_shape(numbers.data(), shape), wanted);
    });
  };
  refused({4}, {1, 2, 5}, {"[4]", "[5]", "[2, 5]"});
  refused({3, 5}, {1, 2, 5}, {"[3, 5]", "[5]", "[2, 5]"});
  refused({3, 5}, {3, 2, 5}, {"[3, 5]", "[5]", "[2, 5]", "[3, 2, 5]"});
  refused({2, 2, 5}, {3, 2, 5}, {"[2, 2, 5]", "[3, 2, 5]"});
  refused({5}, {2, std::nullopt, 5, OneRow::serves_one_axis}, {"[5]", "[2, 5]", "[2, 1, 5]"});
  phasor::tests::expect_error(ErrorCode::shape_mismatch, {"[4]", "[5]"}, [] {
    return fit_positions(positions_counted(0, 4), {1, std::nullopt, 5});
  });
}

TEST(Positions, CheckedAgainstACall) {
  const Integers numbers = counted(24);
  const auto refused = [](const Positions& positions, std::int64_t batch, std::int64_t tokens,
                          std::initializer_list<std::string_view> values) {
    phasor::tests::expect_error(ErrorCode::shape_mismatch, values,
                                [&] { return check_positions(positions, 1, batch, tokens); });
  };
  refused(positions_counted(0, 4), 2, 5, {"[4]", "2", "5"});
  refused(positions_counted(4, 0), 2, 5, {"[0]", "5"});
  refused(positions_of_shape(numbers.data(), Integers{0, 5}), 2, 5, {"[0, 5]", "2"});
  refused(positions_of_shape(numbers.data(), Integers{3, 5}), 2, 5, {"[3, 5]", "2"});
  refused(positions_of_shape(numbers.data(), Integers{3, 2, 4}), 2, 4, {"3", "1"});
  const PositionBounds none =
      check_positions(positions_of_shape(numbers.data(), Integers{0, 5}), 1, 0, 5);
  EXPECT_EQ(none.low, 0.0);
  EXPECT_EQ(none.high, 0.0);
  const PositionBounds floats =
      check_positions(positions_of_shape(std::vector<double>{2.5, -1.0}, Integers{2}), 3, 4, 2);
  EXPECT_EQ(floats.low, -1.0);
  EXPECT_EQ(floats.high, 2.5);
  EXPECT_FALSE(floats.integral);
}

TEST(Positions, TokensAndLastTokens) {
  const Positions grid = positions_of_shape(counted(24), Integers{3, 2, 4});
  double token[2];
  grid.read_token(1, 3, token);
  EXPECT_EQ(token[0], 7.0);
  EXPECT_EQ(token[1], 15.0);

  const Positions last = grid.last_tokens(3);
  EXPECT_EQ(last.shape(), (Integers{3, 2, 3}));
  EXPECT_EQ(last.at(2, 1, 0), 21.0);
  EXPECT_EQ(positions_counted(5, 10).last_tokens(2).at(0, 0, 1), 14.0);
  EXPECT_EQ(positions_counted(5, 10).last_tokens(0).shape(), (Integers{0}));
  EXPECT_EQ(positions_packed(Integers{0, 2, 5}).last_tokens(4).at(0, 0, 0), 1.0);
  EXPECT_EQ(positions_per_token(std::vector<double>{0.5, 1.5}).last_tokens(1).shape(),
            (Integers{1}));
  phasor::tests::expect_error(ErrorCode::shape_mismatch, {"5", "4"},
                              [&] { return grid.last_tokens(5); });
}

}  // namespace
}  // namespace phasor::core
