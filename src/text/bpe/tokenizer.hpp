// The two kinds of BPE: over bytes (GPT-2 and its heirs), over characters (SentencePiece's).
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

// What both kinds are made of.
struct BpeParts {
  std::vector<Token> tokens;
  // Two texts that become the token of both together, the best first.
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
  first,       // at the start of the text, where it does not begin with a space
  every,       // and behind every added token
  every_more,  // behind every added token, and even where there is a space already
};

struct CharacterSettings {
  SpacePrefix prefix = SpacePrefix::none;
  bool split_words = false;  // no merge crosses into the next word, whatever the vocabulary says
  bool fuse_unknown = true;  // a run of characters without a token is one unknown token
  bool strip_first = false;  // decode() drops the first space
  bool ignore_merges = false;
  // Of each token, for vocabularies without a list of merges: every pair whose text is a token
  // merges, the highest score first.
  std::vector<float> scores;
};

// Both refuse what no such file may hold: merges of or into texts that are no tokens, a merge that
// stands twice, special ids outside the vocabulary.
//
// throws   Error(invalid_argument)
[[nodiscard]] std::unique_ptr<Tokenizer> make_byte_level_bpe(BpeParts parts,
                                                             ByteLevelSettings settings);
[[nodiscard]] std::unique_ptr<Tokenizer> make_character_bpe(BpeParts parts,
                                                            CharacterSettings settings);

// The characters that stand for the bytes in byte-level BPE, as text and back.
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
  // Words come again and again: the ids of each are copied from where they first stood.
  void encode_once(std::string_view word, EncodeSession& session) const;

  PairMap merges_;

 private:
  std::string description_;
};

}  // namespace phasor::text
