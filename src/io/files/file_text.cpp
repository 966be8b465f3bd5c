#include "phasor/io/internal/file_text.hpp"

#include <algorithm>

#include "phasor/core/internal/visible_text.hpp"

namespace phasor::io {

std::string one_line(std::string_view text, std::size_t longest) {
  std::size_t size = std::min(text.size(), longest);
  // Not in the middle of a character: its later bytes are 10xxxxxx.
  while (size > 0 && size < text.size() && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80)
    --size;
  const std::string line = core::visible_text(text.substr(0, size));
  return size < text.size() ? line + "..." : line;
}

std::string in_quotes(std::string_view text, std::size_t longest) {
  std::string out = "'";
  for (const char c : text.substr(0, longest)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return out + (text.size() > longest ? "...'" : "'");
}

std::string quoted_name(std::string_view name) {
  constexpr std::size_t kLongest = 120;
  return in_quotes(name, kLongest);
}

Error file_error(std::string_view name, std::string_view text) {
  return {ErrorCode::io, message(name, ": ", text)};
}

Error in_file(std::string_view name, const Error& error) {
  return {error.code(), message(name, ": ", error.what())};
}

}  // namespace phasor::io
