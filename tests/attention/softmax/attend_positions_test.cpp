// Distances of position ids: laws, and ids that an encoding cannot have. attend_test.cpp compares every
// kind of ids with the explicit matrix.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "attention/softmax/attend_comparison.hpp"
#include "phasor/encodings/encoding.hpp"
#include "support/errors.hpp"

namespace phasor::attention::tests {
namespace {

using core::InstructionSet;
using phasor::tests::expect_error;

class Positioned : public ::testing::TestWithParam<Terms> {};
// Without rotation, which is equal up to its rounding only; everything contains one.
INSTANTIATE_TEST_SUITE_P(Every, Positioned,
                         ::testing::Values(Terms::shaw, Terms::transformer_xl, Terms::xlnet,
                                           Terms::t5, Terms::alibi, Terms::deberta),
                         [](const auto& info) { return name_of(info.param); });

std::vector<double> attended(const Problem& p, int threads = 1) {
  return run_attend(p, InstructionSet::best, threads).out.wide();
}

// Ids that count as attention does by default change nothing, wherever they begin.
TEST_P(Positioned, CountedIdsGiveTheBitsOfNone) {
  for (const std::int64_t queries : {2, 97}) {
    Case c = around_tile_edges(GetParam());
    c.queries = queries;
    c.causality = Causality::bottom_right;
    Problem p(c);
    const std::vector<double> none = attended(p);
    for (const std::int64_t first : {0, 1000, -7}) {
      p.options.key_positions = core::positions_from(first);
      p.options.query_positions = core::positions_from(first + c.keys - c.queries);
      EXPECT_EQ(attended(p), none) << first;
      std::vector<double> keys(static_cast<std::size_t>(c.batch * c.keys));
      for (std::size_t j = 0; j < keys.size(); ++j)
        keys[j] = static_cast<double>(first + static_cast<std::int64_t>(j) % c.keys);
      p.options.key_positions = core::positions_per_row(keys.data(), 1, c.batch, c.keys);
      EXPECT_EQ(attended(p), none) << first;
    }
  }
}

// Packed sequences by their ids: as by boundaries.
TEST_P(Positioned, PackedIdsAreThoseOfTheBoundaries) {
  Case c = around_tile_edges(GetParam());
  c.batch = 1;
  c.queries = c.keys = 255;
  c.packed = 4;
  Problem p(c);
  p.query_boundaries = p.key_boundaries;
  p.options.query_boundaries = p.query_boundaries;
  const std::vector<double> none = attended(p);
  p.options.key_positions = p.options.query_positions = core::positions_packed(p.key_boundaries, 9);
  EXPECT_EQ(attended(p), none);
}

// Keys in another order, with their positions and values: the same sums in another order.
TEST_P(Positioned, ReorderedKeysAreTheSameKeys) {
  for (const std::int64_t queries : {3, 97}) {
    Case c = around_tile_edges(GetParam());
    c.batch = 1;
    c.queries = queries;
    c.strides = Strides::dense;
    Problem p(c);
    std::vector<std::int64_t> ids(static_cast<std::size_t>(c.keys));
    std::iota(ids.begin(), ids.end(), 0);
    p.options.key_positions = core::positions_per_token(ids);
    const std::vector<double> in_order = attended(p);

    std::mt19937_64 random(5);
    std::vector<std::int64_t> order = ids;
    std::shuffle(order.begin(), order.end(), random);
    const Problem before(c);
    for (std::int64_t j = 0; j < c.keys; ++j) {
      const std::int64_t from = order[static_cast<std::size_t>(j)];
      ids[static_cast<std::size_t>(j)] = from;
      for (auto& [to, of] : {std::pair(&p.k, &before.k), std::pair(&p.v, &before.v)}) {
        const core::HeadsView view = to->view();
        for (std::int64_t d = 0; d < view.token_stride; ++d) {
          core::set_element(view, j * view.token_stride + d,
                            core::element_of(of->view(), from * view.token_stride + d));
        }
      }
      if (!p.key_segments.empty()) {
        p.key_segments[static_cast<std::size_t>(j)] =
            before.key_segments[static_cast<std::size_t>(from)];
      }
    }
    const std::vector<double> got = attended(p);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], in_order[i], 1e-5) << i;
  }
}

// A batch row is what it would be alone.
TEST_P(Positioned, RowsDoNotReadEachOthersIds) {
  for (const PositionIds positions : kGivenPositions) {
    Case c = around_tile_edges(GetParam());
    c.batch = 3;
    c.strides = Strides::dense;
    c.positions = positions;
    const Problem all(c);
    const std::vector<double> together = attended(all);
    const std::size_t row = together.size() / 3;
    for (std::int64_t b = 0; b < 3; ++b) {
      AttentionOptions options = all.options;
      options.query_positions =
          core::positions_per_row(all.ids.queries.data() + b * c.queries, 1, 1, c.queries);
      options.key_positions =
          core::positions_per_row(all.ids.keys.data() + b * c.keys, 1, 1, c.keys);
      const auto part = [&](auto values, std::int64_t tokens) {
        return values.empty() ? values
                              : values.subspan(static_cast<std::size_t>(b * tokens),
                                               static_cast<std::size_t>(tokens));
      };
      options.key_padding = part(options.key_padding, c.keys);
      options.query_segments = part(options.query_segments, c.queries);
      options.key_segments = part(options.key_segments, c.keys);
      options.threads = 1;
      const auto of_row = [&](core::ConstHeadsView view) {
        view.data = static_cast<const float*>(view.data) + b * view.batch_stride;
        view.batch = 1;
        return view;
      };
      std::vector<float> out(row);
      attend(all.terms, of_row(all.q_view()), of_row(all.k_view()), of_row(all.v_view()),
             core::heads_view(out.data(), 1, c.queries, c.heads, c.value_dim), options);
      for (std::size_t i = 0; i < row; ++i) {
        ASSERT_NEAR(double{out[i]}, together[static_cast<std::size_t>(b) * row + i], 2e-6)
            << name_of(positions) << " " << i;
      }
    }
  }
}

TEST_P(Positioned, GivesTheSameBitsWithAnyNumberOfThreads) {
  for (const PositionIds positions : {PositionIds::gaps, PositionIds::reordered}) {
    Case c = around_tile_edges(GetParam());
    c.heads = 6;
    c.key_heads = 2;
    c.positions = positions;
    const Problem p(c);
    const std::vector<double> one = attended(p, 1);
    for (const int threads : {2, 3}) EXPECT_EQ(attended(p, threads), one) << threads;
  }
}

// A window of tokens over ids: the masks count tokens.
TEST_P(Positioned, MasksCountTokens) {
  for (const PositionIds positions : kGivenPositions) {
    Case c = around_tile_edges(GetParam());
    c.positions = positions;
    c.window = 40;
    c.causality = Causality::bottom_right;
    expect_attends(c);
  }
}

TEST(AttendPositions, ReadsAndWritesSixteenBits) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const Terms terms : {Terms::shaw, Terms::transformer_xl, Terms::t5, Terms::deberta}) {
      Case c = around_tile_edges(terms);
      c.dtype = c.key_dtype = dtype;
      c.positions = PositionIds::gaps;
      expect_attends(c);
    }
  }
}

// A call for a test to modify, and what it wrote.
struct PositionedCall {
  explicit PositionedCall(Terms terms, std::int64_t queries = 3, std::int64_t keys = 5)
      : problem({.terms = terms, .queries = queries, .keys = keys}),
        out(static_cast<std::size_t>(queries * problem.what.heads * problem.what.value_dim), 7.0F) {
  }
  void attend() {
    attention::attend(problem.terms, problem.q_view(), problem.k_view(), problem.v_view(),
                      core::heads_view(out.data(), 1, problem.what.queries, problem.what.heads,
                                       problem.what.value_dim),
                      problem.options);
  }
  [[nodiscard]] bool untouched() const {
    return std::all_of(out.begin(), out.end(), [](float x) { return x == 7.0F; });
  }
  void expect_refused(ErrorCode code, std::initializer_list<std::string_view> values) {
    expect_error(code, values, [&] { attend(); });
    EXPECT_TRUE(untouched());
  }

  Problem problem;
  std::vector<float> out;
};

TEST(AttendPositionsRefuses, IdsThatAreNotWholeNumbers) {
  const std::vector<double> halves = {0.0, 1.0, 1.5, 2.0, 3.0};
  for (const Terms terms :
       {Terms::shaw, Terms::transformer_xl, Terms::t5, Terms::alibi, Terms::deberta, Terms::tupe}) {
    PositionedCall call(terms);
    call.problem.options.key_positions = core::positions_per_token(halves);
    call.expect_refused(ErrorCode::unsupported, {"key_positions", "1.5"});
  }
  PositionedCall rotation(Terms::rope);
  rotation.problem.options.key_positions = core::positions_per_token(halves);
  EXPECT_NO_THROW(rotation.attend());
}

TEST(AttendPositionsRefuses, SeveralAxes) {
  const std::vector<std::int64_t> ids(15, 2);
  PositionedCall call(Terms::alibi);
  call.problem.options.key_positions = core::positions_per_row(ids.data(), 3, 1, 5);
  call.expect_refused(ErrorCode::unsupported, {"key_positions", "3"});
}

TEST(AttendPositionsRefuses, IdsTooFarApart) {
  const std::vector<std::int64_t> ids = {0, 1, 2, 3, std::int64_t{1} << 40};
  PositionedCall call(Terms::alibi);
  call.problem.options.key_positions = core::positions_per_token(ids);
  call.expect_refused(ErrorCode::out_of_range, {"1099511627776"});
  const std::vector<std::int64_t> huge(5, std::int64_t{1} << 60);
  call.problem.options.key_positions = core::positions_per_token(huge);
  call.expect_refused(ErrorCode::out_of_range, {"key_positions"});
  // Far from 0, and near each other.
  PositionedCall near(Terms::t5);
  const std::int64_t far = std::int64_t{1} << 50;
  const std::vector<std::int64_t> keys = {far, far + 9, far + 4, far + 2, far + 3};
  near.problem.options.key_positions = core::positions_per_token(keys);
  near.problem.options.query_positions = core::positions_from(far);
  EXPECT_NO_THROW(near.attend());
}

TEST(AttendPositionsRefuses, DistancesAndPositionsWithoutARow) {
  PositionedCall distance(Terms::transformer_xl);  // 8 distances on either side
  const std::vector<std::int64_t> ids = {0, 1, 2, 3, 20};
  distance.problem.options.key_positions = core::positions_per_token(ids);
  distance.expect_refused(ErrorCode::out_of_range, {"query_rows", "-18", "4", "-8", "8"});

  PositionedCall row(Terms::tupe);
  row.problem.options.key_positions = core::positions_from(1);
  row.expect_refused(ErrorCode::shape_mismatch, {"extra_key", "6", "5"});
  row.problem.options.key_positions = core::positions_from(-1);
  row.expect_refused(ErrorCode::out_of_range, {"key_positions", "-1"});
}

// Only visible pairs need a row: padding and causality hide them from the check too, and a plan checks
// padding that changed before it writes.
TEST(AttendPositionsRefuses, OnlyDistancesThatAreSeen) {
  PositionedCall call(Terms::transformer_xl, 5, 5);
  const std::vector<std::int64_t> ids = {30, 1, 2, 3, 4};
  std::vector<std::uint8_t> padding = {0, 1, 1, 1, 1};
  call.problem.options.key_positions = core::positions_per_token(ids);
  call.problem.options.query_positions = core::positions_from(0);
  call.expect_refused(ErrorCode::out_of_range, {"query_rows", "-30"});
  call.problem.options.key_padding = padding;
  EXPECT_NO_THROW(call.attend());

  AttentionPlan plan(call.problem.terms, sizes_for(call.problem.what), call.problem.options);
  std::fill(call.out.begin(), call.out.end(), 7.0F);
  padding[0] = 1;
  const auto run = [&] {
    plan.run(call.problem.q_view(), call.problem.k_view(), call.problem.v_view(),
             core::heads_view(call.out.data(), 1, 5, 2, 16));
  };
  expect_error(ErrorCode::out_of_range, {"-30"}, run);
  EXPECT_TRUE(call.untouched());
  padding[0] = 0;
  EXPECT_NO_THROW(run());

  // The last key is at 30: only the last query sees it.
  const std::vector<std::int64_t> last = {0, 1, 2, 3, 30};
  call.problem.options.key_padding = {};
  call.problem.options.key_positions = call.problem.options.query_positions =
      core::positions_per_token(last);
  call.problem.options.causality = Causality::bottom_right;
  call.problem.options.window = 1;
  EXPECT_NO_THROW(call.attend());
  call.problem.options.window = 2;
  std::fill(call.out.begin(), call.out.end(), 7.0F);
  call.expect_refused(ErrorCode::out_of_range, {"query_rows", "27"});
}

TEST(AttentionShape, HasTheDistancesOfThePositions) {
  const AttentionSizes sizes{.batch = 2,
                             .queries = 2,
                             .keys = 3,
                             .heads = 4,
                             .key_heads = 2,
                             .head_dim = 8,
                             .value_dim = 6};
  const encodings::AttentionShape plain = attention_shape(sizes, {});
  EXPECT_EQ(plain.distances, std::nullopt);
  EXPECT_EQ(encodings::distances_of(plain), (encodings::Distances{-1, 2}));
  EXPECT_EQ(plain.value_dim, 6);

  // Rows do not meet: 1000 is no distance.
  const std::vector<std::int64_t> queries = {5, 9, 1005, 1001}, keys = {0, 7, 2, 1000, 1003, 1001};
  const auto rows = [](const std::vector<std::int64_t>& ids) {
    return core::positions_per_row(ids.data(), 1, 2, static_cast<std::int64_t>(ids.size()) / 2);
  };
  const encodings::AttentionShape shape =
      attention_shape(sizes, {.query_positions = rows(queries), .key_positions = rows(keys)});
  EXPECT_EQ(shape.distances, (encodings::Distances{-2, 9}));
  EXPECT_EQ(shape.largest_position, 1003.0);

  const std::vector<double> halves = {0.5, 1.0};
  EXPECT_EQ(
      attention_shape(sizes, {.query_positions = core::positions_per_token(halves)}).distances,
      std::nullopt);
  expect_error(ErrorCode::shape_mismatch, {"[2]"}, [&] {
    return attention_shape(sizes, {.key_positions = core::positions_per_token(halves)});
  });
}

// Maps are cut to the distances of the shape; those of ids may be larger.
TEST(AttentionShape, ResolvesEncodingsForTheirDistances) {
  encodings::AttentionShape shape{.heads = 1,
                                  .key_heads = 1,
                                  .head_dim = 4,
                                  .value_dim = 4,
                                  .query_tokens = 3,
                                  .key_tokens = 3};
  const std::vector<float> numbers(256, 0.5F);
  const encodings::T5 t5{.bias = encodings::shared_rows<const float>(numbers.data(), 32, 1)};
  const encodings::Kerple kerple{.r1 = encodings::row_per_head<const float>(numbers.data(), 1, 1),
                                 .r2 = encodings::row_per_head<const float>(numbers.data(), 1, 1)};
  EXPECT_EQ(encodings::resolve(t5, shape).bias->map.last(), 2);
  EXPECT_EQ(encodings::resolve(kerple, shape).bias->table.rows, 3);
  shape.distances = encodings::Distances{-100, 60};
  EXPECT_EQ(encodings::resolve(t5, shape).bias->map.last(), 60);
  EXPECT_EQ(encodings::resolve(kerple, shape).bias->table.rows, 101);
  shape.distances = encodings::Distances{5, 60};  // 0 is always there
  EXPECT_EQ(encodings::resolve(kerple, shape).bias->map.first, 0);
}

}  // namespace
}  // namespace phasor::attention::tests
