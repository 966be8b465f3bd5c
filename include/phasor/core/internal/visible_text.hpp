// Text from files and command lines, made safe to show on a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace phasor::core {

enum class Breaks : std::uint8_t {
  keep,    // line breaks and tabs stay
  escape,  // they become \n and \t: the text stays on one line
};

// The text with everything that a terminal would obey written out, so that it is seen instead:
//
//   \x1b     control characters, DEL, and bytes that are not UTF-8
//   \u009b   C1 control characters, and those that reorder the text around them (U+202A to U+202E,
//            U+2066 to U+2069)
//
// Other characters stay as they are, a backslash too. A character that is cut at an end of `text`
// counts as bytes that are not UTF-8.
[[nodiscard]] std::string visible_text(std::string_view text, Breaks breaks = Breaks::escape);

}  // namespace phasor::core
