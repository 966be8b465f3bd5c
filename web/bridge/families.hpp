// Configs to begin with: the keys about positions of known models, as their config.json has them.
#pragma once

#include <array>
#include <string_view>

namespace phasor::web {

struct Family {
  std::string_view name, config;
};

inline constexpr auto kFamilies = std::to_array<Family>({
    {"RoFormer base", R"({"model_type": "roformer", "hidden_size": 768, "num_attention_heads": 12,
      "num_hidden_layers": 12, "max_position_embeddings": 1536, "rotary_value": false})"},
    {"Llama 2 7B", R"({"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
      "num_hidden_layers": 32, "max_position_embeddings": 4096, "rope_theta": 10000.0})"},
    {"Llama 3.1 8B (llama3)", R"({"model_type": "llama", "hidden_size": 4096,
      "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32,
      "max_position_embeddings": 131072, "rope_theta": 500000.0, "rope_scaling": {"rope_type":
      "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}})"},
    {"Vicuna 13B 16k (linear)", R"({"model_type": "llama", "hidden_size": 5120,
      "num_attention_heads": 40, "num_hidden_layers": 40, "max_position_embeddings": 4096,
      "rope_scaling": {"type": "linear", "factor": 4.0}})"},
    {"Mistral 7B v0.1 (window)", R"({"model_type": "mistral", "hidden_size": 4096,
      "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32,
      "max_position_embeddings": 32768, "sliding_window": 4096, "rope_theta": 10000.0})"},
    {"Qwen2.5 7B, 128k (YaRN)", R"({"model_type": "qwen2", "hidden_size": 3584,
      "num_attention_heads": 28, "num_key_value_heads": 4, "num_hidden_layers": 28,
      "max_position_embeddings": 131072, "rope_theta": 1000000.0, "rope_scaling": {"type": "yarn",
      "factor": 4.0, "original_max_position_embeddings": 32768}})"},
    {"gpt-oss 20B (YaRN, not truncated)", R"({"model_type": "gpt_oss", "hidden_size": 2880,
      "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
      "max_position_embeddings": 131072, "rope_theta": 150000, "rope_scaling": {"rope_type": "yarn",
      "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
      "truncate": false}})"},
    {"DeepSeek-V3 (YaRN, 64 of 192)", R"({"model_type": "deepseek_v3", "hidden_size": 7168,
      "num_attention_heads": 128, "num_key_value_heads": 128, "qk_rope_head_dim": 64,
      "qk_nope_head_dim": 128, "max_position_embeddings": 163840, "rope_theta": 10000,
      "rope_scaling": {"type": "yarn", "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
      "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}})"},
    {"Phi-3 mini 128k (LongRoPE, example factors)", R"({"model_type": "phi3", "hidden_size": 3072,
      "num_attention_heads": 32, "num_key_value_heads": 32, "num_hidden_layers": 32,
      "max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
      "rope_theta": 10000.0, "rope_scaling": {"type": "longrope",
      "short_factor": [1.0, 1.01, 1.02, 1.03, 1.04, 1.06, 1.08, 1.1, 1.13, 1.15, 1.18, 1.2, 1.23,
        1.26, 1.29, 1.32, 1.36, 1.39, 1.43, 1.46, 1.5, 1.54, 1.58, 1.62, 1.66, 1.7, 1.74, 1.78,
        1.83, 1.87, 1.92, 1.96, 2.01, 2.06, 2.11, 2.16, 2.21, 2.26, 2.31, 2.36, 2.41, 2.47, 2.52,
        2.58, 2.63, 2.69, 2.74, 2.8],
      "long_factor": [1.08, 1.4323, 1.9781, 2.6326, 3.3694, 4.1742, 5.0377, 5.9533, 6.916, 7.9218,
        8.9676, 10.0506, 11.1688, 12.32, 13.5027, 14.7154, 15.9567, 17.2254, 18.5206, 19.8412,
        21.1864, 22.5553, 23.9473, 25.3615, 26.7975, 28.2546, 29.7322, 31.2298, 32.747, 34.2833,
        35.8382, 37.4114, 39.0024, 40.611, 42.2367, 43.8792, 45.5382, 47.2135, 48.9046, 50.6114,
        52.3336, 54.071, 55.8232, 57.5901, 59.3714, 61.167, 62.9766, 64.8]}})"},
    {"GPT-NeoX 20B (24 of 96)", R"({"model_type": "gpt_neox", "hidden_size": 6144,
      "num_attention_heads": 64, "num_hidden_layers": 44, "max_position_embeddings": 2048,
      "rotary_pct": 0.25, "rotary_emb_base": 10000})"},
    {"GPT-J 6B (interleaved, 64 of 256)", R"({"model_type": "gptj", "n_embd": 4096, "n_head": 16,
      "n_layer": 28, "n_positions": 2048, "rotary_dim": 64})"},
    {"Gemma 3 4B (two bases)", R"({"model_type": "gemma3_text", "hidden_size": 2560,
      "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
      "num_hidden_layers": 34, "max_position_embeddings": 131072, "sliding_window": 1024,
      "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
      "rope_scaling": {"rope_type": "linear", "factor": 8.0}})"},
    {"GLM-4 9B (interleaved, half of the head)", R"({"model_type": "glm", "hidden_size": 4096,
      "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
      "num_hidden_layers": 40, "max_position_embeddings": 131072, "rope_theta": 10000.0,
      "partial_rotary_factor": 0.5})"},
});

}  // namespace phasor::web
