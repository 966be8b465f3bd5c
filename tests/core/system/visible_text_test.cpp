#include "phasor/core/internal/visible_text.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "phasor/core/error.hpp"

namespace phasor::core {
namespace {

using namespace std::string_view_literals;

TEST(VisibleText, WritesOutWhatATerminalObeys) {
  const struct {
    std::string_view text, shown;
  } cases[] = {
      {""sv, ""},
      {"plain \\ text ~"sv, "plain \\ text ~"},
      {"\x1b[31mred\x07\r\0\x7f"sv, R"(\x1b[31mred\x07\x0d\x00\x7f)"},
      {"\xc2\x9b[2J\xc2\x80\xc2\x9f"sv, R"(\u009b[2J\u0080\u009f)"},       // C1
      {"\xc2\xa0\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80"sv, "\xc2\xa0é中😀"},  // kept
      {"\xe2\x80\xaa\xe2\x80\xae\xe2\x81\xa6\xe2\x81\xa9"sv, R"(\u202a\u202e\u2066\u2069)"},
      {"\xe2\x80\xa9\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa"sv,
       "\xe2\x80\xa9\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa"},   // their neighbours
      {"a\x9b\xff"sv, R"(a\x9b\xff)"},                        // CSI of an 8-bit terminal
      {"\xe4\xb8"sv, R"(\xe4\xb8)"},                          // cut
      {"\xc0\x9b\xe0\x82\x9b"sv, R"(\xc0\x9b\xe0\x82\x9b)"},  // longer than needed
      {"\xed\xa0\x80\xf4\x90\x80\x80"sv, R"(\xed\xa0\x80\xf4\x90\x80\x80)"},
      {"\xe4\x1b["sv, R"(\xe4\x1b[)"},
  };
  for (const auto& [text, shown] : cases) EXPECT_EQ(visible_text(text), shown);
}

TEST(VisibleText, LineBreaksStayOrAreWrittenOut) {
  EXPECT_EQ(visible_text("a\n\tb\r\n"), R"(a\n\tb\x0d\n)");
  EXPECT_EQ(visible_text("a\n\tb\r\n", Breaks::keep), "a\n\tb\\x0d\n");
}

TEST(VisibleText, ShownTwiceIsShownOnce) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const std::string once = visible_text(all);
  EXPECT_EQ(visible_text(once), once);
}

TEST(Error, MessagesAreVisibleText) {
  const Error error(ErrorCode::io, "cannot open a\x1b]0;b\x07\nc\xe2\x80\xae");
  EXPECT_STREQ(error.what(), R"(cannot open a\x1b]0;b\x07\nc\u202e)");
}

}  // namespace
}  // namespace phasor::core
