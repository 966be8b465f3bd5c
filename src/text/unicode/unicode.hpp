// UTF-8, and the Unicode properties of characters that tokenizers need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "phasor/text/internal/utf8.hpp"

namespace phasor::text::unicode {

// U+2581, which SentencePiece writes for a space.
inline constexpr std::string_view kVisibleSpace = "\xe2\x96\x81";

// In the order of scripts/make_unicode_tables.py.
enum class Category : std::uint8_t {
  unassigned,
  upper_letter,
  lower_letter,
  title_letter,
  modifier_letter,
  other_letter,
  nonspacing_mark,
  spacing_mark,
  enclosing_mark,
  digit,
  letter_number,
  other_number,
  connector_punctuation,
  dash_punctuation,
  open_punctuation,
  close_punctuation,
  initial_punctuation,
  final_punctuation,
  other_punctuation,
  math_symbol,
  currency_symbol,
  modifier_symbol,
  other_symbol,
  space_separator,
  line_separator,
  paragraph_separator,
  control,
  format,
  surrogate,
  private_use,
};

[[nodiscard]] Category category_of(char32_t c) noexcept;
[[nodiscard]] bool is_letter(char32_t c) noexcept;       // \p{L}
[[nodiscard]] bool is_number(char32_t c) noexcept;       // \p{N}
[[nodiscard]] bool is_punctuation(char32_t c) noexcept;  // \p{P}
[[nodiscard]] bool is_space(char32_t c) noexcept;        // \s: the property White_Space
[[nodiscard]] bool is_word(char32_t c) noexcept;         // \w

// The byte where text stops being UTF-8 (overlong forms, surrogates and code points above
// U+10FFFF are not UTF-8); npos: nowhere.
[[nodiscard]] std::size_t find_invalid(std::string_view text) noexcept;
// The character at `offset`, which is advanced past it.
//
// precondition  text is UTF-8, offset is at the start of a character
[[nodiscard]] char32_t next(std::string_view text, std::size_t& offset) noexcept;
void append(std::string& out, char32_t c);

// How many bytes at the end of `text` begin a character that later bytes may complete: 0 to 3.
[[nodiscard]] std::size_t open_end(std::string_view text) noexcept;
// Each longest incomplete start of a character becomes one U+FFFD, and so does each byte that starts
// none.
[[nodiscard]] std::string replace_invalid(std::string_view text);
// Any bytes in a message: in single quotes, one line, invalid UTF-8 replaced.
[[nodiscard]] std::string quoted(std::string_view text);

// precondition for all below: text is UTF-8
// Normalisation forms C and D.
[[nodiscard]] std::string to_nfc(std::string_view text);
[[nodiscard]] std::string to_nfd(std::string_view text);
// Lower case, character by character, without rules that depend on neighbours (final sigma).
void append_lower(std::string& out, char32_t c);

}  // namespace phasor::text::unicode
