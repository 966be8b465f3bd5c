#include "phasor/core/rotary.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace phasor::core {
namespace {

std::string rotary_refusal(const Rotary& rotary) {
  try {
    validate(rotary);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Rotary, LayoutNamesGoBothWays) {
  for (const PairLayout layout :
       {PairLayout::interleaved, PairLayout::half, PairLayout::interleaved_to_half}) {
    EXPECT_EQ(pair_layout_of(name_of(layout)), layout);
  }
  EXPECT_EQ(pair_layout_of("neox"), std::nullopt);
}

TEST(Rotary, ValidatesTheWindowTheBlocksAndTheGrowth) {
  const Frequencies four({1.0, 0.5, 0.25, 0.125});
  EXPECT_EQ(rotary_refusal({four, PairLayout::half, 8}), "accepted");
  EXPECT_EQ(rotary_refusal({four, PairLayout::half, 10, 2}), "accepted");
  EXPECT_EQ(rotary_refusal({four, PairLayout::half, 6}),
            "rotate: rotary_dim 8 at offset 0 must lie inside head_dim, got head_dim 6");
  EXPECT_EQ(rotary_refusal({four, PairLayout::half, 9, 2}),
            "rotate: rotary_dim 8 at offset 2 must lie inside head_dim, got head_dim 9");
  EXPECT_EQ(rotary_refusal({four, PairLayout::half, 9, -1}),
            "rotate: rotary_dim 8 at offset -1 must lie inside head_dim, got head_dim 9");
  EXPECT_EQ(rotary_refusal({four, PairLayout::half, 8, 0, 3}),
            "rotate: blocks must divide the 4 pairs, got 3");
  EXPECT_EQ(rotary_refusal({four, PairLayout::half, 8, 0, 1, Growth{{0.1}, 0.0}}),
            "rotate: growth must have one rate per pair, got 1 rates for 4 pairs");
  EXPECT_EQ(rotary_refusal({four, PairLayout::half, 8, 0, 1, Growth{{0.1, 0.1, 0.1, NAN}, 0.0}}),
            "rotate: growth must be finite, got a NaN or infinity");
}

}  // namespace
}  // namespace phasor::core
