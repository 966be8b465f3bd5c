// Settings and weights of a RoFormer checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/weight_reader.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/models/checkpoint.hpp"
#include "phasor/models/internal/layer_ops.hpp"
#include "phasor/models/internal/matrix.hpp"
#include "phasor/models/roformer.hpp"

namespace phasor::models {

struct RoFormerSettings {
  RoFormerFacts facts;
  std::int64_t intermediate = 0;
  double epsilon = 0.0;
  Activation activation = Activation::gelu;
  encodings::RopeSpec rope;
  bool rotates_values = false;
  bool tied = true;         // the decoder of a language model is the word embedding
  bool head_known = false;  // architectures named it; else the tensors do
};

// throws   Error naming checkpoint and key: another model_type, cross-attention, an activation, a head
//          or a size that this model does not compute
[[nodiscard]] RoFormerSettings roformer_settings(const Checkpoint& checkpoint);

// y = W x + b
struct RoFormerLinear {
  Matrix weight;
  std::vector<float> bias;
};
struct LayerNorm {
  std::vector<float> weight, bias;
};

struct RoFormerLayer {
  RoFormerLinear query, key, value, attention_output, intermediate, output;
  LayerNorm attention_norm, output_norm;
};

struct RoFormerWeights {
  Matrix words, token_types;
  LayerNorm embedding_norm;
  std::optional<RoFormerLinear> project;  // when the embedding is narrower than the layers
  std::vector<RoFormerLayer> layers;
  RoFormerLinear transform, decoder;  // language models
  LayerNorm transform_norm;
  RoFormerLinear dense;   // classification
  RoFormerLinear labels;  // heads with labels
};

// Sets facts.parameters, and facts.head when the config does not name it.
//
// throws   Error naming the tensor: missing, of another shape, unknown; a table of positions
//          that is not RoFormer's sinusoid, a decoder that contradicts tie_word_embeddings
[[nodiscard]] RoFormerWeights roformer_weights(WeightReader& reader, RoFormerSettings& settings);

// Checks the table [positions, head_dim] of sin, then cos, that checkpoints store: angles are computed
// here, so the table must agree, up to the rounding of f16 and bf16.
inline constexpr double kSinusoidTolerance = 1e-4;

}  // namespace phasor::models
