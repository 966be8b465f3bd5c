// GLM, and models with latent attention.
#include <array>

#include "config/families/lineages.hpp"

namespace phasor::config {
namespace {

using encodings::MropeAxes;

constexpr AttentionNames kChatglmAttention = {.before = "layers.",
                                              .after = ".self_attention.",
                                              .order = HeadOrder::sections,
                                              .queries = "query_key_value"};

constexpr RotaryFacts kDeepseekV3Rotary = {.layout = kInterleavedToHalf,
                                           .base = 1e4,
                                           .softmax = SoftmaxRule::latent,
                                           .quirk = Quirk::rope_interleave};
constexpr RotaryFacts kGlmRotary = {
    .layout = kInterleaved, .base = 1e4, .partial = 0.5, .head_dim = 128};

constexpr std::array kGlmAndDeepseekFamilies = {
    Family{.model_type = "glm",
           .rotary = kGlmRotary,
           .gguf_as = "chatglm",
           .attention = &kSelfAttention,
           .decoder = DecoderPart{.names = &kFusedGateNames,
                                  .feed_forward = FeedForward::gated_fused,
                                  .attention_bias = BiasRule::by_attention_bias}},
    Family{.model_type = "glm4",
           .rotary = kGlmRotary,
           .gguf = GgufArchitecture{.name = "glm4", .rotation = GgufRotation::pairs_or_sections},
           .attention = &kSelfAttention},
    Family{.model_type = "glm4_moe",
           .rotary = RotaryFacts{.layout = kHalf, .base = 1e4, .partial = 0.5},
           .gguf = GgufArchitecture{.name = "glm4moe", .rotation = GgufRotation::half_or_sections},
           .attention = &kSelfAttention},
    Family{.model_type = "chatglm",
           .rotary = RotaryFacts{.layout = kInterleaved,
                                 .base = 1e4,
                                 .partial = 0.5,
                                 .head_dim_key = "kv_channels",
                                 .quirk = Quirk::rope_ratio},
           .gguf = GgufArchitecture{.name = "chatglm", .rotation = GgufRotation::interleaved},
           .attention = &kChatglmAttention},
    // Three rows of positions.
    Family{.model_type = "glm4v_text",
           .rotary = mrope_facts(kInterleaved, MropeAxes::Order::chunked, {8, 12, 12}, 1e4)},
    Family{.model_type = "glm_ocr_text",
           .rotary = mrope_facts(kInterleaved, MropeAxes::Order::chunked, {8, 12, 12}, 1e4)},
    Family{.model_type = "glm4v_moe_text",
           .rotary = mrope_facts(kHalf, MropeAxes::Order::chunked, {8, 12, 12}, 1e4)},
    Family{.model_type = "glm_image_text",
           .rotary = mrope_facts(kHalf, MropeAxes::Order::chunked, {8, 12, 12}, 1e4)},
    // Latent attention: a narrow part of each head rotates.
    Family{
        .model_type = "deepseek_v2",
        .rotary = RotaryFacts{.layout = kInterleaved, .base = 1e4, .softmax = SoftmaxRule::latent},
        .gguf = GgufArchitecture{.name = "deepseek2",
                                 .rotation = GgufRotation::interleaved,
                                 .softmax = GgufSoftmax::latent,
                                 .latent = true,
                                 .log_multiplier = GgufLogMultiplier::tenth_all_dim},
        .latent_attention = true},
    Family{.model_type = "deepseek_v3",
           .rotary = kDeepseekV3Rotary,
           .gguf_as = "deepseek2",
           .latent_attention = true},
    Family{.model_type = "kimi_k2",
           .rotary = RotaryFacts{.layout = kInterleavedToHalf,
                                 .softmax = SoftmaxRule::latent,
                                 .quirk = Quirk::rope_interleave},
           .gguf_as = "deepseek2",
           .latent_attention = true},
    Family{.model_type = "glm4_moe_lite",
           .rotary = kDeepseekV3Rotary,
           .gguf_as = "deepseek2",
           .latent_attention = true},
    Family{.model_type = "youtu",
           .rotary = kDeepseekV3Rotary,
           .gguf_as = "deepseek2",
           .latent_attention = true},
    Family{.model_type = "axk1", .rotary = kDeepseekV3Rotary, .latent_attention = true},
    Family{.model_type = "axk2",
           .rotary = RotaryFacts{.layout = kInterleavedToHalf, .softmax = SoftmaxRule::latent},
           .latent_attention = true},
    Family{.model_type = "deepseek_v32",
           .rotary = RotaryFacts{.layout = kInterleavedToHalf, .softmax = SoftmaxRule::latent},
           .latent_attention = true},
    Family{.model_type = "glm_moe_dsa",
           .rotary = RotaryFacts{.layout = kInterleavedToHalf, .softmax = SoftmaxRule::latent},
           .latent_attention = true},
    Family{.model_type = "bailing_hybrid",
           .rotary = RotaryFacts{.layout = kInterleavedToHalf, .softmax = SoftmaxRule::unknown}},
    Family{.model_type = "mistral4",
           .rotary = RotaryFacts{.layout = kInterleavedToHalf,
                                 .softmax = SoftmaxRule::latent,
                                 .quirk = Quirk::rope_interleave},
           .latent_attention = true},
    Family{.model_type = "minicpm3",
           .rotary = RotaryFacts{.layout = kHalf, .base = 1e4, .softmax = SoftmaxRule::latent},
           .gguf = GgufArchitecture{.name = "minicpm3",
                                    .rotation = GgufRotation::half,
                                    .softmax = GgufSoftmax::latent,
                                    .latent = true},
           .latent_attention = true},
    Family{.model_type = "longcat_flash",
           .rotary = RotaryFacts{.layout = kInterleavedToHalf, .softmax = SoftmaxRule::latent},
           .latent_attention = true},
};

}  // namespace

std::span<const Family> glm_and_deepseek_families() { return kGlmAndDeepseekFamilies; }

}  // namespace phasor::config
