// phasor fill as a user runs it: a small random RoFormer with a vocabulary of words.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

using json = io::Json;
namespace fs = std::filesystem;

class FillCommand : public Phasor {
 protected:
  static constexpr std::size_t kVocabulary = 97;

  static fs::path golden(const std::string& name) {
    return fs::path(PHASOR_GOLDEN_DIR) / "models" / name / "model";
  }
  // A golden model's files with a vocab.txt; unnamed tokens are w0, w1, ...
  [[nodiscard]] std::string model(const std::string& name = "roformer_mlm",
                                  std::size_t tokens = kVocabulary) const {
    fs::create_directories(at("model"));
    for (const char* part : {"config.json", "model.safetensors"}) {
      fs::copy_file(golden(name) / part, at("model") / part);
    }
    std::vector<std::string> words = {
        "[PAD]",  "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the",          "capital",      "of",
        "france", "is",    "paris", ".",     "##s",    "\u4eca\u5929", "\u975e\u5e38", "\u3002"};
    for (std::size_t i = 0; words.size() < tokens; ++i) words.push_back("w" + std::to_string(i));
    std::string text;
    for (const std::string& word : words) text += word + "\n";
    io::testing::put(at("model") / "vocab.txt", text);
    return file("model");
  }
};

constexpr const char* kText = "The capital of France is [MASK].";

// The numbers are those of RoFormerForMaskedLM (transformers 5.22.2, float64) for these ids.
TEST_F(FillCommand, JsonGivesTheModelsProbabilities) {
  const Outcome outcome = run({"fill", model(), "--text", kText, "--top", "3", "--json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const json answer = json::parse(outcome.out);
  EXPECT_EQ(answer["text"], kText);
  EXPECT_EQ(answer["filled"], "The capital of France is w32.");
  ASSERT_EQ(answer["masks"].size(), 1U);
  EXPECT_EQ(answer["masks"][0]["slot"], 6);
  const json& choices = answer["masks"][0]["choices"];
  ASSERT_EQ(choices.size(), 3U);
  const struct {
    int id;
    const char* token;
    double probability, logit;
  } expected[] = {{48, "w32", 0.9999789309588341, 29.1340106009053},
                  {1, "[UNK]", 1.634865235774807e-05, 18.11266658154775},
                  {79, "w63", 1.5929547198871819e-06, 15.784111718300695}};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(choices[i]["id"], expected[i].id);
    EXPECT_EQ(choices[i]["token"], expected[i].token);
    EXPECT_NEAR(choices[i]["logit"].get<double>(), expected[i].logit, 1e-4);
    EXPECT_NEAR(choices[i]["probability"].get<double>(), expected[i].probability,
                1e-4 * expected[i].probability);
  }
}

TEST_F(FillCommand, PageShowsEveryMaskAndTheFilledText) {
  const Outcome outcome =
      run({"fill", model(), "--text", "\u4eca\u5929[MASK]\u975e\u5e38[MASK]\u3002", "--top", "2",
           "--threads", "1"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  // [CLS] today [MASK] very [MASK] . [SEP]
  EXPECT_EQ(outcome.out.find("mask 1 (slot 2)\n"), 0U) << outcome.out;
  EXPECT_NE(outcome.out.find("mask 2 (slot 4)\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find(" %  "), std::string::npos) << outcome.out;
  EXPECT_TRUE(outcome.out.ends_with("\u3002\n")) << outcome.out;
  EXPECT_EQ(outcome.out.find("[MASK]\u975e"), std::string::npos) << outcome.out;
}

TEST_F(FillCommand, Refusals) {
  const std::string folder = model();
  expect_refusal(run({"fill", folder, "--text", "no mask here"}), "fill", {"--text", "[MASK]"});
  expect_refusal(run({"fill", folder, "--text", kText, "--top", "0"}), "fill", {"--top", "0"});
  expect_refusal(run({"fill", folder, "--text", kText, "--threads", "-1"}), "fill", "--threads");
  expect_refusal(run({"fill", folder, "--text", "\xff [MASK]"}), "fill", "UTF-8");
  expect_refusal(run({"fill", folder}), "fill", "--text");
  std::string text = "[MASK]";
  for (int i = 0; i < 62; ++i) text += " the";
  expect_refusal(run({"fill", folder, "--text", text}), "fill", {"64", "65"});
  expect_refusal(run({"fill", golden("roformer_mlm").string(), "--text", kText}), "fill",
                 "vocab.txt");
  expect_refusal(run({"fill", golden("llama_gqa_llama3").string(), "--text", kText}), "fill",
                 {"roformer", "llama"});
  expect_refusal(run({"fill", file("nothing"), "--text", kText}), "fill", file("nothing"));
}

TEST_F(FillCommand, RefusesAModelWithoutTheHead) {
  expect_refusal(run({"fill", model("roformer_base"), "--text", kText}), "fill", "head");
}

TEST_F(FillCommand, RefusesAVocabularyBeyondTheModel) {
  expect_refusal(run({"fill", model("roformer_mlm", kVocabulary + 1), "--text", kText}), "fill",
                 {"97", "98"});
}

}  // namespace
}  // namespace phasor::tools::testing
