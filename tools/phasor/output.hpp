// What verbs print. Text of models (tokens, names, metadata) may hold sequences that a terminal obeys:
// they move the cursor, rename the window, reorder the line. Of several ranks, rank 0 prints.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <string_view>
#include <utility>

namespace phasor::tools {

// Where write_out() and print_out() write: to stdout, or to stderr when stdout carries data.
enum class TextStream : std::uint8_t { out, err };
void set_text_stream(TextStream stream) noexcept;

// To stdout: core::visible_text() on a terminal, the bytes as they are in a file or pipe. False after a
// write error. `text` holds whole characters.
bool write_out(std::string_view text);
// To stderr, which people read: always core::visible_text().
void write_err(std::string_view text);

template <class... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) {
  write_out(fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void print_err(fmt::format_string<Args...> format, Args&&... args) {
  write_err(fmt::format(format, std::forward<Args>(args)...));
}

// Whether stderr is a terminal, on which a line can be redrawn.
[[nodiscard]] bool can_redraw() noexcept;
// Clears the line of the cursor on stderr.
void erase_line();

}  // namespace phasor::tools
