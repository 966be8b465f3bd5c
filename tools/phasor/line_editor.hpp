// A line of input at a terminal, with editing and history. Elsewhere a plain line of stdin.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace phasor::tools {

// The text of a line that is being edited: UTF-8, with a cursor between two characters.
class EditedLine {
 public:
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  [[nodiscard]] std::size_t cursor() const noexcept { return cursor_; }  // in bytes
  void replace(std::string text);  // the cursor goes to its end

  void insert(std::string_view bytes);
  void erase_before();  // backspace
  void erase_after();   // delete
  void erase_word();    // the word before the cursor
  void erase_to_end();
  void erase_to_begin();
  void left();
  void right();
  void to_begin() noexcept { cursor_ = 0; }
  void to_end() noexcept { cursor_ = text_.size(); }

 private:
  std::string text_;
  std::size_t cursor_ = 0;
};

// Columns of a terminal that the text takes: 2 for a wide character, 0 for a combining one.
[[nodiscard]] std::size_t columns_of(std::string_view text);

class LineEditor {
 public:
  explicit LineEditor(std::string prompt);

  // Whether stdin and stdout are a terminal that can be edited on.
  [[nodiscard]] bool at_terminal() const noexcept { return at_terminal_; }

  // The next line, without its end; none at the end of the input.
  //
  // keys     arrows, Home, End, Backspace, Delete; Ctrl-A, -E, -B, -F, -K, -U, -W, -L; up and down (or
  //          Ctrl-P, -N) go through the history; Ctrl-C drops the line; Ctrl-D on an empty line is the
  //          end of the input
  [[nodiscard]] std::optional<std::string> read();

  // The lines that were read at a terminal, oldest first; equal neighbours once.
  [[nodiscard]] const std::vector<std::string>& history() const noexcept { return history_; }

 private:
  enum class Key : unsigned char { none, end_of_line, end_of_input };

  [[nodiscard]] std::optional<std::string> read_edited();
  [[nodiscard]] Key handle(char byte, EditedLine& line);
  void handle_escape(EditedLine& line);
  void recall(EditedLine& line, int step);
  void draw(const EditedLine& line) const;

  std::string prompt_;
  bool at_terminal_ = false;
  std::vector<std::string> history_;
  std::size_t recalled_ = 0;  // history_.size(): the new line
  std::string draft_;         // the new line while another one is shown
};

}  // namespace phasor::tools
