// KERPLE: the bias of every distance against the formula, and the gradients of r1 and r2 against
// differences.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "encodings/rope/rope_specs.hpp"
#include "phasor/encodings/encoding.hpp"
#include "support/errors.hpp"

namespace phasor::encodings {
namespace {

constexpr std::int64_t kKerpleHeads = 3;

AttentionShape kerple_shape(std::int64_t queries, std::int64_t keys) {
  return {kKerpleHeads, 1, 4, 4, queries, keys};
}

// Parameters in float64, with the float32 numbers that attention in float32 would read.
struct Parameters {
  explicit Parameters(std::vector<double> numbers)
      : wide(std::move(numbers)), narrow(wide.begin(), wide.end()) {}
  [[nodiscard]] Table table() const {
    Table view = row_per_head(narrow.data(), static_cast<std::int64_t>(narrow.size()), 1);
    view.wide = wide.data();
    return view;
  }
  std::vector<double> wide;
  std::vector<float> narrow;
};

// The formula with the plain logarithm, in long double.
long double bias_of(double r1, double r2, std::int64_t distance) {
  const auto p = static_cast<long double>(std::llabs(distance));
  return -static_cast<long double>(r1) * std::log(1.0L + static_cast<long double>(r2) * p);
}

TEST(Kerple, RowsAreTheFormulaRoundedOnce) {
  const Parameters r1({1.2, 0.01, 7.5}), r2({0.5, 2.0, 0.01});
  for (const AttentionShape& shape :
       {kerple_shape(1, 1), kerple_shape(7, 7), kerple_shape(1, 300), kerple_shape(40, 5),
        kerple_shape(0, 0), kerple_shape(0, 9), kerple_shape(9, 0)}) {
    const ScoreTerms terms = resolve(Kerple{r1.table(), r2.table()}, shape);
    EXPECT_NO_THROW(validate(terms, shape));
    EXPECT_EQ(terms.scale, 0.5) << "1 / sqrt(head_dim)";
    ASSERT_TRUE(terms.bias.has_value());
    const auto& [table, map, computed] = *terms.bias;
    EXPECT_EQ(map.outside, RelativeMap::Outside::refuse);
    for (std::int64_t d = 1 - shape.query_tokens; d < shape.key_tokens; ++d) {
      ASSERT_TRUE(map.first <= d && d <= map.last());
      for (std::int64_t h = 0; h < kKerpleHeads; ++h) {
        const auto at = static_cast<std::size_t>(h);
        const long double want = bias_of(r1.wide[at], r2.wide[at], d);
        const double got = table.wide[table.offset(h, map.row_of(d))];
        ASSERT_NEAR(got, static_cast<double>(want), 4e-16 * std::fabs(static_cast<double>(want)))
            << "head " << h << ", distance " << d;
        ASSERT_EQ(*table.row(h, map.row_of(d)), static_cast<float>(got));
      }
    }
  }
}

// The terms own the rows: they outlive the parameters and the terms they were copied from.
TEST(Kerple, CopiesOfTheTermsKeepTheRows) {
  ScoreTerms kept;
  {
    const Parameters r1({2.0}), r2({1.0});
    const ScoreTerms terms = resolve(Kerple{r1.table(), r2.table()}, kerple_shape(3, 3));
    kept = terms;
  }
  EXPECT_EQ(kept.bias->table.heads, 1) << "shared by the heads";
  EXPECT_EQ(*kept.bias->table.row(2, 2), static_cast<float>(-2.0 * std::log(3.0)));
}

TEST(Kerple, CombinesWithRopeAndTakesTheScaleOfOthers) {
  const Parameters r1({2.0}), r2({1.0});
  const Encoding kerple = Kerple{r1.table(), r2.table()};
  const std::vector<Encoding> both = {kerple, testing::spec_of(4, 10000.0), Alibi{}};
  const ScoreTerms terms = resolve(both, kerple_shape(3, 3));
  EXPECT_TRUE(terms.rotation && terms.bias);
  EXPECT_EQ(terms.slopes.size(), 3U);
  const std::vector<float> numbers(64);
  const Tupe tupe{heads_then_rows(numbers.data(), 1, 3, 4),
                  heads_then_rows(numbers.data(), 1, 3, 4)};
  const std::vector<Encoding> scaled = {kerple, tupe};
  EXPECT_EQ(resolve(scaled, kerple_shape(3, 3)).scale, resolve(tupe, kerple_shape(3, 3)).scale);
  const std::vector<Encoding> twice = {kerple, kerple};
  tests::expect_error(ErrorCode::unsupported, {"kerple", "bias"},
                      [&] { return resolve(twice, kerple_shape(3, 3)); });
}

// sum(weights * bias) by the rows of resolve().
double weighted(const Parameters& r1, const Parameters& r2, const std::vector<double>& weights,
                std::int64_t rows) {
  const ScoreTerms terms = resolve(Kerple{r1.table(), r2.table()}, kerple_shape(rows, rows));
  const Table& table = terms.bias->table;
  double sum = 0.0;
  for (std::int64_t h = 0; h < kKerpleHeads; ++h) {
    for (std::int64_t p = 0; p < rows; ++p)
      sum += weights[static_cast<std::size_t>(h * rows + p)] * table.wide[table.offset(h, p)];
  }
  return sum;
}

TEST(Kerple, BackwardIsTheDifferenceQuotient) {
  constexpr std::int64_t kRows = 12;
  std::vector<double> weights;
  for (std::int64_t i = 0; i < kKerpleHeads * kRows; ++i)
    weights.push_back(std::sin(1.0 + 3.7 * static_cast<double>(i)));
  // A parameter per head, and one that the heads share.
  for (const bool shared : {false, true}) {
    const Parameters r1({1.2, 0.3, 4.0});
    const Parameters r2(shared ? std::vector<double>{0.7} : std::vector<double>{0.5, 2.0, 0.05});
    TableGradient d_rows = heads_then_rows<float>(nullptr, kKerpleHeads, kRows, 1);
    d_rows.wide = weights.data();
    std::vector<double> got1(r1.wide.size(), 10.0), got2(r2.wide.size(), 20.0);
    TableGradient d_r1 = row_per_head<float>(nullptr, kKerpleHeads, 1);
    TableGradient d_r2 = row_per_head<float>(nullptr, static_cast<std::int64_t>(got2.size()), 1);
    d_r1.wide = got1.data();
    d_r2.wide = got2.data();
    kerple_backward({r1.table(), r2.table()}, d_rows, d_r1, d_r2);
    constexpr double kStep = 1e-5;
    const auto slope = [&](const Parameters& of, std::size_t head, const auto& value) {
      std::vector<double> up = of.wide, down = of.wide;
      up[head] += kStep;
      down[head] -= kStep;
      return (value(Parameters(up)) - value(Parameters(down))) / (2.0 * kStep);
    };
    for (std::size_t h = 0; h < got1.size(); ++h) {
      const double want = slope(
          r1, h, [&](const Parameters& moved) { return weighted(moved, r2, weights, kRows); });
      EXPECT_NEAR(got1[h] - 10.0, want, 1e-8) << "added to r1 of head " << h;
    }
    for (std::size_t h = 0; h < got2.size(); ++h) {
      const double want = slope(
          r2, h, [&](const Parameters& moved) { return weighted(r1, moved, weights, kRows); });
      EXPECT_NEAR(got2[h] - 20.0, want, 1e-7) << "added to r2 of head " << h;
    }
    // In float32, and only the one that is wanted.
    const std::vector<float> rounded(weights.begin(), weights.end());
    std::vector<float> narrow_rows = rounded, narrow(got1.size());
    kerple_backward({r1.table(), r2.table()},
                    heads_then_rows(narrow_rows.data(), kKerpleHeads, kRows, 1),
                    row_per_head(narrow.data(), kKerpleHeads, 1), {});
    for (std::size_t h = 0; h < got1.size(); ++h) EXPECT_NEAR(narrow[h], got1[h] - 10.0, 1e-5);
  }
}

TEST(Kerple, RefusesParametersWithTheirValues) {
  const Parameters good({1.0, 2.0, 3.0});
  const auto refused = [&](ErrorCode code, std::initializer_list<std::string_view> values,
                           const Table& r1, const Table& r2) {
    tests::expect_error(code, values, [&] { return resolve(Kerple{r1, r2}, kerple_shape(3, 3)); });
  };
  const Parameters zero({1.0, 0.0, 3.0}), negative({1.0, 2.0, -0.25}), two({1.0, 2.0});
  const Parameters infinite({std::numeric_limits<double>::infinity()});
  const Parameters huge({3e38});
  refused(ErrorCode::shape_mismatch, {"r1", "missing"}, {}, good.table());
  refused(ErrorCode::shape_mismatch, {"r2", "3", "2"}, good.table(), two.table());
  refused(ErrorCode::invalid_argument, {"r1", "got 0", "head 1"}, zero.table(), good.table());
  refused(ErrorCode::invalid_argument, {"r2", "-0.25", "head 2"}, good.table(), negative.table());
  refused(ErrorCode::invalid_argument, {"r2", "inf"}, good.table(), infinite.table());
  refused(ErrorCode::out_of_range, {"float32", "distance 2"}, huge.table(), huge.table());
}

TEST(Kerple, BackwardRefusesOtherShapesBeforeItWrites) {
  const Parameters r1({1.0, 2.0, 3.0}), r2({1.0});
  std::vector<float> rows(12, 1.0F), out(3, 5.0F);
  const Kerple kerple{r1.table(), r2.table()};
  const auto refused = [&](std::initializer_list<std::string_view> values,
                           const TableGradient& d_rows, const TableGradient& d_r2) {
    tests::expect_error(ErrorCode::shape_mismatch, values, [&] {
      kerple_backward(kerple, d_rows, row_per_head(out.data(), 3, 1), d_r2);
      return 0;
    });
  };
  refused({"d_rows", "[3, 6, 1]", "[2, 6, 1]"}, heads_then_rows(rows.data(), 2, 6, 1), {});
  refused({"d_rows", "missing"}, heads_then_rows<float>(nullptr, 3, 4, 1), {});
  refused({"d_r2", "[1, 1, 1]", "[3, 1, 1]"}, heads_then_rows(rows.data(), 3, 4, 1),
          row_per_head(out.data(), 3, 1));
  EXPECT_EQ(out, std::vector<float>(3, 5.0F));
}

}  // namespace
}  // namespace phasor::encodings
