#include "phasor/core/internal/visible_text.hpp"

#include <cstddef>

namespace phasor::core {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: not UTF-8
};

// The first character of a text that is not empty: the shortest form, no surrogate, at most U+10FFFF.
Character first_character(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t size = lead < 0xc2   ? 0
                           : lead < 0xe0 ? 2
                           : lead < 0xf0 ? 3
                           : lead < 0xf5 ? 4
                                         : 0;
  if (size == 0 || size > text.size()) return {};
  std::uint32_t code = lead & (0x7fU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  const bool longer = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  if (longer || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {code, size};
}

bool is_obeyed(std::uint32_t code) noexcept {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

void append_hex(std::string& text, std::uint32_t value, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
    text += "0123456789abcdef"[value >> shift & 15];
}

}  // namespace

std::string visible_text(std::string_view text, Breaks breaks) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const Character character = first_character(text);
    const std::size_t bytes = character.bytes == 0 ? 1 : character.bytes;
    const bool is_break = text[0] == '\n' || text[0] == '\t';
    if (is_break && breaks == Breaks::escape) {
      shown += text[0] == '\n' ? "\\n" : "\\t";
    } else if (character.bytes != 0 && (is_break || !is_obeyed(character.code))) {
      shown += text.substr(0, bytes);
    } else if (bytes == 1) {
      shown += "\\x";
      append_hex(shown, static_cast<unsigned char>(text[0]), 2);
    } else {
      shown += "\\u";
      append_hex(shown, character.code, 4);
    }
    text.remove_prefix(bytes);
  }
  return shown;
}

}  // namespace phasor::core
