// SentencePiece models, encoded by the SentencePiece library.
#include <utility>

#include "phasor/io/internal/file_text.hpp"
#include "text/bpe/tokenizer.hpp"
#include "text/tokenizer/settings.hpp"

#ifdef PHASOR_SENTENCEPIECE
#include <sentencepiece_processor.h>

#include "phasor/core/internal/large_memory.hpp"
#include "text/sentencepiece/model.hpp"
#include "text/unicode/unicode.hpp"

namespace phasor::text {
namespace {

using sentencepiece::SentencePieceProcessor;

// The library reads freed memory after an allocation that fails. It needs up to 62 bytes per byte of
// a model and 290 per byte of a text.
constexpr std::size_t kBytesPerModelByte = 128, kBytesPerTextByte = 512, kBytesAlways = 1U << 20;

std::unique_ptr<SentencePieceProcessor> load(const std::string& bytes) {
  core::require_memory(bytes.size() * kBytesPerModelByte + kBytesAlways);
  auto processor = std::make_unique<SentencePieceProcessor>();
  const auto status = processor->LoadFromSerializedProto(bytes);
  if (!status.ok())
    refuse(message("cannot load the SentencePiece model: ", io::one_line(status.message(), 200)));
  return processor;
}

// Field 3 (normalizer_spec), 2 bytes: its field 3 (add_dummy_prefix) is 0. A later message of the
// same field is merged into the earlier one.
constexpr std::string_view kNoPrefix("\x1a\x02\x18\x00", 4);

std::string with_plain_spaces(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = unicode::next(text, at);
    if (unicode::is_space(c)) {
      out += ' ';
    } else {
      unicode::append(out, c);
    }
  }
  return out;
}

class SentencePieceTokenizer final : public VocabularyTokenizer {
 public:
  SentencePieceTokenizer(const SentencePieceModel& model, std::vector<Token> tokens,
                         const TokenizerSettings& settings, std::vector<AddedToken> added)
      : VocabularyTokenizer(Vocabulary(std::move(tokens)), std::move(added)),
        adds_prefix_(model.adds_prefix),
        any_space_(settings.any_space),
        processor_(load(model.bytes)) {
    // Models with legacy = false get a space at the start of the text only.
    if (adds_prefix_ && settings.legacy == false)
      without_prefix_ = load(model.bytes + std::string(kNoPrefix));
    const auto id_of = [](int id) -> std::optional<std::int64_t> {
      if (id < 0) return std::nullopt;
      return id;
    };
    specials_.begin = id_of(processor_->bos_id());
    specials_.end = id_of(processor_->eos_id());
    specials_.pad = id_of(processor_->pad_id());
    specials_.unknown = id_of(processor_->unk_id());
    specials_.add_begin = specials_.begin.has_value();
    const FindToken find = [&](const std::string& text) -> std::optional<std::int64_t> {
      return vocabulary_.find(text);
    };
    apply_settings(settings, find, vocabulary_.size(), specials_);
    complete_stops(specials_, vocabulary_);
    chat_template_ = settings.chat_template;
  }

  [[nodiscard]] std::string piece(std::int64_t id) const override {
    const Token& token = at(id);
    if (token.kind == TokenKind::byte) return {static_cast<char>(*byte_of(token.text))};
    if (token.kind == TokenKind::control || token.kind == TokenKind::unknown) return token.text;
    return from_visible_spaces(token.text);
  }

  [[nodiscard]] std::string decode(std::span<const std::int64_t> ids) const override {
    std::string text = Tokenizer::decode(ids);
    if (adds_prefix_ && text.starts_with(' ')) text.erase(0, 1);
    return text;
  }

  [[nodiscard]] std::string description() const override { return "sentencepiece"; }

 private:
  void encode_plain(std::string_view text, Place place, EncodeSession& session) const override {
    const bool bare = place == Place::later && without_prefix_ != nullptr;
    core::require_memory(text.size() * kBytesPerTextByte + kBytesAlways);
    std::vector<int> ids;
    const std::string spaced = any_space_ ? with_plain_spaces(text) : std::string();
    const auto status = (bare ? without_prefix_ : processor_)
                            ->Encode(any_space_ ? std::string_view(spaced) : text, &ids);
    if (!status.ok())
      refuse(message("encode: SentencePiece failed: ", io::one_line(status.message(), 200)));
    session.ids.insert(session.ids.end(), ids.begin(), ids.end());
  }

  bool adds_prefix_, any_space_;
  std::unique_ptr<SentencePieceProcessor> processor_, without_prefix_;
};

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_of_sentencepiece(std::string_view bytes,
                                                      const TokenizerSettings& settings) {
  const SentencePieceModel model = read_sentencepiece(bytes);
  std::vector<Token> tokens = model.tokens;
  std::vector<AddedToken> added;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].kind == TokenKind::control || tokens[i].kind == TokenKind::unknown)
      added.push_back({tokens[i].text, static_cast<std::int32_t>(i), true});
  }
  const std::size_t most = 2 * (tokens.size() + settings.added.size()) + 1024;
  for (const AddedToken& token : settings.added) {
    const auto id = static_cast<std::size_t>(token.id);
    if (id >= most) {
      refuse(message("the id of '", io::one_line(token.content), "' must be below ", most, ", got ",
                     id));
    }
    if (id >= tokens.size()) tokens.resize(id + 1, Token{"", TokenKind::unused});
    const TokenKind kind = token.special ? TokenKind::control : TokenKind::user_defined;
    const bool is_reserved = tokens[id].kind == TokenKind::control ||
                             tokens[id].kind == TokenKind::unknown ||
                             tokens[id].kind == TokenKind::byte;
    if (tokens[id].text != token.content || !is_reserved) tokens[id] = {token.content, kind};
  }
  added.insert(added.end(), settings.added.begin(), settings.added.end());
  return std::make_unique<SentencePieceTokenizer>(model, std::move(tokens), settings,
                                                  std::move(added));
}

}  // namespace phasor::text

#else

namespace phasor::text {

std::unique_ptr<Tokenizer> tokenizer_of_sentencepiece(std::string_view /*bytes*/,
                                                      const TokenizerSettings& /*settings*/) {
  refuse(ErrorCode::unsupported,
         "SentencePiece models are not supported by this build; build with PHASOR_SENTENCEPIECE");
}

}  // namespace phasor::text

#endif

namespace phasor::text {

Result<std::unique_ptr<Tokenizer>> parse_sentencepiece(std::string_view bytes,
                                                       std::string_view name) {
  try {
    return tokenizer_of_sentencepiece(bytes, {});
  } catch (const Error& error) {
    return io::in_file(name, error);
  }
}

}  // namespace phasor::text
