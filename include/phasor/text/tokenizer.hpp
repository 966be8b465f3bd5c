// Text to token ids and back, and conversations to text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/export.h"

namespace phasor::io {
class GgufFile;
}

namespace phasor::text {

enum class SpecialText : std::uint8_t {
  parse,    // "<|im_end|>" in the text is that token
  as_text,  // it is plain text: for untrusted input
};

struct SpecialTokens {
  std::optional<std::int64_t> begin, end, pad, unknown, mask, classify, separate;
  // Tokens that end an answer: `end`, and those that end a turn (<|im_end|>, <|eot_id|>, ...).
  std::vector<std::int64_t> stops;
  bool add_begin = false;  // a prompt starts with `begin`
};

class PHASOR_API Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Neither begin nor end tokens are added: see specials().add_begin.
  //
  // throws   Error(invalid_argument), with the byte offset: text that is not UTF-8
  [[nodiscard]] virtual std::vector<std::int64_t> encode(
      std::string_view text, SpecialText special = SpecialText::parse) const = 0;
  // The bytes of a token, which may be a part of a character. Special tokens give their own text.
  //
  // throws   Error(out_of_range): an id outside the vocabulary
  [[nodiscard]] virtual std::string piece(std::int64_t id) const = 0;
  // Whether the token is a control token, which is not shown to users.
  [[nodiscard]] virtual bool is_special(std::int64_t id) const = 0;
  // The text of all ids without special tokens; bytes that are not UTF-8 become U+FFFD.
  [[nodiscard]] virtual std::string decode(std::span<const std::int64_t> ids) const;

  [[nodiscard]] virtual std::int64_t size() const = 0;
  [[nodiscard]] const SpecialTokens& specials() const noexcept { return specials_; }
  // The id of a token by its exact text.
  [[nodiscard]] virtual std::optional<std::int64_t> find(std::string_view token) const = 0;
  // "bpe/smollm", "sentencepiece", "wordpiece", ...; for messages.
  [[nodiscard]] virtual std::string description() const = 0;
  // The Jinja chat template of the tokenizer; empty: none.
  [[nodiscard]] const std::string& chat_template() const noexcept { return chat_template_; }

 protected:
  Tokenizer() = default;
  SpecialTokens specials_;
  std::string chat_template_;
};

// A GGUF file, or a folder with tokenizer.json (BPE, WordPiece, Unigram of SentencePiece),
// tokenizer.model or spiece.model (SentencePiece), or vocab.txt (WordPiece; config.json's model_type
// roformer adds its pre-segmentation). tokenizer_config.json and generation_config.json, if present,
// give the special tokens and the chat template.
//
// error    Error(unsupported), with its name: an unknown pre-tokenizer, normaliser or model
[[nodiscard]] PHASOR_API Result<std::unique_ptr<Tokenizer>> read_tokenizer(
    const std::filesystem::path& path);
[[nodiscard]] PHASOR_API Result<std::unique_ptr<Tokenizer>> tokenizer_of_gguf(
    const io::GgufFile& file);
// The text of a tokenizer.json; `name` is the file's name in messages.
[[nodiscard]] PHASOR_API Result<std::unique_ptr<Tokenizer>> parse_tokenizer_json(
    std::string_view text, std::string_view name);
// A serialised SentencePiece model.
[[nodiscard]] PHASOR_API Result<std::unique_ptr<Tokenizer>> parse_sentencepiece(
    std::string_view bytes, std::string_view name);

enum class BeginToken : std::uint8_t {
  as_wanted,  // added if specials().add_begin is set and the text does not start with it
  leave_out,
};
// The ids of a prompt.
//
// throws   Error(invalid_argument) for a text without a token; as Tokenizer::encode
[[nodiscard]] PHASOR_API std::vector<std::int64_t> prompt_ids(
    const Tokenizer& tokenizer, std::string_view text, BeginToken begin = BeginToken::as_wanted);

struct PairIds {
  std::vector<std::int64_t> ids, token_types;
};
// Two sentences as one row: [CLS] a [SEP] b [SEP], token type 0 up to the first [SEP], 1 after it.
// An empty b gives [CLS] a [SEP]. Special tokens are parsed as Tokenizer::encode does.
//
// throws   Error(invalid_argument): a tokenizer without [CLS] or [SEP], text that is not UTF-8
[[nodiscard]] PHASOR_API PairIds encode_pair(const Tokenizer& tokenizer, std::string_view a,
                                             std::string_view b = {});

// How text is split before WordPiece.
enum class Segmentation : std::uint8_t {
  bert,      // at spaces, punctuation and every CJK character
  roformer,  // runs of CJK text first into the vocabulary's own words, then as bert
};
enum class LetterCase : std::uint8_t { keep, lower };  // lower also strips accents
// A vocab.txt: one token per line; ids count from 0.
[[nodiscard]] PHASOR_API Result<std::unique_ptr<Tokenizer>> parse_wordpiece(
    std::string_view vocabulary, std::string_view name, Segmentation segmentation,
    LetterCase letters);

// Joins pieces and returns complete characters, for printing tokens as they are generated.
class PHASOR_API TextStream {
 public:
  // The characters that are complete with this piece; bytes that can never be completed become
  // U+FFFD. If it throws (std::bad_alloc) the stream is unchanged.
  [[nodiscard]] std::string push(std::string_view piece);
  // The incomplete rest, as U+FFFD.
  [[nodiscard]] std::string finish();

 private:
  std::string pending_;
};

// Chat templates: format a conversation as the text that a model was trained on.

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

// The supported formats. The Jinja template of a checkpoint is recognised, not executed.
enum class ChatFormat : unsigned char {
  chatml,
  llama2,
  llama3,
  mistral,     // Mistral 7B v0.1 and v0.2, Mixtral
  mistral_v3,  // Mistral 7B v0.3
  gemma,
  phi3,
  zephyr,
  glm4,
  command_r,
};
[[nodiscard]] PHASOR_API std::string_view name_of(ChatFormat format) noexcept;
// "chatml", "llama3", ...
[[nodiscard]] PHASOR_API Result<ChatFormat> chat_format_of(std::string_view name);
// The format of a checkpoint's template, by its markers.
//
// error    Error(unsupported): no format has the markers of the template
[[nodiscard]] PHASOR_API Result<ChatFormat> recognise_chat_template(std::string_view jinja);
// The system message that the template adds to a conversation without one ("You are a helpful AI
// assistant named SmolLM, ..." of SmolLM2); empty: none.
[[nodiscard]] PHASOR_API std::string default_system_message(std::string_view jinja);

// The format of a checkpoint's conversations, and the system message for a conversation without one;
// empty: none.
struct ChatStyle {
  ChatFormat format = ChatFormat::chatml;
  std::string system;
};
// The style of the tokenizer's template; `format` overrides its format.
//
// throws   Error(unsupported): no template and no format; the errors of chat_format_of() and
//          recognise_chat_template()
[[nodiscard]] PHASOR_API ChatStyle
chat_style(const Tokenizer& tokenizer, const std::optional<std::string>& format = std::nullopt);

// The conversation as the families' own templates write it, up to the start of the assistant's answer,
// without the begin token: SpecialTokens::add_begin says whether the ids start with it. Messages are
// not escaped: the text of a special token in a message becomes that token.
//
// throws   Error(invalid_argument): no message, an unknown role, a system message that is not the
//          first, a last message that is not from user, turns that do not alternate in a format
//          that needs it
[[nodiscard]] PHASOR_API std::string format_chat(ChatFormat format,
                                                 const std::vector<ChatMessage>& messages);

}  // namespace phasor::text
