#include "phasor/core/rotate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <string_view>

#include "support/errors.hpp"

namespace phasor::core {
namespace {

TEST(Rotary, LayoutNamesGoBothWays) {
  for (const PairLayout layout :
       {PairLayout::interleaved, PairLayout::half, PairLayout::interleaved_to_half}) {
    EXPECT_EQ(pair_layout_of(name_of(layout)), layout);
  }
  EXPECT_EQ(pair_layout_of("neox"), std::nullopt);
}

TEST(Rotary, ValidatesTheWindowTheBlocksAndTheGrowth) {
  const Frequencies four({1.0, 0.5, 0.25, 0.125});
  validate({four, PairLayout::half, 8});
  validate({four, PairLayout::half, 10, 2});
  const auto refused = [](ErrorCode code, std::initializer_list<std::string_view> values,
                          const Rotary& rotary) {
    phasor::tests::expect_error(code, values, [&] { validate(rotary); });
  };
  refused(ErrorCode::shape_mismatch, {"rotary_dim 8", "offset 0", "head_dim 6"},
          {four, PairLayout::half, 6});
  refused(ErrorCode::shape_mismatch, {"rotary_dim 8", "offset 2", "head_dim 9"},
          {four, PairLayout::half, 9, 2});
  refused(ErrorCode::shape_mismatch, {"rotary_dim 8", "offset -1", "head_dim 9"},
          {four, PairLayout::half, 9, -1});
  refused(ErrorCode::invalid_argument, {"blocks", "4 pairs", "3"},
          {four, PairLayout::half, 8, 0, 3});
  refused(ErrorCode::shape_mismatch, {"growth", "1 rates", "4 pairs"},
          {four, PairLayout::half, 8, 0, 1, Growth{{0.1}, 0.0}});
  refused(ErrorCode::invalid_argument, {"growth", "finite"},
          {four, PairLayout::half, 8, 0, 1, Growth{{0.1, 0.1, 0.1, NAN}, 0.0}});
}

}  // namespace
}  // namespace phasor::core
