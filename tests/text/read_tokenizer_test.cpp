// Tokenizers of folders: which file is read, and the settings in the other files.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "phasor/io/internal/file.hpp"
#include "support/gguf_writer.hpp"
#include "support/temporary_folder.hpp"
#include "text/tokenizer_support.hpp"

namespace phasor::text {
namespace {

using io::testing::put;
using testing::Ids;
using testing::JsonParts;

class ReadTokenizer : public io::testing::TemporaryFolder {
 protected:
  void put_json() {
    JsonParts parts;
    parts.tokens = testing::byte_tokens({"<s>", "</s>", "<|im_end|>", "<|stop|>"});
    parts.added = R"([{"id": 256, "content": "<s>", "special": true},
                      {"id": 257, "content": "</s>", "special": true},
                      {"id": 258, "content": "<|im_end|>", "special": true}])";
    put(at("tokenizer.json"), parts.text());
  }
  [[nodiscard]] Result<std::unique_ptr<Tokenizer>> read() const { return read_tokenizer(at("")); }
  [[nodiscard]] std::unique_ptr<Tokenizer> must_read() const { return read().value_or_throw(); }
  static std::string fixture(const std::string& name) {
    return io::read_text(std::filesystem::path(PHASOR_TEXT_DATA_DIR) / name).value_or_throw();
  }
};

TEST_F(ReadTokenizer, TakesSettingsFromNeighbouringFiles) {
  put_json();
  EXPECT_EQ(must_read()->specials().begin, std::nullopt);
  put(at("tokenizer_config.json"),
      R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false},
          "unk_token": null, "pad_token": "<not there>", "add_bos_token": true,
          "chat_template": "{{ one }}"})");
  put(at("generation_config.json"), R"({"eos_token_id": [257, 259]})");
  const auto tokenizer = must_read();
  const SpecialTokens& specials = tokenizer->specials();
  EXPECT_EQ(specials.begin, 256);
  EXPECT_EQ(specials.end, 257);
  EXPECT_EQ(specials.pad, std::nullopt);
  EXPECT_TRUE(specials.add_begin);
  EXPECT_EQ(specials.stops, (Ids{257, 259, 258}));
  EXPECT_EQ(tokenizer->chat_template(), "{{ one }}");
  put(at("tokenizer_config.json"),
      R"({"chat_template": [{"name": "tool_use", "template": "{{ two }}"},
                            {"name": "default", "template": "{{ three }}"}]})");
  EXPECT_EQ(must_read()->chat_template(), "{{ three }}");
  put(at("chat_template.jinja"), "{{ four }}");
  EXPECT_EQ(must_read()->chat_template(), "{{ four }}");
}

TEST_F(ReadTokenizer, RefusesWrongSettingsByTheirFile) {
  put_json();
  const auto refused = [&](const std::string& file, const std::string& text,
                           std::string_view part) {
    put(at(file), text);
    const auto result = read();
    testing::expect_refusal(result, part);
    testing::expect_refusal(result, file);
    std::filesystem::remove(at(file));
  };
  refused("tokenizer_config.json", R"({"eos_token": "<none>"})", "'<none>'");
  refused("tokenizer_config.json", R"({"eos_token": 7})", "got 7");
  refused("tokenizer_config.json", R"({"chat_template": 7})", "got 7");
  refused("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {}}})", "'x'");
  refused("tokenizer_config.json", "[", "line 1, column 2");
  refused("generation_config.json", R"({"eos_token_id": 260})", "got 260");
  refused("generation_config.json", R"({"eos_token_id": [-1]})", "got -1");
  refused("generation_config.json", R"({"eos_token_id": "x"})", "\"x\"");
  refused("tokenizer.json", "{}", "\"model\"");
}

TEST_F(ReadTokenizer, ReadsSentencePieceWithAddedTokens) {
  put(at("tokenizer.model"), fixture("bpe.model"));
  put(at("tokenizer_config.json"),
      R"({"added_tokens_decoder": {"420": {"content": "<|user|>", "special": true, "rstrip": true}},
          "add_bos_token": false})");
  put(at("added_tokens.json"), R"({"<|user|>": 420, "<|end|>": 421})");
  const auto read_now = read();
  if (!read_now) {
    testing::expect_refusal(read_now, "PHASOR_SENTENCEPIECE", ErrorCode::unsupported);
    GTEST_SKIP() << "built without PHASOR_SENTENCEPIECE";
  }
  const Tokenizer& tokenizer = **read_now;
  EXPECT_EQ(tokenizer.size(), 422);
  EXPECT_EQ(tokenizer.encode("<|user|>\n the<|end|>"), (Ids{420, 264, 421}));
  EXPECT_EQ(tokenizer.specials().stops, (Ids{2, 421}));
  EXPECT_FALSE(tokenizer.specials().add_begin);
  EXPECT_TRUE(tokenizer.is_special(420));
  EXPECT_EQ(tokenizer.piece(420), "<|user|>");
  // A model with legacy = false adds no space after a special token.
  put(at("tokenizer_config.json"), R"({"legacy": false})");
  EXPECT_EQ(must_read()->encode("the</s>he"), (Ids{264, 2, 260}));
  put(at("tokenizer_config.json"), R"({"legacy": true})");
  EXPECT_EQ(must_read()->encode("the</s>the"), (Ids{264, 2, 264}));
}

// If the type of tokenizer.json is not supported, the same tokenizer in another format is read.
TEST_F(ReadTokenizer, FallsBackToTheFileItHas) {
  JsonParts unigram;
  unigram.model = R"("type": "Unigram")";
  put(at("tokenizer.json"), unigram.text());
  testing::expect_refusal(read(), "Unigram", ErrorCode::unsupported);
  put(at("tokenizer.model"), fixture("unigram.model"));
  const auto result = read();
  if (result) {
    EXPECT_EQ((*result)->description(), "sentencepiece");
  } else {
    testing::expect_refusal(result, "PHASOR_SENTENCEPIECE", ErrorCode::unsupported);
  }
}

TEST_F(ReadTokenizer, ReadsWordPiece) {
  put(at("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n");
  EXPECT_EQ(must_read()->encode("Hello"), Ids{5});
  put(at("tokenizer_config.json"), R"({"do_lower_case": false})");
  EXPECT_EQ(must_read()->encode("Hello"), Ids{1});
}

TEST_F(ReadTokenizer, ReadsGguf) {
  io::testing::GgufWriter out;
  out.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-2");
  out.texts("tokenizer.ggml.tokens", testing::byte_tokens()).texts("tokenizer.ggml.merges", {});
  put(at("m.gguf"), out.bytes());
  EXPECT_EQ(read_tokenizer(at("m.gguf")).value_or_throw()->encode("a"), Ids{'a'});
}

TEST_F(ReadTokenizer, RefusesWhatIsNotThere) {
  testing::expect_refusal(read(), "vocab.txt", ErrorCode::io);
  testing::expect_refusal(read_tokenizer(at("missing")), "missing", ErrorCode::io);
  put(at("text.txt"), "no GGUF");
  testing::expect_refusal(read_tokenizer(at("text.txt")), "text.txt");
}

}  // namespace
}  // namespace phasor::text
