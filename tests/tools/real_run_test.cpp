// phasor run and eval with the real model. PHASOR_MODELS names the folder that holds the file.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "support/golden_array.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

using json = io::Json;

class RealRun : public Phasor {
 protected:
  void SetUp() override {
    const char* const folder = std::getenv("PHASOR_MODELS");
    if (folder == nullptr) GTEST_SKIP() << "PHASOR_MODELS names no folder of models";
    const std::filesystem::path path =
        std::filesystem::path(folder) / "SmolLM2-135M-Instruct.Q4_1.gguf";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "the real model is not in " << folder;
    model_ = path.string();
  }
  static json golden_case(const std::string& name) {
    return json::parse(
        io::testing::get(std::string(PHASOR_GOLDEN_DIR) + "/real_models/" + name + "/case.json"));
  }
  std::string model_;
};

TEST_F(RealRun, TheGoldenTokensAsText) {
  for (const char* name : {"smollm2_short", "smollm2_passage"}) {
    const std::string prompt = golden_case(name).at("text").text();
    const auto expected =
        tests::golden_array<std::int64_t>(std::string("real_models/") + name + "/generated.npy");
    const Outcome as_json = run({"run", model_, "--prompt", prompt, "--tokens", "32", "--json"});
    ASSERT_EQ(as_json.exit, 0) << as_json.err;
    const json answer = json::parse(as_json.out);
    EXPECT_EQ(answer.at("ids").get<std::vector<std::int64_t>>(), expected) << name;
    // The prompt as it was written, then the same characters, one by one.
    const Outcome written = run({"run", model_, "--prompt", prompt, "--tokens", "32"});
    EXPECT_EQ(written.out, prompt + answer.at("text").get<std::string>() + "\n");
    EXPECT_EQ(written.err, "");
  }
}

TEST_F(RealRun, ChatAnswersAndStops) {
  const Outcome outcome = run({"run", model_, "--chat", "--prompt",
                               "What is the capital of France? Answer in one word.", "--json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const json answer = json::parse(outcome.out);
  EXPECT_EQ(answer.at("stop"), "stop_token");
  EXPECT_NE(answer.at("text").get<std::string>().find("Paris"), std::string::npos)
      << answer.at("text");
  EXPECT_EQ(answer.at("text").get<std::string>().find("<|"), std::string::npos);
}

TEST_F(RealRun, PerplexityOfEnglishIsThatOfTheReference) {
  // transformers 5.22.2 on the same file, float32: 4.16416 nats over the golden passage's 48
  // predicted tokens.
  const std::string text =
      put_text("text.txt", golden_case("smollm2_passage").at("text").get<std::string>());
  const Outcome outcome =
      run({"eval", model_, "--text", text, "--contexts", "48", "--json", "--scaling", "none"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const json cell = json::parse(outcome.out).at("cells").at(0);
  EXPECT_EQ(cell.at("scored_tokens"), 48);
  EXPECT_NEAR(cell.at("nats").get<double>(), 4.16416, 1e-4);
}

TEST_F(RealRun, Refusals) {
  expect_refusal(run({"run", model_, "--prompt", ""}), "run", "prompt");
  expect_refusal(run({"run", model_, "--prompt", "a\xff"}), "run", "UTF-8");
  expect_refusal(run({"run", model_, "--prompt", "a b c d e", "--context", "4"}), "run",
                 {"5", "4"});
  expect_refusal(run({"run", model_, "--chat", "--prompt", "a", "--chat-format", "x"}), "run",
                 "got x");
  std::ifstream whole(model_, std::ios::binary);
  std::string start(5'000'000, '\0');
  whole.read(start.data(), static_cast<std::streamsize>(start.size()));
  expect_refusal(run({"run", put_text("cut.gguf", start), "--prompt", "a"}), "run", "cut.gguf");
}

}  // namespace
}  // namespace phasor::tools::testing
