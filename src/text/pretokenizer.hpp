// Splits text into words before byte-level BPE: hand-written scanners for the regular expressions of
// the families.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace phasor::text {

// Every character belongs to a piece.
enum class SplitRule : std::uint8_t {
  gpt2,        // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  qwen2,       // contractions in any case, letters with one character before them, single digits
  llama3,      // as qwen2, but up to three digits together
  digits,      // every \p{N} alone, the rest as it is
  digit_runs,  // runs of \p{N} alone, the rest as it is
  bloom,       // words without punctuation, with one space before them, and what is between them
  tekken,      // words end where a capital follows a small letter; single digits
};

// The rule for the regular expression of a Split in a tokenizer.json, by its exact text.
[[nodiscard]] std::optional<SplitRule> rule_of_regex(std::string_view regex) noexcept;

// The end of the piece that begins at `begin`.
//
// precondition  text is UTF-8, begin < text.size() is a piece's beginning
[[nodiscard]] std::size_t piece_end(SplitRule rule, std::string_view text, std::size_t begin);

// Splits by the first rule, each piece by the next, and passes the final pieces to `take` in order.
template <class Take>
void split(std::span<const SplitRule> rules, std::string_view text, const Take& take) {
  if (rules.empty()) {
    if (!text.empty()) take(text);
    return;
  }
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = piece_end(rules.front(), text, begin);
    split(rules.subspan(1), text.substr(begin, end - begin), take);
    begin = end;
  }
}

// What a GGUF file names with tokenizer.ggml.pre.
struct NamedPretokenizer {
  std::vector<SplitRule> rules;
  bool compose = false;        // normalise the text to NFC first
  bool ignore_merges = false;  // a word that is a token is that token
  bool add_begin = false;      // unless the file says otherwise
};
[[nodiscard]] std::optional<NamedPretokenizer> pretokenizer_of(std::string_view name);

}  // namespace phasor::text
