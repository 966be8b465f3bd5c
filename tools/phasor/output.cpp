#include "output.hpp"

#include <unistd.h>

#include "phasor/core/internal/visible_text.hpp"
#include "ranks.hpp"

namespace phasor::tools {
namespace {

bool write_bytes(std::FILE* file, std::string_view text) {
  if (!is_first_rank()) return true;
  return std::fwrite(text.data(), 1, text.size(), file) == text.size();
}

TextStream g_text_stream = TextStream::out;

}  // namespace

void set_text_stream(TextStream stream) noexcept { g_text_stream = stream; }

bool write_out(std::string_view text) {
  if (g_text_stream == TextStream::err) {
    write_err(text);
    return true;
  }
  static const bool at_terminal = ::isatty(STDOUT_FILENO) != 0;
  if (!at_terminal) return write_bytes(stdout, text);
  return write_bytes(stdout, core::visible_text(text, core::Breaks::keep));
}

void write_err(std::string_view text) {
  write_bytes(stderr, core::visible_text(text, core::Breaks::keep));
}

bool can_redraw() noexcept {
  static const bool at_terminal = ::isatty(STDERR_FILENO) != 0;
  return at_terminal;
}

void erase_line() { write_bytes(stderr, "\r\033[K"); }

}  // namespace phasor::tools
