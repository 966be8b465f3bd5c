#include "phasor/core/internal/enum_names.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

namespace phasor::core {
namespace {

enum class Colour : std::uint8_t { red, green, blue };
constexpr EnumNames<Colour::blue> kColours("red", "green", "blue");

static_assert(kColours[Colour::green] == "green");
static_assert(kColours.find("blue") == Colour::blue);
static_assert(kColours.all().size() == 3);

TEST(EnumNames, NamesAndValuesAreEachOthersInverse) {
  for (const Colour colour : {Colour::red, Colour::green, Colour::blue}) {
    EXPECT_EQ(kColours.find(kColours[colour]), colour);
  }
}

TEST(EnumNames, KnowNothingElse) {
  EXPECT_EQ(kColours.find("Red"), std::nullopt);
  EXPECT_EQ(kColours.find(""), std::nullopt);
  EXPECT_EQ(kColours[static_cast<Colour>(3)], "unknown");
}

}  // namespace
}  // namespace phasor::core
