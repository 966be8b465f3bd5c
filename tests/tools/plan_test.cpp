// phasor plan as a user runs it.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "phasor/io/internal/json.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

using json = io::Json;

class PlanCommand : public Phasor {
 protected:
  static std::string golden(const std::string& name) {
    return std::string(PHASOR_GOLDEN_DIR) + "/" + name;
  }
};

TEST_F(PlanCommand, PageShowsEveryMethodWithinItsWidth) {
  const Outcome outcome =
      run({"plan", "--config", golden("rope_freqs/default_qwen2_5_7b/config.new.json"), "--to",
           "131072"});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  for (const char* method : {"none", "linear", "ntk", "dynamic", "yarn", "llama3", "longrope"})
    EXPECT_NE(outcome.out.find("\n  " + std::string(method) + " "), std::string::npos) << method;
  EXPECT_NE(outcome.out.find("\"rope_type\": \"yarn\""), std::string::npos);
  EXPECT_NE(outcome.out.find("--yarn-orig-ctx 32768"), std::string::npos);
  std::istringstream lines(outcome.out);
  std::string line;
  while (std::getline(lines, line)) {
    // Flags are one line, to be copied.
    if (line.find("--") != std::string::npos) continue;
    EXPECT_LE(line.size(), 110u) << line;
  }
}

TEST_F(PlanCommand, OneMethodOnRequest) {
  const std::string config = golden("rope_freqs/default_qwen2_5_7b/config.new.json");
  const Outcome linear = run({"plan", "--config", config, "--to", "131072", "--method", "linear"});
  EXPECT_EQ(linear.exit, 0) << linear.err;
  EXPECT_NE(linear.out.find("--rope-scaling linear --rope-scale 4"), std::string::npos);
  const Outcome one =
      run({"plan", "--config", config, "--to", "131072", "--method", "linear", "--json"});
  EXPECT_EQ(json::parse(one.out).at("methods").size(), 1U);
  // One number per pair is only in JSON.
  const Outcome longrope =
      run({"plan", "--config", config, "--to", "131072", "--method", "longrope"});
  EXPECT_EQ(longrope.out.find("long_factor"), std::string::npos);
  expect_refusal(run({"plan", "--config", config, "--to", "131072", "--method", "yam"}), "plan",
                 "yam");
}

TEST_F(PlanCommand, JsonAndCsv) {
  const Outcome outcome = run({"plan", "--config", golden("models/qwen2_bias_yarn/model"), "--to",
                               "256", "--trained", "16", "--json", "--csv", file("plan.csv")});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  const json plan = json::parse(outcome.out);
  EXPECT_EQ(plan.at("trained"), 16);
  EXPECT_EQ(plan.at("factor"), 16.0);
  EXPECT_EQ(plan.at("methods").at(1).at("method"), "present");
  const std::string csv = io::testing::get(at("plan.csv"));
  EXPECT_TRUE(csv.starts_with("method,pair,wavelength,turns_trained,frequency,turns_at_n,ood,"));
  EXPECT_EQ(static_cast<std::size_t>(std::count(csv.begin(), csv.end(), '\n')),
            1 + plan.at("methods").size() * 8);
}

constexpr const char* kLlama =
    R"({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "max_position_embeddings": 131072, "rope_theta": 500000.0})";

TEST_F(PlanCommand, RanksAsPageAndJson) {
  const Outcome page = run({"plan", "--config", kLlama, "--ranks", "1024", "--tokens", "10M"});
  EXPECT_EQ(page.exit, 0) << page.err;
  for (const char* text : {"\n  ring zigzag ", "\n  ring contiguous ", "\n  grid 128 x 8 ",
                           "32 heads are not divisible by 1024", "\nrecommended  "})
    EXPECT_NE(page.out.find(text), std::string::npos) << text;
  std::istringstream lines(page.out);
  std::string line;
  while (std::getline(lines, line)) EXPECT_LE(line.size(), 100u) << line;

  const Outcome outcome = run({"plan", "--config", kLlama, "--ranks", "4", "--nodes", "2",
                               "--bandwidth", "400", "--wire", "f32", "--tokens", "4k", "--json"});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  const json plan = json::parse(outcome.out);
  EXPECT_EQ(plan.at("nodes"), 2);
  EXPECT_EQ(plan.at("bandwidth"), 400.0);
  const json& ring = plan.at("strategies").at(0);
  EXPECT_EQ(ring.at("strategy"), "ring zigzag");
  EXPECT_EQ(ring.at("forward_bytes"), 3.0 * 1024 * 8 * 2 * 128 * 4);
  EXPECT_EQ(
      json::parse(run({"plan", "--config", kLlama, "--ranks", "2", "--json"}).out).at("tokens"),
      131072);
}

TEST_F(PlanCommand, RefusalsOfRanks) {
  expect_refusal(run({"plan", "--config", kLlama, "--ranks", "6", "--nodes", "4"}), "plan", "4");
  expect_refusal(run({"plan", "--config", kLlama, "--ranks", "0"}), "plan", "0");
  expect_refusal(run({"plan", "--config", kLlama, "--to", "256k", "--nodes", "2"}), "plan",
                 "--ranks");
  expect_refusal(run({"plan", "--config", kLlama, "--ranks", "2", "--method", "yarn"}), "plan",
                 "--method");
  expect_refusal(run({"plan", "--head-dim", "8", "--ranks", "2", "--to", "64"}), "plan",
                 "num_attention_heads");
}

TEST_F(PlanCommand, Refusals) {
  const std::string config = golden("models/qwen2_bias_yarn/model");
  expect_refusal(run({"plan", "--config", config, "--to", "16"}), "plan", "16");
  expect_refusal(run({"plan", "--config", config}), "plan", "--to");
  expect_refusal(run({"plan", "--config", file("absent.json"), "--to", "64"}), "plan",
                 "absent.json");
  expect_refusal(run({"plan", "--config", put_text("spec.json", kPlainSpec), "--to", "64"}), "plan",
                 "--trained");
  EXPECT_EQ(run({"plan", "--config", file("spec.json"), "--to", "64", "--trained", "16"}).exit, 0);
  const Outcome outcome =
      run({"plan", "--config", config, "--to", "256", "--csv", file("no/such/folder/plan.csv")});
  expect_refusal(outcome, "plan", "no/such/folder");
}

}  // namespace
}  // namespace phasor::tools::testing
