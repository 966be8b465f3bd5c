// Errors of the RoFormer encoder.
#include <gtest/gtest.h>

#include "phasor/models/roformer.hpp"
#include "roformer_support.hpp"
#include "support/errors.hpp"

namespace phasor::models {
namespace {

using testing::Files;
using testing::golden_case;

class RoFormerRefusals : public io::testing::TemporaryFolder {
 protected:
  // The message, which is one line.
  [[nodiscard]] std::string refusal(const Files& files) const {
    files.write(at("model"));
    const Result<RoFormer> model = RoFormer::load(at("model"));
    if (model.ok()) return "loaded";
    const std::string text = model.error().what();
    EXPECT_EQ(text.find('\n'), std::string::npos);
    return text;
  }
  void expect_refusal(const Files& files, std::string_view words) const {
    const std::string text = refusal(files);
    EXPECT_NE(text.find(words), std::string::npos) << text;
  }
};

TEST_F(RoFormerRefusals, TensorsByName) {
  const Files golden = Files::of_golden("roformer_mlm");
  const std::string key = "roformer.encoder.layer.1.attention.self.key.weight";
  Files missing = golden;
  missing.weights.erase(key);
  expect_refusal(missing, key + " [64, 64]");
  Files extra = golden;
  extra.weights["roformer.pooler.dense.bias"] = {{2}, {0.0F, 0.0F}};
  expect_refusal(extra, "roformer.pooler.dense.bias");
  Files shape = golden;
  shape.weights[key] = {{32, 64}, std::vector<float>(32 * 64)};
  expect_refusal(shape, key + " must be [64, 64], got [32, 64]");
  Files layers = golden;
  layers.change_config("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2");
  expect_refusal(layers, "roformer.encoder.layer.2.");
}

// Angles are computed: another table would be ignored silently.
TEST_F(RoFormerRefusals, ATableThatIsNotTheSinusoid) {
  const std::string table = "roformer.encoder.embed_positions.weight";
  Files changed = Files::of_golden("roformer_mlm");
  changed.weights[table].values[17 * 16 + 9] += 2e-4F;
  expect_refusal(changed, table + " row 17 ");
  Files interleaved = Files::of_golden("roformer_mlm");
  auto& values = interleaved.weights[table].values;
  for (std::size_t row = 0; row < values.size(); row += 16)
    std::swap(values[row + 1], values[row + 8]);
  expect_refusal(interleaved, "row 0 ");
  Files nan = Files::of_golden("roformer_mlm");
  nan.weights[table].values[3 * 16] = std::nanf("");
  expect_refusal(nan, "row 3, column 0");
  Files shorter = Files::of_golden("roformer_mlm");
  shorter.weights[table] = {{32, 16}, std::vector<float>(32 * 16)};
  expect_refusal(shorter, table + " must be [64, 16], got [32, 16]");
}

TEST_F(RoFormerRefusals, SettingsByName) {
  const struct {
    const char *from, *to, *words;
  } changes[] = {
      {"\"hidden_act\": \"gelu\"", "\"hidden_act\": \"mish\"", "got mish"},
      {"\"add_cross_attention\": false", "\"add_cross_attention\": true", "add_cross_attention"},
      {"RoFormerForMaskedLM", "RoFormerForMultipleChoice", "RoFormerForMultipleChoice"},
      {"RoFormerForMaskedLM", "RoFormerForQuestionAnswering", "qa_outputs.weight [2, 64]"},
      {"RoFormerForMaskedLM", "RoFormerForTokenClassification", "classifier.weight [2, 64]"},
      {"\"num_attention_heads\": 4", "\"num_attention_heads\": 5", "num_attention_heads 5"},
      {"\"vocab_size\": 97", "\"vocab_size\": 0", "vocab_size"},
      {"\"vocab_size\": 97", "\"vocab_size\": 98", "[98, 64], got [97, 64]"},
      {"\"layer_norm_eps\": 1e-12", "\"layer_norm_eps\": -1", "layer_norm_eps"},
      {"\"max_position_embeddings\": 64", "\"max_position_embeddings\": 65", "[65, 16]"},
  };
  for (const auto& change : changes) {
    SCOPED_TRACE(change.to);
    Files files = Files::of_golden("roformer_mlm");
    files.change_config(change.from, change.to);
    expect_refusal(files, change.words);
  }
}

TEST_F(RoFormerRefusals, OtherModels) {
  const auto llama = RoFormer::load(golden_case("llama_gqa_llama3") / "model");
  tests::expect_error(ErrorCode::unsupported, {"model_type", "'llama'"}, llama);
  EXPECT_FALSE(RoFormer::load(at("nothing")).ok());
}

TEST_F(RoFormerRefusals, Inputs) {
  RoFormer model = RoFormer::load(golden_case("roformer_mlm") / "model").value_or_throw();
  const auto expect = [&](const RoFormerInput& input, ErrorCode code, std::string_view value) {
    tests::expect_error(code, {value}, [&] { return model.forward(input); });
  };
  const std::vector<std::int64_t> ids = {1, 2, 3, 4}, beyond = {1, 97}, below = {-1};
  const std::vector<std::int64_t> types = {0, 1, 2, 0}, few = {0, 1}, slots = {4}, longest(65, 1);
  const std::vector<std::uint8_t> padding = {1, 1, 0, 0}, short_mask = {1};
  using enum ErrorCode;
  expect({.ids = {}}, invalid_argument, "ids is empty");
  expect({.batch = 0, .ids = ids}, invalid_argument, "batch");
  expect({.batch = 3, .ids = ids}, shape_mismatch, "got 4 ids");
  expect({.ids = beyond}, out_of_range, "[0, 97), got 97");
  expect({.ids = below}, out_of_range, "got -1");
  expect({.ids = ids, .token_types = types}, out_of_range, "token type must be in [0, 2), got 2");
  expect({.ids = ids, .token_types = few}, shape_mismatch, "token_types");
  expect({.ids = ids, .mask = short_mask}, shape_mismatch, "mask");
  expect({.batch = 2, .ids = ids, .mask = padding}, invalid_argument, "row 1");
  expect({.ids = longest}, out_of_range, "got 65");
  expect({.ids = ids, .logit_slots = slots}, out_of_range, "slot of logits");
}

}  // namespace
}  // namespace phasor::models
