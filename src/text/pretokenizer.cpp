#include "text/pretokenizer.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "text/unicode/unicode.hpp"

namespace phasor::text {
namespace {

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Of Mistral's Tekken tokenizers.
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// ' ?[^(\s|[.,!?...])]+' with U+2026, U+3002, U+FF0C, U+3001, U+0964, U+06D4 and U+060C after the '?'.
constexpr std::string_view kBloom =
    " ?[^(\\s|[.,!?\xe2\x80\xa6\xe3\x80\x82\xef\xbc\x8c\xe3\x80\x81\xe0\xa5\xa4\xdb\x94\xd8"
    "\x8c])]+";
constexpr std::u32string_view kBloomPunctuation =
    U"(|).,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c";

// The classes of characters that the expressions distinguish.
enum class Kind : std::uint8_t { space, letter, number, other };

Kind kind_of(char32_t c) noexcept {
  if (unicode::is_letter(c)) return Kind::letter;
  if (unicode::is_number(c)) return Kind::number;
  return unicode::is_space(c) ? Kind::space : Kind::other;
}

struct Character {
  char32_t c = 0;
  Kind kind = Kind::space;
  std::size_t end = 0;  // where the next one begins
};

Character at(std::string_view text, std::size_t offset) noexcept {
  Character found;
  found.end = offset;
  found.c = unicode::next(text, found.end);
  found.kind = kind_of(found.c);
  return found;
}

// The end of the run of one kind, of at most `most` characters.
std::size_t run_end(Kind kind, std::string_view text, std::size_t offset,
                    std::size_t most = std::string_view::npos) noexcept {
  for (; most > 0 && offset < text.size(); --most) {
    const Character next = at(text, offset);
    if (next.kind != kind) break;
    offset = next.end;
  }
  return offset;
}

bool is_newline(char32_t c) noexcept { return c == '\r' || c == '\n'; }

// \s+(?!\S)|\s+: a run of spaces without its last one, which belongs to the next word.
std::size_t spaces_end(std::string_view text, std::size_t begin) noexcept {
  std::size_t last = begin, end = begin;
  while (end < text.size()) {
    const Character next = at(text, end);
    if (next.kind != Kind::space) break;
    last = end;
    end = next.end;
  }
  return end == text.size() || last == begin ? end : last;
}

// The end of 's|'t|'re|'ve|'m|'ll|'d at `begin`; `begin` when there is none.
std::size_t contraction_end(std::string_view text, std::size_t begin) noexcept {
  if (text[begin] != '\'') return begin;
  const std::string_view rest = text.substr(begin + 1);
  for (const std::string_view tail : {"s", "t", "re", "ve", "m", "ll", "d"})
    if (rest.substr(0, tail.size()) == tail) return begin + 1 + tail.size();
  return begin;
}

// The same in any case. The long s (U+017F) is a small s to a regular expression that ignores case.
std::size_t contraction_end_any_case(std::string_view text, std::size_t begin) noexcept {
  if (text[begin] != '\'') return begin;
  constexpr std::string_view kLongS = "\xc5\xbf";
  if (text.substr(begin + 1, kLongS.size()) == kLongS) return begin + 1 + kLongS.size();
  std::array<char, 3> lower{'\'', 0, 0};
  for (std::size_t i = 1; i < lower.size() && begin + i < text.size(); ++i) {
    const char c = text[begin + i];
    lower[i] = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  }
  const std::size_t end = contraction_end({lower.data(), lower.size()}, 0);
  return begin + end;
}

std::size_t gpt2_end(std::string_view text, std::size_t begin) noexcept {
  if (const std::size_t end = contraction_end(text, begin); end != begin) return end;
  Character first = at(text, begin);
  if (first.c == ' ' && first.end < text.size()) {
    const Character second = at(text, first.end);
    if (second.kind != Kind::space) first = second;
  }
  if (first.kind == Kind::space) return spaces_end(text, begin);
  return run_end(first.kind, text, first.end);
}

std::size_t spaces_or_newlines_end(std::string_view text, std::size_t begin) noexcept {
  // \s*[\r\n]+: through the last newline of the run.
  const std::size_t run = run_end(Kind::space, text, begin);
  const std::size_t newline = text.substr(begin, run - begin).find_last_of("\r\n");
  if (newline != std::string_view::npos) return begin + newline + 1;
  return spaces_end(text, begin);
}

std::size_t llama3_end(std::string_view text, std::size_t begin, std::size_t digits) noexcept {
  if (const std::size_t end = contraction_end_any_case(text, begin); end != begin) return end;
  const Character first = at(text, begin);
  if (first.kind == Kind::letter) return run_end(Kind::letter, text, first.end);
  if (first.kind == Kind::number) return run_end(Kind::number, text, first.end, digits - 1);
  Character body = first;
  if (first.end < text.size()) {
    const Character second = at(text, first.end);
    if (second.kind == Kind::letter && !is_newline(first.c))
      return run_end(Kind::letter, text, second.end);
    if (first.c == ' ' && second.kind == Kind::other) body = second;
  }
  if (body.kind == Kind::other) {
    std::size_t end = run_end(Kind::other, text, body.end);
    while (end < text.size() && is_newline(static_cast<unsigned char>(text[end]))) ++end;
    return end;
  }
  return spaces_or_newlines_end(text, begin);
}

// What Tekken distinguishes in a word; marks count as letters of both cases.
enum class Case : std::uint8_t { none, upper, lower, both };
Case case_of(char32_t c) noexcept {
  using unicode::Category;
  switch (unicode::category_of(c)) {
    case Category::upper_letter:
    case Category::title_letter:
      return Case::upper;
    case Category::lower_letter:
      return Case::lower;
    case Category::modifier_letter:
    case Category::other_letter:
    case Category::nonspacing_mark:
    case Category::spacing_mark:
    case Category::enclosing_mark:
      return Case::both;
    default:
      return Case::none;
  }
}

// The end of the run of characters that are not of the other case.
std::size_t case_run_end(Case wanted, std::string_view text, std::size_t offset) noexcept {
  while (offset < text.size()) {
    const Character next = at(text, offset);
    const Case found = case_of(next.c);
    if (found != wanted && found != Case::both) break;
    offset = next.end;
  }
  return offset;
}

// [upper]*[lower]+ at `begin`, as a backtracking matcher finds it; npos: no match.
std::size_t lower_word_end(std::string_view text, std::size_t begin) noexcept {
  const std::size_t upper = case_run_end(Case::upper, text, begin);
  const std::size_t end = case_run_end(Case::lower, text, upper);
  if (end != upper) return end;
  // Letters of both cases may end the word: through the last one of the run.
  std::size_t last = std::string_view::npos;
  for (std::size_t offset = begin; offset < upper;) {
    const Character next = at(text, offset);
    if (case_of(next.c) == Case::both) last = next.end;
    offset = next.end;
  }
  return last;
}

// [upper]+[lower]* at `begin`; npos: no match.
std::size_t upper_word_end(std::string_view text, std::size_t begin) noexcept {
  const std::size_t upper = case_run_end(Case::upper, text, begin);
  return upper == begin ? std::string_view::npos : case_run_end(Case::lower, text, upper);
}

std::size_t tekken_end(std::string_view text, std::size_t begin) noexcept {
  const Character first = at(text, begin);
  // One character before a word; each form of a word is tried with it, then without.
  const bool prefix =
      first.kind != Kind::letter && first.kind != Kind::number && !is_newline(first.c);
  for (const auto& word_end : {lower_word_end, upper_word_end}) {
    if (prefix) {
      const std::size_t end = word_end(text, first.end);
      if (end != std::string_view::npos) return end;
    }
    if (const std::size_t end = word_end(text, begin); end != std::string_view::npos) return end;
  }
  if (first.kind == Kind::number) return first.end;
  Character body = first;
  if (first.c == ' ' && first.end < text.size()) {
    const Character second = at(text, first.end);
    if (second.kind == Kind::other) body = second;
  }
  if (body.kind != Kind::other) return spaces_or_newlines_end(text, begin);
  std::size_t end = run_end(Kind::other, text, body.end);
  while (end < text.size() &&
         (is_newline(static_cast<unsigned char>(text[end])) || text[end] == '/'))
    ++end;
  return end;
}

// The end of ' ?[^...]+' at `begin`; `begin` when there is none.
std::size_t bloom_word_end(std::string_view text, std::size_t begin) noexcept {
  const auto in_word = [](const Character& c) {
    return c.kind != Kind::space && kBloomPunctuation.find(c.c) == std::u32string_view::npos;
  };
  std::size_t end = begin;
  if (const Character first = at(text, begin); first.c == ' ') end = first.end;
  const std::size_t word = end;
  while (end < text.size()) {
    const Character next = at(text, end);
    if (!in_word(next)) break;
    end = next.end;
  }
  return end == word ? begin : end;
}

// A word, or everything up to the next one.
std::size_t bloom_end(std::string_view text, std::size_t begin) noexcept {
  if (const std::size_t end = bloom_word_end(text, begin); end != begin) return end;
  std::size_t end = begin;
  while (end < text.size() && bloom_word_end(text, end) == end) end = at(text, end).end;
  return end;
}

std::size_t digits_end(std::string_view text, std::size_t begin, std::size_t most) noexcept {
  if (at(text, begin).kind == Kind::number) return run_end(Kind::number, text, begin, most);
  std::size_t end = begin;
  while (end < text.size()) {
    const Character next = at(text, end);
    if (next.kind == Kind::number) break;
    end = next.end;
  }
  return end;
}

}  // namespace

std::optional<SplitRule> rule_of_regex(std::string_view regex) noexcept {
  if (regex == kGpt2) return SplitRule::gpt2;
  if (regex == kQwen2) return SplitRule::qwen2;
  if (regex == kLlama3) return SplitRule::llama3;
  if (regex == kTekken) return SplitRule::tekken;
  if (regex == kBloom) return SplitRule::bloom;
  if (regex == R"(\p{N})") return SplitRule::digits;
  if (regex == R"(\p{N}+)") return SplitRule::digit_runs;
  return std::nullopt;
}

std::size_t piece_end(SplitRule rule, std::string_view text, std::size_t begin) {
  switch (rule) {
    case SplitRule::gpt2:
      return gpt2_end(text, begin);
    case SplitRule::qwen2:
      return llama3_end(text, begin, 1);
    case SplitRule::llama3:
      return llama3_end(text, begin, 3);
    case SplitRule::digits:
      return digits_end(text, begin, 1);
    case SplitRule::digit_runs:
      return digits_end(text, begin, std::string_view::npos);
    case SplitRule::bloom:
      return bloom_end(text, begin);
    case SplitRule::tekken:
      return tekken_end(text, begin);
  }
  return text.size();
}

std::optional<NamedPretokenizer> pretokenizer_of(std::string_view name) {
  using Names = std::initializer_list<std::string_view>;
  const auto is_one_of = [&](Names names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const std::vector<SplitRule> digits_then_gpt2{SplitRule::digits, SplitRule::gpt2};
  if (is_one_of({"gpt-2", "gpt2", "olmo", "mpt", "phi-2", "jais"}))
    return NamedPretokenizer{{SplitRule::gpt2}};
  if (is_one_of({"smollm", "starcoder", "refact", "codeshell"}))
    return NamedPretokenizer{digits_then_gpt2};
  // Qwen2 and Command R normalise text to NFC in their own tokenizers; the file does not say so.
  if (name == "command-r") return NamedPretokenizer{digits_then_gpt2, true};
  if (name == "qwen2") return NamedPretokenizer{{SplitRule::qwen2}, true};
  if (is_one_of({"deepseek-r1-qwen", "stablelm2"})) return NamedPretokenizer{{SplitRule::qwen2}};
  if (is_one_of({"llama-bpe", "llama3", "llama-v3", "falcon3"}))
    return NamedPretokenizer{{SplitRule::llama3}, false, true, true};
  if (is_one_of({"bloom", "gpt3-finnish", "poro-chat"}))
    return NamedPretokenizer{{SplitRule::bloom}};
  if (name == "tekken") return NamedPretokenizer{{SplitRule::tekken}, false, true, true};
  if (is_one_of({"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}))
    return NamedPretokenizer{{SplitRule::llama3}};
  return std::nullopt;
}

}  // namespace phasor::text
