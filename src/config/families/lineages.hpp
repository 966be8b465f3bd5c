// The rows of each lineage, and the values that they share.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "phasor/config/internal/families.hpp"

namespace phasor::config {

[[nodiscard]] std::span<const Family> llama_families();
[[nodiscard]] std::span<const Family> qwen_families();
[[nodiscard]] std::span<const Family> gemma_families();
[[nodiscard]] std::span<const Family> glm_and_deepseek_families();
[[nodiscard]] std::span<const Family> gpt_families();
[[nodiscard]] std::span<const Family> encoder_families();
// Families of which only the layout must be known.
[[nodiscard]] std::span<const Family> layout_families();
// Models that rotate nothing, or in a way that no RopeSpec describes.
[[nodiscard]] std::span<const Family> unrotated_families();
// Architectures that only GGUF files name.
[[nodiscard]] std::span<const Family> gguf_families();

inline constexpr auto kHalf = core::PairLayout::half;
inline constexpr auto kInterleaved = core::PairLayout::interleaved;
inline constexpr auto kInterleavedToHalf = core::PairLayout::interleaved_to_half;

// Three rows of positions, with the sections (time, height, width) of the model's code.
constexpr RotaryFacts mrope_facts(core::PairLayout layout, encodings::MropeAxes::Order order,
                                  const std::array<std::int64_t, 3>& sections,
                                  std::optional<double> base = std::nullopt) {
  return {.layout = layout, .base = base, .mrope = order, .sections = sections};
}

// Most families: layers.N.self_attn.q_proj, k_proj, v_proj.
inline constexpr AttentionNames kSelfAttention = {.before = "layers.", .after = ".self_attn."};
// Files as Meta and Mistral publish them, next to a config.json of the Hugging Face weights.
inline constexpr AttentionNames kMetaAttention = {.before = "layers.",
                                                  .after = ".attention.",
                                                  .queries = "wq",
                                                  .keys = "wk",
                                                  .values = "wv",
                                                  .layout = kInterleaved};

inline constexpr TensorNames kLlamaNames = {
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
constexpr TensorNames with_gate(TensorNames names, std::string_view gate) {
  names.gate = gate;
  return names;
}
// Gate and up in one tensor.
inline constexpr TensorNames kFusedGateNames =
    with_gate(kLlamaNames, "model.layers.{}.mlp.gate_up_proj");

// GGUF has one set of names for every architecture.
inline constexpr TensorNames kGgufNames = {
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
    .positions = "position_embd",
    .embedding_norm = "token_embd_norm",
};
inline constexpr TensorNames kGgufFusedGateNames = with_gate(kGgufNames, "blk.{}.ffn_up");

// For a family whose files have the architecture of another row.
constexpr DecoderPart without_gguf(DecoderPart part) {
  part.gguf_names = nullptr;
  return part;
}

}  // namespace phasor::config
