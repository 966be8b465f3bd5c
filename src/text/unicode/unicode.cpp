#include "text/unicode/unicode.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/io/internal/file_text.hpp"
#include "text/unicode/tables.hpp"

namespace phasor::text::unicode {
namespace {

constexpr char32_t kReplacement = 0xfffd;

// Hangul syllables: the standard's section 3.12.
constexpr char32_t kSyllable = 0xac00, kLead = 0x1100, kVowel = 0x1161, kTail = 0x11a7;
constexpr char32_t kLeads = 19, kVowels = 21, kTails = 28, kSyllables = kLeads * kVowels * kTails;

Category look_up(char32_t c) noexcept {
  const CategoryRun* const end = kCategoryRuns + kCategoryRunsCount;
  const CategoryRun* const after =
      std::upper_bound(kCategoryRuns, end, c,
                       [](char32_t code, const CategoryRun& run) { return code < run.first; });
  return static_cast<Category>(std::prev(after)->category);
}

bool is_between(Category c, Category first, Category last) noexcept {
  return c >= first && c <= last;
}

// One character of text that may not be UTF-8.
struct Step {
  char32_t c = 0;
  std::size_t size = 0;                     // of the character, or of its longest valid start
  enum { whole, cut, wrong } kind = whole;  // cut: the text ends too early
};

// The first byte limits the second: table 3-7 of the standard.
Step step(std::string_view text, std::size_t offset) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  const unsigned char head = byte(0);
  if (head < 0x80) return {head, 1, Step::whole};
  if (head < 0xc2 || head > 0xf4) return {0, 1, Step::wrong};
  const std::size_t size = head < 0xe0 ? 2 : head < 0xf0 ? 3 : 4;
  unsigned char low = 0x80, high = 0xbf;
  if (head == 0xe0) low = 0xa0;
  if (head == 0xed) high = 0x9f;
  if (head == 0xf0) low = 0x90;
  if (head == 0xf4) high = 0x8f;
  char32_t c = head & (0x7fU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if (offset + i == text.size()) return {0, i, Step::cut};
    if (byte(i) < low || byte(i) > high) return {0, i, Step::wrong};
    c = c << 6 | (byte(i) & 0x3fU);
    low = 0x80;
    high = 0xbf;
  }
  return {c, size, Step::whole};
}

std::uint8_t combining_class(char32_t c) noexcept {
  if (c < 0x300) return 0;
  const ClassRun* const end = kClassRuns + kClassRunsCount;
  const ClassRun* const run = std::lower_bound(
      kClassRuns, end, c, [](const ClassRun& r, char32_t code) { return r.last < code; });
  return run != end && run->first <= c ? run->combining_class : std::uint8_t{0};
}

void append_decomposed(std::vector<char32_t>& out, char32_t c) {
  if (c < 0xc0) return out.push_back(c);
  if (c >= kSyllable && c < kSyllable + kSyllables) {
    const char32_t index = c - kSyllable;
    out.push_back(kLead + index / (kVowels * kTails));
    out.push_back(kVowel + index % (kVowels * kTails) / kTails);
    if (index % kTails != 0) out.push_back(kTail + index % kTails);
    return;
  }
  const Decomposition* const end = kDecompositions + kDecompositionsCount;
  const Decomposition* const found = std::lower_bound(
      kDecompositions, end, c, [](const Decomposition& d, char32_t code) { return d.code < code; });
  if (found == end || found->code != c) return out.push_back(c);
  append_decomposed(out, found->first);
  if (found->second != 0) append_decomposed(out, found->second);
}

std::optional<char32_t> composed(char32_t first, char32_t second) noexcept {
  if (first >= kLead && first < kLead + kLeads && second >= kVowel && second < kVowel + kVowels)
    return kSyllable + ((first - kLead) * kVowels + (second - kVowel)) * kTails;
  if (first >= kSyllable && first < kSyllable + kSyllables && (first - kSyllable) % kTails == 0 &&
      second > kTail && second < kTail + kTails)
    return first + (second - kTail);
  const Composition* const end = kCompositions + kCompositionsCount;
  const std::pair<char32_t, char32_t> key{first, second};
  const Composition* const found =
      std::lower_bound(kCompositions, end, key, [](const Composition& c, const auto& wanted) {
        return std::pair<char32_t, char32_t>{c.first, c.second} < wanted;
      });
  if (found == end || found->first != first || found->second != second) return std::nullopt;
  return found->code;
}

std::vector<char32_t> decompose(std::string_view text) {
  std::vector<char32_t> out;
  out.reserve(text.size());
  for (std::size_t offset = 0; offset < text.size();) append_decomposed(out, next(text, offset));
  // Marks are sorted by class; the sort is stable.
  const auto by_class = [](char32_t a, char32_t b) {
    return combining_class(a) < combining_class(b);
  };
  const auto is_starter = [](char32_t c) { return combining_class(c) == 0; };
  for (auto begin = out.begin(); begin != out.end();) {
    const auto end = std::find_if(begin, out.end(), is_starter);
    if (end - begin > 1) std::stable_sort(begin, end, by_class);
    begin = end == out.end() ? end : std::next(end);
  }
  return out;
}

void compose(std::vector<char32_t>& text) {
  std::size_t size = 0;
  std::optional<std::size_t> starter;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char32_t c = text[i];
    const std::uint8_t own = combining_class(c);
    if (starter) {
      // Blocked by a mark in between of the same or a higher class, or by another starter.
      const bool adjacent = *starter + 1 == size;
      const std::uint8_t last = adjacent ? std::uint8_t{0} : combining_class(text[size - 1]);
      if (adjacent || (last < own && last != 0)) {
        if (const std::optional<char32_t> whole = composed(text[*starter], c)) {
          text[*starter] = *whole;
          continue;
        }
      }
    }
    text[size] = c;
    if (own == 0) starter = size;
    ++size;
  }
  text.resize(size);
}

std::string encoded(const std::vector<char32_t>& text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) append(out, c);
  return out;
}

// Nothing below U+00C0 decomposes, nothing below U+0300 composes with the character before it.
bool is_below(std::string_view text, char32_t limit) noexcept {
  for (std::size_t offset = 0; offset < text.size();)
    if (next(text, offset) >= limit) return false;
  return true;
}

}  // namespace

Category category_of(char32_t c) noexcept {
  static const std::array<Category, 0x100> low = [] {
    std::array<Category, 0x100> table{};
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = look_up(static_cast<char32_t>(i));
    return table;
  }();
  return c < low.size() ? low[c] : look_up(c);
}

bool is_letter(char32_t c) noexcept {
  return is_between(category_of(c), Category::upper_letter, Category::other_letter);
}
bool is_number(char32_t c) noexcept {
  return is_between(category_of(c), Category::digit, Category::other_number);
}
bool is_punctuation(char32_t c) noexcept {
  return is_between(category_of(c), Category::connector_punctuation, Category::other_punctuation);
}
bool is_space(char32_t c) noexcept {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 ||
         is_between(category_of(c), Category::space_separator, Category::paragraph_separator);
}
bool is_word(char32_t c) noexcept {
  const Category category = category_of(c);
  return is_between(category, Category::upper_letter, Category::digit) ||
         category == Category::letter_number || category == Category::connector_punctuation;
}

std::size_t find_invalid(std::string_view text) noexcept {
  for (std::size_t offset = 0; offset < text.size();) {
    const Step s = step(text, offset);
    if (s.kind != Step::whole) return offset;
    offset += s.size;
  }
  return std::string_view::npos;
}

void require_utf8(std::string_view text, std::string_view where) {
  const std::size_t offset = find_invalid(text);
  if (offset == std::string_view::npos) return;
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(text[offset]);
  refuse(message(where, ": text must be UTF-8, got byte 0x", kDigits[byte >> 4], kDigits[byte & 15],
                 " at offset ", offset));
}

char32_t next(std::string_view text, std::size_t& offset) noexcept {
  const Step s = step(text, offset);
  offset += s.size;
  return s.c;
}

void append(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  const auto put_rest = [&](char32_t shift) { put(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xc0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xe0 | c >> 12);
    } else {
      put(0xf0 | c >> 18);
      put_rest(12);
    }
    put_rest(6);
  }
  put_rest(0);
}

std::size_t open_end(std::string_view text) noexcept {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const std::size_t offset = text.size() - back;
    if ((static_cast<unsigned char>(text[offset]) & 0xc0) == 0x80) continue;
    const Step s = step(text, offset);
    return s.kind == Step::cut && s.size == back ? back : 0;
  }
  return 0;
}

std::string replace_invalid(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t offset = 0; offset < text.size();) {
    const Step s = step(text, offset);
    if (s.kind == Step::whole) {
      out.append(text, offset, s.size);
    } else {
      append(out, kReplacement);
    }
    offset += s.size;
  }
  return out;
}

std::string quoted(std::string_view text) {
  return "'" + io::one_line(replace_invalid(text)) + "'";
}

std::string to_nfd(std::string_view text) {
  if (is_below(text, 0xc0)) return std::string(text);
  return encoded(decompose(text));
}

std::string to_nfc(std::string_view text) {
  if (is_below(text, 0x300)) return std::string(text);
  std::vector<char32_t> characters = decompose(text);
  compose(characters);
  return encoded(characters);
}

void append_lower(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
    return;
  }
  // Dotted capital I is the only character that becomes two.
  if (c == 0x130) {
    out.push_back('i');
    return append(out, 0x307);
  }
  const LowerCase* const end = kLowerCase + kLowerCaseCount;
  const LowerCase* const found = std::lower_bound(
      kLowerCase, end, c, [](const LowerCase& l, char32_t code) { return l.code < code; });
  append(out, found != end && found->code == c ? found->lower : c);
}

}  // namespace phasor::text::unicode
