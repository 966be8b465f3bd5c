#include "phasor/core/cpu.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "phasor/core/error.hpp"

namespace phasor::core {
namespace {

TEST(InstructionSets, StartAtTheBaselineAndNeverNameBest) {
  const auto& levels = available_instruction_sets();
  ASSERT_FALSE(levels.empty());
  EXPECT_EQ(levels.front(), InstructionSet::generic);
  EXPECT_EQ(std::count(levels.begin(), levels.end(), InstructionSet::best), 0);
  EXPECT_TRUE(std::is_sorted(levels.begin(), levels.end()));
}

TEST(InstructionSets, BestIsTheHighestAndNamesGoBothWays) {
  EXPECT_EQ(resolve_instruction_set(InstructionSet::best), available_instruction_sets().back());
  for (const InstructionSet level : available_instruction_sets()) {
    EXPECT_EQ(resolve_instruction_set(level), level);
    EXPECT_EQ(instruction_set_of(name_of(level)), level);
  }
  EXPECT_EQ(instruction_set_of("avx9"), std::nullopt);
}

TEST(InstructionSets, RefuseWhatTheCpuDoesNotHave) {
  const auto& levels = available_instruction_sets();
  for (const InstructionSet level :
       {InstructionSet::x86_64_v2, InstructionSet::x86_64_v3, InstructionSet::x86_64_v4}) {
    const bool has = std::count(levels.begin(), levels.end(), level) != 0;
    if (has) {
      EXPECT_NO_THROW(static_cast<void>(resolve_instruction_set(level)));
    } else {
      EXPECT_THROW(static_cast<void>(resolve_instruction_set(level)), Error);
    }
  }
}

}  // namespace
}  // namespace phasor::core
