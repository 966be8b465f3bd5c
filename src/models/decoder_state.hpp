// What a loaded decoder and a sequence hold.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/decoder_settings.hpp"
#include "models/weight_reader.hpp"
#include "phasor/attention/kv_cache.hpp"
#include "phasor/encodings/score_terms.hpp"
#include "phasor/models/decoder.hpp"

namespace phasor::models {

struct Norm {
  std::vector<float> weight, bias;  // an empty weight: no norm
};

// A matrix with its bias; an empty bias is none.
struct Linear {
  Matrix matrix;
  std::vector<float> bias;

  [[nodiscard]] const float* bias_data() const noexcept {
    return bias.empty() ? nullptr : bias.data();
  }
  [[nodiscard]] Product into(float* out) const noexcept {
    return {&matrix, out, matrix.rows(), bias_data()};
  }
};

struct Expert {
  Linear gate, up, down;
};

struct LayerWeights {
  Norm attention_norm, feed_forward_norm, after_attention, after_feed_forward;
  Linear query, key, value, output;
  Norm query_norm, key_norm;  // [head_dim], or [heads, head_dim] (Cohere)
  Expert feed_forward;        // gate empty where there is none
  Linear router;
  std::vector<Expert> experts;
  std::size_t group = 0;  // of the config's layer groups
};

// Memory that one call of forward uses and the next one uses again.
struct Workspace {
  std::vector<float> x, normed, query, key, value, attended, branch, gate, up, router, gathered,
      expert_out;
  std::vector<std::uint16_t> narrow;  // keys and values of sixteen bits
};

struct Decoder::State {
  config::ModelConfig config;
  DecoderSettings settings;
  ComputeOptions compute;
  Matrix embedding;
  Linear head;  // the embedding, shared, where tied
  Norm final_norm;
  std::vector<LayerWeights> layers;
  Workspace work;
};

// One rotation for each layer group, as of the context that they were resolved for.
struct GroupTurns {
  std::vector<encodings::ScoreTerms> terms;
};

struct Sequence::State {
  const Decoder::State* decoder = nullptr;
  SequenceOptions options;
  std::vector<std::optional<encodings::RopeSpec>> rope;  // by layer group
  GroupTurns turns;
  std::vector<attention::KVCache> caches;  // by layer
  std::vector<std::int64_t> ids;
};

// throws   as Decoder::load refuses
[[nodiscard]] std::unique_ptr<Decoder::State> load_decoder(Checkpoint& checkpoint);

// Resolves every group's rotation for a context.
[[nodiscard]] GroupTurns resolve_turns(const std::vector<std::optional<encodings::RopeSpec>>& rope,
                                       const config::ModelConfig& config,
                                       std::optional<std::int64_t> context);

}  // namespace phasor::models
