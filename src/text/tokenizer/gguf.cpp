// The tokenizer of a GGUF file's metadata.
#include <cmath>
#include <utility>
#include <variant>

#include "phasor/io/internal/file_text.hpp"
#include "phasor/io/tensors.hpp"
#include "text/bpe/tokenizer.hpp"
#include "text/sentencepiece/unigram.hpp"
#include "text/unicode/unicode.hpp"

namespace phasor::text {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

// The tokenizer.ggml.* keys of a file. Errors name the file and the key.
class Keys {
 public:
  explicit Keys(const io::GgufFile& file) : file_(file) {}

  [[noreturn]] void refuse(std::string_view name, const std::string& what,
                           ErrorCode code = ErrorCode::invalid_argument) const {
    phasor::refuse(code, message(file_.name(), ": key '", path(name), "' ", what));
  }

  [[nodiscard]] std::optional<std::string> text(std::string_view name) const {
    return file_.text(path(name)).value_or_throw();
  }
  [[nodiscard]] std::optional<bool> flag(std::string_view name) const {
    return file_.flag(path(name)).value_or_throw();
  }
  [[nodiscard]] bool has(std::string_view name) const {
    return file_.metadata().contains(path(name));
  }

  [[nodiscard]] const std::vector<std::string>* texts(std::string_view name) const {
    const auto found = file_.metadata().find(path(name));
    if (found == file_.metadata().end()) return nullptr;
    const auto* const list = std::get_if<std::vector<std::string>>(&found->second);
    if (list == nullptr) refuse(name, "must be a list of strings");
    return list;
  }

  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view name) const {
    return file_.integers(path(name)).value_or_throw().value_or(std::vector<std::int64_t>{});
  }
  // One for each token, or none.
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view name, std::size_t count) const {
    const auto list = file_.integers(path(name)).value_or_throw();
    if (!list) return {};
    require_count(name, list->size(), count);
    return *list;
  }
  [[nodiscard]] std::vector<float> floats(std::string_view name, std::size_t count) const {
    const auto found = file_.metadata().find(path(name));
    if (found == file_.metadata().end()) return {};
    const auto* const list = std::get_if<std::vector<double>>(&found->second);
    if (list == nullptr) refuse(name, "must be a list of floats");
    require_count(name, list->size(), count);
    std::vector<float> values;
    values.reserve(list->size());
    for (const double value : *list) {
      if (!std::isfinite(value)) refuse(name, message("must be finite, got ", value));
      values.push_back(static_cast<float>(value));
    }
    return values;
  }

  [[nodiscard]] std::optional<std::int64_t> id(std::string_view name, std::size_t count) const {
    const auto value = file_.integer(path(name)).value_or_throw();
    // Some writers store 0xffffffff for a missing id.
    if (!value || *value == -1 || *value == 0xffffffff) return std::nullopt;
    if (*value < 0 || *value >= static_cast<std::int64_t>(count))
      refuse(name, message("must be an id from 0 to ", count - 1, ", got ", *value));
    return value;
  }

  [[nodiscard]] static std::string path(std::string_view name) {
    return std::string(kPrefix) + std::string(name);
  }

 private:
  void require_count(std::string_view name, std::size_t got, std::size_t wanted) const {
    if (got != wanted)
      refuse(name, message("must have one entry per token, ", wanted, ", got ", got));
  }

  const io::GgufFile& file_;
};

std::vector<Token> read_tokens(const Keys& keys) {
  const std::vector<std::string>* const texts = keys.texts("tokens");
  if (texts == nullptr) keys.refuse("tokens", "is missing");
  const std::vector<std::int64_t> kinds = keys.integers("token_type", texts->size());
  std::vector<Token> tokens;
  tokens.reserve(texts->size());
  for (std::size_t i = 0; i < texts->size(); ++i) {
    Token& token = tokens.emplace_back();
    token.text = (*texts)[i];
    if (kinds.empty()) continue;
    if (kinds[i] < 1 || kinds[i] > 6)
      keys.refuse("token_type", message("must have values from 1 to 6, got ", kinds[i]));
    token.kind = static_cast<TokenKind>(kinds[i]);
  }
  return tokens;
}

SpecialTokens read_specials(const Keys& keys, std::size_t count) {
  SpecialTokens specials;
  specials.begin = keys.id("bos_token_id", count);
  specials.end = keys.id("eos_token_id", count);
  specials.pad = keys.id("padding_token_id", count);
  specials.unknown = keys.id("unknown_token_id", count);
  specials.mask = keys.id("mask_token_id", count);
  specials.separate = keys.id("seperator_token_id", count);  // the format's own spelling
  specials.classify = keys.id("cls_token_id", count);
  for (const std::string_view name : {"eot_token_id", "eom_token_id"})
    if (const auto id = keys.id(name, count)) specials.stops.push_back(*id);
  return specials;
}

void set_add_begin(SpecialTokens& specials, const Keys& keys, bool otherwise) {
  const std::optional<bool> wanted = keys.flag("add_bos_token");
  specials.add_begin = wanted.value_or(otherwise) && specials.begin.has_value();
  if (wanted.value_or(false) && !specials.begin)
    keys.refuse("add_bos_token", "is true, but bos_token_id is missing");
}

std::vector<std::pair<std::string, std::string>> read_merges(const Keys& keys) {
  const std::vector<std::string>* const lines = keys.texts("merges");
  if (lines == nullptr) keys.refuse("merges", "is missing");
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(lines->size());
  for (const std::string& line : *lines) {
    // The characters that represent bytes contain no space.
    const std::size_t space = line.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string::npos) {
      keys.refuse("merges", message("must have two tokens with a space between them, got ",
                                    unicode::quoted(line)));
    }
    merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return merges;
}

std::vector<AddedToken> added_tokens(const std::vector<Token>& tokens) {
  std::vector<AddedToken> added;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool is_special =
        tokens[i].kind == TokenKind::control || tokens[i].kind == TokenKind::unknown;
    if (!is_special && tokens[i].kind != TokenKind::user_defined) continue;
    added.push_back({tokens[i].text, static_cast<std::int32_t>(i), is_special});
  }
  return added;
}

std::unique_ptr<Tokenizer> byte_level(const Keys& keys, BpeParts parts) {
  const std::string name = keys.text("pre").value_or("");
  std::optional<NamedPretokenizer> pre = pretokenizer_of(name);
  if (!pre) {
    keys.refuse("pre",
                message("must be a known pre-tokenizer (gpt-2, smollm, starcoder, refact, "
                        "command-r, qwen2, llama-bpe, tekken, bloom, ...), got ",
                        unicode::quoted(name)),
                ErrorCode::unsupported);
  }
  for (std::size_t i = 0; i < parts.tokens.size(); ++i) {
    const Token& token = parts.tokens[i];
    if (token.kind != TokenKind::normal) continue;
    if (unicode::find_invalid(token.text) != std::string_view::npos ||
        !from_byte_characters(token.text)) {
      keys.refuse("tokens", message("must consist of the 256 characters for bytes, got ",
                                    unicode::quoted(token.text), " as token ", i));
    }
  }
  parts.merges = read_merges(keys);
  parts.added = added_tokens(parts.tokens);
  parts.description = "bpe/" + name;
  set_add_begin(parts.specials, keys, pre->add_begin);
  return make_byte_level_bpe(
      std::move(parts), {std::move(pre->rules), pre->compose ? Normaliser::nfc : Normaliser::none,
                         keys.flag("add_space_prefix").value_or(false), pre->ignore_merges});
}

// SentencePiece's BPE: merges by score.
std::unique_ptr<Tokenizer> by_scores(const Keys& keys, BpeParts parts) {
  if (keys.flag("remove_extra_whitespaces").value_or(false))
    keys.refuse("remove_extra_whitespaces", "must be false, got true", ErrorCode::unsupported);
  if (keys.has("precompiled_charsmap"))
    keys.refuse("precompiled_charsmap", "is not supported with BPE", ErrorCode::unsupported);
  if (!keys.has("scores")) keys.refuse("scores", "is missing");
  if (!keys.has("token_type")) keys.refuse("token_type", "is missing");
  CharacterSettings settings;
  settings.scores = keys.floats("scores", parts.tokens.size());
  const bool prefix = keys.flag("add_space_prefix").value_or(true);
  settings.prefix = prefix ? SpacePrefix::every_more : SpacePrefix::none;
  settings.strip_first = prefix;

  // The defaults of the format.
  const auto is_special = [&](std::size_t id, TokenKind kind) {
    return id < parts.tokens.size() && parts.tokens[id].kind == kind;
  };
  SpecialTokens& specials = parts.specials;
  if (!keys.has("unknown_token_id") && is_special(0, TokenKind::unknown)) specials.unknown = 0;
  if (!keys.has("bos_token_id") && is_special(1, TokenKind::control)) specials.begin = 1;
  if (!keys.has("eos_token_id") && is_special(2, TokenKind::control)) specials.end = 2;
  set_add_begin(specials, keys, true);

  parts.added = added_tokens(parts.tokens);
  for (AddedToken& token : parts.added) {
    if (token.special) continue;
    // Matched in normalised text, as SentencePiece does: spaces are U+2581.
    token.normalized = true;
    token.content = to_visible_spaces(token.content);
  }
  parts.description = "bpe/llama";
  return make_character_bpe(std::move(parts), std::move(settings));
}

// SentencePiece's unigram model (T5).
std::unique_ptr<Tokenizer> unigram(const Keys& keys, const BpeParts& parts) {
  Unigram model;
  model.tokens = parts.tokens;
  if (!keys.has("scores")) keys.refuse("scores", "is missing");
  if (!keys.has("token_type")) keys.refuse("token_type", "is missing");
  model.scores = keys.floats("scores", parts.tokens.size());
  model.adds_prefix = keys.flag("add_space_prefix").value_or(true);
  model.removes_spaces = keys.flag("remove_extra_whitespaces").value_or(false);
  for (const std::int64_t byte : keys.integers("precompiled_charsmap"))
    model.character_map += static_cast<char>(byte);
  TokenizerSettings settings;
  const auto text_of = [&](const std::optional<std::int64_t>& id) -> std::optional<std::string> {
    if (!id) return std::nullopt;
    return parts.tokens[static_cast<std::size_t>(*id)].text;
  };
  settings.begin = text_of(parts.specials.begin);
  settings.end = text_of(parts.specials.end);
  settings.pad = text_of(parts.specials.pad);
  settings.add_begin = keys.flag("add_bos_token").value_or(false);
  settings.stops = parts.specials.stops;
  settings.chat_template = parts.chat_template;
  for (const AddedToken& token : added_tokens(parts.tokens))
    if (!token.special) settings.added.push_back(token);
  return tokenizer_of_sentencepiece(serialised(model), settings);
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> tokenizer_of_gguf(const io::GgufFile& file) {
  const Keys keys(file);
  try {
    const std::string model = keys.text("model").value_or("");
    if (model != "gpt2" && model != "llama" && model != "t5") {
      keys.refuse("model",
                  message("must be 'gpt2' (byte-level BPE), 'llama' (SentencePiece BPE) or 't5' "
                          "(SentencePiece unigram), got ",
                          unicode::quoted(model)),
                  ErrorCode::unsupported);
    }
    BpeParts parts;
    parts.tokens = read_tokens(keys);
    parts.specials = read_specials(keys, parts.tokens.size());
    parts.chat_template = file.text("tokenizer.chat_template").value_or_throw().value_or("");
    if (model == "t5") return unigram(keys, parts);
    return model == "gpt2" ? byte_level(keys, std::move(parts)) : by_scores(keys, std::move(parts));
  } catch (const Error& error) {
    const std::string_view text = error.what();
    if (text.starts_with(file.name())) return error;
    return io::in_file(file.name(), error);
  }
}

}  // namespace phasor::text
