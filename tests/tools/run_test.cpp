// phasor run as a user runs it. The golden models have no tokenizer: ids in, ids out.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "support/golden_array.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

using json = io::Json;
using Ids = std::vector<std::int64_t>;

class RunCommand : public Phasor {
 protected:
  static std::string golden(const std::string& name) {
    return std::string(PHASOR_GOLDEN_DIR) + "/models/llama_gqa_llama3/" + name;
  }
  [[nodiscard]] Outcome run_ids(std::vector<std::string> flags) const {
    std::vector<std::string> words = {"run", golden("model"), "--ids", golden("input_ids.npy")};
    words.insert(words.end(), flags.begin(), flags.end());
    return run(words);
  }
  static Ids numbers(const std::string& line) {
    std::istringstream words(line);
    Ids ids;
    for (std::int64_t id = 0; words >> id;) ids.push_back(id);
    return ids;
  }
  static Ids golden_ids(const std::string& name) {
    return tests::golden_array<std::int64_t>("models/llama_gqa_llama3/" + name);
  }
};

TEST_F(RunCommand, GreedyIdsOfTheReference) {
  const Outcome outcome = run_ids({"--tokens", "16", "--stats"});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_EQ(numbers(outcome.out), golden_ids("generated.npy"));
  EXPECT_EQ(outcome.out.back(), '\n');
  EXPECT_NE(outcome.err.find("14 tokens (0 cached)"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("memory"), std::string::npos);
}

TEST_F(RunCommand, TheEmbeddedModel) {
  const Outcome outcome =
      run({"run", "--embedded", "-p", "It is a truth", "-n", "60", "--json", "--threads", "1"});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  const json answer = json::parse(outcome.out);
  EXPECT_EQ(answer["ids"].size(), 60U);
  // A byte-level model of English: its text is words and spaces.
  const std::string text = answer["text"].get<std::string>();
  EXPECT_NE(text.find(" the "), std::string::npos) << text;
  const Outcome both = run({"run", golden("model"), "--embedded", "-p", "x"});
  EXPECT_EQ(both.exit, 2);
  EXPECT_NE(both.err.find("--embedded"), std::string::npos) << both.err;
  const Outcome neither = run({"run", "-p", "x"});
  EXPECT_EQ(neither.exit, 2);
  EXPECT_NE(neither.err.find("MODEL"), std::string::npos) << neither.err;
}

TEST_F(RunCommand, PaddedBatch) {
  const Outcome outcome = run({"run", golden("model"), "--ids", golden("padded_input_ids.npy"),
                               "--mask", golden("padded_attention_mask.npy"), "--tokens", "16"});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_EQ(numbers(outcome.out), golden_ids("padded_generated.npy"));
}

TEST_F(RunCommand, JsonSeedsAndShift) {
  const auto answer = [&](std::vector<std::string> flags) {
    flags.emplace_back("--json");
    const Outcome outcome = run_ids(flags);
    EXPECT_EQ(outcome.exit, 0) << outcome.err;
    return json::parse(outcome.out);
  };
  const std::vector<std::string> sampled = {"--tokens", "12", "--temperature", "1.5", "--seed"};
  const auto with_seed = [&](const char* seed) {
    std::vector<std::string> flags = sampled;
    flags.emplace_back(seed);
    return answer(flags).at("ids").get<Ids>();
  };
  EXPECT_EQ(with_seed("1"), with_seed("1"));
  EXPECT_NE(with_seed("1"), with_seed("2"));

  const json shifted = answer({"--tokens", "80", "--context", "16", "--shift"});
  EXPECT_EQ(shifted.at("ids").size(), 80u);
  EXPECT_GT(shifted.at("shifts").get<int>(), 5);
  EXPECT_EQ(shifted.at("stop"), "tokens");
  EXPECT_EQ(shifted.at("prompt_tokens"), 14);
  // Rounded keys and values: the tiny model's margins are wide enough for its first tokens.
  EXPECT_EQ(answer({"--tokens", "4", "--cache", "f16"}).at("ids"),
            answer({"--tokens", "4"}).at("ids"));
}

TEST_F(RunCommand, TokensBeyondTheContextAreCut) {
  const Outcome outcome = run_ids({"--context", "16", "-n", "5"});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  const Ids all = golden_ids("generated.npy");
  EXPECT_EQ(numbers(outcome.out), Ids(all.begin(), all.begin() + 2));
  for (const char* number : {"16", "2", "5"})
    EXPECT_NE(outcome.err.find(number), std::string::npos) << outcome.err;
  // The default number of tokens is cut without a note.
  EXPECT_EQ(run_ids({"--context", "16"}).err, "");
  const Outcome batch =
      run({"run", golden("model"), "--ids", golden("padded_input_ids.npy"), "--mask",
           golden("padded_attention_mask.npy"), "--context", "16", "-n", "100"});
  EXPECT_EQ(batch.exit, 0) << batch.err;
}

TEST_F(RunCommand, SamplesDifferAndTheSeedIsPrinted) {
  const auto sample = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"-n", "12", "--temperature", "1.5", "--json"});
    const Outcome outcome = run_ids(more);
    EXPECT_EQ(outcome.exit, 0) << outcome.err;
    return std::pair(json::parse(outcome.out), outcome.err);
  };
  const auto [first, note] = sample({});
  const std::string seed = std::to_string(first.at("seed").get<std::uint64_t>());
  EXPECT_NE(note.find("--seed " + seed), std::string::npos) << note;
  const auto [again, silence] = sample({"--seed", seed});
  EXPECT_EQ(again.at("ids"), first.at("ids"));
  EXPECT_EQ(silence, "");
  EXPECT_NE(sample({}).first.at("seed"), first.at("seed"));
  // Without sampling there is no seed.
  const Outcome greedy = run_ids({"-n", "1", "--json"});
  EXPECT_FALSE(json::parse(greedy.out).contains("seed"));
  EXPECT_EQ(greedy.err, "");
}

// Logits with an override are those of a config with its numbers.
TEST_F(RunCommand, RopeOverridesAreAConfigWithTheirNumbers) {
  namespace fs = std::filesystem;
  fs::copy(golden("model"), at("changed"), fs::copy_options::recursive);
  auto config = json::parse(io::testing::get(at("changed/config.json")));
  const auto logits = [&](const std::string& model, std::vector<std::string> more) {
    more.insert(more.begin(),
                {"logits", model, "--ids", golden("input_ids.npy"), "-o", file("L.npy")});
    const Outcome outcome = run(more);
    EXPECT_EQ(outcome.exit, 0) << outcome.err;
    return io::testing::get(file("L.npy"));
  };
  const auto write = [&](const json& parameters) {
    for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters"}) config.erase(key);
    config["rope_parameters"] = parameters;
    io::testing::put(at("changed/config.json"), config.dump());
  };
  const std::string model = golden("model"), plain = logits(model, {});
  write({{"rope_type", "default"}, {"rope_theta", 77777.0}});
  EXPECT_EQ(logits(model, {"--rope-base", "77777", "--rope-scaling", "none"}),
            logits(file("changed"), {}));
  write({{"rope_type", "yarn"},
         {"rope_theta", 77777.0},
         {"factor", 4.0},
         {"original_max_position_embeddings", 8}});
  const std::string yarn = logits(file("changed"), {});
  EXPECT_NE(yarn, plain);
  EXPECT_EQ(logits(model, {"--rope-base", "77777", "--rope-scaling",
                           "yarn:factor=4,original_max_position_embeddings=8"}),
            yarn);
  // The same answer of run.
  const std::vector<std::string> overrides = {
      "--rope-base", "77777", "--rope-scaling", "yarn:factor=4,original_max_position_embeddings=8",
      "-n",          "8"};
  EXPECT_EQ(run_ids(overrides).out,
            run({"run", file("changed"), "--ids", golden("input_ids.npy"), "-n", "8"}).out);
  expect_refusal(run_ids({"--rope-base", "-5"}), "run", "-5");
  expect_refusal(run_ids({"--rope-scaling", "yarm:factor=2"}), "run", {"yarm", "\"yarn\""});
}

TEST_F(RunCommand, Refusals) {
  const std::string model = golden("model"), ids = golden("input_ids.npy");
  expect_refusal(run({"run", file("absent"), "--ids", ids}), "run", "absent");
  expect_refusal(run({"run", model}), "run", {"--prompt", "--prompt-file", "--ids"});
  expect_refusal(run({"run", model, "--prompt", "x", "--ids", ids}), "run", {"--prompt", "--ids"});
  expect_refusal(run({"run", model, "--prompt", "x"}), "run", "tokenizer");
  expect_refusal(run_ids({"--chat"}), "run", {"--ids", "--chat"});
  expect_refusal(run_ids({"--context", "0"}), "run", {"--context", "1", "0"});
  expect_refusal(run_ids({"--tokens", "-1"}), "run", "--tokens");
  expect_refusal(run_ids({"--context", "14", "--tokens", "3"}), "run", {"14", "--shift"});
  expect_refusal(run({"run", model, "-p", "x", "--system", "s"}), "run", {"--system", "--chat"});
  expect_refusal(run({"run", model, "-p", "x", "--chat-format", "gemma"}), "run",
                 {"--chat-format", "--chat"});
  expect_refusal(run_ids({"--context", "13", "--shift"}), "run", {"13", "14"});
  expect_refusal(run_ids({"--context", "16", "--shift", "--keep", "15"}), "run", "keep");
  expect_refusal(run_ids({"--temperature", "-1"}), "run", "temperature");
  expect_refusal(run_ids({"--top-p", "0.5"}), "run", {"--top-p", "--temperature"});
  expect_refusal(run_ids({"--temperature", "1", "--min-p", "1"}), "run", "min_p");
  expect_refusal(run_ids({"--repetition-penalty", "0"}), "run", "repetition_penalty");
  expect_refusal(run_ids({"--cache", "q4"}), "run", "--cache");
  expect_refusal(run_ids({"--threads", "-2"}), "run", "--threads");
  const std::string beyond = put_array<std::int64_t>("ids.npy", io::NpyType::i64, {2}, {3, 97});
  expect_refusal(run({"run", model, "--ids", beyond}), "run", {"96", "97"});
  const std::string none = put_array<std::int64_t>("none.npy", io::NpyType::i64, {0}, {});
  expect_refusal(run({"run", model, "--ids", none}), "run", {"none.npy", "[0]"});
  const std::string floats = put_array<float>("floats.npy", io::NpyType::f32, {1}, {1.0F});
  expect_refusal(run({"run", model, "--ids", floats}), "run", {"floats.npy", "float32"});
  expect_refusal(run({"run", put_text("cut.gguf", "GGUF\x03"), "--ids", ids}), "run", "cut.gguf");
}

}  // namespace
}  // namespace phasor::tools::testing
