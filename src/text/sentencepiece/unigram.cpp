#include "text/sentencepiece/unigram.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>

#include "text/tokenizer/stages.hpp"
#include "text/unicode/unicode.hpp"

namespace phasor::text {
namespace {

using io::Json;

// Fields of a protocol buffer, as model.cpp reads them.
void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
void put_number(std::string& out, unsigned field, std::uint64_t value) {
  put_varint(out, field << 3);
  put_varint(out, value);
}
void put_bytes(std::string& out, unsigned field, std::string_view bytes) {
  put_varint(out, field << 3 | 2);
  put_varint(out, bytes.size());
  out += bytes;
}
void put_float(std::string& out, unsigned field, float value) {
  put_varint(out, field << 3 | 5);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  for (unsigned shift = 0; shift < 32; shift += 8) out += static_cast<char>(bits >> shift);
}

std::string from_base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string out;
  out.reserve(text.size() * 3 / 4);
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) {
      refuse(message("normalizer: precompiled_charsmap must be base64, got '",
                     io::one_line(std::string_view(&c, 1)), "'"));
    }
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count);
  }
  return out;
}

void read_normalizer(const Json& root, Unigram& unigram) {
  for_each_stage(root, "normalizer", "normalizers", [&](const Json& stage, const auto& type) {
    const bool collapses = type == "Replace" && pattern_of(stage, "Regex") == " {2,}";
    if (type == "Precompiled") {
      unigram.character_map = from_base64(text_member(stage, "precompiled_charsmap").value_or(""));
    } else if (collapses) {
      unigram.removes_spaces = true;
    } else if (type != "Strip") {  // of spaces: SentencePiece strips when it collapses them
      refuse(ErrorCode::unsupported,
             message("normalizer: must be Precompiled, Strip or Replace of several spaces for a "
                     "Unigram model, got ",
                     io::one_line(type)));
    }
  });
}

void read_pre_tokenizer(const Json& root, Unigram& unigram, TokenizerSettings& settings) {
  bool has_spaces = false;
  for_each_stage(root, "pre_tokenizer", "pretokenizers", [&](const Json& stage, const auto& type) {
    if (type == "WhitespaceSplit" && !has_spaces) {
      unigram.removes_spaces = settings.any_space = true;
    } else if (type == "Metaspace" && !has_spaces) {
      has_spaces = true;
      const std::string scheme = prepend_scheme(stage);
      unigram.adds_prefix = scheme != "never";
      if (!settings.legacy) settings.legacy = scheme != "first";
    } else {
      refuse(ErrorCode::unsupported,
             message("pre_tokenizer: must be WhitespaceSplit, then Metaspace "
                     "for a Unigram model, got ",
                     io::one_line(type)));
    }
  });
  if (!has_spaces) {
    refuse(ErrorCode::unsupported,
           message("pre_tokenizer: must be Metaspace for a Unigram model, got ",
                   io::shown(root.contains("pre_tokenizer") ? root["pre_tokenizer"] : Json())));
  }
}

void read_pieces(const Json& model, Unigram& unigram) {
  const Json* const vocab = member(model, "vocab");
  if (vocab == nullptr || !vocab->is_array())
    refuse("model: \"vocab\" of Unigram is missing or not a list of pieces and scores");
  const bool has_bytes = flag_member(model, "byte_fallback").value_or(false);
  for (const Json& entry : *vocab) {
    const bool fits = entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
                      entry[1].is_number() && std::isfinite(entry[1].get<double>());
    if (!fits) {
      refuse(message("model: an entry of vocab must be a piece and its score, got ",
                     io::shown(entry)));
    }
    const std::string text = entry[0].get<std::string>();
    const bool is_byte = has_bytes && byte_of(text).has_value();
    unigram.tokens.push_back({text, is_byte ? TokenKind::byte : TokenKind::normal});
    unigram.scores.push_back(static_cast<float>(entry[1].get<double>()));
  }
  const Json* const unknown = member(model, "unk_id");
  const bool known = unknown != nullptr && unknown->is_number_integer() &&
                     unknown->get<double>() >= 0.0 &&
                     unknown->get<double>() < static_cast<double>(unigram.tokens.size());
  if (!known) {
    refuse(message("model: unk_id must be from 0 to ", unigram.tokens.size(), " - 1, got ",
                   unknown == nullptr ? "null" : io::shown(*unknown)));
  }
  unigram.tokens[unknown->get<std::size_t>()].kind = TokenKind::unknown;
}

}  // namespace

std::string serialised(const Unigram& unigram) {
  std::string out;
  bool has_bytes = false;
  for (std::size_t i = 0; i < unigram.tokens.size(); ++i) {
    const Token& token = unigram.tokens[i];
    has_bytes = has_bytes || token.kind == TokenKind::byte;
    std::string piece;
    put_bytes(piece, 1, token.text);
    put_float(piece, 2, unigram.scores[i]);
    put_number(piece, 3, static_cast<std::uint64_t>(token.kind));
    put_bytes(out, 1, piece);
  }
  std::string trainer, normalizer;
  put_number(trainer, 3, 1);  // unigram
  put_number(trainer, 35, has_bytes ? 1 : 0);
  put_bytes(out, 2, trainer);
  put_bytes(normalizer, 2, unigram.character_map);
  put_number(normalizer, 3, unigram.adds_prefix ? 1 : 0);
  put_number(normalizer, 4, unigram.removes_spaces ? 1 : 0);
  put_bytes(out, 3, normalizer);
  return out;
}

Unigram unigram_of_json(const Json& root, const std::vector<AddedToken>& added,
                        TokenizerSettings& settings) {
  Unigram unigram;
  read_normalizer(root, unigram);
  read_pre_tokenizer(root, unigram, settings);
  read_pieces(*member(root, "model"), unigram);
  for (const AddedToken& token : added) {
    const auto at = static_cast<std::size_t>(token.id);
    if (at < unigram.tokens.size() && unigram.tokens[at].text != token.content) {
      refuse(message("id ", at, " belongs to two tokens, '", io::one_line(unigram.tokens[at].text),
                     "' and '", io::one_line(token.content), "'"));
    }
    if (token.special && at < unigram.tokens.size() &&
        unigram.tokens[at].kind == TokenKind::normal) {
      unigram.tokens[at].kind = TokenKind::control;
    }
    const bool known =
        std::any_of(settings.added.begin(), settings.added.end(),
                    [&](const AddedToken& other) { return other.content == token.content; });
    if (!known) settings.added.push_back(token);
  }
  return unigram;
}

}  // namespace phasor::text
