// The text of a line that is edited, and a chat at a terminal.
#include "line_editor.hpp"

#include <gtest/gtest.h>

#include <string>

namespace phasor::tools {
namespace {

TEST(EditedLine, MovesAndErasesWholeCharacters) {
  EditedLine line;
  line.insert("a\xc3\xa9\xe6\xbc\xa2");  // a, e acute, a wide character
  EXPECT_EQ(line.cursor(), 6U);
  line.left();
  EXPECT_EQ(line.cursor(), 3U);
  line.left();
  EXPECT_EQ(line.cursor(), 1U);
  line.right();
  EXPECT_EQ(line.cursor(), 3U);
  line.erase_before();
  EXPECT_EQ(line.text(), "a\xe6\xbc\xa2");
  line.erase_after();
  EXPECT_EQ(line.text(), "a");
  line.erase_after();
  line.right();
  EXPECT_EQ(line.cursor(), 1U);
  line.to_begin();
  line.left();
  line.erase_before();
  EXPECT_EQ(line.text(), "a");
}

TEST(EditedLine, ErasesWordsAndEnds) {
  EditedLine line;
  line.replace("one two  three");
  line.erase_word();
  EXPECT_EQ(line.text(), "one two  ");
  line.erase_word();
  EXPECT_EQ(line.text(), "one ");
  line.replace("one two");
  line.to_begin();
  for (int i = 0; i < 3; ++i) line.right();
  line.erase_to_end();
  EXPECT_EQ(line.text(), "one");
  line.left();
  line.erase_to_begin();
  EXPECT_EQ(line.text(), "e");
  EXPECT_EQ(line.cursor(), 0U);
}

TEST(EditedLine, ColumnsOfATerminal) {
  EXPECT_EQ(columns_of(""), 0U);
  EXPECT_EQ(columns_of("abc"), 3U);
  EXPECT_EQ(columns_of("\xc3\xa9"), 1U);
  EXPECT_EQ(columns_of("e\xcc\x81"), 1U);  // a combining accent
  EXPECT_EQ(columns_of("\xe6\xbc\xa2\xf0\x9f\x98\x80"), 4U);
}

}  // namespace
}  // namespace phasor::tools
