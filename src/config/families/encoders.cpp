// Encoders of text, and the image towers of models with several media.
#include <array>

#include "config/families/lineages.hpp"

namespace phasor::config {
namespace {

using encodings::AxialAxes;

constexpr AttentionNames kFusedEncoderAttention = {
    .before = "layers.", .after = ".attn.", .order = HeadOrder::sections, .queries = "Wqkv"};
constexpr AttentionNames kBertAttention = {.before = "layer.",
                                           .after = ".attention.",
                                           .queries = "self.query",
                                           .keys = "self.key",
                                           .values = "self.value",
                                           .output = "output.dense"};

constexpr std::array kEncoderFamilies = {
    Family{.model_type = "roformer",
           .rotary = RotaryFacts{.layout = kInterleaved, .base = 1e4},
           .attention = &kBertAttention,
           .encoder = true},
    Family{.model_type = "t5",
           .other_positions = kRelativePositions,
           .gguf = GgufArchitecture{.name = "t5", .softmax = GgufSoftmax::unknown},
           .encoder_decoder = EncoderDecoderPart{}},
    Family{.model_type = "mt5",
           .other_positions = kRelativePositions,
           .gguf_as = "t5",
           .encoder_decoder =
               EncoderDecoderPart{.feed_forward = "gated-gelu", .scales_output = false}},
    Family{.model_type = "umt5",
           .other_positions = kRelativePositions,
           .gguf_as = "t5",
           .encoder_decoder = EncoderDecoderPart{.feed_forward = "gated-gelu"}},
    Family{.model_type = "esm",
           .rotary = RotaryFacts{.layout = kHalf, .base = 1e4, .quirk = Quirk::learned_if_absolute},
           .attention = &kBertAttention},
    Family{.model_type = "modernbert",
           .rotary = RotaryFacts{.layout = kHalf,
                                 .base = 160000.0,
                                 .layers = LayerRule::local_base,
                                 .layer_interval = 3,
                                 .full_first = true,
                                 .quirk = Quirk::absolute_is_stale,
                                 .local_base = 1e4},
           .gguf = GgufArchitecture{.name = "modern-bert",
                                    .rotation = GgufRotation::half,
                                    .layers = GgufLayers::local_base,
                                    .interval = 3,
                                    .full_first = true,
                                    .window = GgufWindow::both_sides,
                                    .local_base = 1e4},
           .attention = &kFusedEncoderAttention},
    Family{.model_type = "nomic_bert",
           .rotary = RotaryFacts{.layout = kHalf, .quirk = Quirk::nomic},
           .gguf = GgufArchitecture{.name = "nomic-bert", .rotation = GgufRotation::half},
           .attention = &kFusedEncoderAttention},
    // Full-attention layers do not rotate; the sliding ones may see both sides.
    Family{.model_type = "flint",
           .rotary = RotaryFacts{.layout = kHalf,
                                 .layers = LayerRule::full_unrotated,
                                 .softmax = SoftmaxRule::unknown}},
    Family{.model_type = "kolibri1",
           .rotary = RotaryFacts{.layout = kHalf,
                                 .layers = LayerRule::full_unrotated,
                                 .layer_interval = 5,
                                 .softmax = SoftmaxRule::unknown,
                                 .quirk = Quirk::rotates_without_window}},
    Family{.model_type = "beam",
           .rotary = RotaryFacts{.layout = kHalf, .softmax = SoftmaxRule::unknown}},
    // Images. Those with height and width one after the other are in layouts.cpp.
    Family{.model_type = "sam3_vit_model",
           .rotary =
               RotaryFacts{
                   .layout = kInterleaved, .base = 1e4, .axial = AxialAxes::Kind::concatenated}},
    Family{
        .model_type = "pixtral",
        .rotary = RotaryFacts{.layout = kHalf, .base = 1e4, .axial = AxialAxes::Kind::alternating}},
    Family{.model_type = "gemma4_vision",
           .rotary = RotaryFacts{.layout = kHalf,
                                 .softmax = SoftmaxRule::unknown,
                                 .axial = AxialAxes::Kind::per_half_head}},
};

}  // namespace

std::span<const Family> encoder_families() { return kEncoderFamilies; }

}  // namespace phasor::config
