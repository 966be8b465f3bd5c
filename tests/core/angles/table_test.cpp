#include "phasor/core/rotate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace phasor::core {
namespace {

const Frequencies& sample() {
  static const Frequencies frequencies({1.0, 0.3, 0.07, 0.002, 1e-5}, 1.5);
  return frequencies;
}

void expect_rows_are_exact(const CosSinTable& table, const Frequencies& frequencies) {
  const auto pairs = static_cast<std::size_t>(frequencies.pairs());
  std::vector<float> cos(pairs), sin(pairs);
  const PositionRange range = table.range();
  for (std::int64_t position = range.first; position < range.first + range.count; ++position) {
    const auto as_double = static_cast<double>(position);
    cos_sin(frequencies, {&as_double, 1}, cos, sin);
    ASSERT_TRUE(std::ranges::equal(table.cos(position), cos)) << position;
    ASSERT_TRUE(std::ranges::equal(table.sin(position), sin)) << position;
  }
}

TEST(Table, HoldsTheRowsOfItsRange) {
  for (const PositionRange range : {PositionRange{0, 1}, PositionRange{-7, 20},
                                    PositionRange{131000, 100}, PositionRange{5, 0}}) {
    const CosSinTable table = CosSinTable::build(sample(), range);
    EXPECT_EQ(table.pairs(), 5);
    EXPECT_EQ(table.amplitude(), 1.5);
    expect_rows_are_exact(table, sample());
  }
}

TEST(Table, IsTheSameWhateverTheThreads) {
  const Frequencies frequencies = make_frequencies({64, 10000.0});
  const PositionRange range{0, 5000};
  const CosSinTable one = CosSinTable::build(frequencies, range, AngleMode::exact, 1);
  const CosSinTable four = CosSinTable::build(frequencies, range, AngleMode::exact, 4);
  for (std::int64_t position = 0; position < range.count; ++position) {
    ASSERT_TRUE(std::ranges::equal(one.cos(position), four.cos(position))) << position;
    ASSERT_TRUE(std::ranges::equal(one.sin(position), four.sin(position))) << position;
  }
}

TEST(Table, GrowsByBuildingTheNextAndLeavesTheOldAlone) {
  const CosSinTable old = CosSinTable::build(sample(), {10, 5});
  const float before = old.cos(12)[0];
  for (const PositionRange range :
       {PositionRange{10, 50}, PositionRange{0, 12}, PositionRange{11, 2}, PositionRange{100, 3},
        PositionRange{-4, 40}, PositionRange{12, 0}}) {
    const CosSinTable grown = old.grown(range);
    EXPECT_EQ(grown.range().first, range.first);
    EXPECT_EQ(grown.range().count, range.count);
    expect_rows_are_exact(grown, sample());
  }
  EXPECT_EQ(old.range().count, 5);
  EXPECT_EQ(old.cos(12)[0], before);
}

TEST(Table, TakesRowsThatACallerHas) {
  const std::vector<float> cos = {1, 2, 3, 4, 5, 6}, sin = {7, 8, 9, 10, 11, 12};
  const CosSinTable table = CosSinTable::from_rows(cos, sin, 2, 100);
  EXPECT_EQ(table.range().first, 100);
  EXPECT_EQ(table.range().count, 3);
  EXPECT_EQ(table.cos(101)[1], 4.0F);
  EXPECT_EQ(table.sin(102)[0], 11.0F);
  EXPECT_THROW(static_cast<void>(table.grown({0, 5})), Error);
  EXPECT_THROW(static_cast<void>(CosSinTable::from_rows(cos, sin, 4)), Error);
  EXPECT_THROW(static_cast<void>(CosSinTable::from_rows(cos, std::span(sin).first(4), 2)), Error);
  EXPECT_THROW(static_cast<void>(CosSinTable::from_rows(cos, sin, 0)), Error);
}

TEST(Table, KnowsWhichFrequenciesItServes) {
  const CosSinTable table = CosSinTable::build(sample(), {0, 4});
  EXPECT_TRUE(table.serves(sample(), AngleMode::exact));
  EXPECT_FALSE(table.serves(sample(), AngleMode::float32));
  EXPECT_FALSE(table.serves(Frequencies({1.0, 0.3, 0.07, 0.002, 2e-5}, 1.5), AngleMode::exact));
  EXPECT_FALSE(table.serves(Frequencies({1.0, 0.3, 0.07, 0.002, 1e-5}), AngleMode::exact));
  EXPECT_FALSE(table.serves(Frequencies({1.0}), AngleMode::exact));
}

TEST(Table, RefusesRangesThatCannotBe) {
  EXPECT_THROW(static_cast<void>(CosSinTable::build(sample(), {0, -1})), Error);
  EXPECT_THROW(static_cast<void>(CosSinTable::build(sample(), {std::int64_t{1} << 60, 2})), Error);
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // which end the program instead of throwing
  EXPECT_THROW(static_cast<void>(CosSinTable::build(sample(), {0, std::int64_t{1} << 47})),
               std::bad_alloc);
#endif
}

}  // namespace
}  // namespace phasor::core
