// phasor logits as a user runs it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "support/changed_model.hpp"
#include "support/golden_array.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

using Shape = std::vector<std::int64_t>;

class LogitsCommand : public Phasor {
 protected:
  static std::string golden(const std::string& name) {
    return std::string(PHASOR_GOLDEN_DIR) + "/models/" + name;
  }
  // The tolerance of the golden models, which are computed in float32 too.
  void expect_golden(std::string_view name, const Shape& shape, const std::string& golden,
                     double absolute = 2e-5) const {
    const io::NpyArray got = read(name);
    EXPECT_EQ(got.shape, shape);
    const auto expected = tests::golden_array<float>("models/" + golden);
    ASSERT_EQ(static_cast<std::size_t>(got.size()), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double wanted = expected[i];
      ASSERT_NEAR(got.as<float>()[i], wanted, absolute + 1e-4 * std::abs(wanted))
          << "element " << i;
    }
  }
};

TEST_F(LogitsCommand, OneRowWithHiddenStates) {
  const std::string path = golden("llama_gqa_llama3/");
  const Outcome outcome = run({"logits", path + "model", "--ids", path + "input_ids.npy", "-o",
                               file("L.npy"), "--hidden", file("H.npy")});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("logits [1, 14, 97] float32"), std::string::npos) << outcome.out;
  expect_golden("L.npy", {1, 14, 97}, "llama_gqa_llama3/logits.npy");
  expect_golden("H.npy", {4, 1, 14, 64}, "llama_gqa_llama3/hidden_states.npy");
}

TEST_F(LogitsCommand, PaddedBatchHasZerosAtPadding) {
  const std::string path = golden("llama_gqa_llama3/");
  const std::vector<std::string> words = {"logits", path + "model",
                                          "--ids",  path + "padded_input_ids.npy",
                                          "--mask", path + "padded_attention_mask.npy",
                                          "-o",     file("L.npy")};
  EXPECT_EQ(run(words).exit, 0);
  expect_golden("L.npy", {2, 14, 97}, "llama_gqa_llama3/padded_logits.npy");

  // --last: the last token of each row, without a batch axis for [tokens].
  std::vector<std::string> last = words;
  last.back() = file("last.npy");
  last.emplace_back("--last");
  EXPECT_EQ(run(last).exit, 0);
  const io::NpyArray all = read("L.npy"), of_last = read("last.npy");
  ASSERT_EQ(of_last.shape, (Shape{2, 97}));
  for (std::int64_t row = 0; row < 2; ++row) {
    for (std::int64_t i = 0; i < 97; ++i)
      EXPECT_NEAR(of_last.as<float>()[row * 97 + i], all.as<float>()[(row * 14 + 13) * 97 + i],
                  1e-5);
  }
  const std::string flat = put_array<std::int32_t>("flat.npy", io::NpyType::i32, {3}, {1, 2, 3});
  EXPECT_EQ(run({"logits", path + "model", "--ids", flat, "--last", "-o", file("one.npy")}).exit,
            0);
  EXPECT_EQ(read("one.npy").shape, (Shape{97}));
}

TEST_F(LogitsCommand, RoFormerHeads) {
  const std::string path = golden("roformer_mlm/"), pairs = golden("roformer_classification/");
  EXPECT_EQ(run({"logits", path + "model", "--ids", path + "padded_input_ids.npy", "--mask",
                 path + "padded_attention_mask.npy", "-o", file("L.npy")})
                .exit,
            0);
  expect_golden("L.npy", {2, 14, 97}, "roformer_mlm/padded_logits.npy", 5e-5);
  const Outcome outcome = run({"logits", pairs + "model", "--ids", pairs + "input_ids.npy",
                               "--mask", pairs + "attention_mask.npy", "--token-types",
                               pairs + "token_type_ids.npy", "-o", file("C.npy"), "--json"});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  expect_golden("C.npy", {3, 3}, "roformer_classification/logits.npy");
  EXPECT_EQ(io::Json::parse(outcome.out).at("model_type"), "roformer");
  for (const auto& [name, columns] : {std::pair{"roformer_causal_lm/", std::int64_t{61}},
                                      std::pair{"roformer_token_classification/", std::int64_t{5}},
                                      std::pair{"roformer_question_answering/", std::int64_t{2}}}) {
    const std::string folder = golden(name);
    EXPECT_EQ(run({"logits", folder + "model", "--ids", folder + "padded_input_ids.npy", "--mask",
                   folder + "padded_attention_mask.npy", "-o", file("T.npy")})
                  .exit,
              0);
    expect_golden("T.npy", {2, 12, columns}, std::string(name) + "padded_logits.npy", 5e-5);
  }
  const std::string base = golden("roformer_base/");
  EXPECT_EQ(
      run({"logits", base + "model", "--ids", base + "input_ids.npy", "--hidden", file("H.npy")})
          .exit,
      0);
  expect_golden("H.npy", {4, 1, 14, 64}, "roformer_base/hidden_states.npy");
  expect_refusal(
      run({"logits", base + "model", "--ids", base + "input_ids.npy", "-o", file("Y.npy")}),
      "logits", "--hidden");
  expect_refusal(run({"logits", path + "model", "--ids", path + "input_ids.npy", "--last", "-o",
                      file("Y.npy")}),
                 "logits", "--last");
}

TEST_F(LogitsCommand, Refusals) {
  const std::string model = golden("llama_gqa_llama3/model");
  const std::string ids = golden("llama_gqa_llama3/input_ids.npy");
  const std::string out = file("Y.npy");
  const auto put = [&](std::string_view name, Shape shape,
                       const std::vector<std::int64_t>& values) {
    return put_array<std::int64_t>(name, io::NpyType::i64, std::move(shape), values);
  };
  expect_refusal(run({"logits", model, "--ids", ids}), "logits", {"-o", "--hidden"});
  expect_refusal(run({"logits", file("no"), "--ids", ids, "-o", out}), "logits", file("no"));
  expect_refusal(run({"logits", model, "--ids", put("a.npy", {1}, {97}), "-o", out}), "logits",
                 {"96", "97"});
  expect_refusal(run({"logits", model, "--ids", put("b.npy", {1, 1, 1}, {9}), "-o", out}), "logits",
                 "[1, 1, 1]");
  expect_refusal(
      run({"logits", model, "--ids", ids, "--mask", put("c.npy", {2}, {1, 1}), "-o", out}),
      "logits", "[1, 14]");
  expect_refusal(run({"logits", model, "--ids", put("d.npy", {2}, {1, 2}), "--mask",
                      put("e.npy", {2}, {1, 2}), "-o", out}),
                 "logits", {"e.npy", "2"});
  expect_refusal(run({"logits", model, "--ids", put("f.npy", {2}, {1, 2}), "--mask",
                      put("g.npy", {2}, {0, 0}), "-o", out}),
                 "logits", "row 0");
  expect_refusal(run({"logits", model, "--ids", ids, "--token-types", ids, "-o", out}), "logits",
                 "roformer");
}

// Before, these were written: NaN in arrays and CSV files, null in JSON.
TEST_F(LogitsCommand, ModelsThatAreNotFiniteAreRefused) {
  const std::string path = golden("llama_gqa_llama3/");
  const std::string tensor = "model.layers.1.self_attn.v_proj.weight";
  const std::vector<std::pair<float, Values>> cases = {
      {std::numeric_limits<float>::quiet_NaN(), {tensor, "nan"}},
      {std::numeric_limits<float>::max(), "layer 1 of 3"}};
  for (const auto& [value, shown] : cases) {
    tests::copy_with_value(path + "model", at("model"), tensor, value);
    const std::string model = file("model"), ids = path + "input_ids.npy";
    expect_refusal(run({"logits", model, "--ids", ids, "-o", file("Y.npy")}), "logits", shown);
    expect_refusal(run({"run", model, "--ids", ids, "--tokens", "2"}), "run", shown);
    expect_refusal(run({"run", model, "--ids", ids, "--tokens", "2", "--json"}), "run", shown);
    const Outcome cells =
        run({"eval", model, "--ids", ids, "--contexts", "8", "--csv", file("cells.csv")});
    expect_refusal(cells, "eval", shown);
    EXPECT_EQ(io::testing::get(at("cells.csv")).find("nan"), std::string::npos);
  }
}

}  // namespace
}  // namespace phasor::tools::testing
