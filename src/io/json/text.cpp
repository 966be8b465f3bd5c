// Whole JSON texts, and the errors in them.
#include <algorithm>

#include "io/json/library.hpp"
#include "phasor/io/internal/json.hpp"

namespace phasor::io {
namespace {

// The end of the string that begins at text[first], which is its quotation mark.
[[nodiscard]] std::size_t end_of_string(std::string_view text, std::size_t first) {
  std::size_t at = first + 1;
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return std::min(at + 1, text.size());
}

[[nodiscard]] std::string with_words_quoted(std::string_view text) {
  std::string quoted;
  quoted.reserve(text.size() + 16);
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    bool is_word = false;
    if (text[at] == '"') {
      end = end_of_string(text, at);
    } else {
      for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
        if (!text.substr(at).starts_with(word)) continue;
        end = at + word.size();
        is_word = true;
      }
    }
    if (is_word) quoted += '"';
    quoted += text.substr(at, end - at);
    if (is_word) quoted += '"';
    at = end;
  }
  return quoted;
}

}  // namespace

std::string json_fault_text(std::string_view text, std::size_t position, std::string_view reason) {
  const std::string_view before =
      text.substr(0, std::min(position == 0 ? 0 : position - 1, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  const std::size_t column =
      newline == std::string_view::npos ? before.size() : before.size() - newline - 1;
  return message("invalid JSON at line ", line, ", column ", column + 1, ": ", reason);
}

Json parse_object(std::string_view text) {
  Json parsed = Json::parse(text);
  if (!parsed.is_object()) {
    refuse(message("JSON must be an object at the top level, got ", shown(parsed)));
  }
  return parsed;
}

Json parse_python_object(std::string_view text) {
  const bool has_words =
      text.find("NaN") != std::string_view::npos || text.find("Infinity") != std::string_view::npos;
  return has_words ? parse_object(with_words_quoted(text)) : parse_object(text);
}

std::string shown(const Json& value) {
  return one_line(value.dump({.characters = JsonStyle::Characters::ascii,
                              .bad_utf8 = JsonStyle::BadUtf8::replace,
                              .keys = JsonStyle::Keys::sorted}));
}

}  // namespace phasor::io
