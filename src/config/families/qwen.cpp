// Qwen.
#include <array>

#include "config/families/lineages.hpp"

namespace phasor::config {
namespace {

using encodings::MropeAxes;

constexpr RotaryFacts kQwen2VlRotary = {
    .layout = kHalf, .base = 1e6, .mrope = MropeAxes::Order::chunked, .sections = {16, 24, 24}};
constexpr RotaryFacts kQwen3VlRotary = {
    .layout = kHalf, .base = 5e6, .mrope = MropeAxes::Order::interleaved, .sections = {24, 20, 20}};
constexpr RotaryFacts kQwen35Rotary = {.layout = kHalf,
                                       .base = 1e4,
                                       .partial = 0.25,
                                       .head_dim = 256,
                                       .mrope = MropeAxes::Order::interleaved,
                                       .sections = {11, 11, 10}};

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
    Family{.model_type = "qwen4_exp_text",
           .rotary = mrope_facts(kHalf, MropeAxes::Order::interleaved, {11, 11, 10})},
    Family{.model_type = "qwen2_5_omni_text",
           .rotary = mrope_facts(kHalf, MropeAxes::Order::chunked, {16, 24, 24})},
    Family{.model_type = "qwen2_5_omni_talker",
           .rotary = mrope_facts(kHalf, MropeAxes::Order::chunked, {16, 24, 24})},
    Family{.model_type = "qwen3_omni_moe_text",
           .rotary = mrope_facts(kHalf, MropeAxes::Order::interleaved, {24, 20, 20})},
    Family{.model_type = "qwen3_omni_moe_talker_text",
           .rotary = mrope_facts(kHalf, MropeAxes::Order::interleaved, {24, 20, 20})},
    Family{.model_type = "cosmos3_edge_text",
           .rotary = mrope_facts(kHalf, MropeAxes::Order::interleaved, {24, 20, 20})},
    Family{.model_type = "paddleocr_vl_text",
           .rotary = mrope_facts(kHalf, MropeAxes::Order::chunked, {16, 24, 24}),
           .gguf_as = "paddleocr"},
    // mrope_section is (height, width, time) here.
    Family{.model_type = "ernie4_5_vl_moe_text",
           .rotary = mrope_facts(kInterleaved, MropeAxes::Order::alternating, {20, 22, 22})},
};

}  // namespace

std::span<const Family> qwen_families() { return kQwenFamilies; }

}  // namespace phasor::config
