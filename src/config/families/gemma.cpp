// Gemma.
#include <array>

#include "config/families/lineages.hpp"

namespace phasor::config {
namespace {

constexpr TensorNames with_four_norms(TensorNames names) {
  names.after_attention_norm = "model.layers.{}.post_attention_layernorm";
  names.feed_forward_norm = "model.layers.{}.pre_feedforward_layernorm";
  names.after_feed_forward_norm = "model.layers.{}.post_feedforward_layernorm";
  return names;
}
constexpr TensorNames kGemmaNames = with_four_norms(kLlamaNames);

constexpr RotaryFacts kGemma3Rotary = {
    .layout = kHalf,
    .base = 1e6,
    .head_dim = 256,
    .layers = LayerRule::local_base,
    .layer_interval = 6,
    .softmax = SoftmaxRule::query_pre_attn_scalar,
    .local_base = 1e4,
    .sizes = {.hidden = 2304, .heads = 8, .key_heads = 4, .layers = 26, .max_position = 131072}};

// Each layer type has its own rope dictionary, and full-attention layers may have a wider head.
constexpr RotaryFacts kGemma4Facts = {.layout = kHalf,
                                      .head_dim = 256,
                                      .layers = LayerRule::local_base,
                                      .layer_interval = 6,
                                      .softmax = SoftmaxRule::unknown,
                                      .quirk = Quirk::scaling_required};

constexpr std::array kGemmaFamilies = {
    Family{.model_type = "gemma",
           .rotary = RotaryFacts{.layout = kHalf, .base = 1e4, .head_dim = 256},
           .gguf = GgufArchitecture{.name = "gemma", .rotation = GgufRotation::half},
           .attention = &kSelfAttention,
           .decoder = DecoderPart{.names = &kLlamaNames,
                                  .gguf_names = &kGgufNames,
                                  .norm = NormKind::rms_from_one,
                                  .activation = Activation::gelu_tanh,
                                  .attention_bias = BiasRule::by_attention_bias,
                                  .output_bias = BiasRule::by_attention_bias,
                                  .scales_embeddings = true,
                                  .ties_embeddings = true}},
    Family{.model_type = "gemma2",
           .rotary = RotaryFacts{.layout = kHalf,
                                 .base = 1e4,
                                 .head_dim = 256,
                                 .softmax = SoftmaxRule::query_pre_attn_scalar,
                                 .window = WindowRule::alternating},
           .gguf = GgufArchitecture{.name = "gemma2",
                                    .rotation = GgufRotation::half,
                                    .layers = GgufLayers::windows,
                                    .interval = 2,
                                    .window = GgufWindow::default_4096,
                                    .softmax = GgufSoftmax::largest,
                                    .largest_layers = 46},
           .attention = &kSelfAttention,
           .decoder = DecoderPart{.names = &kGemmaNames,
                                  .gguf_names = &kGgufNames,
                                  .norm = NormKind::rms_from_one,
                                  .block = Block::sandwich,
                                  .activation = Activation::gelu_tanh,
                                  .attention_bias = BiasRule::by_attention_bias,
                                  .output_bias = BiasRule::by_attention_bias,
                                  .scales_embeddings = true,
                                  .ties_embeddings = true,
                                  .attention_soft_cap = 50.0,
                                  .final_soft_cap = 30.0}},
    Family{.model_type = "recurrent_gemma",
           .rotary = RotaryFacts{.layout = kHalf,
                                 .base = 1e4,
                                 .partial = 0.5,
                                 .softmax = SoftmaxRule::unknown,
                                 .window = WindowRule::every_layer}},
    Family{.model_type = "gemma3",
           .rotary = kGemma3Rotary,
           .gguf_as = "gemma3",
           .attention = &kSelfAttention},
    Family{.model_type = "gemma3_text",
           .rotary = kGemma3Rotary,
           .gguf = GgufArchitecture{.name = "gemma3",
                                    .rotation = GgufRotation::half,
                                    .layers = GgufLayers::local_base,
                                    .interval = 6,
                                    .local_base = 1e4,
                                    .softmax = GgufSoftmax::largest,
                                    .largest_layers = 62},
           .attention = &kSelfAttention,
           .decoder = DecoderPart{.names = &kGemmaNames,
                                  .gguf_names = &kGgufNames,
                                  .norm = NormKind::rms_from_one,
                                  .block = Block::sandwich,
                                  .query_key_norm = QueryKeyNorm::each_head,
                                  .activation = Activation::gelu_tanh,
                                  .attention_bias = BiasRule::by_attention_bias,
                                  .output_bias = BiasRule::by_attention_bias,
                                  .scales_embeddings = true,
                                  .ties_embeddings = true}},
    Family{.model_type = "gemma4_text", .rotary = kGemma4Facts, .attention = &kSelfAttention},
    Family{.model_type = "gemma4_unified_text", .rotary = kGemma4Facts},
    Family{.model_type = "diffusion_gemma_text", .rotary = kGemma4Facts},
    Family{.model_type = "embedding_gemma2_text", .rotary = kGemma4Facts},
};

}  // namespace

std::span<const Family> gemma_families() { return kGemmaFamilies; }

}  // namespace phasor::config
