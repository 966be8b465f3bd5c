// The two kinds of BPE: over bytes (GPT-2 and later), over characters (SentencePiece).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/bpe/bpe.hpp"
#include "text/pretokenizer.hpp"
#include "text/tokenizer/vocabulary.hpp"

namespace phasor::text {

enum class Normaliser : std::uint8_t { none, nfc };

// The parts of both kinds.
struct BpeParts {
  std::vector<Token> tokens;
  // Pairs of texts that merge into the token of their concatenation, the best first.
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<AddedToken> added;
  SpecialTokens specials;  // stops are completed from the vocabulary
  std::string chat_template;
  std::string description;
};

struct ByteLevelSettings {
  std::vector<SplitRule> rules;
  Normaliser normaliser = Normaliser::none;
  bool prefix_space = false;   // a space before text that has none
  bool ignore_merges = false;  // a word that is a token is that token
};

// How spaces become U+2581, and where one is added.
enum class SpacePrefix : std::uint8_t {
  none,
  first,       // at the start of the text, unless it begins with a space
  every,       // and after every added token
  every_more,  // as `every`, even before a space
};

struct CharacterSettings {
  SpacePrefix prefix = SpacePrefix::none;
  bool split_words = false;  // no merge crosses into the next word, whatever the vocabulary says
  bool fuse_unknown = true;  // consecutive characters without a token become one unknown token
  bool strip_first = false;  // decode() drops the first space
  bool ignore_merges = false;
  // Of each token, for vocabularies without a list of merges: every pair whose text is a token
  // merges, the highest score first.
  std::vector<float> scores;
};

// throws   Error(invalid_argument): merges of or into texts that are not tokens, a repeated merge,
//          special ids outside the vocabulary
[[nodiscard]] std::unique_ptr<Tokenizer> make_byte_level_bpe(BpeParts parts,
                                                             ByteLevelSettings settings);
[[nodiscard]] std::unique_ptr<Tokenizer> make_character_bpe(BpeParts parts,
                                                            CharacterSettings settings);

// Bytes as the characters that represent them in byte-level BPE, and back.
[[nodiscard]] std::string to_byte_characters(std::string_view bytes);
[[nodiscard]] std::optional<std::string> from_byte_characters(std::string_view text);

// Spaces as U+2581 and back.
[[nodiscard]] std::string to_visible_spaces(std::string_view text);
[[nodiscard]] std::string from_visible_spaces(std::string_view text);

class BpeTokenizer : public VocabularyTokenizer {
 public:
  [[nodiscard]] std::string description() const final { return description_; }

 protected:
  explicit BpeTokenizer(BpeParts parts);
  virtual void encode_word(std::string_view word, EncodeSession& session) const = 0;
  // Encodes a word once per call; the ids of repeated words are copied.
  void encode_once(std::string_view word, EncodeSession& session) const;

  PairMap merges_;

 private:
  std::string description_;
};

}  // namespace phasor::text
