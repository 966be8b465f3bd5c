// The tokenizer of a real model, against golden/real_models. The environment variable PHASOR_MODELS
// names the folder that holds the model files.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/text/tokenizer.hpp"
#include "support/golden_array.hpp"

namespace phasor::text {
namespace {

using io::Json;
using Ids = std::vector<std::int64_t>;

Json golden_case(const std::string& name) {
  const auto path = std::filesystem::path(PHASOR_GOLDEN_DIR) / "real_models" / name / "case.json";
  return Json::parse(io::read_text(path).value_or_throw());
}

class RealTokenizer : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const folder = std::getenv("PHASOR_MODELS");
    if (folder == nullptr) GTEST_SKIP() << "PHASOR_MODELS names no folder of models";
    const std::string file = golden_case("smollm2_tokenizer").at("gguf").text();
    tokenizer_ = read_tokenizer(std::filesystem::path(folder) / file).value_or_throw();
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(RealTokenizer, EncodesTheGoldenTexts) {
  const Json golden = golden_case("smollm2_tokenizer");
  for (const Json& c : golden.at("cases")) {
    const std::string text = c.at("text").text();
    EXPECT_EQ(tokenizer_->encode(text), c.at("ids").get<Ids>()) << text;
  }
}

TEST_F(RealTokenizer, EncodesTheTextsOfTheModelCases) {
  for (const std::string name : {"smollm2_short", "smollm2_passage"}) {
    const Json golden = golden_case(name);
    const std::string text = golden.at("text").text();
    const Ids ids = tokenizer_->encode(text);
    EXPECT_EQ(ids, tests::golden_array<std::int64_t>("real_models/" + name + "/input_ids.npy"))
        << name;
    EXPECT_EQ(tokenizer_->decode(ids), text);
  }
}

TEST_F(RealTokenizer, KnowsTheTurnsOfItsChatTemplate) {
  const SpecialTokens& specials = tokenizer_->specials();
  EXPECT_EQ(specials.begin, 1);
  EXPECT_EQ(specials.end, 2);
  EXPECT_EQ(specials.stops, (Ids{2, 0}));
  EXPECT_FALSE(specials.add_begin);
  EXPECT_EQ(tokenizer_->size(), 49152);
  EXPECT_EQ(tokenizer_->description(), "bpe/smollm");
  const std::string& jinja = tokenizer_->chat_template();
  EXPECT_EQ(*recognise_chat_template(jinja), ChatFormat::chatml);
  EXPECT_EQ(default_system_message(jinja),
            "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
  const std::string chat = format_chat(ChatFormat::chatml, {{"user", "hi"}});
  EXPECT_EQ(tokenizer_->encode(chat), (Ids{1, 4093, 198, 6004, 2, 198, 1, 520, 9531, 198}));
}

}  // namespace
}  // namespace phasor::text
