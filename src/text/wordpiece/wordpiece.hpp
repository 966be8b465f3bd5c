// WordPiece: BERT's cut into words, then each word into the longest pieces of a vocabulary; with
// RoFormer's pre-segmentation, Chinese text first into the vocabulary's own words.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "phasor/text/tokenizer.hpp"

namespace phasor::text {

// A longer word is [UNK], as in BERT; also the longest Chinese word that is searched for.
inline constexpr std::size_t kMaxWordCharacters = 100;

// Text as BERT reads it before it looks for words: control characters removed, every space U+0020; with
// LetterCase::lower also without accents and in lower case.
//
// precondition  text is UTF-8
[[nodiscard]] std::string bert_normalised(std::string_view text, LetterCase letters);

enum class BertWord : std::uint8_t {
  word,        // between spaces, punctuation and ideographs
  ideographs,  // a run of them; BERT makes each a word
  punctuation,
};
// Passes the words of normalised text to `take` in order.
void split_bert_words(std::string_view normalised,
                      const std::function<void(std::string_view, BertWord)>& take);

class WordPiece final : public Tokenizer {
 public:
  // precondition  tokens are UTF-8, not empty and differ from each other; [UNK] is among them
  WordPiece(std::vector<std::string> tokens, Segmentation segmentation, LetterCase letters);

  [[nodiscard]] std::vector<std::int64_t> encode(std::string_view text,
                                                 SpecialText special) const override;
  [[nodiscard]] std::string piece(std::int64_t id) const override;
  [[nodiscard]] bool is_special(std::int64_t id) const override;
  // Pieces "##..." continue the word before them. No space next to Chinese, Japanese or Korean text,
  // before closing and after opening punctuation.
  [[nodiscard]] std::string decode(std::span<const std::int64_t> ids) const override;
  [[nodiscard]] std::int64_t size() const override;
  [[nodiscard]] std::optional<std::int64_t> find(std::string_view token) const override;
  [[nodiscard]] std::string description() const override;

 private:
  using Ids = std::vector<std::int64_t>;
  void encode_text(std::string_view text, Ids& out) const;
  void encode_word(std::string_view word, Ids& out) const;
  void encode_run(std::string_view run, Ids& out) const;
  void require_id(std::int64_t id) const;

  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, std::int64_t> ids_;  // views into tokens_
  std::vector<std::int64_t> parsed_;                        // special tokens that text may name
  std::size_t longest_word_ = 1;                            // of ideographs, in characters
  Segmentation segmentation_;
  LetterCase letters_;
};

}  // namespace phasor::text
