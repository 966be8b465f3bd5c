// GGUF files of families whose converters change more than names: norms, transposed weights, heads in other
// orders, multipliers.
#include <gtest/gtest.h>

#include <cmath>

#include "gguf_support.hpp"

namespace phasor::models::testing {
namespace {

constexpr std::uint32_t operator""_u(unsigned long long value) {
  return static_cast<std::uint32_t>(value);
}

// Gemma's converter stores 1 + weight.
void add_one_to_norms(Weights& weights) {
  for (std::size_t i = 0; i < weights.tensors.size(); ++i) {
    if (weights.tensors[i].name.find("norm") == std::string::npos) continue;
    std::vector<float> values = weights.floats(i);
    for (float& value : values) value += 1.0F;
    std::memcpy(weights.bytes[i].data(), values.data(), weights.bytes[i].size());
  }
}

// Conv1D's [in, out] to [out, in].
void transpose(Weights& weights) {
  for (std::size_t i = 0; i < weights.tensors.size(); ++i) {
    const std::string& name = weights.tensors[i].name;
    if (name.find("c_") == std::string::npos || !name.ends_with(".weight")) continue;
    std::vector<std::int64_t>& shape = weights.tensors[i].shape;
    const std::vector<float> from = weights.floats(i);
    std::vector<float> to(from.size());
    const auto rows = static_cast<std::size_t>(shape[0]),
               columns = static_cast<std::size_t>(shape[1]);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
    }
    std::memcpy(weights.bytes[i].data(), to.data(), weights.bytes[i].size());
    std::swap(shape[0], shape[1]);
  }
}

// The norms of all heads in one tensor.
void stack_head_norms(Weights& weights, int layers) {
  for (int layer = 0; layer < layers; ++layer) {
    for (const auto& [part, heads] : {std::pair{"q", 4}, std::pair{"k", 2}}) {
      const std::string stem = "model.layers." + std::to_string(layer) + ".self_attn." + part;
      std::string bytes;
      for (int head = 0; head < heads; ++head) {
        const std::string name = stem + "_layernorm.norms." + std::to_string(head) + ".weight";
        bytes += weights.bytes[weights.find(name)];
        weights.remove(name);
      }
      weights.add(stem + "_norm.weight", {heads, 16});
      weights.bytes.back() = bytes;
    }
  }
}

void none(Weights&) {}

std::string four_norms(const std::string& name) {
  return llama_name(with(name, {{"post_attention_layernorm", "post_attention_norm"},
                                {"pre_feedforward_layernorm", "ffn_norm"},
                                {"post_feedforward_layernorm", "post_ffw_norm"}}));
}

std::string phi_name(const std::string& name) {
  return llama_name(with(name, {{"model.final_layernorm", "output_norm"},
                                {"self_attn.dense", "attn_output"},
                                {"mlp.fc1", "ffn_up"},
                                {"mlp.fc2", "ffn_down"}}));
}

std::string gpt2_name(const std::string& name) {
  return with(name, {{"transformer.h.", "blk."},
                     {"transformer.wte", "token_embd"},
                     {"transformer.wpe", "position_embd"},
                     {"transformer.ln_f", "output_norm"},
                     {"lm_head", "output"},
                     {"ln_1", "attn_norm"},
                     {"ln_2", "ffn_norm"},
                     {"mlp.c_fc", "ffn_up"},
                     {"mlp.c_proj", "ffn_down"},
                     {"attn.c_attn", "attn_qkv"},
                     {"attn.c_proj", "attn_output"}});
}

std::string bloom_name(const std::string& name) {
  return with(name, {{"transformer.h.", "blk."},
                     {"transformer.word_embeddings_layernorm", "token_embd_norm"},
                     {"transformer.word_embeddings", "token_embd"},
                     {"transformer.ln_f", "output_norm"},
                     {"input_layernorm", "attn_norm"},
                     {"post_attention_layernorm", "ffn_norm"},
                     {"self_attention.query_key_value", "attn_qkv"},
                     {"self_attention.dense", "attn_output"},
                     {"mlp.dense_h_to_4h", "ffn_up"},
                     {"mlp.dense_4h_to_h", "ffn_down"}});
}

class GgufFamily : public GgufFolder {};

TEST_F(GgufFamily, GemmaHasNormsFromOneAndSoftCaps) {
  expect_same_logits({"gemma_tied", "gemma", llama_name, add_one_to_norms,
                      [](GgufWriter& writer, const std::string& arch) {
                        common_metadata(writer, arch, 2, 40, 72, 1, 12, 500.0F);
                        writer.number(arch + ".attention.layer_norm_rms_epsilon", 1e-6F);
                      }});
  const Conversion gemma2{"gemma2_soft_caps", "gemma2", four_norms, add_one_to_norms,
                          [](GgufWriter& writer, const std::string& arch) {
                            common_metadata(writer, arch, 4, 40, 72, 2, 12, 500.0F);
                            writer.number(arch + ".attention.layer_norm_rms_epsilon", 1e-6F)
                                .number(arch + ".attention.sliding_window", 5_u)
                                .number(arch + ".attn_logit_softcapping", 2.0F)
                                .number(arch + ".final_logit_softcapping", 3.0F);
                          },
                          // The architecture takes the factor on q.k from the head's width.
                          [](io::Json& config) { config["query_pre_attn_scalar"] = 12; }};
  expect_same_logits(gemma2);
  // The caps that files of Gemma 2 have when they leave the keys out.
  Conversion defaults = gemma2;
  defaults.metadata = [](GgufWriter& writer, const std::string& arch) {
    common_metadata(writer, arch, 4, 40, 72, 2, 12, 500.0F);
    writer.number(arch + ".attention.layer_norm_rms_epsilon", 1e-6F)
        .number(arch + ".attention.sliding_window", 5_u);
  };
  defaults.config = [](io::Json& config) {
    config["query_pre_attn_scalar"] = 12;
    config.erase("attn_logit_softcapping");
    config.erase("final_logit_softcapping");
  };
  expect_same_logits(defaults);
}

TEST_F(GgufFamily, Phi2HasOneTensorOrThree) {
  const auto metadata = [](GgufWriter& writer, const std::string& arch) {
    common_metadata(writer, arch, 3, 60, 84, 3, 20, 500.0F, 3);
    writer.number(arch + ".attention.layer_norm_epsilon", 1e-5F)
        .number(arch + ".rope.dimension_count", 8_u);
  };
  expect_same_logits({"phi_parallel_partial", "phi2", phi_name, none, metadata});
  const auto fuse = [](Weights& weights) {
    for (int layer = 0; layer < 3; ++layer) {
      for (const std::string end : {".weight", ".bias"}) {
        const std::string stem = "model.layers." + std::to_string(layer) + ".self_attn.";
        std::string bytes;
        for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
          bytes += weights.bytes[weights.find(stem + part + end)];
          weights.remove(stem + part + end);
        }
        const std::vector<std::int64_t> shape =
            end == ".bias" ? std::vector<std::int64_t>{180} : std::vector<std::int64_t>{180, 60};
        weights.add(stem + "qkv_proj" + end, shape);
        weights.bytes.back() = bytes;
      }
    }
  };
  expect_same_logits({"phi_parallel_partial", "phi2", phi_name, fuse, metadata});
}

TEST_F(GgufFamily, OlmoHasNormsAfterAndWindows) {
  expect_same_logits({"olmo2_post_norms", "olmo2", four_norms, none,
                      [](GgufWriter& writer, const std::string& arch) {
                        common_metadata(writer, arch, 3, 48, 76, 2, 12, 500.0F);
                        writer.number(arch + ".attention.layer_norm_rms_epsilon", 1e-5F);
                      }});
  expect_same_logits({"olmo3_windows_yarn", "olmo2", four_norms, none,
                      [](GgufWriter& writer, const std::string& arch) {
                        common_metadata(writer, arch, 4, 48, 76, 4, 12, 500.0F);
                        writer.number(arch + ".attention.layer_norm_rms_epsilon", 1e-5F)
                            .number(arch + ".attention.sliding_window", 5_u)
                            .numbers(arch + ".attention.sliding_window_pattern",
                                     std::vector<bool>{true, false, true, false})
                            .text(arch + ".rope.scaling.type", "yarn")
                            .number(arch + ".rope.scaling.factor", 8.0F)
                            .number(arch + ".rope.scaling.original_context_length", 16_u);
                      },
                      [](io::Json& config) {
                        config["rope_parameters"]["full_attention"].erase("attention_factor");
                      }});
}

TEST_F(GgufFamily, GraniteHasMultipliers) {
  expect_same_logits({"granite_multipliers", "granite", llama_name,
                      [](Weights& weights) { interleave(weights, 12); },
                      [](GgufWriter& writer, const std::string& arch) {
                        common_metadata(writer, arch, 3, 48, 76, 2, 12, 500.0F);
                        writer.number(arch + ".attention.layer_norm_rms_epsilon", 1e-6F)
                            .number(arch + ".attention.scale", 0.15F)
                            .number(arch + ".embedding_scale", 3.0F)
                            .number(arch + ".residual_scale", 0.4F)
                            .number(arch + ".logit_scale", 2.5F);
                      }});
}

TEST_F(GgufFamily, Smollm3SkipsEveryFourthLayer) {
  expect_same_logits({"smollm3_skipped_layers", "smollm3", llama_name,
                      [](Weights& weights) { interleave(weights, 12); },
                      [](GgufWriter& writer, const std::string& arch) {
                        common_metadata(writer, arch, 4, 48, 76, 2, 12, 500.0F);
                        writer.number(arch + ".attention.layer_norm_rms_epsilon", 1e-6F);
                      },
                      [](io::Json& config) {
                        config["no_rope_layers"] = {1, 1, 1, 0};
                      }});
}

TEST_F(GgufFamily, StablelmTellsItsBlockByItsNorms) {
  expect_same_logits({"stablelm_partial_bias", "stablelm", llama_name, none,
                      [](GgufWriter& writer, const std::string& arch) {
                        common_metadata(writer, arch, 3, 64, 84, 4, 16, 500.0F);
                        writer.number(arch + ".attention.layer_norm_epsilon", 1e-5F)
                            .number(arch + ".rope.dimension_count", 4_u)
                            .number(arch + ".use_parallel_residual", true);
                      }});
  expect_same_logits({"stablelm_parallel_qk_norm", "stablelm", llama_name,
                      [](Weights& weights) { stack_head_norms(weights, 2); },
                      [](GgufWriter& writer, const std::string& arch) {
                        common_metadata(writer, arch, 2, 64, 60, 2, 16, 500.0F);
                        writer.number(arch + ".attention.layer_norm_epsilon", 1e-5F)
                            .number(arch + ".rope.dimension_count", 8_u)
                            .number(arch + ".use_parallel_residual", true);
                      }});
}

TEST_F(GgufFamily, Gpt2AndBloomHaveNoRotation) {
  expect_same_logits({"gpt2_learned", "gpt2", gpt2_name, transpose,
                      [](GgufWriter& writer, const std::string& arch) {
                        writer.text("general.architecture", arch)
                            .number(arch + ".block_count", 3_u)
                            .number(arch + ".context_length", 64_u)
                            .number(arch + ".embedding_length", 45_u)
                            .number(arch + ".feed_forward_length", 180_u)
                            .number(arch + ".attention.head_count", 3_u)
                            .number(arch + ".attention.layer_norm_epsilon", 1e-5F);
                      }});
  expect_same_logits({"bloom_alibi", "bloom", bloom_name,
                      [](Weights& weights) { to_sections(weights, 6, 7); },
                      [](GgufWriter& writer, const std::string& arch) {
                        writer.text("general.architecture", arch)
                            .number(arch + ".block_count", 3_u)
                            .number(arch + ".context_length", 2048_u)
                            .number(arch + ".embedding_length", 42_u)
                            .number(arch + ".feed_forward_length", 168_u)
                            .number(arch + ".attention.head_count", 6_u)
                            .number(arch + ".attention.head_count_kv", 6_u)
                            .number(arch + ".attention.layer_norm_epsilon", 1e-5F);
                      }});
}

TEST_F(GgufFamily, Ministral3ScalesItsQueries) {
  expect_same_logits({"ministral3_query_scale", "mistral3", llama_name,
                      [](Weights& weights) { interleave(weights, 16); },
                      [](GgufWriter& writer, const std::string& arch) {
                        common_metadata(writer, arch, 3, 48, 76, 2, 16, 500.0F);
                        writer.number(arch + ".attention.layer_norm_rms_epsilon", 1e-5F)
                            .number(arch + ".attention.temperature_scale", 0.7F)
                            .text(arch + ".rope.scaling.type", "yarn")
                            .number(arch + ".rope.scaling.factor", 8.0F)
                            .number(arch + ".rope.scaling.yarn_beta_fast", 32.0F)
                            .number(arch + ".rope.scaling.yarn_beta_slow", 1.0F)
                            .number(arch + ".rope.scaling.yarn_log_multiplier", 1.0F)
                            .number(arch + ".rope.scaling.original_context_length", 4_u);
                      }});
}

TEST_F(GgufFamily, Qwen2HasBiasesAndYarn) {
  expect_same_logits({"qwen2_bias_yarn", "qwen2", llama_name, none,
                      [](GgufWriter& writer, const std::string& arch) {
                        common_metadata(writer, arch, 3, 64, 112, 2, 16, 1000.0F);
                        writer.number(arch + ".attention.layer_norm_rms_epsilon", 1e-6F)
                            .text(arch + ".rope.scaling.type", "yarn")
                            .number(arch + ".rope.scaling.factor", 4.0F)
                            .number(arch + ".rope.scaling.original_context_length", 16_u);
                      }});
}

TEST_F(GgufFamily, Phi3HasFactorsOfTwoLengths) {
  const auto bytes = [](const std::vector<float>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), 4 * values.size());
  };
  expect_same_logits({"phi3_longrope_partial", "phi3", llama_name, none,
                      [&](GgufWriter& writer, const std::string& arch) {
                        writer.text("general.architecture", arch)
                            .number(arch + ".block_count", 2_u)
                            .number(arch + ".context_length", 160_u)
                            .number(arch + ".embedding_length", 64_u)
                            .number(arch + ".feed_forward_length", 96_u)
                            .number(arch + ".attention.head_count", 4_u)
                            .number(arch + ".attention.head_count_kv", 2_u)
                            .number(arch + ".attention.layer_norm_rms_epsilon", 1e-5F)
                            .number(arch + ".rope.dimension_count", 12_u)
                            .number(arch + ".rope.freq_base", 1000.0F)
                            .number(arch + ".rope.scaling.original_context_length", 40_u)
                            .number(
                                arch + ".rope.scaling.attn_factor",
                                static_cast<float>(std::sqrt(1.0 + std::log(4.0) / std::log(40.0))))
                            .tensor("rope_factors_long.weight", 0, {6},
                                    bytes({1.1F, 1.7664F, 2.7409F, 3.8797F, 5.1403F, 6.5F}))
                            .tensor("rope_factors_short.weight", 0, {6},
                                    bytes({1.0F, 1.087F, 1.1998F, 1.325F, 1.459F, 1.6F}));
                      }});
}

TEST_F(GgufFamily, Gemma3HasTwoBases) {
  expect_same_logits({"gemma3_local_global", "gemma3", four_norms, add_one_to_norms,
                      [](GgufWriter& writer, const std::string& arch) {
                        common_metadata(writer, arch, 3, 48, 96, 2, 16, 5000.0F);
                        writer.number(arch + ".attention.layer_norm_rms_epsilon", 1e-6F)
                            .number(arch + ".attention.sliding_window", 5_u)
                            .numbers(arch + ".attention.sliding_window_pattern",
                                     std::vector<bool>{true, false, true})
                            .number(arch + ".rope.freq_base_swa", 100.0F)
                            .text(arch + ".rope.scaling.type", "linear")
                            .number(arch + ".rope.scaling.factor", 4.0F);
                      },
                      // The architecture takes the factor on q.k from the head's width.
                      [](io::Json& config) { config["query_pre_attn_scalar"] = 16; }});
}

TEST_F(GgufFamily, Cohere2SlidesWhereItRotates) {
  expect_same_logits({"cohere2_windows", "cohere2", llama_name, none,
                      [](GgufWriter& writer, const std::string& arch) {
                        common_metadata(writer, arch, 4, 48, 60, 2, 12, 500.0F);
                        writer.number(arch + ".attention.layer_norm_epsilon", 1e-5F)
                            .number(arch + ".attention.sliding_window", 5_u)
                            .numbers(arch + ".attention.sliding_window_pattern",
                                     std::vector<bool>{true, true, false, true})
                            .number(arch + ".logit_scale", 0.3F);
                      }});
}

}  // namespace
}  // namespace phasor::models::testing
