#include "phasor/core/internal/message_text.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace phasor::core {
namespace {

constexpr std::array<std::string_view, 3> kKnown = {"rope_scaling", "rope_theta", "base"};

TEST(MessageText, WritesShapes) {
  EXPECT_EQ(shape_text(std::array<std::int64_t, 3>{2, 5, 64}), "[2, 5, 64]");
  EXPECT_EQ(shape_text(std::span<const std::int64_t>()), "[]");
}

TEST(MessageText, ListsChoices) {
  EXPECT_EQ(list_text(kKnown), "rope_scaling, rope_theta or base");
  EXPECT_EQ(list_text(std::span(kKnown).first(1), Quotes::around), "\"rope_scaling\"");
}

TEST(DidYouMean, SuggestsTheClosestWord) {
  EXPECT_EQ(did_you_mean("rope_scalling", kKnown), "; did you mean \"rope_scaling\"?");
  EXPECT_EQ(did_you_mean("rope_thtea", kKnown), "; did you mean \"rope_theta\"?");
  EXPECT_EQ(did_you_mean("bsae", kKnown), "; did you mean \"base\"?");
}

TEST(DidYouMean, StaysSilentWhenNothingIsClose) {
  EXPECT_EQ(did_you_mean("vocab_size", kKnown), "");
  EXPECT_EQ(did_you_mean("", kKnown), "");
  EXPECT_EQ(did_you_mean(std::string(1000, 'x'), kKnown), "");
}

}  // namespace
}  // namespace phasor::core
