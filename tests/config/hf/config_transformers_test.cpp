// Configs as transformers writes them: leftover keys, layers that differ, parts, and models that do not
// rotate.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "config/parsed.hpp"
#include "phasor/config/config.hpp"
#include "support/errors.hpp"

namespace phasor::config {
namespace {

using encodings::MropeAxes;
using encodings::RopeSpec;
using testing::parsed;

LayerGroup layer_of(const ModelConfig& config, const std::string& selector) {
  return select_layer(config, selector).value_or_throw();
}

const KeyNote* note_of(const ModelConfig& config, const std::string& key) {
  const auto found = std::find_if(config.notes.begin(), config.notes.end(),
                                  [&](const KeyNote& note) { return note.key == key; });
  return found == config.notes.end() ? nullptr : &*found;
}

TEST(Leftovers, KeysOfAnotherScalingAreNoted) {
  const ModelConfig config = parsed(
      R"({"model_type": "llama", "head_dim": 64, "max_position_embeddings": 131072,
          "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "factor": 8.0,
                              "original_max_position_embeddings": 16384, "beta_fast": null}})");
  EXPECT_TRUE(std::holds_alternative<encodings::DefaultScaling>(config.groups[0].rope->scaling));
  const KeyNote* note = note_of(config, "rope_parameters.original_max_position_embeddings");
  ASSERT_NE(note, nullptr);
  EXPECT_TRUE(note->leftover);
  EXPECT_NE(note->note.find("yarn"), std::string::npos) << note->note;
  ASSERT_NE(note_of(config, "rope_parameters.factor"), nullptr);
  EXPECT_EQ(note_of(config, "rope_parameters.beta_fast"), nullptr) << "null means absent";
  const ModelConfig linear = parsed(
      R"({"model_type": "llama", "head_dim": 64,
          "rope_scaling": {"type": "linear", "factor": 2, "beta_fast": 32}})");
  EXPECT_EQ(std::get<encodings::LinearScaling>(linear.groups[0].rope->scaling).factor, 2.0);
  EXPECT_TRUE(note_of(linear, "rope_scaling.beta_fast")->leftover);
}

TEST(LayerTypes, OfAnotherLengthAreReadByIndex) {
  const ModelConfig config = parsed(
      R"({"model_type": "cohere2", "head_dim": 64, "num_hidden_layers": 2, "sliding_window": 16,
          "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention",
                          "full_attention"]})");
  EXPECT_TRUE(layer_of(config, "2").rope.has_value());
  EXPECT_FALSE(layer_of(config, "3").rope.has_value());
  EXPECT_FALSE(layer_of(config, "full_attention").rope.has_value());
  const KeyNote* note = note_of(config, "layer_types");
  ASSERT_NE(note, nullptr);
  for (const std::string value : {"4", "2"})
    EXPECT_NE(note->note.find(value), std::string::npos) << note->note;
  tests::expect_error(ErrorCode::invalid_argument, {"4"}, select_layer(config, "4"));
}

TEST(LayerTypes, HybridModelsRotateTheirAttentionAlone) {
  const ModelConfig bamba = parsed(
      R"({"model_type": "bamba", "hidden_size": 4096, "num_attention_heads": 32, "attn_rotary_emb": 64,
          "num_hidden_layers": 4, "attn_layer_indices": [1, 3]})");
  EXPECT_FALSE(layer_of(bamba, "0").rope.has_value());
  EXPECT_EQ(layer_of(bamba, "3").rope->rotary_dim, 64);
  EXPECT_EQ(note_of(bamba, "attn_rotary_emb"), nullptr);
  const ModelConfig falcon = parsed(
      R"({"model_type": "falcon_h1", "head_dim": 64, "attn_rotary_emb": 32, "rope_theta": 1e11})");
  EXPECT_EQ(falcon.groups[0].rope->rotary_dim, 64);
  ASSERT_NE(note_of(falcon, "attn_rotary_emb"), nullptr);
  const std::string zamba =
      R"({"model_type": "zamba2", "hidden_size": 2560, "num_attention_heads": 32,
          "attention_head_dim": 160, "num_hidden_layers": 3, "rope_theta": 10000,
          "layers_block_type": ["mamba", "hybrid", "mamba"], "use_mem_rope": )";
  EXPECT_EQ(layer_of(parsed(zamba + "true}"), "1").rope->head_dim, 160);
  EXPECT_FALSE(layer_of(parsed(zamba + "true}"), "2").rope.has_value());
  EXPECT_FALSE(layer_of(parsed(zamba + "false}"), "1").rope.has_value());
  const ModelConfig mllama = parsed(
      R"({"model_type": "mllama_text_model", "head_dim": 128, "num_hidden_layers": 4,
          "cross_attention_layers": [2], "rope_parameters": {"rope_theta": 500000.0}})");
  EXPECT_FALSE(layer_of(mllama, "2").rope.has_value());
  EXPECT_TRUE(layer_of(mllama, "3").rope.has_value());
}

TEST(LayerTypes, DenseLayersOfCohere2MoeRotate) {
  const std::string start =
      R"({"model_type": "cohere2_moe", "head_dim": 64, "num_hidden_layers": 3, "sliding_window": 16,
          "layer_types": ["full_attention", "sliding_attention", "full_attention"],
          "mlp_layer_types": ["dense", "sparse", "sparse"],
          "prefix_dense_sliding_window_pattern": )";
  EXPECT_TRUE(layer_of(parsed(start + "1}"), "0").rope.has_value());
  EXPECT_FALSE(layer_of(parsed(start + "1}"), "0").window.has_value());
  EXPECT_FALSE(layer_of(parsed(start + "1}"), "2").rope.has_value());
  EXPECT_FALSE(layer_of(parsed(start + "2}"), "0").rope.has_value());
}

TEST(LayerTypes, EveryLayerOfMolmo2MustBeScaled) {
  const std::string start =
      R"({"model_type": "molmo2_text", "head_dim": 64, "num_hidden_layers": 2, "rope_theta": 1e4,
          "rope_scaling": {"type": "linear", "factor": 2}, "rope_scaling_layers": )";
  EXPECT_TRUE(parse_config(start + "[0, 1]}").ok());
  tests::expect_error(ErrorCode::unsupported, {"rope_scaling_layers", "2", "1"},
                      parse_config(start + "[0]}"));
}

TEST(LayerTypes, FlintNeedsItsList) {
  tests::expect_error(
      ErrorCode::invalid_argument, {"layer_types", "flint"},
      parse_config(
          R"({"model_type": "flint", "head_dim": 64, "num_hidden_layers": 4, "rope_theta": 1e4})"));
}

TEST(LayerBases, GraniteSwaListsThem) {
  const std::string start =
      R"({"model_type": "granite_swa", "head_dim": 64, "num_hidden_layers": 4, "sliding_window": 128,
          "layer_types": ["full_attention", "sliding_attention", "sliding_attention",
                          "sliding_attention"],
          "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "layer_rope_theta": )";
  const ModelConfig config = parsed(start + "[0, 10000, 500000, 10000]}");
  EXPECT_FALSE(layer_of(config, "0").rope.has_value());
  EXPECT_FALSE(layer_of(config, "0").window.has_value());
  EXPECT_EQ(layer_of(config, "1").rope->base, 10000.0);
  EXPECT_EQ(layer_of(config, "2").rope->base, 500000.0);
  EXPECT_EQ(layer_of(config, "3").window, 128);
  const ModelConfig alike = parsed(start + "[10000, 10000, 10000, 10000]}");
  EXPECT_EQ(layer_of(alike, "").rope->base, 10000.0);
  tests::expect_error(ErrorCode::invalid_argument, {"layer_rope_theta", "4", "2"},
                      parse_config(start + "[0, 1]}"));
  tests::expect_error(ErrorCode::invalid_argument, {"layer_rope_theta", "-1"},
                      parse_config(start + "[0, -1, 0, 0]}"));
  tests::expect_error(
      ErrorCode::invalid_argument, {"layer_rope_theta", "500000", "10000"},
      parse_config(
          R"({"model_type": "muse_spark_text", "head_dim": 64, "layer_rope_theta": [10000, 0],
                       "rope_parameters": {"rope_theta": 500000}})"));
}

TEST(Heads, FullAttentionLayersOfGemma4MayListTheirs) {
  const auto config = [](const std::string& layers) {
    return message(
        R"({"model_type": "gemma4_text", "head_dim": 256, "num_hidden_layers": 3,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            "rope_parameters": {"sliding_attention": {"rope_theta": 10000.0}, "full_attention":
              {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25}},
            "per_layer_config": )",
        layers, "}");
  };
  const ModelConfig read = parsed(config(R"({"02": {"head_dim": 512}})"));
  EXPECT_EQ(layer_of(read, "2").rope->head_dim, 512);
  EXPECT_EQ(layer_of(read, "0").rope->head_dim, 256);
  for (const std::string layers : {R"({"01": {"head_dim": 512}})", R"({"9": {"head_dim": 512}})"}) {
    tests::expect_error(ErrorCode::unsupported, {"per_layer_config", "512"},
                        parse_config(config(layers)));
  }
}

TEST(Heads, FamiliesWithKeysOfTheirOwn) {
  const RopeSpec dbrx =
      *parsed(R"({"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 2,
                  "max_seq_len": 32768, "attn_config": {"kv_n_heads": 8, "rope_theta": 500000}})")
           .groups[0]
           .rope;
  EXPECT_EQ(dbrx.head_dim, 128);
  EXPECT_EQ(dbrx.base, 500000.0);
  EXPECT_EQ(dbrx.layout, core::PairLayout::half);
  const ModelConfig minicpm = parsed(
      R"({"model_type": "minicpm3", "qk_rope_head_dim": 32, "qk_nope_head_dim": 64, "head_dim": 32})");
  EXPECT_EQ(minicpm.groups[0].rope->rotary_dim, 32);
  EXPECT_NEAR(minicpm.groups[0].softmax_scale, 1.0 / std::sqrt(96.0), 1e-15);
  // The share is that of the whole head, and the rotating part has its own key.
  const std::string mistral =
      R"({"model_type": "mistral4", "qk_rope_head_dim": 64, "qk_nope_head_dim": 64, "head_dim": 128,
          "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": )";
  EXPECT_EQ(parsed(mistral + "0.5}}").groups[0].rope->rotary_dim, 64);
  tests::expect_error(ErrorCode::invalid_argument, {"qk_rope_head_dim", "64", "32"},
                      parse_config(mistral + "0.25}}"));
  const RopeSpec telechat =
      *parsed(R"({"model_type": "telechat3", "head_dim": 128, "rope_theta": 1e6,
                  "max_position_embeddings": 131072, "rope_scaling": {"type": "telechat3-yarn",
                  "factor": 16, "original_max_position_embeddings": 8192}})")
           .groups[0]
           .rope;
  EXPECT_TRUE(std::holds_alternative<encodings::Telechat3YarnScaling>(telechat.scaling));
  EXPECT_EQ(telechat.layout, core::PairLayout::half);
}

TEST(Sections, FamiliesHaveTheirs) {
  const auto axes = [](const std::string& text) {
    return std::get<MropeAxes>(parsed(text).groups[0].rope->axes);
  };
  const std::string glm =
      R"({"model_type": "glm4v_text", "head_dim": 128, "partial_rotary_factor": 0.5})";
  EXPECT_EQ(axes(glm).sections, (std::vector<std::int64_t>{8, 12, 12}));
  EXPECT_EQ(parsed(glm).groups[0].rope->layout, core::PairLayout::interleaved);
  // In the interleaved order, time has the pairs that height and width leave.
  EXPECT_EQ(axes(R"({"model_type": "qwen3_5_text", "head_dim": 256, "partial_rotary_factor": 0.5})")
                .sections,
            (std::vector<std::int64_t>{43, 11, 10}));
  EXPECT_EQ(axes(R"({"model_type": "qwen3_vl_text", "head_dim": 64})").sections,
            (std::vector<std::int64_t>{11, 11, 10}));
  // ERNIE lists height, width and time; a spec has time first.
  const MropeAxes ernie = axes(
      R"({"model_type": "ernie4_5_vl_moe_text", "head_dim": 128,
          "rope_parameters": {"rope_theta": 500000, "mrope_section": [22, 22, 20]}})");
  EXPECT_EQ(ernie.sections, (std::vector<std::int64_t>{20, 22, 22}));
  EXPECT_EQ(ernie.order, MropeAxes::Order::alternating);
}

TEST(QueryScales, AreReadWhereAModelHasThem) {
  const ModelConfig ministral = parsed(
      R"({"model_type": "ministral3", "head_dim": 128, "max_position_embeddings": 262144,
          "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0,
                              "original_max_position_embeddings": 16384,
                              "max_position_embeddings": 262144, "llama_4_scaling_beta": 0.1}})");
  EXPECT_EQ(ministral.groups[0].query_scale, (encodings::QueryScale{0.1, 16384, 0}));
  const std::string llama =
      R"({"model_type": "llama4_text", "head_dim": 128, "num_hidden_layers": 4, "floor_scale": 8192,
          "attn_scale": 0.1, "attn_temperature_tuning": )";
  const ModelConfig scout = parsed(llama + "true}");
  EXPECT_EQ(layer_of(scout, "3").query_scale, (encodings::QueryScale{0.1, 8192, 1}));
  EXPECT_FALSE(layer_of(scout, "0").query_scale.has_value());
  EXPECT_TRUE(layer_of(parsed(llama + "4}"), "3").query_scale.has_value());
  EXPECT_FALSE(layer_of(parsed(llama + "false}"), "3").query_scale.has_value());
}

TEST(Parts, TheOneThatIsReadIsNamed) {
  const std::string text = R"({"model_type": "llama", "head_dim": 64, "rope_theta": 10000})";
  EXPECT_EQ(parsed(R"({"model_type": "llava", "text_config": )" + text + "}").part, "text_config");
  const ModelConfig deep = parsed(
      R"({"model_type": "colpali", "vlm_config": {"model_type": "paligemma", "text_config": )" +
      text + "}}");
  EXPECT_EQ(deep.part, "vlm_config.text_config");
  EXPECT_EQ(deep.model_type, "llama");
  EXPECT_EQ(parsed(R"({"model_type": "t5gemma", "encoder": {"model_type": "bert"}, "decoder": )" +
                   text + "}")
                .part,
            "decoder");
  // The part's own keys count; outer ones that differ are noted.
  const ModelConfig differs =
      parsed(R"({"model_type": "llava", "rope_theta": 500000, "text_config": )" + text + "}");
  EXPECT_EQ(differs.groups[0].rope->base, 10000.0);
  ASSERT_NE(note_of(differs, "rope_theta"), nullptr);
  EXPECT_TRUE(note_of(differs, "rope_theta")->leftover);
  // A config with heads of its own is the model, whatever parts it has.
  EXPECT_EQ(parsed(R"({"model_type": "moshi", "head_dim": 64, "rope_theta": 10000,
                       "decoder": {"model_type": "bert"}})")
                .part,
            "");
}

TEST(OtherModels, AreAnsweredOrRefusedByName) {
  const ModelConfig bert =
      parsed(R"({"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12})");
  ASSERT_EQ(bert.groups.size(), 1U);
  EXPECT_FALSE(bert.groups[0].rope.has_value());
  EXPECT_EQ(bert.groups[0].layers.size(), 12U);
  EXPECT_FALSE(bert.other_positions.empty());
  EXPECT_EQ(parsed(R"({"model_type": "clip", "text_config": {"model_type": "clip_text_model"}})")
                .other_positions,
            bert.other_positions);
  EXPECT_FALSE(parsed(R"({"model_type": "esm", "hidden_size": 320, "num_attention_heads": 20,
                          "position_embedding_type": "absolute"})")
                   .other_positions.empty());
  for (const std::string type : {"dinov3_vit", "lightglue"}) {
    tests::expect_error(
        ErrorCode::unsupported, {type},
        parse_config(R"({"model_type": ")" + type + R"(", "head_dim": 64, "rope_theta": 10000})"));
  }
  // The frequencies are known, but no layout rotates the other way.
  const ModelConfig nanochat =
      parsed(R"({"model_type": "nanochat", "head_dim": 64, "rope_theta": 10000})");
  EXPECT_FALSE(nanochat.groups[0].rope->layout.has_value());
  EXPECT_NE(note_of(nanochat, "model_type"), nullptr);
  // Rotation that such a model is not known to have is never ignored.
  tests::expect_error(ErrorCode::unsupported, {"bert", "rope_theta"},
                      parse_config(R"({"model_type": "bert", "rope_theta": 10000})"));
  tests::expect_error(
      ErrorCode::unsupported, {"wav2vec2-conformer", "rotary"},
      parse_config(
          R"({"model_type": "wav2vec2-conformer", "position_embeddings_type": "rotary"})"));
  tests::expect_error(ErrorCode::invalid_argument, {"head_dim", "novel_type"},
                      parse_config(R"({"model_type": "novel_type"})"));
}

}  // namespace
}  // namespace phasor::config
