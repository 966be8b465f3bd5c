#include <array>

#include "text/bpe/tokenizer.hpp"
#include "text/unicode/unicode.hpp"

namespace phasor::text {
namespace {

constexpr char32_t kByteCharacters = 0x144;  // all are below

// Printable bytes represent themselves; the others use code points from U+0100.
const std::array<char32_t, 256>& characters_of_bytes() {
  static const std::array<char32_t, 256> table = [] {
    std::array<char32_t, 256> made{};
    char32_t spare = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool is_printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
      made[byte] = is_printable ? byte : spare++;
    }
    return made;
  }();
  return table;
}

class ByteLevelBpe final : public BpeTokenizer {
 public:
  ByteLevelBpe(BpeParts parts, ByteLevelSettings settings)
      : BpeTokenizer(std::move(parts)), settings_(std::move(settings)) {
    for (std::size_t byte = 0; byte < bytes_.size(); ++byte) {
      std::string text;
      unicode::append(text, characters_of_bytes()[byte]);
      bytes_[byte] = vocabulary_.find(text).value_or(-1);
    }
  }

  [[nodiscard]] std::string piece(std::int64_t id) const override {
    const Token& token = at(id);
    if (token.kind != TokenKind::normal) return token.text;
    return from_byte_characters(token.text).value_or(token.text);
  }

 private:
  [[nodiscard]] bool normalises() const noexcept override {
    return settings_.normaliser != Normaliser::none || settings_.prefix_space;
  }
  [[nodiscard]] std::string normalise(std::string_view text, Place /*place*/) const override {
    std::string out =
        settings_.normaliser == Normaliser::nfc ? unicode::to_nfc(text) : std::string(text);
    if (settings_.prefix_space && !out.starts_with(' ')) out.insert(out.begin(), ' ');
    return out;
  }

  void encode_plain(std::string_view text, Place /*place*/, EncodeSession& session) const override {
    split(settings_.rules, text, [&](std::string_view word) { encode_once(word, session); });
  }

  void encode_word(std::string_view word, EncodeSession& session) const override {
    if (settings_.ignore_merges) {
      if (const auto whole = vocabulary_.find(to_byte_characters(word))) {
        session.ids.push_back(*whole);
        return;
      }
    }
    session.symbols.clear();
    for (std::size_t i = 0; i < word.size(); ++i) {
      const std::int32_t id = bytes_[static_cast<unsigned char>(word[i])];
      session.symbols.push_back({id, static_cast<std::uint32_t>(i)});
    }
    merge_symbols(merges_, session.symbols, session.room);
    for (const Symbol& symbol : session.symbols)
      session.ids.push_back(symbol.id >= 0 ? symbol.id : unknown(word, symbol.begin));
  }

  [[nodiscard]] std::int64_t unknown(std::string_view word, std::size_t offset) const {
    if (specials_.unknown) return *specials_.unknown;
    refuse(message("encode: the vocabulary has no token for byte ",
                   static_cast<int>(static_cast<unsigned char>(word[offset])),
                   " and no unknown token"));
  }

  ByteLevelSettings settings_;
  std::array<std::int32_t, 256> bytes_{};
};

}  // namespace

std::string to_byte_characters(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes)
    unicode::append(out, characters_of_bytes()[static_cast<unsigned char>(c)]);
  return out;
}

std::optional<std::string> from_byte_characters(std::string_view text) {
  static const std::array<std::int16_t, kByteCharacters> bytes = [] {
    std::array<std::int16_t, kByteCharacters> made{};
    made.fill(-1);
    for (std::size_t byte = 0; byte < 256; ++byte)
      made[characters_of_bytes()[byte]] = static_cast<std::int16_t>(byte);
    return made;
  }();
  std::string out;
  out.reserve(text.size());
  for (std::size_t offset = 0; offset < text.size();) {
    const char32_t c = unicode::next(text, offset);
    if (c >= bytes.size() || bytes[c] < 0) return std::nullopt;
    out.push_back(static_cast<char>(bytes[c]));
  }
  return out;
}

std::unique_ptr<Tokenizer> make_byte_level_bpe(BpeParts parts, ByteLevelSettings settings) {
  return std::make_unique<ByteLevelBpe>(std::move(parts), std::move(settings));
}

}  // namespace phasor::text
