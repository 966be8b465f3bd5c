// The list of tokens, and the added tokens that are matched in the text before the model runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "phasor/text/tokenizer.hpp"
#include "text/bpe/bpe.hpp"

namespace phasor::text {

enum class TokenKind : std::uint8_t {  // GGUF's and SentencePiece's numbers
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

struct Token {
  std::string text;
  TokenKind kind = TokenKind::normal;
};

// Ids are below this limit, so that an untrusted file cannot cause a huge allocation.
inline constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 24;

// Offsets in a text are below 2^31, even if each space becomes three bytes.
inline constexpr std::size_t kMaxTextBytes = std::size_t{1} << 29;

class Vocabulary {
 public:
  // An empty token, and all but the first of unused ones that share a text, cannot be found.
  //
  // throws   Error(invalid_argument): no token, too many, a text that is not UTF-8 or repeats
  explicit Vocabulary(std::vector<Token> tokens);
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  [[nodiscard]] std::int32_t size() const noexcept {
    return static_cast<std::int32_t>(tokens_.size());
  }
  [[nodiscard]] const Token& operator[](std::int64_t id) const noexcept {
    return tokens_[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] std::optional<std::int32_t> find(std::string_view text) const noexcept;
  // "<0x0A>" of kind byte.
  [[nodiscard]] std::optional<std::int32_t> find_byte(unsigned char byte) const noexcept;

 private:
  std::vector<Token> tokens_;
  std::unordered_map<std::string_view, std::int32_t> ids_;
};

// "<0x0A>" as its byte.
[[nodiscard]] std::optional<unsigned char> byte_of(std::string_view text) noexcept;
[[nodiscard]] std::string byte_token(unsigned char byte);

// A token that is matched as a whole, with the names of tokenizer.json.
struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = false;      // a control token
  bool normalized = false;   // matched in normalised text, not in the original
  bool left_strip = false;   // includes the spaces before it
  bool right_strip = false;  // and after it
  bool single_word = false;  // not next to a word character
};

// Finds added tokens: the leftmost match, the longest of these.
class AddedMatcher {
 public:
  void add(AddedToken token);
  [[nodiscard]] bool empty() const noexcept { return tokens_.empty(); }
  // Passes all of the text in order: text between tokens to `plain` with its offset, tokens to
  // `token`. SpecialText::as_text treats special tokens as plain text.
  void split(std::string_view text, SpecialText special,
             const std::function<void(std::string_view, std::size_t)>& plain,
             const std::function<void(std::int32_t)>& token) const;

 private:
  struct Match {
    std::size_t begin = 0, end = 0;
    const AddedToken* token = nullptr;
  };
  [[nodiscard]] Match next(std::string_view text, std::size_t from) const noexcept;

  std::vector<AddedToken> tokens_;
  PairMap edges_;                                     // (node, byte) -> node; 0 is the root
  std::vector<std::int32_t> ends_;                    // the token that ends at a node, or -1
  std::vector<bool> heads_ = std::vector<bool>(256);  // bytes that begin a token
};

// The state of one call of encode().
struct EncodeSession {
  std::vector<std::int64_t> ids;  // the result
  // The range of a word's ids in `ids`: each word is encoded once. Keys point into the text of the
  // call or into `kept`.
  std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> words;
  std::deque<std::string> kept;
  std::vector<Symbol> symbols;
  MergeRoom room;
};

enum class Place : std::uint8_t { text_start, later };

class VocabularyTokenizer : public Tokenizer {
 public:
  [[nodiscard]] std::vector<std::int64_t> encode(std::string_view text,
                                                 SpecialText special) const final;
  [[nodiscard]] bool is_special(std::int64_t id) const final;
  [[nodiscard]] std::int64_t size() const final { return vocabulary_.size(); }
  [[nodiscard]] std::optional<std::int64_t> find(std::string_view token) const final;

 protected:
  // Added tokens with `normalized` must already be normalised.
  VocabularyTokenizer(Vocabulary vocabulary, std::vector<AddedToken> added);

  // Text as the tokens of the vocabulary expect it; the default changes nothing.
  [[nodiscard]] virtual std::string normalise(std::string_view text, Place place) const;
  [[nodiscard]] virtual bool normalises() const noexcept { return false; }
  virtual void encode_plain(std::string_view text, Place place, EncodeSession& session) const = 0;

  // throws   Error(out_of_range)
  [[nodiscard]] const Token& at(std::int64_t id) const;

  Vocabulary vocabulary_;

 private:
  AddedMatcher raw_, normalised_;
};

// Adds `end`, and the known end-of-turn tokens of the vocabulary, to `stops`.
void complete_stops(SpecialTokens& specials, const Vocabulary& vocabulary);

}  // namespace phasor::text
