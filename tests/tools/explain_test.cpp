#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "phasor/io/internal/json.hpp"
#include "run_phasor.hpp"
#include "support/gguf_writer.hpp"

namespace phasor::tools::testing {
namespace {

using io::Json;

constexpr std::string_view kLlamaConfig = R"({"model_type": "llama", "hidden_size": 64,
  "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 2048,
  "rope_theta": 500000.0})";

class ExplainCommand : public Phasor {};

TEST_F(ExplainCommand, PageNamesTheNumbersAndTheirKeys) {
  const Outcome outcome = run({"explain", put_text("config.json", kLlamaConfig)});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  for (const char* words :
       {"layers 0-1", "500000", "rope_theta", "16 of 16", "model_type llama", "2048"}) {
    EXPECT_NE(outcome.out.find(words), std::string::npos) << words << "\n" << outcome.out;
  }
}

TEST_F(ExplainCommand, FolderAndContextAreTaken) {
  (void)put_text("config.json", kLlamaConfig);
  const Outcome outcome = run({"explain", at("").string(), "--context", "4096", "--json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const Json answer = Json::parse(outcome.out);
  EXPECT_EQ(answer["context"], 4096);
  EXPECT_EQ(answer["layers"][0]["layers"], (std::vector<int>{0, 1}));
  EXPECT_EQ(answer["layers"][0]["layout"], "half");
  EXPECT_EQ(answer["layers"][0]["scaling"]["type"], "default");
  EXPECT_EQ(answer["layers"][0]["sources"]["base"], "rope_theta");
  EXPECT_EQ(answer["layers"][0]["frequencies"].size(), 8U);
  EXPECT_FALSE(answer["warnings"].empty());
}

TEST_F(ExplainCommand, EveryPairIsListedWhenAsked) {
  const Outcome outcome = run({"explain", put_text("config.json", kLlamaConfig), "--pairs"});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("frequency, rad"), std::string::npos) << outcome.out;
}

TEST_F(ExplainCommand, GgufIsReadByItsMetadata) {
  io::testing::GgufWriter gguf;
  gguf.text("general.architecture", "llama")
      .number<std::uint32_t>("llama.block_count", 3)
      .number<std::uint32_t>("llama.context_length", 4096)
      .number<std::uint32_t>("llama.embedding_length", 64)
      .number<std::uint32_t>("llama.attention.head_count", 4)
      .number<float>("llama.rope.freq_base", 250000.0F);
  const Outcome outcome = run({"explain", put_text("model.gguf", gguf.bytes()), "--json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const Json answer = Json::parse(outcome.out);
  EXPECT_EQ(answer["layers"][0]["layout"], "interleaved");
  EXPECT_EQ(answer["layers"][0]["base"], 250000.0);
  EXPECT_EQ(answer["layers"][0]["layers"].size(), 3U);
  EXPECT_EQ(answer["max_position_embeddings"], 4096);
}

TEST_F(ExplainCommand, ListsAreNamedInsteadOfABase) {
  const std::string config = put_text("list.json", R"({"frequencies": [1, 0.5, 0.25, 0.125],
      "frequency_factors": [1, 1, 2, 4], "amplitude": 1.5, "layout": "half",
      "mrope": {"sections": [1, 1, 1, 1]}})");
  const Outcome page = run({"explain", config});
  ASSERT_EQ(page.exit, 0) << page.err;
  for (const char* words : {"1 to 0.125 (4)", "1 to 4 (4)", "fourth", "1.5", "from frequencies"})
    EXPECT_NE(page.out.find(words), std::string::npos) << words << "\n" << page.out;
  const Outcome outcome = run({"explain", config, "--json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const Json layer = Json::parse(outcome.out)["layers"][0];
  EXPECT_EQ(layer["base"], nullptr);
  EXPECT_EQ(layer["amplitude"], 1.5);
  EXPECT_EQ(layer["frequencies"], (std::vector<double>{1.0, 0.5, 0.125, 0.03125}));
  EXPECT_EQ(layer["axes"]["sections"], (std::vector<int>{1, 1, 1, 1}));
}

TEST_F(ExplainCommand, OtherEncodingsAreNamedWithTheirNumbers) {
  const std::string t5 = put_text("t5.json", R"({"model_type": "t5", "num_heads": 8,
      "num_layers": 6, "relative_attention_num_buckets": 32, "strange_switch": true})");
  const Outcome page = run({"explain", t5});
  EXPECT_EQ(page.exit, 0) << page.err;
  for (const char* word : {"encoder", "decoder", "buckets", "bidirectional", "past_only",
                           "relative_attention_num_buckets", "strange_switch"}) {
    EXPECT_NE(page.out.find(word), std::string::npos) << word;
  }
  const Json parsed = Json::parse(run({"explain", t5, "--json"}).out);
  EXPECT_EQ(parsed.at("layers").at(0).at("encoding"), "t5");
  EXPECT_EQ(parsed.at("unknown_keys").at(0), "strange_switch");
  const Outcome mamba =
      run({"explain", put_text("mamba.json", R"({"model_type": "mamba", "num_hidden_layers": 24})"),
           "--json"});
  EXPECT_EQ(Json::parse(mamba.out).at("layers").at(0).at("encoding"), "none");
}

TEST_F(ExplainCommand, BadFilesGiveOneLine) {
  expect_refusal(run({"explain", file("absent.json")}), "explain", "absent.json");
  expect_refusal(run({"explain", put_text("empty.json", "")}), "explain", "empty.json");
  expect_refusal(run({"explain", put_text("cut.json", R"({"model_type": "lla)")}), "explain",
                 {"cut.json", "line 1"});
  expect_refusal(run({"explain", put_text("magic.gguf", "GGUF")}), "explain", "magic.gguf");
  expect_refusal(run({"explain", put_text("typo.json", R"({"model_type": "llama", "head_dim": 8,
      "rope_thetta": 1})")}),
                 "explain", "rope_thetta");
  std::filesystem::create_directory(at("folder"));
  expect_refusal(run({"explain", file("folder")}), "explain", "config.json");
  const std::string good = put_text("good.json", kLlamaConfig);
  expect_refusal(run({"explain", good, "--context", "0"}), "explain", {"--context", "0"});
}

}  // namespace
}  // namespace phasor::tools::testing
