// The numbers of a decoder, from config.json or GGUF metadata.
#pragma once

#include "models/decoder/families.hpp"
#include "phasor/models/checkpoint.hpp"
#include "phasor/models/decoder.hpp"
#include "phasor/models/internal/layer_ops.hpp"

namespace phasor::models {

struct DecoderSettings {
  const DecoderFamily* family = nullptr;
  DecoderFacts facts;
  Block block = Block::sequential;
  FeedForward feed_forward = FeedForward::gated;
  Activation activation = Activation::silu;
  double epsilon = 0.0;
  double embedding_scale = 1.0;
  double residual_scale = 1.0;  // of what attention and feed-forward add
  double logit_scale = 1.0;
  // The factor on q.k when the config room does not give it; layer i's is divided by i + 1 if asked.
  double softmax_scale = 0.0;
  bool scale_by_layer = false;
  double final_soft_cap = 0.0, attention_soft_cap = 0.0;  // 0: none
  bool ties_embeddings = false;
  bool query_key_norm = false;
  bool attention_bias = false, mlp_bias = false;  // the config's keys
};

// throws   Error(unsupported) for a model_type without a decoder and for settings that the layers
//          do not compute; Error(invalid_argument) for missing numbers and numbers out of range
[[nodiscard]] DecoderSettings read_settings(const Checkpoint& checkpoint);

}  // namespace phasor::models
