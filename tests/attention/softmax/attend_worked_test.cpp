// Attention in float64 on problems that are worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attention/softmax/attend_support.hpp"
#include "phasor/core/error.hpp"

namespace phasor::attention::tests {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// One batch row, one head, tokens x dim.
struct Matrix {
  std::int64_t tokens, dim;
  std::vector<double> values;
  [[nodiscard]] core::ConstHeadsView view() const {
    return core::heads_view(values.data(), 1, tokens, 1, dim);
  }
};
// attend() in float64; its extras are rounded to float32.
struct Worked {
  std::vector<double> out, log_sum_exp;
  std::vector<float> scores, capped_scores, masked_scores, probabilities;
};
Worked attend_f64(const ScoreTerms& terms, const Matrix& q, const Matrix& k, const Matrix& v,
                  const AttentionOptions& options = {}) {
  const auto pairs = static_cast<std::size_t>(q.tokens * k.tokens);
  Worked got{std::vector<double>(static_cast<std::size_t>(q.tokens * v.dim)),
             std::vector<double>(static_cast<std::size_t>(q.tokens)),
             std::vector<float>(pairs),
             std::vector<float>(pairs),
             std::vector<float>(pairs),
             std::vector<float>(pairs)};
  attend(terms, q.view(), k.view(), v.view(),
         core::heads_view(got.out.data(), 1, q.tokens, 1, v.dim), options,
         {.scores = got.scores.data(),
          .capped_scores = got.capped_scores.data(),
          .masked_scores = got.masked_scores.data(),
          .probabilities = got.probabilities.data(),
          .wide_log_sum_exp = got.log_sum_exp.data()});
  return got;
}

void expect_doubles(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_DOUBLE_EQ(got[i], expected[i]) << i;
}
void expect_floats(const std::vector<float>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_FLOAT_EQ(got[i], static_cast<float>(expected[i])) << i;
  }
}

// Scores ln 1, ln 2, ln 3: the probabilities are 1/6, 2/6, 3/6.
const Matrix kOneQuery{1, 2, {1.0, 0.0}};
const Matrix kThreeKeys{3, 2, {0.0, 5.0, std::log(2.0), -1.0, std::log(3.0), 7.0}};
const Matrix kThreeValues{3, 1, {6.0, 60.0, 600.0}};

TEST(AttendWorked, WeighsValuesByTheSoftmaxOfTheScores) {
  const Worked got = attend_f64({}, kOneQuery, kThreeKeys, kThreeValues);
  expect_floats(got.probabilities, {1.0 / 6, 2.0 / 6, 3.0 / 6});
  expect_doubles(got.out, {1.0 + 20.0 + 300.0});
  expect_doubles(got.log_sum_exp, {std::log(6.0)});
  expect_floats(got.scores, {0.0, std::log(2.0), std::log(3.0)});
}

TEST(AttendWorked, TakesTheCallersScaleBeforeTheEncodings) {
  ScoreTerms terms;
  terms.scale = 7.0;
  const auto got = attend_f64(terms, kOneQuery, kThreeKeys, kThreeValues, {.scale = 2.0});
  expect_floats(got.probabilities, {1.0 / 14, 4.0 / 14, 9.0 / 14});  // e^(2 ln j) = j^2
}

TEST(AttendWorked, CapsScoresBeforeItMasksThem) {
  const std::vector<float> mask = {0.0F, -std::numeric_limits<float>::infinity(), 0.5F};
  AttentionOptions options{.soft_cap = 0.5};
  options.mask = additive_mask(mask.data(), std::vector<std::int64_t>{1, 3}, 1, 1, 1, 3);
  const auto got = attend_f64({}, kOneQuery, kThreeKeys, kThreeValues, options);
  const double third = 0.5 * std::tanh(std::log(3.0) / 0.5);
  expect_floats(got.capped_scores, {0.0, 0.5 * std::tanh(std::log(2.0) / 0.5), third});
  expect_floats(got.masked_scores, {0.0, kHidden, third + 0.5});
  const double sum = 1.0 + std::exp(third + 0.5);
  expect_floats(got.probabilities, {1.0 / sum, 0.0, std::exp(third + 0.5) / sum});
}

// With q = 0 and a bias of its own for each distance, scores are the distances.
class Distances : public ::testing::Test {
 protected:
  // b[distance] = distance for -9 .. 9.
  Distances() {
    for (int distance = -9; distance <= 9; ++distance) {
      values_.push_back(static_cast<float>(distance));
      map_.rows.push_back(distance + 9);
    }
    map_.first = -9;
    terms_.bias = {encodings::shared_rows<const float>(values_.data(), 19, 1), map_};
  }
  [[nodiscard]] Worked attend(std::int64_t queries, std::int64_t keys,
                              const AttentionOptions& options) const {
    const Matrix q{queries, 1, std::vector<double>(static_cast<std::size_t>(queries), 0.0)};
    const Matrix k{keys, 1, std::vector<double>(static_cast<std::size_t>(keys), 1.0)};
    return attend_f64(terms_, q, k, k, options);
  }
  std::vector<float> values_;
  encodings::RelativeMap map_;
  ScoreTerms terms_;
};

TEST_F(Distances, LastQueryIsAtTheLastKey) {
  const auto got = attend(2, 4, {.causality = Causality::bottom_right});
  EXPECT_EQ(got.scores, (std::vector<float>{2, 1, 0, -1, 3, 2, 1, 0}));
  EXPECT_EQ(got.masked_scores, (std::vector<float>{2, 1, 0, kHidden, 3, 2, 1, 0}));
}

TEST_F(Distances, QueriesBeforeTheFirstKeySeeNothing) {
  const auto got = attend(3, 1, {.causality = Causality::bottom_right});
  EXPECT_EQ(got.scores, (std::vector<float>{-2, -1, 0}));
  EXPECT_EQ(got.out, (std::vector<double>{0, 0, 1}));
  EXPECT_EQ(got.log_sum_exp, (std::vector<double>{kHidden, kHidden, 0.0}));
  EXPECT_EQ(got.probabilities, (std::vector<float>{0, 0, 1}));
}

TEST_F(Distances, WindowCountsBothWays) {
  const auto got = attend(3, 3, {.window = 2});
  EXPECT_EQ(got.masked_scores, (std::vector<float>{0, -1, kHidden, 1, 0, -1, kHidden, 1, 0}));
}

TEST_F(Distances, KeyLengthsMoveTheQueries) {
  const std::vector<std::int64_t> lengths = {3};
  const auto got = attend(2, 5, {.causality = Causality::bottom_right, .key_lengths = lengths});
  EXPECT_EQ(got.masked_scores,
            (std::vector<float>{1, 0, kHidden, kHidden, kHidden, 2, 1, 0, kHidden, kHidden}));
}

TEST_F(Distances, KeyPaddingMovesNoQuery) {
  const std::vector<std::uint8_t> padding = {0, 1, 1};
  const auto got = attend(2, 3, {.key_padding = padding});
  EXPECT_EQ(got.masked_scores, (std::vector<float>{kHidden, 0, -1, kHidden, 1, 0}));
}

TEST_F(Distances, PackedSequencesStartAtZeroAndDoNotMeet) {
  const std::vector<std::int64_t> queries = {0, 1, 3}, keys = {0, 2, 4};
  const auto got = attend(3, 4, {.query_boundaries = queries, .key_boundaries = keys});
  EXPECT_EQ(got.masked_scores, (std::vector<float>{1, 0, kHidden, kHidden,   //
                                                   kHidden, kHidden, 0, -1,  //
                                                   kHidden, kHidden, 1, 0}));
}

TEST_F(Distances, FirstTokensHaveTheirOwnPositionPart) {
  const float row = 20.0F, column = 30.0F;
  terms_.first_row = encodings::shared_rows(&row, 1, 1);
  terms_.first_column = encodings::shared_rows(&column, 1, 1);
  EXPECT_EQ(attend(2, 2, {}).scores, (std::vector<float>{20, 20, 30, 0}));
  // One key of the past: no query is at position 0.
  EXPECT_EQ(attend(1, 2, {}).scores, (std::vector<float>{30, 0}));
}

TEST_F(Distances, RefusesDistancesWithoutARowWhereTheyAreSeen) {
  terms_.bias->map.outside = RelativeMap::Outside::refuse;
  EXPECT_NO_THROW(static_cast<void>(attend(10, 10, {})));
  EXPECT_THROW(static_cast<void>(attend(11, 11, {})), Error);
  EXPECT_NO_THROW(static_cast<void>(attend(11, 11, {.window = 10})));
}

TEST(AttendWorked, ReadsTheRowsOfTheTermsByDistance) {
  // All ones: a score counts 1 for each of q.k and A, 10 for B and 100 for E.
  const std::vector<float> a = {1.0F, 2.0F, 3.0F}, b = {10.0F, 20.0F, 30.0F}, e = {100.0F, 200.0F};
  const std::vector<float> c = {1000.0F, 2000.0F, 3000.0F};
  const RelativeMap map{-1, {0, 1, 2}, RelativeMap::Outside::clamp};
  ScoreTerms terms;
  terms.query_rows = {encodings::shared_rows(a.data(), 3, 1), map};
  terms.key_rows = {encodings::shared_rows(b.data(), 3, 1), map};
  terms.value_rows = {encodings::shared_rows(c.data(), 3, 1), map};
  terms.segment_rows = encodings::shared_rows(e.data(), 2, 1);
  terms.scale = 0.5;
  const std::vector<std::int32_t> query_segments = {0, 0, 1}, key_segments = {0, 1, 1};
  const AttentionOptions options{.query_segments = query_segments, .key_segments = key_segments};
  const Matrix ones{3, 1, {1.0, 1.0, 1.0}}, zeros{3, 1, {0.0, 0.0, 0.0}};
  const auto got = attend_f64(terms, ones, ones, zeros, options);
  // Distances 0 -1 -2 / 1 0 -1 / 2 1 0 read rows 1 0 0 / 2 1 0 / 2 2 1; plus q.k = 1.
  expect_floats(got.scores, {0.5 * 123, 0.5 * 212, 0.5 * 212,  //
                             0.5 * 134, 0.5 * 223, 0.5 * 212,  //
                             0.5 * 234, 0.5 * 134, 0.5 * 123});
  // Each row's largest score wins by e^5 and more: the value row that it reads.
  EXPECT_NEAR(got.out[2], 3000.0, 1e-9);
}

TEST(AttendWorked, RotatesByTheDistanceAlone) {
  ScoreTerms terms;
  terms.rotation = core::Rotary{core::make_frequencies({4, 10000.0}), core::PairLayout::half, 4};
  const Matrix q{2, 4, {1.0, 2.0, -0.5, 0.25, 1.0, 2.0, -0.5, 0.25}};
  const Matrix k{3, 4, {0.5, -1.0, 2.0, 1.0, 0.5, -1.0, 2.0, 1.0, 0.5, -1.0, 2.0, 1.0}};
  const Matrix v{3, 1, {1.0, 2.0, 3.0}};
  const auto got = attend_f64(terms, q, k, v);
  // Re(conj(k) q e^{i r θ}) over the pairs (0, 2) and (1, 3), RoFormer (16).
  const auto at = [](double r) {
    const double one =
        (0.5 * 1.0 + 2.0 * -0.5) * std::cos(r) - (0.5 * -0.5 - 2.0 * 1.0) * std::sin(r);
    const double two = (-1.0 * 2.0 + 1.0 * 0.25) * std::cos(0.01 * r) -
                       (-1.0 * 0.25 - 1.0 * 2.0) * std::sin(0.01 * r);
    return one + two;
  };
  expect_floats(got.scores, {at(1), at(0), at(-1), at(2), at(1), at(0)});

  // Keys that a cache has rotated give the same scores.
  Matrix rotated = k;
  const auto view = core::heads_view(rotated.values.data(), 1, 3, 1, 4);
  core::rotate(*terms.rotation, core::positions_from(0), view);
  const auto cached = attend_f64(terms, q, rotated, v, {.keys = KeyState::rotated});
  expect_floats(cached.scores, {got.scores.begin(), got.scores.end()});

  // Both moved by 1000: nothing changes.
  const auto moved = attend_f64(
      terms, q, k, v,
      {.query_positions = core::positions_from(1001), .key_positions = core::positions_from(1000)});
  expect_floats(moved.scores, {got.scores.begin(), got.scores.end()});
}

TEST(AttendWorked, NaNReachesOnlyTheRowsThatSeeIt) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Matrix q{2, 1, {nan, 1.0}}, k{2, 1, {1.0, 2.0}}, v{2, 1, {3.0, 4.0}};
  const auto got = attend_f64({}, q, k, v);
  EXPECT_TRUE(std::isnan(got.out[0]));
  EXPECT_TRUE(std::isfinite(got.out[1]));
  // A key that is hidden may hold anything.
  const Matrix bad{2, 1, {1.0, nan}}, good{2, 1, {1.0, 1.0}};
  const std::vector<std::int64_t> lengths = {1};
  const auto hidden = attend_f64({}, good, bad, bad, {.key_lengths = lengths});
  EXPECT_EQ(hidden.out, (std::vector<double>{1.0, 1.0}));
}

TEST(AttendWorked, NoKeysGiveZeros) {
  const Matrix q{2, 1, {1.0, 2.0}}, none{0, 1, {}};
  const auto got = attend_f64({}, q, none, none);
  EXPECT_EQ(got.out, (std::vector<double>{0.0, 0.0}));
  EXPECT_EQ(got.log_sum_exp, (std::vector<double>{kHidden, kHidden}));
}

}  // namespace
}  // namespace phasor::attention::tests
