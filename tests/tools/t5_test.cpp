// phasor run and logits with encoder-decoders.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "phasor/io/npy.hpp"
#include "support/golden_array.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

using T5Ids = std::vector<std::int64_t>;

class T5Command : public Phasor {
 protected:
  static std::string golden(const std::string& name) {
    return std::string(PHASOR_GOLDEN_DIR) + "/models/t5_gated_untied/" + name;
  }
  static T5Ids golden_ids(const std::string& name) {
    return tests::golden_array<std::int64_t>("models/t5_gated_untied/" + name);
  }
  static T5Ids numbers(const std::string& text) {
    std::istringstream words(text);
    T5Ids ids;
    for (std::int64_t id = 0; words >> id;) ids.push_back(id);
    return ids;
  }
  // The golden model with a tokenizer: token i is the word "wi".
  [[nodiscard]] std::string with_tokenizer() const {
    const std::filesystem::path folder = file("model");
    std::filesystem::create_directories(folder);
    for (const char* name : {"config.json", "model.safetensors"})
      std::filesystem::copy_file(golden("model/") + name, folder / name);
    io::Json root = io::Json::parse(R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}]},
        "added_tokens": [{"id": 1, "content": "</s>", "special": true}],
        "model": {"type": "Unigram", "unk_id": 2, "vocab": [["<pad>", 0], ["</s>", 0], ["<unk>", 0]]}})");
    for (int id = 3; id < 97; ++id) {
      io::Json piece = io::Json::array();
      piece.push_back("\u2581w" + std::to_string(id));
      piece.push_back(-1.0);
      root["model"]["vocab"].push_back(piece);
    }
    io::testing::put(folder / "tokenizer.json", root.dump());
    return folder;
  }
};

TEST_F(T5Command, RunsTheReferenceAnswers) {
  const Outcome one = run({"run", golden("model"), "--ids", golden("input_ids.npy"), "-n", "16"});
  EXPECT_EQ(one.exit, 0) << one.err;
  EXPECT_EQ(numbers(one.out), golden_ids("generated.npy"));
  const Outcome batch = run({"run", golden("model"), "--ids", golden("padded_input_ids.npy"),
                             "--mask", golden("padded_attention_mask.npy"), "-n", "16"});
  EXPECT_EQ(batch.exit, 0) << batch.err;
  EXPECT_EQ(numbers(batch.out), golden_ids("padded_generated.npy"));
}

// The prompt is the input, with the end token; the answer is printed alone.
TEST_F(T5Command, RunsText) {
  const std::string model = with_tokenizer();
  const Outcome text = run({"run", model, "-p", "w4 w15  w8", "-n", "6", "--json"});
  if (text.err.find("PHASOR_SENTENCEPIECE") != std::string::npos) GTEST_SKIP() << text.err;
  ASSERT_EQ(text.exit, 0) << text.err;
  const io::Json answer = io::Json::parse(text.out);
  const Outcome ids = run({"run", model, "--ids", "4,15,8,1", "-n", "6"});
  EXPECT_EQ(answer.find("ids")->get<T5Ids>(), numbers(ids.out));
  EXPECT_EQ(answer.find("prompt_tokens")->get<std::int64_t>(), 4);
  std::string words;
  for (const std::int64_t id : numbers(ids.out))
    words += (words.empty() ? "w" : " w") + std::to_string(id);
  EXPECT_EQ(answer.find("text")->get<std::string>(), words);
  const Outcome printed = run({"run", model, "-p", "w4 w15  w8", "-n", "6", "--stats"});
  EXPECT_EQ(printed.out, words + "\n");
  EXPECT_NE(printed.err.find("memory"), std::string::npos);
}

TEST_F(T5Command, WritesLogitsOfTheDecoder) {
  const Outcome outcome =
      run({"logits", golden("model"), "--ids", golden("padded_input_ids.npy"), "--mask",
           golden("padded_attention_mask.npy"), "--decoder-ids",
           golden("padded_decoder_input_ids.npy"), "-o", file("L.npy"), "--hidden", file("H.npy")});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const io::NpyArray logits = io::read_npy(file("L.npy")).value_or_throw();
  EXPECT_EQ(logits.shape, (T5Ids{2, 11, 97}));
  const std::vector<double> got = io::to_doubles(logits).value_or_throw();
  const auto expected = tests::golden_array<float>("models/t5_gated_untied/padded_logits.npy");
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 4e-5) << i;
  EXPECT_EQ(io::read_npy(file("H.npy")).value_or_throw().shape, (T5Ids{3, 2, 11, 48}));
  // Of one sequence: the reference's hidden states.
  const Outcome one = run({"logits", golden("model"), "--ids", golden("input_ids.npy"),
                           "--decoder-ids", golden("decoder_input_ids.npy"), "--last", "-o",
                           file("L.npy"), "--hidden", file("H.npy")});
  ASSERT_EQ(one.exit, 0) << one.err;
  EXPECT_EQ(io::read_npy(file("L.npy")).value_or_throw().shape, (T5Ids{1, 97}));
  const std::vector<double> hidden =
      io::to_doubles(io::read_npy(file("H.npy")).value_or_throw()).value_or_throw();
  const auto reference = tests::golden_array<float>("models/t5_gated_untied/hidden_states.npy");
  ASSERT_EQ(hidden.size(), reference.size());
  for (std::size_t i = 0; i < hidden.size(); ++i) ASSERT_NEAR(hidden[i], reference[i], 4e-5) << i;
  // Without ids of the decoder: its start token.
  ASSERT_EQ(run({"logits", golden("model"), "--ids", "5,6,7", "-o", file("L.npy")}).exit, 0);
  EXPECT_EQ(io::read_npy(file("L.npy")).value_or_throw().shape, (T5Ids{1, 97}));
}

TEST_F(T5Command, RefusesWhatNeedsADecoder) {
  const auto refused = [&](std::vector<std::string> words, const std::string& value) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.exit, 2) << value;
    EXPECT_NE(outcome.err.find(value), std::string::npos) << outcome.err;
  };
  const std::string model = golden("model");
  refused({"run", model, "--ids", "4,5", "--shift"}, "--shift");
  refused({"run", model, "--ids", "4,5", "--context", "9"}, "--context");
  refused({"run", model, "-p", "w4", "--chat"}, "--chat");
  refused({"run", model, "--ids", "4,97"}, "97");
  refused({"logits", model, "--ids", "4,5", "--token-types", "0,0", "-o", file("L.npy")},
          "--token-types");
  refused({"logits", model, "--ids", golden("padded_input_ids.npy"), "--decoder-ids", "0,3", "-o",
           file("L.npy")},
          "2");
  const std::string llama = std::string(PHASOR_GOLDEN_DIR) + "/models/llama_gqa_llama3/model";
  refused({"logits", llama, "--ids", "4,5", "--decoder-ids", "0", "-o", file("L.npy")},
          "--decoder-ids");
  EXPECT_FALSE(std::filesystem::exists(file("L.npy")));
}

TEST_F(T5Command, ExplainSaysWhatRuns) {
  const Outcome outcome = run({"explain", golden("model"), "--json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const io::Json page = io::Json::parse(outcome.out);
  EXPECT_EQ(page["weights"]["runs_as"].get<std::string>(), "encoder-decoder");
  EXPECT_EQ(page["weights"]["cache_bytes_per_token"].get<std::int64_t>(), 2 * 2 * 3 * 16 * 4);
}

}  // namespace
}  // namespace phasor::tools::testing
