// What each family's config.json is read as.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "config/parsed.hpp"
#include "phasor/config/config.hpp"

namespace phasor::config {
namespace {

using encodings::AxialAxes;
using encodings::MropeAxes;
using encodings::RopeSpec;
using testing::parsed;

LayerGroup group_of(const ModelConfig& config, const std::string& selector) {
  return select_layer(config, selector).value_or_throw();
}

struct FamilyFacts {
  std::string config;
  std::string layout;
  std::int64_t head_dim;
  std::int64_t rotary_dim;
  double base;
};

TEST(Families, LayoutWidthAndBase) {
  const std::vector<FamilyFacts> families = {
      {R"({"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32})", "half", 128,
       128, 1e4},
      {R"({"model_type": "mixtral", "hidden_size": 4096, "num_attention_heads": 32})", "half", 128,
       128, 1e6},
      {R"({"model_type": "gpt_neox", "hidden_size": 6144, "num_attention_heads": 64})", "half", 96,
       24, 1e4},
      {R"({"model_type": "gpt_neox", "hidden_size": 6144, "num_attention_heads": 64, "rotary_pct": 0.5,
           "rotary_emb_base": 5000})",
       "half", 96, 48, 5000.0},
      {R"({"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_positions": 2048})",
       "interleaved", 256, 64, 1e4},
      {R"({"model_type": "codegen", "n_embd": 1024, "n_head": 16, "rotary_dim": 32, "n_positions": 2048})",
       "interleaved", 64, 32, 1e4},
      {R"({"model_type": "phi", "hidden_size": 2560, "num_attention_heads": 32, "partial_rotary_factor": 0.4})",
       "half", 80, 32, 1e4},
      {R"({"model_type": "glm4", "hidden_size": 4096, "num_attention_heads": 32})", "interleaved",
       128, 64, 1e4},
      {R"({"model_type": "glm4_moe", "hidden_size": 4096, "num_attention_heads": 64})", "half", 64,
       32, 1e4},
      {R"({"model_type": "glm4_moe", "hidden_size": 5120, "num_attention_heads": 96, "head_dim": 128})",
       "half", 128, 64, 1e4},
      {R"({"model_type": "chatglm", "hidden_size": 4096, "num_attention_heads": 32, "kv_channels": 128,
           "seq_length": 131072, "rope_ratio": 500, "original_rope": true})",
       "interleaved", 128, 64, 5e6},
      {R"({"model_type": "cohere", "hidden_size": 8192, "num_attention_heads": 64, "rope_theta": 8000000.0})",
       "interleaved", 128, 128, 8e6},
      {R"({"model_type": "persimmon", "hidden_size": 4096, "num_attention_heads": 64})", "half", 64,
       32, 25000.0},
      {R"({"model_type": "roformer", "hidden_size": 768, "num_attention_heads": 12, "rotary_value": false})",
       "interleaved", 64, 64, 1e4},
      {R"({"model_type": "deepseek_v2", "qk_rope_head_dim": 64, "qk_nope_head_dim": 128})",
       "interleaved", 64, 64, 1e4},
      {R"({"model_type": "glm4_moe_lite", "qk_rope_head_dim": 64, "qk_nope_head_dim": 192})",
       "interleaved_to_half", 64, 64, 1e4},
      {R"({"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "rope_interleave": false})",
       "half", 64, 64, 1e4},
      {R"({"model_type": "nomic_bert", "n_embd": 768, "n_head": 12, "n_positions": 8192, "rotary_emb_base": 1000,
           "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": false, "rotary_emb_scale_base": null})",
       "half", 64, 64, 1000.0},
      {R"({"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "alibi": false})",
       "half", 64, 64, 1e4},
      {R"({"model_type": "esm", "hidden_size": 320, "num_attention_heads": 20, "position_embedding_type": "rotary"})",
       "half", 16, 16, 1e4},
      {R"({"model_type": "palm", "head_dim": 16, "rope_layout": "half", "rope_theta": 10000.0})",
       "half", 16, 16, 1e4},
      {R"({"model_type": "llama", "hidden_size": 576, "num_attention_heads": 9, "rope_interleaved": false,
           "rope_scaling": null, "rope_theta": 100000})",
       "half", 64, 64, 1e5},
      {R"({"model_type": "qwen2", "head_dim": 128, "use_mrope": false, "rope_theta": 1000000.0})",
       "half", 128, 128, 1e6},
  };
  for (const FamilyFacts& family : families) {
    const ModelConfig config = parsed(family.config);
    ASSERT_EQ(config.groups.size(), 1U) << family.config;
    const RopeSpec& spec = config.groups[0].rope.value();
    EXPECT_EQ(name_of(spec.layout.value()), family.layout) << family.config;
    EXPECT_EQ(spec.head_dim, family.head_dim) << family.config;
    EXPECT_EQ(spec.rotary_dim, family.rotary_dim) << family.config;
    EXPECT_EQ(spec.base, family.base) << family.config;
  }
}

TEST(Families, Gemma3HasALocalBaseThatIsNotScaled) {
  // As text_config of the published model: nearly everything is the family's default.
  const ModelConfig config = parsed(
      R"({"model_type": "gemma3", "vision_config": {"hidden_size": 1152}, "text_config": {"hidden_size": 2560,
          "model_type": "gemma3_text", "num_hidden_layers": 34,
          "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}})");
  const LayerGroup full = group_of(config, "full_attention");
  const LayerGroup sliding = group_of(config, "sliding_attention");
  EXPECT_EQ(full.layers, (std::vector<std::int64_t>{5, 11, 17, 23, 29}));
  EXPECT_EQ(full.rope->base, 1e6);
  EXPECT_EQ(std::get<encodings::LinearScaling>(full.rope->scaling).factor, 8.0);
  EXPECT_EQ(sliding.rope->base, 1e4);
  EXPECT_TRUE(std::holds_alternative<encodings::DefaultScaling>(sliding.rope->scaling));
  EXPECT_EQ(full.rope->head_dim, 256);
  EXPECT_NEAR(full.softmax_scale, 1.0 / 16.0, 1e-16);
}

TEST(Families, ModernBertCountsFromItsFirstLayer) {
  const ModelConfig config = parsed(
      R"({"model_type": "modernbert", "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 7,
          "global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "global_attn_every_n_layers": 3,
          "position_embedding_type": "absolute", "max_position_embeddings": 8192})");
  EXPECT_EQ(group_of(config, "full_attention").layers, (std::vector<std::int64_t>{0, 3, 6}));
  EXPECT_EQ(group_of(config, "full_attention").rope->base, 160000.0);
  EXPECT_EQ(group_of(config, "1").rope->base, 10000.0);
}

TEST(Families, Cohere2DoesNotRotateFullAttention) {
  const ModelConfig config = parsed(
      R"({"model_type": "cohere2", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 8,
          "rope_theta": 50000, "sliding_window": 4096, "sliding_window_pattern": 4, "rotary_pct": 1.0,
          "position_embedding_type": "rope_gptj"})");
  EXPECT_FALSE(group_of(config, "3").rope.has_value());
  EXPECT_FALSE(group_of(config, "7").rope.has_value());
  EXPECT_EQ(group_of(config, "4").rope->layout, core::PairLayout::interleaved);
  EXPECT_GT(group_of(config, "3").softmax_scale, 0.0);
}

TEST(Families, Exaone4RotatesFullAttentionOnlyWithoutAWindow) {
  const ModelConfig hybrid = parsed(
      R"({"model_type": "exaone4", "head_dim": 128, "rope_theta": 1000000, "num_hidden_layers": 8,
          "sliding_window": 4096, "sliding_window_pattern": "LLLG"})");
  EXPECT_FALSE(group_of(hybrid, "3").rope.has_value());
  EXPECT_TRUE(group_of(hybrid, "2").rope.has_value());
  const ModelConfig plain = parsed(
      R"({"model_type": "exaone4", "head_dim": 128, "rope_theta": 1000000, "num_hidden_layers": 4,
          "sliding_window": null, "sliding_window_pattern": null})");
  EXPECT_TRUE(group_of(plain, "3").rope.has_value());
}

TEST(Families, EveryFourthLayerOfSmolLm3AndLlama4DoesNotRotate) {
  const ModelConfig smollm = parsed(
      R"({"model_type": "smollm3", "hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 8,
          "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0], "rope_theta": 5000000.0})");
  EXPECT_FALSE(group_of(smollm, "3").rope.has_value());
  EXPECT_EQ(group_of(smollm, "rope").layers, (std::vector<std::int64_t>{0, 1, 2, 4, 5, 6}));
  const ModelConfig llama4 = parsed(
      R"({"model_type": "llama4", "text_config": {"model_type": "llama4_text", "head_dim": 128,
          "num_hidden_layers": 8, "no_rope_layers": [], "rope_theta": 500000.0, "max_position_embeddings": 10485760,
          "rope_scaling": {"factor": 16.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0,
                           "original_max_position_embeddings": 8192, "rope_type": "llama3"}}})");
  EXPECT_FALSE(group_of(llama4, "7").rope.has_value());
  EXPECT_EQ(group_of(llama4, "6").rope->layout, core::PairLayout::interleaved);
}

TEST(Families, EveryFourthLayerOfCwmSeesAllKeys) {
  const std::string config =
      R"({"model_type": "cwm", "hidden_size": 6144, "num_attention_heads": 48, "num_hidden_layers": 5,
          "sliding_window": 8192, "rope_parameters": {"rope_type": "llama3", "rope_theta": 1000000.0,
          "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192})";
  for (const std::string more :
       {"}", R"(, "layer_types": ["full_attention", "sliding_attention", "sliding_attention",
               "sliding_attention", "full_attention"]})"}) {
    const ModelConfig cwm = parsed(config + more);
    EXPECT_EQ(group_of(cwm, "full_attention").layers, (std::vector<std::int64_t>{0, 4}));
    EXPECT_FALSE(group_of(cwm, "4").window.has_value());
    EXPECT_EQ(group_of(cwm, "3").window, 8192);
    EXPECT_EQ(*group_of(cwm, "3").rope, *group_of(cwm, "0").rope);
    EXPECT_EQ(group_of(cwm, "0").rope->head_dim, 128);
  }
}

TEST(Families, NestedNullMeansNoRotation) {
  const ModelConfig config = parsed(
      R"({"model_type": "novel", "head_dim": 64, "layer_types": ["sliding_attention", "full_attention"],
          "rope_parameters": {"full_attention": null, "sliding_attention": {"rope_theta": 10000.0}}})");
  EXPECT_TRUE(group_of(config, "0").rope.has_value());
  EXPECT_FALSE(group_of(config, "1").rope.has_value());
}

TEST(Families, LinearAttentionRotatesNothing) {
  const ModelConfig config = parsed(
      R"({"model_type": "novel", "head_dim": 256, "rope_theta": 10000000, "partial_rotary_factor": 0.25,
          "layer_types": ["linear_attention", "full_attention"]})");
  EXPECT_FALSE(group_of(config, "0").rope.has_value());
  EXPECT_EQ(group_of(config, "1").rope->rotary_dim, 64);
}

TEST(Families, Gemma4FullAttentionHasItsOwnHead) {
  const ModelConfig config = parsed(
      R"({"model_type": "gemma4_text", "head_dim": 256, "global_head_dim": 512, "num_hidden_layers": 6,
          "rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0,
                                                 "partial_rotary_factor": 0.25},
                              "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}})");
  const RopeSpec full = group_of(config, "5").rope.value();
  EXPECT_EQ(full.head_dim, 512);
  EXPECT_EQ(full.rotary_dim, 512);
  EXPECT_EQ(std::get<encodings::ProportionalScaling>(full.scaling).proportion, 0.25);
  EXPECT_EQ(group_of(config, "0").rope->head_dim, 256);
}

TEST(Families, ImagesHaveTwoAxes) {
  const auto kind = [](const std::string& text) {
    return std::get<AxialAxes>(parsed(text).groups[0].rope->axes).kind;
  };
  EXPECT_EQ(
      kind(
          R"({"model_type": "qwen2_vl_vision", "embed_dim": 1280, "hidden_size": 3584, "num_heads": 16})"),
      AxialAxes::Kind::concatenated);
  EXPECT_EQ(
      kind(
          R"({"model_type": "pixtral", "hidden_size": 1024, "num_attention_heads": 16, "rope_theta": 10000.0})"),
      AxialAxes::Kind::alternating);
  EXPECT_EQ(
      kind(
          R"({"model_type": "gemma4_vision", "head_dim": 64, "rope_parameters": {"rope_type": "axial",
                     "rope_theta": 100.0}})"),
      AxialAxes::Kind::per_half_head);
  // The first ChatGLM rotates each half of a head by its own row of positions.
  const RopeSpec chatglm =
      parsed(
          R"({"model_type": "chatglm", "hidden_size": 4096, "num_attention_heads": 32, "position_encoding_2d": true,
                 "max_sequence_length": 2048})")
          .groups[0]
          .rope.value();
  EXPECT_EQ(std::get<AxialAxes>(chatglm.axes).kind, AxialAxes::Kind::per_half_head);
  EXPECT_EQ(chatglm.layout, core::PairLayout::half);
  EXPECT_EQ(chatglm.rotary_dim, 128);
}

TEST(Families, SoftmaxScales) {
  const auto scale = [](const std::string& text) { return parsed(text).groups[0].softmax_scale; };
  EXPECT_NEAR(scale(R"({"model_type": "gemma2", "head_dim": 256, "query_pre_attn_scalar": 144})"),
              1.0 / 12.0, 1e-16);
  EXPECT_EQ(scale(R"({"model_type": "granite", "head_dim": 64, "attention_multiplier": 0.015625})"),
            0.015625);
  EXPECT_EQ(scale(R"({"model_type": "novel", "head_dim": 64, "rope_theta": 10000})"), 0.0);
  const std::string latent =
      R"({"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
      "max_position_embeddings": 163840, "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0,
      "original_max_position_embeddings": 4096, "mscale_all_dim": )";
  const double g = 1.0 + 0.1 * std::log(40.0);
  EXPECT_NEAR(scale(latent + "1.0}}"), g * g / std::sqrt(192.0), 1e-15);
  EXPECT_NEAR(scale(latent + "0.0}}"), 1.0 / std::sqrt(192.0), 1e-16);
}

TEST(Families, NoPositionsAtAll) {
  const ModelConfig config = parsed(
      R"({"model_type": "granitemoehybrid", "head_dim": 64, "num_hidden_layers": 2, "position_embedding_type": "nope",
          "rope_theta": 10000, "rope_scaling": null})");
  ASSERT_EQ(config.groups.size(), 1U);
  EXPECT_FALSE(config.groups[0].rope.has_value());
  EXPECT_EQ(config.groups[0].layers.size(), 2U);
}

TEST(Families, PublishedLongRopeConfigs) {
  std::string list = "[1.0";
  for (int i = 1; i < 64; ++i) list += ", 1.5";
  list += "]";
  const RopeSpec spec =
      parsed(
          R"({"model_type": "phimoe", "hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 10000.0,
                 "max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
                 "rope_scaling": {"type": "longrope", "short_mscale": 1.243163121016122,
                 "long_mscale": 1.243163121016122, "original_max_position_embeddings": 4096, "short_factor": )" +
          list + R"(, "long_factor": )" + list + "}}")
          .groups[0]
          .rope.value();
  EXPECT_EQ(encodings::resolve_frequencies(spec, 5000).amplitude(), 1.243163121016122);
}

}  // namespace
}  // namespace phasor::config
