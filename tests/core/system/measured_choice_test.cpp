#include "phasor/core/internal/measured_choice.hpp"

#include <gtest/gtest.h>

#include "core/rotate/rotate_ways.hpp"
#include "core/system/cache_sizes.hpp"

namespace phasor::core {
namespace {

constexpr int kWays = 3;

// Measures until a way is kept; costs[way] is what a piece takes. Of every `other_every` pieces one takes
// `other` more or less.
int kept_after(const float (&costs)[kWays], int other_every = 0, float other = 0.0F) {
  MeasuredChoice choice;
  for (int piece = 0; choice.kept() < 0 && piece < 1000; ++piece) {
    const int way = choice.next(kWays);
    const float more = other_every != 0 && piece % other_every == 0 ? other : 0.0F;
    choice.record(kWays, way, costs[way] + more, 1.0F);
  }
  return choice.kept();
}

TEST(MeasuredChoice, SizesBelongToPowersOfTwo) {
  EXPECT_EQ(size_class(1000, 1000, 8), 0);
  EXPECT_EQ(size_class(1999, 1000, 8), 0);
  EXPECT_EQ(size_class(2000, 1000, 8), 1);
  EXPECT_EQ(size_class(128'000, 1000, 8), 7);
  EXPECT_EQ(size_class(std::int64_t{1} << 40, 1000, 8), 7);
}

TEST(MeasuredChoice, TakesTurnsUntilEachWayHasItsSamples) {
  constexpr int kPieces = MeasuredChoice::kWarmUp + 2 * MeasuredChoice::kSamples;
  MeasuredChoice choice;
  int turns[kWays] = {};
  for (int piece = 0; piece < kWays * kPieces; ++piece) {
    EXPECT_EQ(choice.kept(), -1);
    const int way = choice.next(kWays);
    ++turns[way];
    choice.record(kWays, way, 1.0F, 1.0F);
  }
  for (const int count : turns) EXPECT_EQ(count, kPieces);
  EXPECT_GE(choice.kept(), 0);
}

// So that the head of a large model, one piece for each token, is measured within a few dozen tokens.
TEST(MeasuredChoice, LongPiecesAreMeasuredSooner) {
  MeasuredChoice choice;
  int pieces = 0;
  for (; choice.kept() < 0; ++pieces) {
    const int way = choice.next(kWays);
    choice.record(kWays, way, (way == 2 ? 0.9F : 1.0F) * MeasuredChoice::kWarmUpNs, 1.0F);
  }
  EXPECT_LE(pieces, kWays * (2 + MeasuredChoice::kFewSamples + MeasuredChoice::kRun));
  EXPECT_EQ(choice.kept(), 2);
}

TEST(MeasuredChoice, WhatTheFirstPiecesTakeDoesNotCount) {
  MeasuredChoice choice;
  for (int piece = 0; choice.kept() < 0; ++piece) {
    const int way = choice.next(kWays);
    const bool is_first = piece < kWays * MeasuredChoice::kWarmUp;
    choice.record(kWays, way, (way == 1) == is_first ? 1.0F : 2.0F, 1.0F);
  }
  EXPECT_NE(choice.kept(), 1);
}

TEST(MeasuredChoice, WhatAnotherWayLeftInTheCachesDoesNotCount) {
  MeasuredChoice choice;
  for (int before = -1; choice.kept() < 0;) {
    const int way = choice.next(kWays);
    const float alone =
        way == 2 ? 1.0F : 2.0F;  // way 1 is fast after another one, and slow after itself
    choice.record(kWays, way, way == 1 && before != 1 ? 0.5F : alone, 1.0F);
    before = way;
  }
  EXPECT_EQ(choice.kept(), 2);
}

TEST(MeasuredChoice, CountsTimeForWork) {
  MeasuredChoice choice;
  while (choice.kept() < 0) {
    const int way = choice.next(kWays);
    choice.record(kWays, way, 1.0F + static_cast<float>(way), way == 2 ? 10.0F : 1.0F);
  }
  EXPECT_EQ(choice.kept(), 2);
}

TEST(MeasuredChoice, RunCallsTheWayThatItMeasures) {
  MeasuredChoice choice;
  int turns[kWays] = {};
  while (choice.kept() < 0) choice.run(kWays, 1.0F, [&](int way) { ++turns[way]; });
  for (const int count : turns) EXPECT_GE(count, MeasuredChoice::kSamples);
  const int kept = choice.kept();
  choice.run(kWays, 1.0F, [&](int way) { EXPECT_EQ(way, kept); });
}

TEST(MeasuredChoice, KeepsTheFastest) {
  EXPECT_EQ(kept_after({3.0F, 2.0F, 1.0F}), 2);
  EXPECT_EQ(kept_after({3.0F, 1.0F, 2.0F}), 1);
  EXPECT_EQ(kept_after({1.0F, 3.0F, 2.0F}), 0);
}

TEST(MeasuredChoice, PiecesThatWereDisturbedDoNotCount) {
  EXPECT_EQ(kept_after({3.0F, 2.0F, 1.0F}, 2, 100.0F), 2);
  EXPECT_EQ(kept_after({3.0F, 1.0F, 2.0F}, 4, 100.0F), 1);
}

TEST(MeasuredChoice, AFewPiecesThatWereInACacheDoNotCount) {
  EXPECT_EQ(kept_after({3.0F, 2.0F, 1.0F}, 7, -2.5F), 2);
  EXPECT_EQ(kept_after({3.0F, 1.0F, 2.0F}, 11, -2.5F), 1);
}

TEST(MeasuredChoice, KeepsTheFirstUnlessAnotherGains) {
  EXPECT_EQ(kept_after({1.0F, 0.98F, 0.99F}), 0);
  EXPECT_EQ(kept_after({1.0F, 0.96F, 0.99F}), 1);
}

TEST(MeasuredChoice, AKeptWayStays) {
  MeasuredChoice choice;
  while (choice.kept() < 0) {
    const int way = choice.next(kWays);
    choice.record(kWays, way, way == 1 ? 1.0F : 2.0F, 1.0F);
  }
  choice.record(kWays, 0, 0.001F, 1.0F);
  EXPECT_EQ(choice.kept(), 1);
  EXPECT_EQ(choice.next(kWays), 1);
}

TEST(RotateWays, OnlyTensorsBeyondTheL2CacheAreMeasured) {
  const std::int64_t l2 = l2_cache_bytes();
  ASSERT_GE(l2, 16 << 10);
  const Traffic small{l2, 4, InstructionSet::generic, false, false, PairLayout::interleaved};
  EXPECT_EQ(ways_of(small).choice, nullptr);
  ASSERT_EQ(ways_of(small).ways.size(), 1U);
  EXPECT_EQ(ways_of(small).ways[0].ahead, 0);
  Traffic large = small;
  large.bytes = l2 + 1;
  EXPECT_GT(ways_of(large).ways.size(), 1U);
  MeasuredChoice* const choice = ways_of(large).choice;
  ASSERT_NE(choice, nullptr);
  EXPECT_EQ(ways_of(large).choice, choice);
  // Others have their own choice.
  Traffic other = large;
  other.heads_first = true;
  EXPECT_NE(ways_of(other).choice, choice);
  other = large;
  other.streams = true;
  EXPECT_NE(ways_of(other).choice, choice);
  other = large;
  other.layout = PairLayout::half;
  EXPECT_NE(ways_of(other).choice, choice);
  other = large;
  other.element = 2;
  EXPECT_NE(ways_of(other).choice, choice);
  other = large;
  other.bytes = 2 * l2;
  EXPECT_NE(ways_of(other).choice, choice);
  other.bytes = std::int64_t{1} << 60;
  EXPECT_NE(ways_of(other).choice, nullptr);
}

}  // namespace
}  // namespace phasor::core
