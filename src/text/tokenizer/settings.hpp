// The settings in the other files of a tokenizer's folder: tokenizer_config.json, generation_config.json,
// added_tokens.json, chat_template.jinja.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/text/tokenizer.hpp"
#include "text/tokenizer/vocabulary.hpp"

namespace phasor::text {

struct TokenizerSettings {
  std::optional<std::string> begin, end, pad, unknown, mask, classify, separate;  // by their texts
  std::optional<bool> add_begin;
  std::optional<bool> lower_case;  // of WordPiece
  std::optional<bool> legacy;      // SentencePiece: a space is added after special tokens, too
  bool any_space = false;          // SentencePiece: every white space counts as a space
  Segmentation segmentation = Segmentation::bert;  // of WordPiece
  std::vector<AddedToken> added;                   // with their ids
  std::vector<std::int64_t> stops;
  std::string chat_template;
};

// Missing files are skipped.
//
// throws   Error, with the name of the file
[[nodiscard]] TokenizerSettings read_settings(const std::filesystem::path& folder);
// Of the text of tokenizer_config.json alone.
[[nodiscard]] TokenizerSettings parse_settings(std::string_view tokenizer_config);

// Special tokens by their texts in a vocabulary of `size` tokens; absent ones stay as they are in
// `specials`.
//
// throws   Error(invalid_argument): a begin or end token that is not in the vocabulary, stops
//          outside it
using FindToken = std::function<std::optional<std::int64_t>(const std::string&)>;
void apply_settings(const TokenizerSettings& settings, const FindToken& find, std::int64_t size,
                    SpecialTokens& specials);

[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_of_json(std::string_view text,
                                                           const TokenizerSettings& settings);
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_of_sentencepiece(
    std::string_view bytes, const TokenizerSettings& settings);

}  // namespace phasor::text
