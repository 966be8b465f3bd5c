#include "phasor/attention/softmax.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "attention/softmax/attend_comparison.hpp"
#include "attention/softmax/random_case.hpp"

namespace phasor::attention::tests {
namespace {

// One below, at and one above every edge of the kernels: vectors of 4, 8 and 16 floats, panels of 6
// queries, blocks of 96 queries, tiles of 192 keys.
constexpr std::array<std::int64_t, 15> kSizes = {1,  5,  6,   7,   15,  16,  17, 95,
                                                 96, 97, 191, 192, 193, 255, 400};
constexpr std::array<std::int64_t, 7> kDims = {64, 7, 16, 1, 33, 8, 128};
constexpr std::array<std::int64_t, 6> kValueDims = {16, 1, 64, 9, 40, 17};

class Attend : public ::testing::TestWithParam<Terms> {};
INSTANTIATE_TEST_SUITE_P(Every, Attend, ::testing::ValuesIn(kAllTerms),
                         [](const auto& info) { return name_of(info.param); });

// Lists whose lengths share no factor are stepped through together, so that over the terms each size
// is tested with each width, layout and head count.
TEST_P(Attend, IsTheReferenceAcrossEveryTileEdge) {
  const auto kind = static_cast<std::size_t>(GetParam());
  for (std::size_t i = 0; i < 2 * kSizes.size(); ++i) {
    const std::size_t n = i + 31 * kind;
    const bool wide = i < kSizes.size();
    Case c{.terms = GetParam()};
    c.queries = pick(kSizes, i);
    c.keys = wide ? pick(kSizes, 4 * i + kind) : pick(kSizes, i + 7 * kind);
    c.head_dim = pick(kDims, n);
    c.value_dim = pick(kValueDims, n);
    c.heads = n % 3 == 0 ? 1 : n % 3 == 1 ? 2 : 6;
    c.key_heads = n % 3 == 2 ? 2 : 1;
    if (c.queries * c.keys > 40000) c.heads = c.key_heads;
    c.causality = wide ? Causality::none : Causality::bottom_right;
    c.strides = pick(std::array{Strides::heads_first, Strides::dense, Strides::padded,
                                Strides::dense, Strides::padded},
                     n);
    c.shift = static_cast<std::int64_t>(n / 2 % 2);
    c.seed = n + 1;
    expect_attends(c, i % 4 == 0 ? WithExtras::log_sum_exp : WithExtras::none);
  }
}

// What a tile of keys leaves for the next one, and that for the one after.
TEST_P(Attend, ContinuesFromTileToTile) {
  for (const Causality causality : {Causality::none, Causality::bottom_right}) {
    Case c = around_tile_edges(GetParam());
    c.batch = 1;
    c.queries = 200;
    c.keys = 777;
    c.causality = causality;
    expect_attends(c);
    c.window = 500;
    expect_attends(c);
  }
}

TEST_P(Attend, SeesOnlyTheWindow) {
  for (const std::int64_t window : {1, 5, 96, 200}) {
    for (const Causality causality : {Causality::none, Causality::bottom_right}) {
      Case c = around_tile_edges(GetParam());
      c.batch = 1;
      c.keys = 401;
      c.window = window;
      c.causality = causality;
      expect_attends(c);
    }
  }
}

TEST_P(Attend, BeginsAtTheTokenItIsGiven) {
  for (const std::int64_t queries : {3, 97})
    for (const Case& c : at_offsets(GetParam(), queries))
      expect_attends(c, WithExtras::log_sum_exp);
}

TEST_P(Attend, AppliesMasks) {
  for (int masked = 1; masked <= static_cast<int>(Masked::additive_short); ++masked) {
    Case c = around_tile_edges(GetParam());
    c.masked = static_cast<Masked>(masked);
    c.causality = masked % 2 == 0 ? Causality::bottom_right : Causality::none;
    c.seed = static_cast<std::uint64_t>(masked);
    expect_attends(c, WithExtras::log_sum_exp);
  }
}

TEST_P(Attend, LeavesPaddingOut) {
  for (const Padded padded : {Padded::lengths, Padded::flags}) {
    for (const Causality causality : {Causality::none, Causality::bottom_right}) {
      Case c = around_tile_edges(GetParam());
      c.batch = 3;
      c.padded = padded;
      c.causality = causality;
      expect_attends(c, WithExtras::log_sum_exp);
    }
  }
}

TEST_P(Attend, KeepsPackedSequencesApart) {
  for (const std::int64_t sequences : {1, 2, 7}) {
    Case c = around_tile_edges(GetParam());
    c.batch = 1;
    c.queries = 210;
    c.keys = 255;
    c.packed = sequences;
    c.causality = sequences == 2 ? Causality::none : Causality::bottom_right;
    c.window = sequences == 7 ? 20 : 0;
    c.masked = sequences == 1 ? Masked::additive_rank_2 : Masked::no;
    c.seed = static_cast<std::uint64_t>(sequences);
    expect_attends(c, WithExtras::log_sum_exp);
  }
}

TEST_P(Attend, CapsScores) {
  Case c = around_tile_edges(GetParam());
  c.soft_cap = 1.25;
  expect_attends(c);
  c.soft_cap = 30.0;
  c.masked = Masked::additive_rank_2;
  expect_attends(c);
}

TEST_P(Attend, ReadsThePositionsItIsGiven) {
  for (const PositionIds positions : kGivenPositions) {
    for (const Causality causality : {Causality::none, Causality::bottom_right}) {
      Case c = around_tile_edges(GetParam());
      c.keys = 401;
      c.positions = positions;
      c.causality = causality;
      expect_attends(c, WithExtras::log_sum_exp);
      c.queries = 3;  // without tiles, if the terms allow
      expect_attends(c);
    }
  }
}

TEST_P(Attend, ReadsAndWritesSixteenBits) {
  for (const auto& [dtype, key_dtype] :
       {std::pair(DType::f16, DType::f16), std::pair(DType::bf16, DType::bf16),
        std::pair(DType::f32, DType::f16), std::pair(DType::bf16, DType::f32)}) {
    Case c = around_tile_edges(GetParam());
    c.dtype = dtype;
    c.key_dtype = key_dtype;
    c.strides = dtype == DType::f16 ? Strides::padded : Strides::dense;
    c.shift = dtype == DType::f16 ? 1 : 0;
    c.head_dim = dtype == DType::bf16 ? 33 : 24;
    c.value_dim = dtype == DType::bf16 ? 20 : 7;
    expect_attends(c);
  }
}

TEST_P(Attend, WritesScoresAndProbabilitiesForThoseWhoAsk) {
  Case c = around_tile_edges(GetParam());
  c.heads = 4;
  expect_attends(c, WithExtras::all);
  c.causality = Causality::bottom_right;
  c.window = 70;
  c.soft_cap = 2.0;
  expect_attends(c, WithExtras::all);
  c.masked = Masked::additive_rank_4;
  c.padded = Padded::lengths;
  expect_attends(c, WithExtras::all);
  c = {.terms = GetParam(), .queries = 30, .keys = 230, .packed = 3};
  expect_attends(c, WithExtras::all);
}

TEST_P(Attend, GivesTheSameBitsWithAnyNumberOfThreads) {
  Case c = around_tile_edges(GetParam());
  c.heads = 3;
  c.key_heads = 1;
  c.queries = 200;
  c.causality = Causality::bottom_right;
  const Problem p(c);
  const core::InstructionSet best = core::available_instruction_sets().back();
  const Attended one = run_attend(p, best, 1, WithExtras::all);
  for (const int threads : {2, 3, 0}) {
    const Attended many = run_attend(p, best, threads, WithExtras::all);
    EXPECT_EQ(one.out.bytes(), many.out.bytes()) << threads << " threads, " << c;
    EXPECT_EQ(one.log_sum_exp, many.log_sum_exp) << threads << " threads, " << c;
    EXPECT_EQ(one.probabilities, many.probabilities) << threads << " threads, " << c;
  }
}

// A few queries over many keys: threads share the keys of a head, and their results are joined.
TEST_P(Attend, JoinsThePiecesOfManyKeys) {
  for (int i = 0; i < 8; ++i) {
    Case c{.terms = GetParam(), .heads = 6, .key_heads = i % 2 == 0 ? 3 : 1};
    c.batch = i == 5 ? 2 : 1;
    c.queries = i % 3 + 1;
    c.keys = 1400 + i;
    c.head_dim = 64;
    c.value_dim = 64;
    c.key_dtype = i == 6 ? DType::f16 : DType::f32;
    c.causality = i < 3 ? Causality::none : Causality::bottom_right;
    c.window = i == 2 || i == 3 ? 500 : 0;
    c.masked = i == 4 ? Masked::boolean_rank_3 : Masked::no;
    c.padded = i == 5 ? Padded::lengths : Padded::no;
    c.packed = i == 7 ? 2 : 0;
    c.strides = i % 2 == 0 ? Strides::dense : Strides::heads_first;
    c.seed = static_cast<std::uint64_t>(i + 1);
    const Problem p(c);
    expect_attends(p, WithExtras::probabilities);
    const core::InstructionSet best = core::available_instruction_sets().back();
    const Attended one = run_attend(p, best, 1, WithExtras::probabilities);
    for (const int threads : {2, 5}) {
      const Attended many = run_attend(p, best, threads, WithExtras::probabilities);
      EXPECT_EQ(one.out.bytes(), many.out.bytes()) << threads << " threads, " << c;
      EXPECT_EQ(one.log_sum_exp, many.log_sum_exp) << threads << " threads, " << c;
      EXPECT_EQ(one.probabilities, many.probabilities) << threads << " threads, " << c;
    }
  }
}

TEST_P(Attend, GivesTheSameOutputWithAndWithoutExtras) {
  Case c = around_tile_edges(GetParam());
  c.masked = Masked::boolean_rank_3;
  const Problem p(c);
  const core::InstructionSet best = core::available_instruction_sets().back();
  const Attended alone = run_attend(p, best, 1);
  const Attended with_extras = run_attend(p, best, 1, WithExtras::all);
  const std::vector<double> x = alone.out.wide(), y = with_extras.out.wide();
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 2e-6) << i << " " << c;
}

TEST_P(Attend, NaNInAQueryStaysInItsRow) {
  Case c = around_tile_edges(GetParam());
  c.strides = Strides::dense;
  Problem p(c);
  const core::HeadsView q = p.q.view();
  core::set_element(q, 50 * q.token_stride + q.head_stride + 3,
                    std::numeric_limits<double>::quiet_NaN());
  expect_attends(p, WithExtras::log_sum_exp);
}

// Keys at or after key_lengths are not read.
TEST_P(Attend, NaNInAHiddenKeyReachesNoQuery) {
  Case c = around_tile_edges(GetParam());
  c.strides = Strides::dense;
  c.padded = Padded::lengths;
  Problem p(c);
  p.key_lengths = {100, 64};
  for (Tensor* tensor : {&p.k, &p.v}) {
    const core::HeadsView view = tensor->view();
    for (std::int64_t b = 0; b < c.batch; ++b) {
      for (std::int64_t t = p.key_lengths[static_cast<std::size_t>(b)]; t < c.keys; ++t) {
        for (std::int64_t d = 0; d < view.token_stride; ++d) {
          core::set_element(view, b * view.batch_stride + t * view.token_stride + d,
                            std::numeric_limits<double>::quiet_NaN());
        }
      }
    }
  }
  expect_attends(p, WithExtras::log_sum_exp);
}

TEST_P(Attend, HoldsLargeScores) {
  Case c = around_tile_edges(GetParam());
  Problem p(c);
  p.options.scale = 20.0;  // e^300 is far beyond float32
  expect_attends(p, WithExtras::log_sum_exp);
}

// The largest score rises from tile to tile: a little, much, and by more than float32 weights hold.
TEST(AttendTerms, MaximaThatRise) {
  for (const double step : {2.0, 20.0, 300.0}) {
    Problem p({.queries = 13, .keys = 5 * 192, .head_dim = 16, .strides = Strides::dense});
    const core::HeadsView q = p.q.view(), k = p.k.view();
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t t = 0; t < 13; ++t)
        core::set_element(q, t * q.token_stride + h * q.head_stride, 4.0);
      for (std::int64_t t = 0; t < k.tokens; ++t) {
        core::set_element(k, t * k.token_stride + h * k.head_stride,
                          step * static_cast<double>(t / 192 - 4));
      }
    }
    expect_attends(p, WithExtras::log_sum_exp);
  }
}

TEST(AttendTerms, SteepSlopesAtALongRange) {
  for (const Causality causality : {Causality::none, Causality::bottom_right}) {
    Problem p({.terms = Terms::alibi,
               .heads = 2,
               .key_heads = 1,
               .queries = 2048,
               .keys = 2048,
               .head_dim = 8,
               .value_dim = 4,
               .causality = causality});
    p.terms.slopes = {1.0, 0.00390625};
    expect_attends(p);
  }
}

TEST(AttendTerms, KeysOfACacheAreNotRotatedAgain) {
  for (const Terms kind : {Terms::rope, Terms::xpos}) {
    Problem p({.terms = kind, .queries = 7, .keys = 200, .head_dim = 64});
    const core::Rotation rotation{p.k.view(), p.k.view(), core::Role::key};
    core::rotate(*p.terms.rotation, core::positions_from(0), {&rotation, 1});
    p.options.keys = KeyState::rotated;
    expect_attends(p);
  }
}

TEST(AttendTerms, RotatesByRowsOfPositions) {
  Problem p({.terms = Terms::rope, .batch = 2, .queries = 20, .keys = 50, .head_dim = 32});
  std::vector<std::uint8_t> axes;
  const core::Frequencies plain = p.terms.rotation->frequencies;
  for (std::int64_t i = 0; i < plain.pairs(); ++i) axes.push_back(static_cast<std::uint8_t>(i % 3));
  p.terms.rotation->frequencies =
      core::Frequencies({plain.values().begin(), plain.values().end()}, 1.25, axes);
  expect_attends(p);  // every row counts tokens
  std::vector<std::int64_t> query_ids, key_ids;
  for (std::int64_t i = 0; i < 3 * 2 * 20; ++i) query_ids.push_back(i * 7 % 41);
  for (std::int64_t i = 0; i < 3 * 2 * 50; ++i) key_ids.push_back(i * 11 % 53);
  p.options.query_positions = core::positions_per_row(query_ids.data(), 3, 2, 20);
  p.options.key_positions = core::positions_per_row(key_ids.data(), 3, 2, 50);
  expect_attends(p);
}

TEST(AttendTerms, RotatesEachLayoutAndWindow) {
  for (const core::PairLayout layout : {core::PairLayout::interleaved, core::PairLayout::half,
                                        core::PairLayout::interleaved_to_half}) {
    for (const std::int64_t blocks : {1, 2}) {
      Problem p({.queries = 17, .keys = 33, .head_dim = 40, .causality = Causality::bottom_right});
      p.terms.rotation =
          core::Rotary{core::make_frequencies({32, 500.0}), layout, 40, 8, blocks, std::nullopt};
      expect_attends(p);
    }
  }
}

// Distances outside the map read one end of it.
TEST(AttendTerms, MapsFarFromEveryDistance) {
  for (const std::int64_t first : {-1000, 1000}) {
    Problem p({.terms = Terms::everything, .queries = 30, .keys = 210});
    for (auto* rows :
         {&p.terms.query_rows, &p.terms.key_rows, &p.terms.bias, &p.terms.value_rows}) {
      (*rows)->map.first = first;
    }
    expect_attends(p);
  }
}

TEST(AttendTerms, OneRowServesEveryDistance) {
  Problem p({.terms = Terms::everything, .queries = 30, .keys = 210});
  for (auto* rows : {&p.terms.query_rows, &p.terms.key_rows, &p.terms.bias, &p.terms.value_rows}) {
    (*rows)->map = {0, {1}, RelativeMap::Outside::clamp};
  }
  expect_attends(p);
}

// first_row replaces extra features and bias; a slope is neither.
TEST(AttendTerms, FirstTokensKeepTheirSlopes) {
  Problem p({.terms = Terms::tupe_first, .queries = 200, .keys = 200});
  p.terms.slopes = {0.5, 0.25};
  expect_attends(p);
}

TEST(AttendTerms, RowsOfAllKeysHiddenAreZero) {
  Problem p({.batch = 2, .queries = 100, .keys = 100, .causality = Causality::bottom_right});
  const std::vector<std::uint8_t> nothing(200, 0);
  p.options.key_padding = nothing;
  for (const core::InstructionSet isa : core::available_instruction_sets()) {
    const Attended got = run_attend(p, isa, 1, WithExtras::all);
    for (const double x : got.out.wide()) ASSERT_EQ(x, 0.0);
    for (const float x : got.log_sum_exp) {
      ASSERT_EQ(x, -std::numeric_limits<float>::infinity());
    }
    for (const float x : got.probabilities) ASSERT_EQ(x, 0.0F);
  }
}

TEST(AttendTerms, PaddingOfOneQueryMayHoldAnything) {
  Problem p({.queries = 1, .keys = 5});
  const std::vector<std::uint8_t> keep{1, 0, 1, 1, 0};
  p.options.key_padding = keep;
  const Attended before = run_attend(p, core::InstructionSet::best, 1, WithExtras::none);
  const core::HeadsView v = p.v.view();
  for (const std::int64_t token : {1, 4}) {
    for (std::int64_t h = 0; h < v.heads; ++h) {
      core::set_element(v, token * v.token_stride + h * v.head_stride,
                        std::numeric_limits<double>::quiet_NaN());
    }
  }
  const Attended after = run_attend(p, core::InstructionSet::best, 1, WithExtras::none);
  EXPECT_EQ(before.out.bytes(), after.out.bytes());
}

TEST(AttendTerms, RandomCombinations) {
  constexpr std::array kTypes = {DType::f32, DType::f32, DType::bf16, DType::f16};
  constexpr std::array<std::int64_t, 6> kWindows = {0, 0, 1, 5, 100, 200};
  constexpr std::array kExtras = {WithExtras::none, WithExtras::log_sum_exp, WithExtras::all};
  for_random_cases(
      250,
      {.queries = kSizes,
       .keys = kSizes,
       .head_dims = kDims,
       .value_dims = kValueDims,
       .dtypes = kTypes,
       .windows = kWindows,
       .many_pairs = 40000},
      [&](const Case& c, std::mt19937_64& random) { expect_attends(c, pick(kExtras, random())); });
}

}  // namespace
}  // namespace phasor::attention::tests
