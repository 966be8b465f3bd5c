#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "attention/softmax/attend_support.hpp"
#include "phasor/core/error.hpp"

namespace phasor::attention::tests {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

// One batch row, one head, tokens x dim.
struct Matrix {
  std::int64_t tokens, dim;
  std::vector<double> values;
  [[nodiscard]] core::ConstHeadsView view() const {
    return core::heads_view(values.data(), 1, tokens, 1, dim);
  }
};
ReferenceResult reference_of(const ScoreTerms& terms, const Matrix& q, const Matrix& k,
                             const Matrix& v, const AttentionOptions& options = {}) {
  return attention::attend_reference(terms, q.view(), k.view(), v.view(), options);
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected,
                 double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(expected[i])) {
      EXPECT_EQ(got[i], expected[i]) << i;
    } else {
      EXPECT_NEAR(got[i], expected[i], tolerance) << i;
    }
  }
}

// Scores ln 1, ln 2, ln 3: the probabilities are 1/6, 2/6, 3/6.
const Matrix kOneQuery{1, 2, {1.0, 0.0}};
const Matrix kThreeKeys{3, 2, {0.0, 5.0, std::log(2.0), -1.0, std::log(3.0), 7.0}};
const Matrix kThreeValues{3, 1, {6.0, 60.0, 600.0}};

TEST(AttendReference, WeighsValuesByTheSoftmaxOfTheScores) {
  const ReferenceResult got = reference_of({}, kOneQuery, kThreeKeys, kThreeValues);
  expect_near(got.probabilities, {1.0 / 6, 2.0 / 6, 3.0 / 6}, 1e-15);
  expect_near(got.out, {1.0 + 20.0 + 300.0}, 1e-12);
  expect_near(got.log_sum_exp, {std::log(6.0)}, 1e-15);
  expect_near(got.scores, {0.0, std::log(2.0), std::log(3.0)}, 1e-15);
}

TEST(AttendReference, TakesTheCallersScaleBeforeTheEncodings) {
  ScoreTerms terms;
  terms.scale = 7.0;
  const auto got = reference_of(terms, kOneQuery, kThreeKeys, kThreeValues, {.scale = 2.0});
  expect_near(got.probabilities, {1.0 / 14, 4.0 / 14, 9.0 / 14}, 1e-15);  // e^(2 ln j) = j^2
}

TEST(AttendReference, CapsScoresBeforeItMasksThem) {
  const std::vector<float> mask = {0.0F, -std::numeric_limits<float>::infinity(), 0.5F};
  AttentionOptions options{.soft_cap = 0.5};
  options.mask = additive_mask(mask.data(), std::vector<std::int64_t>{1, 3}, 1, 1, 1, 3);
  const auto got = reference_of({}, kOneQuery, kThreeKeys, kThreeValues, options);
  const double third = 0.5 * std::tanh(std::log(3.0) / 0.5);
  expect_near(got.capped_scores, {0.0, 0.5 * std::tanh(std::log(2.0) / 0.5), third}, 1e-15);
  expect_near(got.masked_scores, {0.0, kHidden, third + 0.5}, 1e-15);
  const double sum = 1.0 + std::exp(third + 0.5);
  expect_near(got.probabilities, {1.0 / sum, 0.0, std::exp(third + 0.5) / sum}, 1e-15);
}

// With q = 0 and a bias of its own for each distance, scores spell out who stands where.
class Standing : public ::testing::Test {
 protected:
  // b[distance] = distance for -9 .. 9.
  Standing() {
    for (int distance = -9; distance <= 9; ++distance) {
      values_.push_back(static_cast<float>(distance));
      map_.rows.push_back(distance + 9);
    }
    map_.first = -9;
    terms_.bias = {encodings::shared_rows<const float>(values_.data(), 19, 1), map_};
  }
  [[nodiscard]] ReferenceResult attend(std::int64_t queries, std::int64_t keys,
                                       const AttentionOptions& options) const {
    const Matrix q{queries, 1, std::vector<double>(static_cast<std::size_t>(queries), 0.0)};
    const Matrix k{keys, 1, std::vector<double>(static_cast<std::size_t>(keys), 1.0)};
    return reference_of(terms_, q, k, k, options);
  }
  std::vector<float> values_;
  encodings::RelativeMap map_;
  ScoreTerms terms_;
};

TEST_F(Standing, LastQueryBesideTheLastKey) {
  const auto got = attend(2, 4, {.causality = Causality::bottom_right});
  EXPECT_EQ(got.scores, (std::vector<double>{2, 1, 0, -1, 3, 2, 1, 0}));
  EXPECT_EQ(got.masked_scores, (std::vector<double>{2, 1, 0, kHidden, 3, 2, 1, 0}));
}

TEST_F(Standing, QueriesBeforeTheFirstKeySeeNothing) {
  const auto got = attend(3, 1, {.causality = Causality::bottom_right});
  EXPECT_EQ(got.scores, (std::vector<double>{-2, -1, 0}));
  EXPECT_EQ(got.out, (std::vector<double>{0, 0, 1}));
  EXPECT_EQ(got.log_sum_exp, (std::vector<double>{kHidden, kHidden, 0}));
  EXPECT_EQ(got.probabilities, (std::vector<double>{0, 0, 1}));
}

TEST_F(Standing, WindowCountsBothWays) {
  const auto got = attend(3, 3, {.window = 2});
  EXPECT_EQ(got.masked_scores, (std::vector<double>{0, -1, kHidden, 1, 0, -1, kHidden, 1, 0}));
}

TEST_F(Standing, KeyLengthsMoveTheQueries) {
  const std::vector<std::int64_t> lengths = {3};
  const auto got = attend(2, 5, {.causality = Causality::bottom_right, .key_lengths = lengths});
  EXPECT_EQ(got.masked_scores,
            (std::vector<double>{1, 0, kHidden, kHidden, kHidden, 2, 1, 0, kHidden, kHidden}));
}

TEST_F(Standing, KeyPaddingMovesNobody) {
  const std::vector<std::uint8_t> padding = {0, 1, 1};
  const auto got = attend(2, 3, {.key_padding = padding});
  EXPECT_EQ(got.masked_scores, (std::vector<double>{kHidden, 0, -1, kHidden, 1, 0}));
}

TEST_F(Standing, PackedSequencesStartAnewAndDoNotMeet) {
  const std::vector<std::int64_t> queries = {0, 1, 3}, keys = {0, 2, 4};
  const auto got = attend(3, 4, {.query_boundaries = queries, .key_boundaries = keys});
  EXPECT_EQ(got.masked_scores, (std::vector<double>{1, 0, kHidden, kHidden,   //
                                                    kHidden, kHidden, 0, -1,  //
                                                    kHidden, kHidden, 1, 0}));
}

TEST_F(Standing, FirstTokensHaveTheirOwnPositionPart) {
  const float row = 20.0F, column = 30.0F;
  terms_.first_row = encodings::shared_rows(&row, 1, 1);
  terms_.first_column = encodings::shared_rows(&column, 1, 1);
  EXPECT_EQ(attend(2, 2, {}).scores, (std::vector<double>{20, 20, 30, 0}));
  // One key of the past: no query stands at 0.
  EXPECT_EQ(attend(1, 2, {}).scores, (std::vector<double>{30, 0}));
}

TEST_F(Standing, RefusesDistancesWithoutARowWhereTheyAreSeen) {
  terms_.bias->map.outside = RelativeMap::Outside::refuse;
  EXPECT_NO_THROW(static_cast<void>(attend(10, 10, {})));
  EXPECT_THROW(static_cast<void>(attend(11, 11, {})), Error);
  EXPECT_NO_THROW(static_cast<void>(attend(11, 11, {.window = 10})));
}

TEST(AttendReference, ReadsTheRowsOfTheTermsByDistance) {
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
  const auto got = reference_of(terms, ones, ones, zeros, options);
  // Distances 0 -1 -2 / 1 0 -1 / 2 1 0 read rows 1 0 0 / 2 1 0 / 2 2 1; plus q.k = 1.
  expect_near(got.scores,
              {0.5 * 123, 0.5 * 212, 0.5 * 212,  //
               0.5 * 134, 0.5 * 223, 0.5 * 212,  //
               0.5 * 234, 0.5 * 134, 0.5 * 123},
              1e-12);
  // Each row's largest score wins by e^5 and more: the value row that it reads.
  EXPECT_NEAR(got.out[2], 3000.0, 1e-9);
}

TEST(AttendReference, TurnsByTheDistanceAlone) {
  ScoreTerms terms;
  terms.rotation = core::Rotary{core::make_frequencies({4, 10000.0}), core::PairLayout::half, 4};
  const Matrix q{2, 4, {1.0, 2.0, -0.5, 0.25, 1.0, 2.0, -0.5, 0.25}};
  const Matrix k{3, 4, {0.5, -1.0, 2.0, 1.0, 0.5, -1.0, 2.0, 1.0, 0.5, -1.0, 2.0, 1.0}};
  const Matrix v{3, 1, {1.0, 2.0, 3.0}};
  const auto got = reference_of(terms, q, k, v);
  // Re(conj(k) q e^{i r θ}) over the pairs (0, 2) and (1, 3), RoFormer (16).
  const auto at = [](double r) {
    const double one =
        (0.5 * 1.0 + 2.0 * -0.5) * std::cos(r) - (0.5 * -0.5 - 2.0 * 1.0) * std::sin(r);
    const double two = (-1.0 * 2.0 + 1.0 * 0.25) * std::cos(0.01 * r) -
                       (-1.0 * 0.25 - 1.0 * 2.0) * std::sin(0.01 * r);
    return one + two;
  };
  expect_near(got.scores, {at(1), at(0), at(-1), at(2), at(1), at(0)}, 1e-13);

  // Keys that a cache turned give the same scores.
  Matrix rotated = k;
  const auto view = core::heads_view(rotated.values.data(), 1, 3, 1, 4);
  core::rotate(*terms.rotation, core::positions_from(0), view);
  const auto cached = reference_of(terms, q, rotated, v, {.keys = KeyState::rotated});
  expect_near(cached.scores, got.scores, 1e-13);

  // Both moved by 1000: nothing changes.
  const auto moved = reference_of(
      terms, q, k, v,
      {.query_positions = core::positions_from(1001), .key_positions = core::positions_from(1000)});
  expect_near(moved.scores, got.scores, 1e-12);
}

TEST(AttendReference, GroupedHeadsReadTheirKeyHead) {
  const Problem grouped({.heads = 4, .key_heads = 2, .queries = 3, .keys = 5, .head_dim = 4});
  const ReferenceResult got = grouped.reference();
  for (std::int64_t head = 0; head < 4; ++head) {
    core::ConstHeadsView q = grouped.q_view(), k = grouped.k_view(), v = grouped.v_view();
    const auto pick = [](core::ConstHeadsView& view, std::int64_t h) {
      view.data = static_cast<const float*>(view.data) + h * view.head_stride;
      view.heads = 1;
    };
    pick(q, head);
    pick(k, head / 2);
    pick(v, head / 2);
    const ReferenceResult one = attention::attend_reference(grouped.terms, q, k, v);
    for (std::size_t i = 0; i < one.scores.size(); ++i) {
      EXPECT_EQ(got.scores[static_cast<std::size_t>(head) * one.scores.size() + i], one.scores[i]);
    }
  }
}

TEST(AttendReference, PackedIsSeparate) {
  for (const Terms kind : {Terms::none, Terms::rope, Terms::xpos, Terms::shaw,
                           Terms::transformer_xl, Terms::t5, Terms::alibi, Terms::deberta}) {
    Problem packed({.terms = kind,
                    .queries = 9,
                    .keys = 12,
                    .head_dim = 6,
                    .value_dim = 3,
                    .strides = Strides::dense,
                    .causality = Causality::bottom_right,
                    .packed = 3});
    const ReferenceResult got = packed.reference();
    for (std::size_t s = 0; s < 3; ++s) {
      const auto cut = [](core::ConstHeadsView view, std::int64_t first, std::int64_t last) {
        view.data = static_cast<const float*>(view.data) + first * view.token_stride;
        view.tokens = last - first;
        return view;
      };
      const std::int64_t first = packed.query_boundaries[s], last = packed.query_boundaries[s + 1];
      const std::int64_t from = packed.key_boundaries[s], to = packed.key_boundaries[s + 1];
      const ReferenceResult one = attention::attend_reference(
          packed.terms, cut(packed.q_view(), first, last), cut(packed.k_view(), from, to),
          cut(packed.v_view(), from, to), {.causality = Causality::bottom_right});
      for (std::size_t i = 0; i < one.out.size(); ++i) {
        ASSERT_NEAR(got.out[static_cast<std::size_t>(first) * 6 + i], one.out[i], 1e-14)
            << packed.what;
      }
    }
  }
}

TEST(AttendReference, NaNReachesOnlyTheRowsThatSeeIt) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Matrix q{2, 1, {nan, 1.0}}, k{2, 1, {1.0, 2.0}}, v{2, 1, {3.0, 4.0}};
  const auto got = reference_of({}, q, k, v);
  EXPECT_TRUE(std::isnan(got.out[0]));
  EXPECT_TRUE(std::isfinite(got.out[1]));
  // A key that is hidden may hold anything.
  const Matrix bad{2, 1, {1.0, nan}}, good{2, 1, {1.0, 1.0}};
  const std::vector<std::int64_t> lengths = {1};
  const auto hidden = reference_of({}, good, bad, bad, {.key_lengths = lengths});
  EXPECT_EQ(hidden.out, (std::vector<double>{1.0, 1.0}));
}

TEST(AttendReference, NoKeysGiveZeros) {
  const Matrix q{2, 1, {1.0, 2.0}}, none{0, 1, {}};
  const auto got = reference_of({}, q, none, none);
  EXPECT_EQ(got.out, (std::vector<double>{0.0, 0.0}));
  EXPECT_EQ(got.log_sum_exp, (std::vector<double>{kHidden, kHidden}));
}

double loss(const Problem& p) {
  const std::vector<double> out = p.reference().out;
  const std::vector<double> d_out = p.d_out.wide();
  double sum = 0.0;
  for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * d_out[i];
  return sum;
}

// Central difference of the loss along a random direction, against the gradient's product with it.
// step(scale) moves the numbers to x + scale * direction.
template <class T>
void expect_slope(const Problem& p, const char* name, T* x, const std::vector<double>& gradient,
                  double h, double tolerance) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  const std::vector<T> before(x, x + gradient.size());
  std::vector<double> direction(gradient.size());
  for (double& d : direction) d = normal(random);
  const auto loss_at = [&](double scale) {
    for (std::size_t i = 0; i < direction.size(); ++i) {
      x[i] = static_cast<T>(static_cast<double>(before[i]) + scale * direction[i]);
    }
    return loss(p);
  };
  const double slope =
      (8.0 * (loss_at(h) - loss_at(-h)) - (loss_at(2 * h) - loss_at(-2 * h))) / (12.0 * h);
  std::copy(before.begin(), before.end(), x);
  double expected = 0.0, size = 1.0;
  for (std::size_t i = 0; i < direction.size(); ++i) {
    expected += gradient[i] * direction[i];
    size += std::fabs(gradient[i] * direction[i]);
  }
  EXPECT_NEAR(slope, expected, tolerance * size) << name << " of " << p.what;
}

void expect_gradients_are_slopes(const Case& c) {
  Problem p(c);
  const ReferenceGradients gradients = p.reference_gradients();
  const auto data = [](Tensor& tensor) { return static_cast<double*>(tensor.view().data); };
  expect_slope(p, "d_q", data(p.q), gradients.d_q, 1e-3, 1e-8);
  expect_slope(p, "d_k", data(p.k), gradients.d_k, 1e-3, 1e-8);
  expect_slope(p, "d_v", data(p.v), gradients.d_v, 1e-3, 1e-8);
  for (const TableSlot& slot : tables_of(p.terms, gradients)) {
    // Rows then heads in memory: the gradient is heads then rows, so the direction must follow.
    std::vector<float>& values = p.values_of(slot.table);
    std::vector<double> in_memory_order(values.size(), 0.0);
    for (std::int64_t h = 0; h < slot.table.heads; ++h) {
      for (std::int64_t r = 0; r < slot.table.rows; ++r) {
        for (std::int64_t d = 0; d < slot.table.dim; ++d) {
          const auto at =
              static_cast<std::size_t>(h * slot.table.head_stride + r * slot.table.row_stride + d);
          in_memory_order[at] = (*slot.expected)[static_cast<std::size_t>(
              (h * slot.table.rows + r) * slot.table.dim + d)];
        }
      }
    }
    // float32 tables: the steps are rounded, by 2^-24 / h of their length.
    expect_slope(p, slot.name, values.data(), in_memory_order, 0x1p-7, 5e-5);
  }
}

class AttendReferenceBackward : public ::testing::TestWithParam<Terms> {};

TEST_P(AttendReferenceBackward, IsTheSlope) {
  const Case base{.terms = GetParam(),
                  .batch = 2,
                  .heads = 4,
                  .key_heads = 2,
                  .queries = 5,
                  .keys = 7,
                  .head_dim = 6,
                  .value_dim = 3,
                  .dtype = DType::f64,
                  .key_dtype = DType::f64,
                  .strides = Strides::dense};
  expect_gradients_are_slopes(base);
  Case c = base;
  c.causality = Causality::bottom_right;
  c.soft_cap = 1.5;
  c.seed = 2;
  expect_gradients_are_slopes(c);
  c = base;
  c.window = 3;
  c.masked = Masked::additive_rank_4;
  c.soft_cap = 2.0;
  c.seed = 3;
  expect_gradients_are_slopes(c);
  c = base;
  c.masked = Masked::boolean_short;
  c.padded = Padded::lengths;
  c.seed = 4;
  expect_gradients_are_slopes(c);
  c = base;
  c.padded = Padded::flags;
  c.positions = PositionIds::scattered;
  c.seed = 5;
  expect_gradients_are_slopes(c);
  c = base;
  c.keys = c.queries;  // a query stands at 0
  c.soft_cap = 2.0;
  c.seed = 7;
  expect_gradients_are_slopes(c);
  c = base;
  c.batch = 1;
  c.packed = 3;
  c.queries = 10;
  c.keys = 12;
  c.seed = 6;
  expect_gradients_are_slopes(c);
}
INSTANTIATE_TEST_SUITE_P(Every, AttendReferenceBackward, ::testing::ValuesIn(kAllTerms),
                         [](const auto& info) { return name_of(info.param); });

TEST(AttendReferenceBackward, RefusesRotatedKeys) {
  Problem p({.terms = Terms::rope, .queries = 2, .keys = 2});
  p.options.keys = KeyState::rotated;
  EXPECT_THROW(static_cast<void>(p.reference_gradients()), Error);
}

}  // namespace
}  // namespace phasor::attention::tests
