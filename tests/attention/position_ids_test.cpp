#include "phasor/attention/position_ids.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "phasor/core/rotate.hpp"
#include "support/errors.hpp"

namespace phasor::attention {
namespace {

using IdList = std::vector<std::int64_t>;

TEST(PositionIds, OfPackedSequences) {
  const IdList boundaries = boundaries_of(IdList{3, 0, 2, 1});
  EXPECT_EQ(boundaries, (IdList{0, 3, 3, 5, 6}));
  EXPECT_EQ(packed_ids(boundaries), (IdList{0, 1, 2, 0, 1, 0}));
  EXPECT_EQ(sequence_of_tokens(boundaries), (IdList{0, 0, 0, 2, 2, 3}));
  EXPECT_EQ(boundaries_of({}), IdList{0});
  EXPECT_TRUE(packed_ids(IdList{0}).empty());
}

TEST(PositionIds, RefuseInvalidBoundaries) {
  for (const IdList& bad : {IdList{}, IdList{1, 2}, IdList{0, 3, 2}, IdList{-1, 2}}) {
    EXPECT_THROW(static_cast<void>(packed_ids(bad)), Error);
    EXPECT_THROW(static_cast<void>(sequence_of_tokens(bad)), Error);
  }
  EXPECT_THROW(static_cast<void>(boundaries_of(IdList{2, -1})), Error);
  EXPECT_THROW(static_cast<void>(boundaries_of(IdList{INT64_MAX, 1})), Error);
}

RC_GTEST_PROP(PositionIdsLaws, PackedIdsRotateAsPackedPositionsDo, ()) {
  const auto lengths = *rc::gen::container<IdList>(rc::gen::inRange<std::int64_t>(0, 9));
  const IdList boundaries = boundaries_of(lengths), ids = packed_ids(boundaries);
  const std::int64_t tokens = boundaries.back();
  RC_ASSERT(static_cast<std::int64_t>(ids.size()) == tokens);
  const core::Rotary rotary{core::make_frequencies({16, 10000.0}), core::PairLayout::half, 16};
  std::vector<float> by_ids(static_cast<std::size_t>(tokens * 16));
  std::mt19937 random(7);
  for (float& value : by_ids) value = std::normal_distribution<float>()(random);
  std::vector<float> packed = by_ids;
  core::rotate(rotary, core::positions_per_token(ids),
               core::heads_view(by_ids.data(), 1, tokens, 1, 16));
  core::rotate(rotary, core::positions_packed(boundaries),
               core::heads_view(packed.data(), 1, tokens, 1, 16));
  RC_ASSERT(by_ids == packed);
}

// The rows of golden/rope_apply/half_llama_left_padded and encodings/learned_absolute_opt_offset2.
TEST(PositionIds, OfLeftPaddingAsOtherImplementationsCount) {
  const std::vector<std::uint8_t> llama = {0, 0, 0, 1, 1, 1, 1, 1, 1, 1,
                                           1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(padded_ids(llama, 2, PaddingPolicy::count_tokens),
            (IdList{0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(padded_ids(llama, 2, PaddingPolicy::count_slots),
            (IdList{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  const std::vector<std::uint8_t> opt = {1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(padded_ids(opt, 2, PaddingPolicy::mark_padding),
            (IdList{0, 1, 2, 3, 4, 5, 6, 7, 8, -1, -1, -1, 0, 1, 2, 3, 4, 5}));
}

TEST(PositionIds, OfPaddingAfterAPast) {
  const std::vector<std::uint8_t> mask = {0, 7, 1, 0};  // anything but 0 is a token
  EXPECT_EQ(padded_ids(mask, 1, PaddingPolicy::count_tokens, 5), (IdList{0, 5, 6, 0}));
  EXPECT_EQ(padded_ids(mask, 1, PaddingPolicy::mark_padding, 5), (IdList{-1, 5, 6, -1}));
  EXPECT_EQ(padded_ids(mask, 1, PaddingPolicy::count_slots, 5), (IdList{5, 6, 7, 8}));
  EXPECT_TRUE(padded_ids({}, 3, PaddingPolicy::count_tokens).empty());
  EXPECT_THROW(static_cast<void>(padded_ids(mask, 3, PaddingPolicy::count_tokens)), Error);
  EXPECT_THROW(static_cast<void>(padded_ids(mask, 0, PaddingPolicy::count_tokens)), Error);
  EXPECT_THROW(static_cast<void>(padded_ids(mask, 1, PaddingPolicy::count_tokens, -1)), Error);
}

TEST(PositionIds, OfTheSplits) {
  EXPECT_EQ(split_ids(Split::contiguous, 8, 1, 2), (IdList{4, 5, 6, 7}));
  EXPECT_EQ(split_ids(Split::zigzag, 8, 0, 2), (IdList{0, 1, 6, 7}));
  EXPECT_EQ(split_ids(Split::zigzag, 8, 1, 2), (IdList{2, 3, 4, 5}));
  EXPECT_EQ(split_ids(Split::striped, 8, 1, 2), (IdList{1, 3, 5, 7}));
  EXPECT_EQ(gather_order(Split::zigzag, 8, 2), (IdList{0, 1, 4, 5, 6, 7, 2, 3}));
  EXPECT_TRUE(gather_order(Split::striped, 0, 1 << 30).empty());
}

TEST(PositionIds, RefuseUnevenSplits) {
  const auto refuses = [](Split split, std::int64_t tokens, std::int64_t rank, std::int64_t ranks) {
    EXPECT_THROW(static_cast<void>(split_ids(split, tokens, rank, ranks)), Error);
  };
  refuses(Split::contiguous, 9, 0, 2);
  refuses(Split::zigzag, 6, 0, 2);  // a multiple of 2, not of 4
  refuses(Split::striped, 9, 0, 2);
  refuses(Split::striped, -2, 0, 2);
  refuses(Split::striped, 8, 2, 2);
  refuses(Split::striped, 8, -1, 2);
  refuses(Split::striped, 8, 0, 0);
  refuses(Split::zigzag, 0, 0, INT64_MAX);
  EXPECT_THROW(static_cast<void>(gather_order(Split::zigzag, 6, 2)), Error);
  phasor::tests::expect_error(ErrorCode::invalid_argument, {"zigzag", "2 ranks", "4", "6"},
                              [] { return split_ids(Split::zigzag, 6, 0, 2); });
}

RC_GTEST_PROP(PositionIdsLaws, ShardsAreAPermutationAndGatherOrderItsInverse, ()) {
  const Split split = *rc::gen::element(Split::contiguous, Split::zigzag, Split::striped);
  const std::int64_t ranks = *rc::gen::inRange<std::int64_t>(1, 9);
  const std::int64_t tokens = 2 * ranks * *rc::gen::inRange<std::int64_t>(0, 12);
  IdList shards;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const IdList ids = split_ids(split, tokens, rank, ranks);
    RC_ASSERT(static_cast<std::int64_t>(ids.size()) == tokens / ranks);
    RC_ASSERT(std::is_sorted(ids.begin(), ids.end()));
    shards.insert(shards.end(), ids.begin(), ids.end());
  }
  const IdList order = gather_order(split, tokens, ranks);
  RC_ASSERT(order.size() == shards.size());
  for (std::size_t t = 0; t < order.size(); ++t)
    RC_ASSERT(shards[static_cast<std::size_t>(order[t])] == static_cast<std::int64_t>(t));
  IdList sorted = shards, all(shards.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  RC_ASSERT(sorted == all);
}

// Under a causal mask a query at position p reads p + 1 keys.
std::int64_t causal_work(Split split, std::int64_t tokens, std::int64_t rank, std::int64_t ranks) {
  std::int64_t work = 0;
  for (const std::int64_t position : split_ids(split, tokens, rank, ranks)) work += position + 1;
  return work;
}

RC_GTEST_PROP(PositionIdsLaws, ZigzagSharesCausalWorkEquallyAndStripedNearly, ()) {
  const std::int64_t ranks = *rc::gen::inRange<std::int64_t>(2, 9);
  const std::int64_t tokens = 2 * ranks * *rc::gen::inRange<std::int64_t>(1, 12);
  for (std::int64_t rank = 1; rank < ranks; ++rank) {
    RC_ASSERT(causal_work(Split::zigzag, tokens, rank, ranks) ==
              causal_work(Split::zigzag, tokens, 0, ranks));
    // Each of tokens / ranks queries reads `rank` keys more than rank 0's.
    RC_ASSERT(causal_work(Split::striped, tokens, rank, ranks) -
                  causal_work(Split::striped, tokens, 0, ranks) ==
              rank * (tokens / ranks));
  }
  RC_ASSERT(causal_work(Split::contiguous, tokens, ranks - 1, ranks) >
            causal_work(Split::contiguous, tokens, 0, ranks));
}

}  // namespace
}  // namespace phasor::attention
