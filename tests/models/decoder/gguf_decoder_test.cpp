// Golden safetensors rewritten as GGUF, as its converters do: names, rows and norms differ, logits
// must not.
#include <gtest/gtest.h>

#include "gguf_support.hpp"

namespace phasor::models::testing {
namespace {

const std::vector<Conversion>& conversions() {
  static const std::vector<Conversion> all = {
      {"mixtral_moe_top2", "llama", llama_name,
       [](Weights& weights) {
         interleave(weights, 12);
         stack_experts(weights);
       },
       [](GgufWriter& writer, const std::string& arch) {
         common_metadata(writer, arch, 2, 48, 56, 2, 12, 1e6F);
         writer.number(arch + ".rope.dimension_count", std::uint32_t{12})
             .number(arch + ".expert_count", std::uint32_t{4})
             .number(arch + ".expert_used_count", std::uint32_t{2})
             .number(arch + ".attention.layer_norm_rms_epsilon", 1e-5F);
       }},
      {"qwen3_qk_norm", "qwen3", llama_name, [](Weights&) {},
       [](GgufWriter& writer, const std::string& arch) {
         common_metadata(writer, arch, 3, 64, 112, 2, 24, 1e6F);
         writer.number(arch + ".attention.layer_norm_rms_epsilon", 1e-6F);
       }},
      {"gpt_neox_partial", "gptneox",
       [](const std::string& name) {
         return with(name, {{"gpt_neox.layers.", "blk."},
                            {"gpt_neox.embed_in", "token_embd"},
                            {"gpt_neox.final_layer_norm", "output_norm"},
                            {"embed_out", "output"},
                            {"input_layernorm", "attn_norm"},
                            {"post_attention_layernorm", "ffn_norm"},
                            {"attention.query_key_value", "attn_qkv"},
                            {"attention.dense", "attn_output"},
                            {"mlp.dense_h_to_4h", "ffn_up"},
                            {"mlp.dense_4h_to_h", "ffn_down"}});
       },
       [](Weights& weights) { to_sections(weights, 4, 16); },
       [](GgufWriter& writer, const std::string& arch) {
         common_metadata(writer, arch, 3, 64, 128, 4, 16, 1e4F);
         writer.number(arch + ".rope.dimension_count", std::uint32_t{4})
             .number(arch + ".use_parallel_residual", true)
             .number(arch + ".attention.layer_norm_epsilon", 1e-5F);
       }},
      {"cohere_interleaved", "command-r", llama_name, [](Weights&) {},
       [](GgufWriter& writer, const std::string& arch) {
         common_metadata(writer, arch, 3, 64, 96, 2, 16, 1e4F);
         writer.number(arch + ".logit_scale", 0.25F)
             .number(arch + ".attention.layer_norm_epsilon", 1e-5F);
       }},
  };
  return all;
}

class GgufDecoder : public GgufFolder {};

TEST_F(GgufDecoder, SaysWhatItsSafetensorsSay) {
  for (const Conversion& conversion : conversions()) expect_same_logits(conversion);
}

TEST_F(GgufDecoder, ArchitecturesAndTypesThatItCannotRunAreNamed) {
  GgufWriter writer;
  common_metadata(writer, "starcoder2", 1, 64, 96, 2, 16, 1e4F);
  io::testing::put(at("model.gguf"), writer.bytes());
  const Result<Decoder> other = Decoder::load(at("model.gguf"));
  ASSERT_FALSE(other.ok());
  EXPECT_NE(std::string(other.error().what()).find("\"starcoder2\""), std::string::npos)
      << other.error().what();

  GgufWriter quantised;
  common_metadata(quantised, "llama", 1, 256, 256, 2, 64, 1e4F);
  quantised.tensor("token_embd.weight", 10, {256, 1}, std::string(84, '\0'));  // Q2_K
  io::testing::put(at("model.gguf"), quantised.bytes());
  const Result<Decoder> unknown = Decoder::load(at("model.gguf"));
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(std::string(unknown.error().what()).find("Q2_K"), std::string::npos)
      << unknown.error().what();
}

}  // namespace
}  // namespace phasor::models::testing
