// SentencePiece models through their library, compared with Phasor's own BPE by scores. The two models in
// data/ were trained by the Python package sentencepiece 0.2.2 on a few English lines: bpe.model
// (420 pieces, byte fallback, spaces kept) and unigram.model (110 pieces).
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>
#include <span>
#include <string>
#include <vector>

#include "phasor/io/internal/file.hpp"
#include "phasor/io/tensors.hpp"
#include "support/gguf_writer.hpp"
#include "text/tokenizer_support.hpp"

namespace phasor::text {
namespace {

using testing::Ids;

std::string model_bytes(const std::string& name) {
  return io::read_text(std::filesystem::path(PHASOR_TEXT_DATA_DIR) / name).value_or_throw();
}

// Null, with the test skipped by the caller, in a build without the library.
std::unique_ptr<Tokenizer> load_sentencepiece(const std::string& name) {
  Result<std::unique_ptr<Tokenizer>> read = parse_sentencepiece(model_bytes(name), name);
  if (!read && std::string(read.error().what()).find("PHASOR_SENTENCEPIECE") != std::string::npos)
    return nullptr;
  return std::move(read).value_or_throw();
}

#define LOAD_OR_SKIP(variable, name)              \
  const auto variable = load_sentencepiece(name); \
  if (variable == nullptr) GTEST_SKIP() << "built without PHASOR_SENTENCEPIECE"

// Expected ids by the Python package.
TEST(SentencePiece, EncodesAsItsLibrary) {
  LOAD_OR_SKIP(bpe, "bpe.model");
  EXPECT_EQ(bpe->encode("The quick brown fox"), (Ids{352, 260, 311, 366, 265, 390, 376, 309, 406}));
  EXPECT_EQ(bpe->encode("  two  spaces "),
            (Ids{382, 382, 261, 396, 384, 382, 263, 402, 388, 395, 298, 382}));
  EXPECT_EQ(bpe->encode("shells\nand shore"), (Ids{296, 14, 388, 285, 263, 335, 272}));
  EXPECT_EQ(bpe->encode("\u4e2d caf\u00e9"),
            (Ids{382, 232, 188, 177, 382, 395, 388, 404, 199, 173}));
  EXPECT_EQ(bpe->encode("a<tool>b"), (Ids{262, 3, 397}));
  EXPECT_EQ(bpe->encode(""), Ids{});
  LOAD_OR_SKIP(unigram, "unigram.model");
  EXPECT_EQ(unigram->encode("The quick brown fox"),
            (Ids{4, 86, 30, 40, 20, 36, 31, 12, 56, 19, 55, 37}));
  EXPECT_EQ(unigram->encode("\u4e2d\u6587!"), (Ids{4, 0}));
}

TEST(SentencePiece, KnowsItsSpecialTokens) {
  LOAD_OR_SKIP(bpe, "bpe.model");
  EXPECT_EQ(bpe->encode("<s>a</s>"), (Ids{1, 262, 2}));
  const Ids plain = bpe->encode("<s>", SpecialText::as_text);
  EXPECT_EQ(bpe->decode(plain), "<s>");
  EXPECT_EQ(bpe->specials().begin, 1);
  EXPECT_EQ(bpe->specials().stops, Ids{2});
  EXPECT_TRUE(bpe->specials().add_begin);
  EXPECT_EQ(bpe->size(), 420);
  EXPECT_EQ(bpe->description(), "sentencepiece");
  EXPECT_EQ(bpe->piece(14), "\n");
  EXPECT_EQ(bpe->decode(Ids{1, 262, 2}), "a");
  EXPECT_THROW((void)bpe->piece(420), Error);
  EXPECT_THROW((void)bpe->encode("\xff"), Error);
}

// The same pieces as GGUF metadata: the scores of a trained BPE model are 0, -1, -2, ...
std::unique_ptr<Tokenizer> as_gguf(const Tokenizer& model) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "<tool>"};
  std::vector<std::int32_t> kinds = {2, 3, 3, 4};
  std::vector<float> scores(4, 0.0F);
  for (std::int64_t id = 4; id < model.size(); ++id) {
    const bool is_byte = id < 260;
    std::string text;
    const char* const digits = "0123456789ABCDEF";
    if (is_byte) text = std::string("<0x") + digits[(id - 4) / 16] + digits[(id - 4) % 16] + ">";
    if (!is_byte)
      for (const char c : model.piece(id)) text += c == ' ' ? "\u2581" : std::string(1, c);
    tokens.push_back(text);
    kinds.push_back(is_byte ? 6 : 1);
    scores.push_back(is_byte ? 0.0F : -static_cast<float>(id - 260));
  }
  io::testing::GgufWriter out;
  out.text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", tokens);
  out.numbers("tokenizer.ggml.scores", scores).numbers("tokenizer.ggml.token_type", kinds);
  const std::string bytes = out.bytes();
  return tokenizer_of_gguf(
             io::GgufFile::parse(std::as_bytes(std::span(bytes)), "m").value_or_throw())
      .value_or_throw();
}

TEST(SentencePiece, AgreesWithBpeByScores) {
  LOAD_OR_SKIP(library, "bpe.model");
  const auto own = as_gguf(*library);
  const std::vector<std::string> parts = {" ",      "  ", "\n",     "the",  "shells", "rotation",
                                          "\u4e2d", "e",  "s",      "he",   "<tool>", "position",
                                          "\u00e9", "12", "chuck",  "wood", "\u2581", "</s>",
                                          "x",      "q",  "quick ", "ss",   ".",      "between"};
  const bool held = rc::check("own BPE = the library's", [&] {
    const std::size_t size = parts.size();
    const auto picks =
        *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, size));
    std::string text;
    for (const std::size_t pick : picks) text += parts[pick];
    RC_ASSERT(own->encode(text) == library->encode(text));
    RC_ASSERT(own->decode(own->encode(text)) == library->decode(library->encode(text)));
  });
  EXPECT_TRUE(held);
}

TEST(SentencePiece, RefusesInconsistentModels) {
  LOAD_OR_SKIP(unchanged, "unigram.model");
  const auto refused = [](const std::string& bytes, std::string_view value,
                          ErrorCode code = ErrorCode::invalid_argument) {
    testing::expect_refusal(parse_sentencepiece(bytes, "m"), value, code);
  };
  refused("", "no pieces");
  refused("\xff\xff", "protocol buffer");
  refused(model_bytes("unigram.model").substr(0, 700), "protocol buffer");
  // One piece: field 1 of 9 bytes with the text in its field 1.
  const auto piece = [](const std::string& text, const std::string& rest = "") {
    const std::string body = "\x0a" + std::string(1, static_cast<char>(text.size())) + text + rest;
    return "\x0a" + std::string(1, static_cast<char>(body.size())) + body;
  };
  const std::string unknown = piece("<unk>", "\x18\x02");
  refused(piece("a"), "got 0");
  refused(unknown, "normal");
  refused(unknown + piece("a") + piece("a"), "'a'");
  refused(unknown + piece(""), "got 0 bytes");
  refused(unknown + piece("\xff"), "piece 1 ");
  refused(unknown + piece("a", "\x18\x09"), "got 9");
  refused(unknown + piece("a", std::string("\x15\x00\x00\xc0\x7f", 5)), "score of piece 1");
  refused(unknown + piece("<0x41>", "\x18\x06"), "byte_fallback");
  refused(unknown + piece("a") + "\x12\x02\x18\x03", "got 3", ErrorCode::unsupported);
  // A character map of three bytes; one whose first step is beyond its end.
  refused(unknown + piece("a") + "\x1a\x05\x12\x03zzz", "precompiled_charsmap");
  std::string map(1, '\0');
  map += std::string("\x04\x00\x00", 3) + "\xff\xff\xff\x7f" + std::string(1021, '\0');
  const std::string spec = "\x12\x85\x08" + map;
  refused(unknown + piece("a") + "\x1a\x88\x08" + spec, "precompiled_charsmap");
}

// Whatever a byte is changed to: an error, or a tokenizer that encodes.
TEST(SentencePiece, SurvivesChangedBytes) {
  LOAD_OR_SKIP(unchanged, "unigram.model");
  const std::string model = model_bytes("unigram.model");
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string changed = model;
    for (unsigned n = 1 + random() % 3; n > 0; --n)
      changed[random() % changed.size()] = static_cast<char>(random());
    const auto read = parse_sentencepiece(changed, "m");
    if (!read) {
      ++refused;
      EXPECT_EQ(std::string_view(read.error().what()).find('\n'), std::string_view::npos);
      continue;
    }
    (void)(*read)->encode("The quick <tool> \u4e2d shells");
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace phasor::text
