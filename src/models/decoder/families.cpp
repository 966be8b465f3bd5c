#include "models/decoder/families.hpp"

#include <algorithm>
#include <array>

namespace phasor::models {
namespace {

constexpr NameMap kLlamaNames = {
    .embedding = "model.embed_tokens",
    .final_norm = "model.norm",
    .head = "lm_head",
    .attention_norm = "model.layers.{}.input_layernorm",
    .feed_forward_norm = "model.layers.{}.post_attention_layernorm",
    .query = "model.layers.{}.self_attn.q_proj",
    .key = "model.layers.{}.self_attn.k_proj",
    .value = "model.layers.{}.self_attn.v_proj",
    .fused = "model.layers.{}.self_attn.qkv_proj",
    .output = "model.layers.{}.self_attn.o_proj",
    .query_norm = "model.layers.{}.self_attn.q_norm",
    .key_norm = "model.layers.{}.self_attn.k_norm",
    .gate = "model.layers.{}.mlp.gate_proj",
    .up = "model.layers.{}.mlp.up_proj",
    .down = "model.layers.{}.mlp.down_proj",
    .router = "model.layers.{}.block_sparse_moe.gate",
    .expert_gate = "model.layers.{}.block_sparse_moe.experts.{}.w1",
    .expert_up = "model.layers.{}.block_sparse_moe.experts.{}.w3",
    .expert_down = "model.layers.{}.block_sparse_moe.experts.{}.w2",
};

constexpr NameMap with_fused_gate(NameMap names) {
  names.gate = "model.layers.{}.mlp.gate_up_proj";
  return names;
}
constexpr NameMap kFusedGateNames = with_fused_gate(kLlamaNames);

constexpr NameMap with_four_norms(NameMap names) {
  names.after_attention_norm = "model.layers.{}.post_attention_layernorm";
  names.feed_forward_norm = "model.layers.{}.pre_feedforward_layernorm";
  names.after_feed_forward_norm = "model.layers.{}.post_feedforward_layernorm";
  return names;
}
constexpr NameMap kGemmaNames = with_four_norms(kLlamaNames);

constexpr NameMap kNeoxNames = {
    .embedding = "gpt_neox.embed_in",
    .final_norm = "gpt_neox.final_layer_norm",
    .head = "embed_out",
    .attention_norm = "gpt_neox.layers.{}.input_layernorm",
    .feed_forward_norm = "gpt_neox.layers.{}.post_attention_layernorm",
    .fused = "gpt_neox.layers.{}.attention.query_key_value",
    .output = "gpt_neox.layers.{}.attention.dense",
    .up = "gpt_neox.layers.{}.mlp.dense_h_to_4h",
    .down = "gpt_neox.layers.{}.mlp.dense_4h_to_h",
};

constexpr NameMap kGptjNames = {
    .embedding = "transformer.wte",
    .final_norm = "transformer.ln_f",
    .head = "lm_head",
    .attention_norm = "transformer.h.{}.ln_1",
    .feed_forward_norm = {},
    .query = "transformer.h.{}.attn.q_proj",
    .key = "transformer.h.{}.attn.k_proj",
    .value = "transformer.h.{}.attn.v_proj",
    .output = "transformer.h.{}.attn.out_proj",
    .up = "transformer.h.{}.mlp.fc_in",
    .down = "transformer.h.{}.mlp.fc_out",
};

constexpr NameMap kPalmNames = {
    .embedding = "embed_tokens",
    .final_norm = "final_norm",
    .head = "lm_head",
    .attention_norm = "layers.{}.norm",
    .feed_forward_norm = {},
    .query = "layers.{}.attn.q_proj",
    .key = "layers.{}.attn.k_proj",
    .value = "layers.{}.attn.v_proj",
    .output = "layers.{}.attn.o_proj",
    .gate = "layers.{}.mlp.gate_proj",
    .up = "layers.{}.mlp.up_proj",
    .down = "layers.{}.mlp.down_proj",
};

// GGUF has one set of names for every architecture.
constexpr NameMap kGgufNames = {
    .embedding = "token_embd",
    .final_norm = "output_norm",
    .head = "output",
    .attention_norm = "blk.{}.attn_norm",
    .feed_forward_norm = "blk.{}.ffn_norm",
    .after_attention_norm = "blk.{}.post_attention_norm",
    .after_feed_forward_norm = "blk.{}.post_ffw_norm",
    .query = "blk.{}.attn_q",
    .key = "blk.{}.attn_k",
    .value = "blk.{}.attn_v",
    .fused = "blk.{}.attn_qkv",
    .output = "blk.{}.attn_output",
    .query_norm = "blk.{}.attn_q_norm",
    .key_norm = "blk.{}.attn_k_norm",
    .gate = "blk.{}.ffn_gate",
    .up = "blk.{}.ffn_up",
    .down = "blk.{}.ffn_down",
    .router = "blk.{}.ffn_gate_inp",
    .expert_gate = "blk.{}.ffn_gate_exps",
    .expert_up = "blk.{}.ffn_up_exps",
    .expert_down = "blk.{}.ffn_down_exps",
};
constexpr NameMap gguf_with_fused_gate(NameMap names) {
  names.gate = "blk.{}.ffn_up";
  return names;
}
constexpr NameMap kGgufFusedGateNames = gguf_with_fused_gate(kGgufNames);

constexpr auto kGguf = WeightFormat::gguf;

// Facts of each family's own code; golden/models holds a case of each safetensors row.
constexpr std::array kFamilies = {
    DecoderFamily{.model_type = "llama",
                  .names = &kLlamaNames,
                  .attention_bias = BiasRule::by_attention_bias,
                  .output_bias = BiasRule::by_attention_bias,
                  .feed_forward_bias = BiasRule::by_mlp_bias},
    DecoderFamily{.model_type = "mistral", .names = &kLlamaNames},
    DecoderFamily{
        .model_type = "mixtral", .names = &kLlamaNames, .feed_forward = FeedForward::experts},
    DecoderFamily{.model_type = "qwen2", .names = &kLlamaNames, .attention_bias = BiasRule::always},
    DecoderFamily{.model_type = "qwen3",
                  .names = &kLlamaNames,
                  .query_key_norm = QueryKeyNorm::each_head,
                  .attention_bias = BiasRule::by_attention_bias,
                  .output_bias = BiasRule::by_attention_bias},
    DecoderFamily{.model_type = "glm",
                  .names = &kFusedGateNames,
                  .feed_forward = FeedForward::gated_fused,
                  .attention_bias = BiasRule::by_attention_bias},
    DecoderFamily{.model_type = "phi3",
                  .names = &kFusedGateNames,
                  .fused = FusedRows::in_turn,
                  .feed_forward = FeedForward::gated_fused},
    DecoderFamily{.model_type = "cohere",
                  .names = &kLlamaNames,
                  .norm = NormKind::layer_without_bias,
                  .block = Block::parallel,
                  .query_key_norm = QueryKeyNorm::layer_if_present,
                  .attention_bias = BiasRule::by_attention_bias,
                  .output_bias = BiasRule::by_attention_bias,
                  .ties_embeddings = true,
                  .logit_scale = 0.0625,
                  .reads_logit_scale = true},
    DecoderFamily{.model_type = "gemma3_text",
                  .names = &kGemmaNames,
                  .norm = NormKind::rms_from_one,
                  .block = Block::sandwich,
                  .query_key_norm = QueryKeyNorm::each_head,
                  .activation = Activation::gelu_tanh,
                  .attention_bias = BiasRule::by_attention_bias,
                  .output_bias = BiasRule::by_attention_bias,
                  .scales_embeddings = true,
                  .ties_embeddings = true},
    DecoderFamily{.model_type = "gpt_neox",
                  .names = &kNeoxNames,
                  .norm = NormKind::layer,
                  .block = Block::parallel_two,
                  .fused = FusedRows::by_head,
                  .feed_forward = FeedForward::plain,
                  .activation = Activation::gelu,
                  .attention_bias = BiasRule::by_attention_bias,
                  .output_bias = BiasRule::by_attention_bias,
                  .feed_forward_bias = BiasRule::always,
                  .reads_parallel_residual = true},
    DecoderFamily{.model_type = "gptj",
                  .names = &kGptjNames,
                  .norm = NormKind::layer,
                  .block = Block::parallel,
                  .feed_forward = FeedForward::plain,
                  .activation = Activation::gelu_tanh,
                  .feed_forward_bias = BiasRule::always,
                  .head_bias = BiasRule::always},
    DecoderFamily{.model_type = "palm",
                  .names = &kPalmNames,
                  .norm = NormKind::layer_without_bias,
                  .block = Block::parallel,
                  .ties_embeddings = true,
                  .reads_logit_scale = true},
    // GGUF: names of architectures; converting has already folded the 1 of Gemma's norms into the
    // weights and put GPT-NeoX's fused rows in turn.
    DecoderFamily{.model_type = "llama",
                  .format = kGguf,
                  .names = &kGgufNames,
                  .attention_bias = BiasRule::if_present,
                  .output_bias = BiasRule::if_present,
                  .ties_embeddings = true},
    DecoderFamily{.model_type = "qwen2",
                  .format = kGguf,
                  .names = &kGgufNames,
                  .attention_bias = BiasRule::always,
                  .ties_embeddings = true},
    DecoderFamily{.model_type = "qwen3",
                  .format = kGguf,
                  .names = &kGgufNames,
                  .query_key_norm = QueryKeyNorm::each_head,
                  .ties_embeddings = true},
    DecoderFamily{.model_type = "phi3",
                  .format = kGguf,
                  .names = &kGgufFusedGateNames,
                  .fused = FusedRows::in_turn,
                  .feed_forward = FeedForward::gated_fused,
                  .ties_embeddings = true},
    DecoderFamily{.model_type = "gemma3",
                  .format = kGguf,
                  .names = &kGgufNames,
                  .block = Block::sandwich,
                  .query_key_norm = QueryKeyNorm::each_head,
                  .activation = Activation::gelu_tanh,
                  .scales_embeddings = true,
                  .ties_embeddings = true},
    DecoderFamily{.model_type = "gptneox",
                  .format = kGguf,
                  .names = &kGgufNames,
                  .norm = NormKind::layer,
                  .block = Block::parallel_two,
                  .fused = FusedRows::in_turn,
                  .feed_forward = FeedForward::plain,
                  .activation = Activation::gelu,
                  .attention_bias = BiasRule::if_present,
                  .output_bias = BiasRule::if_present,
                  .feed_forward_bias = BiasRule::always,
                  .reads_parallel_residual = true},
    DecoderFamily{.model_type = "command-r",
                  .format = kGguf,
                  .names = &kGgufNames,
                  .norm = NormKind::layer_without_bias,
                  .block = Block::parallel,
                  .query_key_norm = QueryKeyNorm::layer_if_present,
                  .ties_embeddings = true,
                  .reads_logit_scale = true},
};

}  // namespace

const DecoderFamily* find_family(std::string_view model_type, WeightFormat format) {
  const auto row = std::find_if(kFamilies.begin(), kFamilies.end(), [&](const auto& family) {
    return family.model_type == model_type && family.format == format;
  });
  return row == kFamilies.end() ? nullptr : &*row;
}

std::string family_names(WeightFormat format) {
  std::string names;
  for (const DecoderFamily& family : kFamilies) {
    if (family.format != format) continue;
    if (!names.empty()) names += ", ";
    names += family.model_type;
  }
  return names;
}

std::string numbered(std::string_view pattern, std::int64_t layer, std::int64_t expert) {
  std::string name;
  std::int64_t next = layer;
  while (!pattern.empty()) {
    const std::size_t place = pattern.find("{}");
    name += pattern.substr(0, place);
    if (place == std::string_view::npos) break;
    name += std::to_string(next);
    next = expert;
    pattern.remove_prefix(place + 2);
  }
  return name;
}

}  // namespace phasor::models
