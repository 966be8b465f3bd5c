// Settings, weights and members of a T5.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/decoder/state.hpp"
#include "models/weight_reader.hpp"
#include "phasor/attention/kv_cache.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/encodings/score_terms.hpp"
#include "phasor/models/internal/layer_ops.hpp"
#include "phasor/models/t5.hpp"

namespace phasor::models {

struct T5Settings {
  T5Facts facts;
  double epsilon = 0.0;
  Activation activation = Activation::relu;
  bool gated = false;
  bool ties_embeddings = true;  // a file without a head has the embedding for it
  double output_scale = 1.0;    // of the decoder's output before the head: 1 or hidden^-1/2
  // Tables of the bias: one for each layer (umT5), or that of layer 0 for all.
  bool table_per_layer = false;
};

// throws   Error naming checkpoint and key: another model_type, an activation or a size that this
//          model does not compute
[[nodiscard]] T5Settings t5_settings(const Checkpoint& checkpoint);

struct T5Attention {
  std::vector<float> norm;  // before it
  Matrix query, key, value, output;
};

struct T5Layer {
  T5Attention self;
  std::optional<T5Attention> cross;  // of the decoder
  std::vector<float> feed_forward_norm;
  Matrix gate, up, down;  // gate is empty if there is none
};

struct T5Stack {
  std::vector<T5Layer> layers;
  std::vector<std::vector<float>> bias;  // [buckets, heads]: one, or one for each layer
  std::vector<float> final_norm;

  // The table of a layer.
  [[nodiscard]] const std::vector<float>& bias_of(std::size_t layer) const noexcept {
    return bias[bias.size() == 1 ? 0 : layer];
  }
};

struct T5Weights {
  Matrix embedding, head;
  T5Stack encoder, decoder;
};

// Sets parameters, weight_bytes and weight_types of the facts.
//
// throws   Error naming the tensor: missing, of another shape, unknown
[[nodiscard]] T5Weights t5_weights(Checkpoint& checkpoint, T5Settings& settings);

// Memory that calls share.
struct T5Work {
  std::vector<float> x, normed, query, key, value, attended, branch, gate, up;
  attention::AttentionWorkspace attention;
};

struct T5Model::State {
  T5Settings settings;
  T5Weights weights;
  ComputeOptions compute;
  T5Work work;
};

struct T5Sequence::State {
  const T5Model::State* model = nullptr;
  std::int64_t input_tokens = 0;
  std::int64_t capacity = 0;
  std::vector<encodings::ScoreTerms> self_terms;  // one, or one for each layer
  std::vector<attention::KVCache> self, cross;    // by layer
  std::vector<std::int64_t> ids;                  // room for the capacity from the start
};

}  // namespace phasor::models
