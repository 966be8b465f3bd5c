// phasor diff as a user runs it.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "phasor/io/internal/json.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

using json = io::Json;

// Contains the amplitude 1, which the trainer used and the server ignored.
constexpr std::string_view kStoredAmplitude = R"({
  "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 4,
  "max_position_embeddings": 262144,
  "rope_parameters": {"rope_type": "yarn", "rope_theta": 500000, "factor": 64.0,
                      "attention_factor": 1.0, "original_max_position_embeddings": 4096}})";

class DiffCommand : public Phasor {
 protected:
  static std::size_t widest_line(const std::string& page) {
    std::istringstream lines(page);
    std::string line;
    std::size_t widest = 0;
    while (std::getline(lines, line)) widest = std::max(widest, line.size());
    return widest;
  }
};

TEST_F(DiffCommand, AgreementExitsZero) {
  const std::string config = std::string(PHASOR_GOLDEN_DIR) + "/models/mistral_sliding/model";
  const Outcome outcome = run({"diff", "--config", config});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("hf : llama.cpp"), std::string::npos);
  EXPECT_EQ(outcome.out.find("DIFFER"), std::string::npos);
}

TEST_F(DiffCommand, Vllm48351_DroppedAmplitudeIsNamed) {
  const std::string config = put_text("config.json", kStoredAmplitude);
  const Outcome outcome = run({"diff", "--config", config, "--between", "hf,vllm"});
  EXPECT_EQ(outcome.exit, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("amplitude        x 1.41589"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("#48351"), std::string::npos);
  EXPECT_LE(widest_line(outcome.out), 110u);
}

TEST_F(DiffCommand, MarinFold184_NewFormReadByAnOldReader) {
  const std::string config = put_text("config.json", kStoredAmplitude);
  const Outcome outcome = run({"diff", "--config", config, "--between", "hf-4,hf"});
  EXPECT_EQ(outcome.exit, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("10000"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("MarinFold #184"), std::string::npos);
}

TEST_F(DiffCommand, JsonIsOneObject) {
  const std::string config = put_text("config.json", kStoredAmplitude);
  const Outcome outcome = run({"diff", "--config", config, "--json", "--context", "8192"});
  EXPECT_EQ(outcome.exit, 1) << outcome.err;
  const json report = json::parse(outcome.out);
  EXPECT_EQ(report.at("context"), 8192);
  const json& part = report.at("groups").at(0).at("comparisons").at(0);
  EXPECT_EQ(part.at("first"), "hf");
  EXPECT_NEAR(part.at("amplitude_ratio").get<double>(), 1.4158883083359673, 1e-12);
  EXPECT_EQ(part.at("causes").at(0).at("id"), "vllm-yarn-amplitude");
}

TEST_F(DiffCommand, ListPrintsTheRuleSets) {
  const Outcome outcome = run({"diff", "--list"});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  for (const char* words : {"hf: Hugging Face", "vllm: vLLM", "llama.cpp:", "vllm-yarn-amplitude"})
    EXPECT_NE(outcome.out.find(words), std::string::npos) << words;
  EXPECT_LE(widest_line(outcome.out), 110u);
  EXPECT_GT(json::parse(run({"diff", "--list", "--json"}).out).size(), 3u);
}

TEST_F(DiffCommand, Refusals) {
  const std::string config = put_text("config.json", kStoredAmplitude);
  expect_refusal(run({"diff"}), "diff", {"--config", "--list"});
  expect_refusal(run({"diff", "--config", file("absent.json")}), "diff", "absent.json");
  expect_refusal(run({"diff", "--config", config, "--between", "hf"}), "diff", {"--between", "hf"});
  expect_refusal(run({"diff", "--config", config, "--between", "hf,nobody"}), "diff", "nobody");
  expect_refusal(run({"diff", "--config", config, "--context", "0"}), "diff", {"--context", "0"});
  expect_refusal(run({"diff", "--config", config, "--layer", "77"}), "diff", "77");
  expect_refusal(run({"diff", "--config", put_text("broken.json", "{")}), "diff", "broken.json");
}

TEST_F(DiffCommand, TwoConfigs) {
  const std::string first = put_text("a.json", kStoredAmplitude);
  const std::string second = put_text("b.json", R"({"model_type": "bloom", "hidden_size": 4096,
      "n_head": 32, "n_layer": 4})");
  const Outcome outcome = run({"diff", "--config", first, "--config", second});
  EXPECT_EQ(outcome.exit, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("alibi"), std::string::npos);
  const Outcome same = run({"diff", "--config", first, "--config", first, "--json"});
  EXPECT_EQ(same.exit, 0) << same.err;
  EXPECT_EQ(json::parse(same.out).at("same_layers"), 4);
  expect_refusal(run({"diff", "--config", first, "--config", second, "--config", first}), "diff",
                 {"--config", "3"});
  expect_refusal(run({"diff", "--config", first, "--config", file("absent.json")}), "diff",
                 "absent.json");
}

}  // namespace
}  // namespace phasor::tools::testing
