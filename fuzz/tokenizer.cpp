// tokenizer.json, SentencePiece models and text. A file that parses must encode any text; byte-level
// BPE must restore any UTF-8 with every pre-tokenizer; other input gives an error of one line.
#include "phasor/text/tokenizer.hpp"

#include <array>
#include <memory>
#include <string>

#include "input.hpp"
#include "text/bpe/tokenizer.hpp"
#include "text/unicode/unicode.hpp"

using namespace phasor;
using text::Tokenizer;

namespace {

void use(const Tokenizer& tokenizer, std::string_view text) {
  for (const auto special : {text::SpecialText::parse, text::SpecialText::as_text}) {
    fuzz::allow_refusal([&] {
      const std::vector<std::int64_t> ids = tokenizer.encode(text, special);
      for (const std::int64_t id : ids) fuzz::require(id >= 0 && id < tokenizer.size());
      const std::string back = tokenizer.decode(ids);
      fuzz::require(text::unicode::find_invalid(back) == std::string_view::npos);
    });
  }
}

void use(const Result<std::unique_ptr<Tokenizer>>& parsed) {
  if (!parsed) return fuzz::require_one_line(parsed.error());
  for (const std::string_view text :
       {"The  quick \n brown's 12345 fox", "\xe4\xb8\xad e\xcc\x81 \xf0\x9f\x98\x80", "<s>a</s> b"})
    use(**parsed, text);
}

// All bytes, a few merges, one tokenizer for each pre-tokenizer.
const Tokenizer& byte_level(std::size_t rule) {
  static const auto all = [] {
    std::array<std::unique_ptr<Tokenizer>, 5> made;
    for (std::size_t i = 0; i < made.size(); ++i) {
      text::BpeParts parts;
      for (int byte = 0; byte < 256; ++byte)
        parts.tokens.push_back({text::to_byte_characters(std::string(1, static_cast<char>(byte)))});
      for (const std::string_view pair : {"aa", "he", "  ", "\n\n", "\xe4\xb8"}) {
        parts.merges.emplace_back(text::to_byte_characters(pair.substr(0, 1)),
                                  text::to_byte_characters(pair.substr(1)));
        parts.tokens.push_back({text::to_byte_characters(pair)});
      }
      text::ByteLevelSettings settings;
      settings.rules = {static_cast<text::SplitRule>(i)};
      made[i] = text::make_byte_level_bpe(std::move(parts), std::move(settings));
    }
    return made;
  }();
  return *all[rule % all.size()];
}

void round_trip(const Tokenizer& tokenizer, std::string_view text) {
  fuzz::allow_refusal([&] {
    const std::vector<std::int64_t> ids = tokenizer.encode(text);
    fuzz::require(tokenizer.decode(ids) == text);
    text::TextStream stream;
    std::string streamed;
    for (const std::int64_t id : ids) streamed += stream.push(tokenizer.piece(id));
    fuzz::require(streamed + stream.finish() == text);
  });
  // A stream of bytes gives the same as replace_invalid() of the whole text.
  text::TextStream stream;
  std::string streamed;
  for (const char byte : text) streamed += stream.push(std::string_view(&byte, 1));
  fuzz::require(streamed + stream.finish() == text::unicode::replace_invalid(text));
}

}  // namespace

// The first byte selects the reader: `{` starts a tokenizer.json, S is followed by a SentencePiece
// model, any other byte by text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > fuzz::kMaxInput) return 0;
  const std::string_view input = fuzz::text_of(data, size);
  if (input.front() == '{') {
    use(text::parse_tokenizer_json(input, "file"));
  } else if (input.front() == 'S') {
    use(text::parse_sentencepiece(input.substr(1), "file"));
  } else {
    const std::string_view text = input.substr(1);
    round_trip(byte_level(data[0]), text);
    if (text::unicode::find_invalid(text) == std::string_view::npos) {
      const std::string composed = text::unicode::to_nfc(text);
      fuzz::require(text::unicode::to_nfc(composed) == composed);
      fuzz::require(text::unicode::to_nfc(text::unicode::to_nfd(text)) == composed);
    }
  }
  return 0;
}
