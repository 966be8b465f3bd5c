// Unigram models of tokenizer.json and GGUF. Scores are chosen so that the best segmentation is known.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "phasor/io/tensors.hpp"
#include "support/gguf_writer.hpp"
#include "support/temporary_folder.hpp"
#include "text/tokenizer_support.hpp"

namespace phasor::text {
namespace {

using io::Json;
using testing::Ids;

const std::vector<std::pair<std::string, float>> kPieces = {
    {"<pad>", 0.0F},      {"</s>", 0.0F}, {"<unk>", 0.0F},   {"\u2581", -3.0F},
    {"\u2581the", -2.0F}, {"t", -5.0F},   {"h", -5.0F},      {"e", -5.0F},
    {"re", -3.0F},        {"n", -5.0F},   {"\u2581a", -2.5F}};
constexpr const char* kSplitSpaces = R"({"type": "Sequence", "pretokenizers": [
    {"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "▁", "add_prefix_space": true}]})";

Json unigram_json() {
  Json root;
  root["normalizer"] = Json();
  root["pre_tokenizer"] = Json::parse(kSplitSpaces);
  root["added_tokens"] = Json::parse(R"([
      {"id": 0, "content": "<pad>", "special": true}, {"id": 1, "content": "</s>", "special": true},
      {"id": 2, "content": "<unk>", "special": true}, {"id": 11, "content": "<extra_id_0>", "special": true}])");
  Json model = Json::parse(R"({"type": "Unigram", "unk_id": 2})");
  model["vocab"] = Json::array();
  for (const auto& [text, score] : kPieces) {
    Json entry = Json::array();
    entry.push_back(text);
    entry.push_back(static_cast<double>(score));
    model["vocab"].push_back(entry);
  }
  root["model"] = model;
  return root;
}

// `change` applied to the file above.
Result<std::unique_ptr<Tokenizer>> unigram(const std::function<void(Json&)>& change = {}) {
  Json root = unigram_json();
  if (change) change(root);
  return parse_tokenizer_json(root.dump(), "tokenizer.json");
}

bool has_library() {
  const auto made = unigram();
  return made.ok() ||
         std::string(made.error().what()).find("PHASOR_SENTENCEPIECE") == std::string::npos;
}
#define NEEDS_SENTENCEPIECE() \
  if (!has_library()) GTEST_SKIP() << "built without PHASOR_SENTENCEPIECE"

TEST(Unigram, TakesTheBestSegmentation) {
  NEEDS_SENTENCEPIECE();
  const auto tokenizer = unigram().value_or_throw();
  EXPECT_EQ(tokenizer->encode("the"), Ids{4});
  EXPECT_EQ(tokenizer->encode("there"), (Ids{4, 8}));
  EXPECT_EQ(tokenizer->encode("hen"), (Ids{3, 6, 7, 9}));
  EXPECT_EQ(tokenizer->encode("xyz the"), (Ids{3, 2, 4}));
  EXPECT_EQ(tokenizer->encode(" a \n\t the  "), (Ids{10, 4}));
  EXPECT_EQ(tokenizer->encode("the<extra_id_0>a</s>"), (Ids{4, 11, 10, 1}));
  EXPECT_EQ(tokenizer->encode("</s>", SpecialText::as_text).front(), 3);
  EXPECT_EQ(tokenizer->decode(Ids{4, 8, 10, 1}), "there a");
  EXPECT_EQ(tokenizer->specials().end, 1);
  EXPECT_EQ(tokenizer->specials().pad, 0);
  EXPECT_EQ(tokenizer->specials().unknown, 2);
  EXPECT_EQ(tokenizer->specials().begin, std::nullopt);
  EXPECT_FALSE(tokenizer->specials().add_begin);
  EXPECT_EQ(tokenizer->size(), 12);
  EXPECT_TRUE(tokenizer->is_special(11));
}

TEST(Unigram, ReadsTheStagesOfOlderAndNewerFiles) {
  NEEDS_SENTENCEPIECE();
  const auto encode = [](const char* normalizer, const char* pre_tokenizer, const char* text) {
    return unigram([&](Json& root) {
             root["normalizer"] = Json::parse(normalizer);
             root["pre_tokenizer"] = Json::parse(pre_tokenizer);
           })
        .value_or_throw()
        ->encode(text);
  };
  const char* const spaces = R"({"type": "Sequence", "normalizers": [
      {"type": "Precompiled", "precompiled_charsmap": ""},
      {"type": "Strip", "strip_left": false, "strip_right": true},
      {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}]})";
  const char* const always =
      R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"})";
  EXPECT_EQ(encode(spaces, always, "  a   the "), (Ids{10, 4}));
  EXPECT_EQ(encode("null", always, "a  the"), (Ids{10, 3, 4}));
  const char* const first =
      R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"})";
  EXPECT_EQ(encode("null", first, "the<extra_id_0>n"), (Ids{4, 11, 9}));
  const char* const never =
      R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"})";
  EXPECT_EQ(encode("null", never, "then the"), (Ids{5, 6, 7, 9, 4}));
}

TEST(Unigram, RefusesWrongFiles) {
  NEEDS_SENTENCEPIECE();
  const auto refused = [](const std::function<void(Json&)>& change, std::string_view value,
                          ErrorCode code = ErrorCode::invalid_argument) {
    testing::expect_refusal(unigram(change), value, code);
  };
  refused([](Json& root) { root["normalizer"] = Json::parse(R"({"type": "NFKC"})"); }, "NFKC",
          ErrorCode::unsupported);
  refused([](Json& root) { root["pre_tokenizer"] = Json::parse(R"({"type": "Digits"})"); },
          "Digits", ErrorCode::unsupported);
  refused([](Json& root) { root["pre_tokenizer"] = Json(); }, "got null", ErrorCode::unsupported);
  refused([](Json& root) { root["model"]["unk_id"] = 11; }, "11");
  refused([](Json& root) { root["model"]["unk_id"] = Json(); }, "null");
  refused([](Json& root) { root["model"]["vocab"] = Json(); }, "vocab");
  refused([](Json& root) { root["model"]["vocab"].push_back(7); }, "got 7");
  refused([](Json& root) { root["model"]["vocab"] = Json::parse(R"([["a", "b"]])"); }, "\"b\"");
  refused([](Json& root) { root["added_tokens"][3]["id"] = 4; }, "<extra_id_0>");
  refused([](Json& root) { root["added_tokens"][3]["id"] = -1; }, "-1");
  refused([](Json& root) { root["added_tokens"][3]["id"] = 5000; }, "5000");
  const auto map = [](const char* text) {
    return [text](Json& root) {
      root["normalizer"] = Json::parse(R"({"type": "Precompiled"})");
      root["normalizer"]["precompiled_charsmap"] = text;
    };
  };
  refused(map("AA*A"), "'*'");
  refused(map("AAAAAAAA"), "precompiled_charsmap");
}

TEST(Unigram, ReadsGguf) {
  NEEDS_SENTENCEPIECE();
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<std::int32_t> kinds;
  for (const auto& [text, score] : kPieces) {
    tokens.push_back(text);
    scores.push_back(score);
    kinds.push_back(text == "<unk>" ? 2 : text.front() == '<' ? 3 : 1);
  }
  const auto read = [&](const std::function<void(io::testing::GgufWriter&)>& more) {
    io::testing::GgufWriter writer;
    writer.text("general.architecture", "t5").text("tokenizer.ggml.model", "t5");
    writer.texts("tokenizer.ggml.tokens", tokens);
    more(writer);
    const std::string bytes = writer.bytes();
    return tokenizer_of_gguf(
        io::GgufFile::parse(io::testing::bytes_of(bytes), "t5.gguf").value_or_throw());
  };
  const auto tokenizer = read([&](io::testing::GgufWriter& writer) {
                           writer.numbers("tokenizer.ggml.scores", scores)
                               .numbers("tokenizer.ggml.token_type", kinds)
                               .number("tokenizer.ggml.eos_token_id", 1U)
                               .number("tokenizer.ggml.remove_extra_whitespaces", true);
                         }).value_or_throw();
  EXPECT_EQ(tokenizer->encode("  there   a"), (Ids{4, 8, 10}));
  EXPECT_EQ(tokenizer->encode("the</s>"), (Ids{4, 1}));
  EXPECT_EQ(tokenizer->specials().end, 1);
  EXPECT_FALSE(tokenizer->specials().add_begin);
  testing::expect_refusal(read([](io::testing::GgufWriter&) {}), "scores");
}

// T5's name of tokenizer.model.
class UnigramFolder : public io::testing::TemporaryFolder {};
TEST_F(UnigramFolder, ReadsSpieceModel) {
  NEEDS_SENTENCEPIECE();
  io::testing::put(at("spiece.model"),
                   io::testing::get(std::filesystem::path(PHASOR_TEXT_DATA_DIR) / "unigram.model"));
  const auto tokenizer = read_tokenizer(at("")).value_or_throw();
  EXPECT_EQ(tokenizer->encode("The quick brown fox"),
            (Ids{4, 86, 30, 40, 20, 36, 31, 12, 56, 19, 55, 37}));
  // A tokenizer.json that is not supported falls back to it.
  Json root = unigram_json();
  root["normalizer"] = Json::parse(R"({"type": "NFKC"})");
  io::testing::put(at("tokenizer.json"), root.dump());
  EXPECT_EQ(read_tokenizer(at("")).value_or_throw()->size(), 110);
}

}  // namespace
}  // namespace phasor::text
