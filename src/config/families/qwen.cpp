// Qwen.
#include <array>

#include "config/families/lineages.hpp"

namespace phasor::config {
namespace {

using encodings::MropeAxes;

constexpr RotaryFacts kQwen2VlRotary = {
    .layout = kHalf, .base = 1e6, .mrope = MropeAxes::Order::chunked};
constexpr RotaryFacts kQwen3VlRotary = {
    .layout = kHalf, .base = 5e6, .mrope = MropeAxes::Order::interleaved};
constexpr RotaryFacts kQwen35Rotary = {.layout = kHalf,
                                       .base = 1e4,
                                       .partial = 0.25,
                                       .head_dim = 256,
                                       .mrope = MropeAxes::Order::interleaved};

constexpr std::array kQwenFamilies = {
    Family{.model_type = "qwen2",
           .rotary = RotaryFacts{.layout = kHalf, .base = 1e4, .window = WindowRule::above_layer},
           .gguf = GgufArchitecture{.name = "qwen2", .rotation = GgufRotation::half},
           .attention = &kSelfAttention,
           .decoder = DecoderPart{.names = &kLlamaNames,
                                  .gguf_names = &kGgufNames,
                                  .attention_bias = BiasRule::always}},
    Family{.model_type = "qwen2_moe",
           .rotary = RotaryFacts{.layout = kHalf, .base = 1e4, .window = WindowRule::above_layer},
           .gguf = GgufArchitecture{.name = "qwen2moe", .rotation = GgufRotation::half},
           .attention = &kSelfAttention},
    Family{.model_type = "qwen3",
           .rotary = RotaryFacts{.layout = kHalf, .base = 1e4, .window = WindowRule::above_layer},
           .gguf = GgufArchitecture{.name = "qwen3", .rotation = GgufRotation::half},
           .attention = &kSelfAttention,
           .decoder = DecoderPart{.names = &kLlamaNames,
                                  .gguf_names = &kGgufNames,
                                  .query_key_norm = QueryKeyNorm::each_head,
                                  .attention_bias = BiasRule::by_attention_bias,
                                  .output_bias = BiasRule::by_attention_bias}},
    Family{.model_type = "qwen3_moe",
           .rotary = RotaryFacts{.layout = kHalf, .base = 1e4, .window = WindowRule::above_layer},
           .gguf = GgufArchitecture{.name = "qwen3moe", .rotation = GgufRotation::half},
           .attention = &kSelfAttention},
    Family{.model_type = "qwen3_next",
           .rotary = RotaryFacts{.layout = kHalf, .base = 1e4, .partial = 0.25, .head_dim = 256},
           .gguf = GgufArchitecture{.name = "qwen3next",
                                    .rotation = GgufRotation::half,
                                    .layers = GgufLayers::linear_but,
                                    .interval = 4}},
    // Three rows of positions.
    Family{.model_type = "qwen2_vl",
           .rotary = kQwen2VlRotary,
           .gguf = GgufArchitecture{.name = "qwen2vl", .rotation = GgufRotation::sections},
           .attention = &kSelfAttention},
    Family{.model_type = "qwen2_vl_text",
           .rotary = kQwen2VlRotary,
           .gguf_as = "qwen2vl",
           .attention = &kSelfAttention},
    Family{.model_type = "qwen2_5_vl",
           .rotary = kQwen2VlRotary,
           .gguf_as = "qwen2vl",
           .attention = &kSelfAttention},
    Family{.model_type = "qwen2_5_vl_text",
           .rotary = kQwen2VlRotary,
           .gguf_as = "qwen2vl",
           .attention = &kSelfAttention},
    Family{.model_type = "qwen3_vl",
           .rotary = kQwen3VlRotary,
           .gguf = GgufArchitecture{.name = "qwen3vl", .rotation = GgufRotation::mixed_sections},
           .attention = &kSelfAttention},
    Family{.model_type = "qwen3_vl_text",
           .rotary = kQwen3VlRotary,
           .gguf_as = "qwen3vl",
           .attention = &kSelfAttention},
    Family{.model_type = "qwen3_vl_moe",
           .rotary = kQwen3VlRotary,
           .gguf = GgufArchitecture{.name = "qwen3vlmoe", .rotation = GgufRotation::mixed_sections},
           .attention = &kSelfAttention},
    Family{.model_type = "qwen3_vl_moe_text",
           .rotary = kQwen3VlRotary,
           .gguf_as = "qwen3vlmoe",
           .attention = &kSelfAttention},
    Family{.model_type = "qwen3_5",
           .rotary = kQwen35Rotary,
           .gguf = GgufArchitecture{.name = "qwen35",
                                    .rotation = GgufRotation::mixed_sections,
                                    .layers = GgufLayers::linear_but,
                                    .interval = 4}},
    Family{.model_type = "qwen3_5_text", .rotary = kQwen35Rotary, .gguf_as = "qwen35"},
    Family{.model_type = "qwen3_5_moe",
           .rotary = kQwen35Rotary,
           .gguf = GgufArchitecture{.name = "qwen35moe",
                                    .rotation = GgufRotation::mixed_sections,
                                    .layers = GgufLayers::linear_but,
                                    .interval = 4}},
    Family{.model_type = "qwen3_5_moe_text", .rotary = kQwen35Rotary, .gguf_as = "qwen35moe"},
};

}  // namespace

std::span<const Family> qwen_families() { return kQwenFamilies; }

}  // namespace phasor::config
