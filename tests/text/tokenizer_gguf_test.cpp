// Tokenizers of GGUF metadata: byte-level BPE, and SentencePiece's BPE by scores.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "phasor/io/tensors.hpp"
#include "support/gguf_writer.hpp"
#include "text/tokenizer_support.hpp"

namespace phasor::text {
namespace {

using io::testing::GgufWriter;
using testing::Ids;
using testing::pieces_of;
using Pieces = std::vector<std::string>;

Result<std::unique_ptr<Tokenizer>> read_gguf_tokenizer(const GgufWriter& writer) {
  const std::string bytes = writer.bytes();
  const io::GgufFile file =
      io::GgufFile::parse(std::as_bytes(std::span(bytes)), "m.gguf").value_or_throw();
  return tokenizer_of_gguf(file);
}

struct Gpt2 {
  std::string model = "gpt2", pre = "smollm";
  std::vector<std::string> tokens = testing::byte_tokens({"he", "ll", "<|im_end|>", "<user>"});
  std::vector<std::int32_t> kinds;  // all normal but the last two where empty
  std::vector<std::string> merges = {"h e", "l l"};
  std::function<void(GgufWriter&)> more = [](GgufWriter&) {};

  [[nodiscard]] GgufWriter writer() const {
    GgufWriter out;
    out.text("general.architecture", "llama").text("tokenizer.ggml.model", model);
    out.text("tokenizer.ggml.pre", pre).texts("tokenizer.ggml.tokens", tokens);
    std::vector<std::int32_t> all = kinds;
    if (all.empty()) {
      all.assign(tokens.size(), 1);
      all[258] = 3;
      all[259] = 4;
    }
    out.numbers("tokenizer.ggml.token_type", all).texts("tokenizer.ggml.merges", merges);
    more(out);
    return out;
  }
};

TEST(TokenizerGguf, ReadsByteLevelBpe) {
  Gpt2 file;
  file.more = [](GgufWriter& out) {
    out.number<std::uint32_t>("tokenizer.ggml.bos_token_id", 258);
    out.number<std::uint32_t>("tokenizer.ggml.eos_token_id", 258);
    out.number<bool>("tokenizer.ggml.add_bos_token", true);
    out.number<std::uint32_t>("tokenizer.ggml.padding_token_id", 0xffffffff);
    out.text("tokenizer.chat_template", "{{ x }}");
  };
  const auto tokenizer = read_gguf_tokenizer(file.writer()).value_or_throw();
  EXPECT_EQ(tokenizer->description(), "bpe/smollm");
  EXPECT_EQ(pieces_of(*tokenizer, "hello<|im_end|><user>"),
            (Pieces{"he", "ll", "o", "<|im_end|>", "<user>"}));
  EXPECT_EQ(pieces_of(*tokenizer, "<|im_end|><user>", SpecialText::as_text).back(), "<user>");
  EXPECT_EQ(pieces_of(*tokenizer, "<|im_end|>", SpecialText::as_text).size(), 10U);
  EXPECT_TRUE(tokenizer->is_special(258));
  EXPECT_FALSE(tokenizer->is_special(259));
  const SpecialTokens& specials = tokenizer->specials();
  EXPECT_EQ(specials.begin, 258);
  EXPECT_EQ(specials.stops, Ids{258});
  EXPECT_EQ(specials.pad, std::nullopt);
  EXPECT_TRUE(specials.add_begin);
  EXPECT_EQ(tokenizer->chat_template(), "{{ x }}");
}

// Each name selects its own splitting: digits and characters before letters distinguish them.
TEST(TokenizerGguf, KnowsPretokenizersByName) {
  const auto words = [](const std::string& name) {
    Gpt2 file;
    file.pre = name;
    // A cut in between keeps a pair from merging.
    file.tokens = testing::byte_tokens({"12", "-a", "<|im_end|>", "<user>"});
    file.merges = {"1 2", "- a"};
    return pieces_of(*read_gguf_tokenizer(file.writer()).value_or_throw(), "12-a");
  };
  for (const std::string name : {"gpt-2", "olmo", "mpt", "phi-2"})
    EXPECT_EQ(words(name), (Pieces{"12", "-", "a"})) << name;
  for (const std::string name : {"smollm", "starcoder", "refact", "command-r"})
    EXPECT_EQ(words(name), (Pieces{"1", "2", "-", "a"})) << name;
  for (const std::string name : {"qwen2", "stablelm2", "tekken"})
    EXPECT_EQ(words(name), (Pieces{"1", "2", "-a"})) << name;
  for (const std::string name : {"bloom", "llama-bpe", "dbrx", "glm4"})
    EXPECT_EQ(words(name), (Pieces{"12", "-a"})) << name;
}

TEST(TokenizerGguf, RefusesHostileMetadata) {
  const auto refused = [](const std::function<void(Gpt2&)>& change, std::string_view value,
                          ErrorCode code = ErrorCode::invalid_argument) {
    Gpt2 file;
    change(file);
    testing::expect_refusal(read_gguf_tokenizer(file.writer()), value, code);
  };
  refused([](Gpt2& f) { f.model = "bert"; }, "'bert'", ErrorCode::unsupported);
  refused([](Gpt2& f) { f.pre = "x\ny"; }, R"('x\ny')", ErrorCode::unsupported);
  refused([](Gpt2& f) { f.pre = "kimi-k2"; }, "'kimi-k2'", ErrorCode::unsupported);
  refused([](Gpt2& f) { f.kinds = {1, 1}; }, "got 2");
  refused([](Gpt2& f) { f.kinds.assign(260, 7); }, "got 7");
  refused([](Gpt2& f) { f.merges = {"h"}; }, "'h'");
  refused([](Gpt2& f) { f.merges = {"h e "}; }, "'h e '");
  refused([](Gpt2& f) { f.merges = {"h o"}; }, "'ho'");
  refused([](Gpt2& f) { f.merges = {"h e", "h e"}; }, "merge 1: 'h e'");
  refused([](Gpt2& f) { f.tokens[256] = "\xff"; }, "token 256");
  refused([](Gpt2& f) { f.tokens[256] = "a b"; }, "'a b'");
  refused([](Gpt2& f) { f.tokens[257] = "he"; }, "256 and 257");
  refused([](Gpt2& f) { f.tokens[258] = "\xff\n"; }, "token 258 ");
  refused(
      [](Gpt2& f) {
        f.more = [](GgufWriter& out) {
          out.number<std::uint32_t>("tokenizer.ggml.eos_token_id", 260);
        };
      },
      "got 260");
  refused(
      [](Gpt2& f) {
        f.more = [](GgufWriter& out) { out.number<bool>("tokenizer.ggml.add_bos_token", true); };
      },
      "bos_token_id");
  GgufWriter empty;
  empty.text("general.architecture", "llama");
  testing::expect_refusal(read_gguf_tokenizer(empty), "'tokenizer.ggml.model'",
                          ErrorCode::unsupported);
  empty.text("tokenizer.ggml.model", "gpt2").number<std::uint32_t>("tokenizer.ggml.tokens", 3);
  testing::expect_refusal(read_gguf_tokenizer(empty), "'tokenizer.ggml.tokens'");
}

struct Llama {
  std::vector<std::string> tokens = {"<unk>", "<s>",     "</s>", "\u2581", "a",      "b",
                                     "ab",    "\u2581a", "bb",   "<0xC3>", "<0xA9>", "<x y>"};
  std::vector<float> scores = {0, 0, 0, -9, -9, -9, -1, -2, -1, 0, 0, 0};
  std::vector<std::int32_t> kinds = {2, 3, 3, 1, 1, 1, 1, 1, 1, 6, 6, 4};
  std::function<void(GgufWriter&)> more = [](GgufWriter&) {};

  [[nodiscard]] GgufWriter writer() const {
    GgufWriter out;
    out.text("general.architecture", "llama").text("tokenizer.ggml.model", "llama");
    out.texts("tokenizer.ggml.tokens", tokens).numbers("tokenizer.ggml.scores", scores);
    out.numbers("tokenizer.ggml.token_type", kinds);
    more(out);
    return out;
  }
};

TEST(TokenizerGguf, MergesByScore) {
  const auto tokenizer = read_gguf_tokenizer(Llama{}.writer()).value_or_throw();
  EXPECT_EQ(tokenizer->description(), "bpe/llama");
  // "ab" (-1) goes before U+2581 "a" (-2); of two pairs with one score, the left.
  EXPECT_EQ(tokenizer->encode("ab"), (Ids{3, 6}));
  EXPECT_EQ(tokenizer->encode("a a"), (Ids{7, 7}));
  EXPECT_EQ(tokenizer->encode("abb"), (Ids{3, 6, 5}));
  EXPECT_EQ(tokenizer->encode("bbb"), (Ids{3, 8, 5}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(" a b")), " a b");
}

TEST(TokenizerGguf, FallsBackToBytesAndTheUnknownToken) {
  const auto tokenizer = read_gguf_tokenizer(Llama{}.writer()).value_or_throw();
  EXPECT_EQ(tokenizer->encode("\u00e9"), (Ids{3, 9, 10}));
  EXPECT_EQ(tokenizer->decode(Ids{3, 9, 10}), "\u00e9");
  EXPECT_EQ(tokenizer->encode("xyzb"), (Ids{3, 0, 5}));
  EXPECT_EQ(tokenizer->decode(Ids{3, 0, 5}), "b");
}

TEST(TokenizerGguf, CutsOutSpecialAndUserTokens) {
  const auto tokenizer = read_gguf_tokenizer(Llama{}.writer()).value_or_throw();
  // A space is added after a special token, none after a user-defined token.
  EXPECT_EQ(tokenizer->encode("a</s>b"), (Ids{7, 2, 3, 5}));
  EXPECT_EQ(tokenizer->encode("a<x y>b"), (Ids{7, 11, 5}));
  EXPECT_EQ(tokenizer->encode("</s>", SpecialText::as_text), (Ids{3, 0}));
  const SpecialTokens& specials = tokenizer->specials();
  EXPECT_EQ(specials.begin, 1);
  EXPECT_EQ(specials.end, 2);
  EXPECT_EQ(specials.unknown, 0);
  EXPECT_TRUE(specials.add_begin);

  Llama bare;
  bare.more = [](GgufWriter& out) {
    out.number<bool>("tokenizer.ggml.add_space_prefix", false);
    out.number<bool>("tokenizer.ggml.add_bos_token", false);
  };
  const auto other = read_gguf_tokenizer(bare.writer()).value_or_throw();
  EXPECT_EQ(other->encode("ab"), Ids{6});
  EXPECT_FALSE(other->specials().add_begin);
}

// An unused token may be a step on the way to another one, but is never written.
TEST(TokenizerGguf, WritesNoUnusedToken) {
  Llama file;
  file.kinds[6] = 5;
  EXPECT_EQ(read_gguf_tokenizer(file.writer()).value_or_throw()->encode("ab"), (Ids{3, 4, 5}));
  EXPECT_EQ(read_gguf_tokenizer(file.writer()).value_or_throw()->encode("b ab"),
            (Ids{3, 5, 3, 4, 5}));
  file.tokens.push_back("abb");
  file.scores.push_back(-3);
  file.kinds.push_back(1);
  EXPECT_EQ(read_gguf_tokenizer(file.writer()).value_or_throw()->encode("abb"), (Ids{3, 12}));
}

TEST(TokenizerGguf, RefusesHostileScores) {
  const auto refused = [](const std::function<void(Llama&)>& change, std::string_view value,
                          ErrorCode code = ErrorCode::invalid_argument) {
    Llama file;
    change(file);
    testing::expect_refusal(read_gguf_tokenizer(file.writer()), value, code);
  };
  refused([](Llama& f) { f.scores.pop_back(); }, "'tokenizer.ggml.scores'");
  refused([](Llama& f) { f.scores[3] = std::numeric_limits<float>::quiet_NaN(); }, "nan");
  refused([](Llama& f) { f.tokens[5] = "a"; }, "4 and 5");
  refused([](Llama& f) { f.tokens[5] = std::string(2000, 'a'); }, "got 2000");
  refused([](Llama& f) { f.tokens[5] = "\xc3"; }, "token 5 ");
  refused(
      [](Llama& f) {
        f.more = [](GgufWriter& out) {
          out.number<bool>("tokenizer.ggml.remove_extra_whitespaces", true);
        };
      },
      "remove_extra_whitespaces", ErrorCode::unsupported);
  GgufWriter no_scores;
  no_scores.text("general.architecture", "llama").text("tokenizer.ggml.model", "llama");
  no_scores.texts("tokenizer.ggml.tokens", {"a"});
  testing::expect_refusal(read_gguf_tokenizer(no_scores), "'tokenizer.ggml.scores' is missing");
}

}  // namespace
}  // namespace phasor::text
