// What the RoFormer encoder does not take, and what it says.
#include <gtest/gtest.h>

#include "phasor/models/roformer.hpp"
#include "roformer_support.hpp"

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
  expect_refusal(missing, key + " [64, 64] must be there");
  Files extra = golden;
  extra.weights["roformer.pooler.dense.bias"] = {{2}, {0.0F, 0.0F}};
  expect_refusal(extra, "got roformer.pooler.dense.bias");
  Files shape = golden;
  shape.weights[key] = {{32, 64}, std::vector<float>(32 * 64)};
  expect_refusal(shape, key + " must be [64, 64], got [32, 64]");
  Files layers = golden;
  layers.change_config("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2");
  expect_refusal(layers, "got roformer.encoder.layer.2.");
}

// Angles are computed, so that a table of others would be ignored in silence.
TEST_F(RoFormerRefusals, ATableThatIsNotTheSinusoid) {
  const std::string table = "roformer.encoder.embed_positions.weight";
  Files lying = Files::of_golden("roformer_mlm");
  lying.weights[table].values[17 * 16 + 9] += 2e-4F;
  expect_refusal(lying, table + " row 17 must be the sines, then the cosines");
  Files interleaved = Files::of_golden("roformer_mlm");
  auto& values = interleaved.weights[table].values;
  for (std::size_t row = 0; row < values.size(); row += 16)
    std::swap(values[row + 1], values[row + 8]);
  expect_refusal(interleaved, "row 0 must be");
  Files nan = Files::of_golden("roformer_mlm");
  nan.weights[table].values[3 * 16] = std::nanf("");
  expect_refusal(nan, "row 3 must be");
  Files shorter = Files::of_golden("roformer_mlm");
  shorter.weights[table] = {{32, 16}, std::vector<float>(32 * 16)};
  expect_refusal(shorter, table + " must be [64, 16], got [32, 16]");
}

TEST_F(RoFormerRefusals, SettingsByName) {
  const struct {
    const char *from, *to, *words;
  } changes[] = {
      {"\"hidden_act\": \"gelu\"", "\"hidden_act\": \"mish\"", "hidden_act: expected one of gelu"},
      {"\"is_decoder\": false", "\"is_decoder\": true", "is_decoder: expected false"},
      {"\"add_cross_attention\": false", "\"add_cross_attention\": true", "add_cross_attention"},
      {"RoFormerForMaskedLM", "RoFormerForQuestionAnswering", "got RoFormerForQuestionAnswering"},
      {"\"num_attention_heads\": 4", "\"num_attention_heads\": 5",
       "multiple of num_attention_heads"},
      {"\"vocab_size\": 97", "\"vocab_size\": 0", "vocab_size: expected a positive integer"},
      {"\"vocab_size\": 97", "\"vocab_size\": 98", "must be [98, 64], got [97, 64]"},
      {"\"layer_norm_eps\": 1e-12", "\"layer_norm_eps\": -1", "layer_norm_eps"},
      {"\"max_position_embeddings\": 64", "\"max_position_embeddings\": 65", "must be [65, 16]"},
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
  ASSERT_FALSE(llama.ok());
  EXPECT_NE(std::string(llama.error().what()).find("model_type must be roformer, got llama"),
            std::string::npos)
      << llama.error().what();
  EXPECT_FALSE(RoFormer::load(at("nothing")).ok());
}

TEST_F(RoFormerRefusals, Inputs) {
  RoFormer model = RoFormer::load(golden_case("roformer_mlm") / "model").value_or_throw();
  const auto expect = [&](const RoFormerInput& input, ErrorCode code, std::string_view words) {
    try {
      (void)model.forward(input);
      ADD_FAILURE() << "no Error: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  const std::vector<std::int64_t> ids = {1, 2, 3, 4}, beyond = {1, 97}, below = {-1};
  const std::vector<std::int64_t> types = {0, 1, 2, 0}, few = {0, 1}, slots = {4}, longest(65, 1);
  const std::vector<std::uint8_t> padding = {1, 1, 0, 0}, short_mask = {1};
  using enum ErrorCode;
  expect({.ids = {}}, invalid_argument, "must hold a token");
  expect({.batch = 0, .ids = ids}, invalid_argument, "batch must be at least 1");
  expect({.batch = 3, .ids = ids}, shape_mismatch, "3 rows of one length, got 4");
  expect({.ids = beyond}, out_of_range, "within [0, 97), got 97");
  expect({.ids = below}, out_of_range, "got -1");
  expect({.ids = ids, .token_types = types}, out_of_range,
         "token type must be within [0, 2), got 2");
  expect({.ids = ids, .token_types = few}, shape_mismatch, "token_types must hold 4");
  expect({.ids = ids, .mask = short_mask}, shape_mismatch, "mask must hold 4");
  expect({.batch = 2, .ids = ids, .mask = padding}, invalid_argument, "padding alone in row 1");
  expect({.ids = longest}, out_of_range, "max_position_embeddings 64 tokens, got 65");
  expect({.ids = ids, .logit_slots = slots}, out_of_range, "slot of logits");
}

}  // namespace
}  // namespace phasor::models
