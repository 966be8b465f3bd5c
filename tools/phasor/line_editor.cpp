#include "line_editor.hpp"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <new>
#include <utility>

namespace phasor::tools {
namespace {

constexpr char control(char letter) { return static_cast<char>(letter & 0x1f); }
constexpr char kEscape = '\x1b', kDelete = '\x7f';

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U; }

// The code point of the character that begins at `at`; `at` moves past it.
std::uint32_t next_code(std::string_view text, std::size_t& at) {
  const auto first = static_cast<unsigned char>(text[at++]);
  std::uint32_t code = first < 0x80U   ? first
                       : first < 0xe0U ? first & 0x1fU
                       : first < 0xf0U ? first & 0x0fU
                                       : first & 0x07U;
  for (; at < text.size() && continues(text[at]); ++at)
    code = code << 6U | (static_cast<unsigned char>(text[at]) & 0x3fU);
  return code;
}

std::size_t columns_of_code(std::uint32_t code) {
  struct Range {
    std::uint32_t first, last;
  };
  constexpr std::array<Range, 5> kCombining = {
      {{0x300, 0x36f}, {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}}};
  constexpr std::array<Range, 9> kWide = {{{0x1100, 0x115f},
                                           {0x2e80, 0xa4cf},
                                           {0xac00, 0xd7a3},
                                           {0xf900, 0xfaff},
                                           {0xfe30, 0xfe6f},
                                           {0xff00, 0xff60},
                                           {0xffe0, 0xffe6},
                                           {0x1f300, 0x1faff},
                                           {0x20000, 0x3fffd}}};
  const auto within = [code](const Range& range) {
    return code >= range.first && code <= range.last;
  };
  if (std::any_of(kCombining.begin(), kCombining.end(), within)) return 0;
  return std::any_of(kWide.begin(), kWide.end(), within) ? 2 : 1;
}

std::size_t terminal_columns() noexcept {
  struct winsize size = {};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void write_terminal(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// Keys one by one, without echo, during its lifetime.
class RawTerminal {
 public:
  RawTerminal() noexcept {
    is_raw_ = ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (!is_raw_) return;
    struct termios raw = before_;
    raw.c_iflag &= ~static_cast<tcflag_t>(ICRNL | IXON | BRKINT | ISTRIP);
    raw.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | IEXTEN | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    is_raw_ = ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
  }
  ~RawTerminal() {
    if (is_raw_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  struct termios before_ = {};
  bool is_raw_ = false;
};

std::optional<char> read_byte() noexcept {
  for (;;) {
    char byte = 0;
    const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got == 1) return byte;
    if (got == 0 || errno != EINTR) return std::nullopt;
  }
}

}  // namespace

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  for (std::size_t at = 0; at < text.size();) columns += columns_of_code(next_code(text, at));
  return columns;
}

void EditedLine::replace(std::string text) {
  text_ = std::move(text);
  cursor_ = text_.size();
}

void EditedLine::insert(std::string_view bytes) {
  text_.insert(cursor_, bytes);
  cursor_ += bytes.size();
}

void EditedLine::left() {
  while (cursor_ > 0 && continues(text_[--cursor_])) {
  }
}

void EditedLine::right() {
  if (cursor_ < text_.size()) ++cursor_;
  while (cursor_ < text_.size() && continues(text_[cursor_])) ++cursor_;
}

void EditedLine::erase_before() {
  const std::size_t end = cursor_;
  left();
  text_.erase(cursor_, end - cursor_);
}

void EditedLine::erase_after() {
  const std::size_t begin = cursor_;
  right();
  text_.erase(begin, cursor_ - begin);
  cursor_ = begin;
}

void EditedLine::erase_word() {
  std::size_t begin = cursor_;
  while (begin > 0 && text_[begin - 1] == ' ') --begin;
  while (begin > 0 && text_[begin - 1] != ' ') --begin;
  text_.erase(begin, cursor_ - begin);
  cursor_ = begin;
}

void EditedLine::erase_to_end() { text_.erase(cursor_); }

void EditedLine::erase_to_begin() {
  text_.erase(0, cursor_);
  cursor_ = 0;
}

LineEditor::LineEditor(std::string prompt) : prompt_(std::move(prompt)) {
  const char* const terminal = std::getenv("TERM");
  const bool dumb = terminal != nullptr && std::string_view(terminal) == "dumb";
  at_terminal_ = ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0 && !dumb;
}

std::optional<std::string> LineEditor::read() {
  if (at_terminal_) return read_edited();
  std::string line;
  if (!std::getline(std::cin, line)) {
    if (std::cin.bad()) throw std::bad_alloc();  // a stream keeps it to itself
    return std::nullopt;
  }
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return line;
}

std::optional<std::string> LineEditor::read_edited() {
  std::fflush(stdout);
  const RawTerminal raw;
  EditedLine line;
  recalled_ = history_.size();
  for (;;) {
    draw(line);
    const std::optional<char> byte = read_byte();
    const Key key = byte ? handle(*byte, line) : Key::end_of_input;
    if (key == Key::none) continue;
    write_terminal("\n");
    if (key == Key::end_of_input) return std::nullopt;
    if (!line.text().empty() && (history_.empty() || history_.back() != line.text()))
      history_.push_back(line.text());
    return line.text();
  }
}

LineEditor::Key LineEditor::handle(char byte, EditedLine& line) {
  switch (byte) {
    case '\r':
    case '\n':
      return Key::end_of_line;
    case control('D'):
      if (line.text().empty()) return Key::end_of_input;
      line.erase_after();
      break;
    case control('C'):
      write_terminal("^C\n");
      line.replace("");
      break;
    case control('H'):
    case kDelete:
      line.erase_before();
      break;
    case control('A'):
      line.to_begin();
      break;
    case control('E'):
      line.to_end();
      break;
    case control('B'):
      line.left();
      break;
    case control('F'):
      line.right();
      break;
    case control('K'):
      line.erase_to_end();
      break;
    case control('U'):
      line.erase_to_begin();
      break;
    case control('W'):
      line.erase_word();
      break;
    case control('L'):
      write_terminal("\033[H\033[2J");
      break;
    case control('P'):
      recall(line, -1);
      break;
    case control('N'):
      recall(line, 1);
      break;
    case kEscape:
      handle_escape(line);
      break;
    default:
      // Bytes of one character come one by one, in order.
      if (static_cast<unsigned char>(byte) >= 0x20) line.insert(std::string_view(&byte, 1));
  }
  return Key::none;
}

// ESC [ A, ESC O A, ESC [ 3 ~
void LineEditor::handle_escape(EditedLine& line) {
  const std::optional<char> kind = read_byte();
  if (!kind || (*kind != '[' && *kind != 'O')) return;
  std::string parameters;
  std::optional<char> last = read_byte();
  for (; last && ((*last >= '0' && *last <= '9') || *last == ';'); last = read_byte())
    parameters += *last;
  if (!last) return;
  const char key = *last != '~'                             ? *last
                   : parameters == "1" || parameters == "7" ? 'H'
                   : parameters == "4" || parameters == "8" ? 'F'
                   : parameters == "3"                      ? kDelete
                                                            : '\0';
  switch (key) {
    case 'A':
      return recall(line, -1);
    case 'B':
      return recall(line, 1);
    case 'C':
      return line.right();
    case 'D':
      return line.left();
    case 'H':
      return line.to_begin();
    case 'F':
      return line.to_end();
    case kDelete:
      return line.erase_after();
    default:
      return;
  }
}

void LineEditor::recall(EditedLine& line, int step) {
  if (step < 0 ? recalled_ == 0 : recalled_ == history_.size()) return;
  if (recalled_ == history_.size()) draft_ = line.text();
  recalled_ = step < 0 ? recalled_ - 1 : recalled_ + 1;
  line.replace(recalled_ == history_.size() ? draft_ : history_[recalled_]);
}

// One row of the terminal; a longer line is shown around the cursor.
void LineEditor::draw(const EditedLine& line) const {
  const std::size_t width = terminal_columns();
  const std::size_t room = width > prompt_.size() + 1 ? width - prompt_.size() - 1 : 1;
  const std::string_view text = line.text();
  std::size_t begin = 0;
  while (columns_of(text.substr(begin, line.cursor() - begin)) > room) (void)next_code(text, begin);
  std::size_t end = begin, columns = 0;
  while (end < text.size()) {
    std::size_t next = end;
    columns += columns_of_code(next_code(text, next));
    if (columns > room) break;
    end = next;
  }
  const std::size_t column = prompt_.size() + columns_of(text.substr(begin, line.cursor() - begin));
  std::string shown = "\r" + prompt_;
  shown.append(text.substr(begin, end - begin)).append("\033[K\r");
  if (column > 0) shown.append("\033[").append(std::to_string(column)).append("C");
  write_terminal(shown);
}

}  // namespace phasor::tools
