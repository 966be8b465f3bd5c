// The members of a loaded decoder and of a sequence.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "models/decoder/settings.hpp"
#include "models/decoder/share.hpp"
#include "models/weight_reader.hpp"
#include "phasor/attention/kv_cache.hpp"
#include "phasor/attention/softmax.hpp"
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
  Norm query_norm, key_norm;  // [head_dim], or [heads * head_dim] (Cohere, OLMo 2)
  Expert feed_forward;        // gate empty if there is none
  Linear router;
  std::vector<Expert> experts;
  std::size_t group = 0;  // of the config's layer groups
};

// One rotation for each layer group, resolved for a context.
struct GroupRotations {
  std::vector<encodings::ScoreTerms> terms;
};

struct Sequence::State {
  const Decoder::State* decoder = nullptr;
  SequenceOptions options;
  std::vector<std::optional<encodings::RopeSpec>> rope;  // by layer group
  GroupRotations rotations;
  std::optional<std::int64_t> context = std::nullopt;  // that they were resolved for
  std::vector<attention::KVCache> caches;              // by layer
  std::vector<std::int64_t> ids;                       // room for the capacity from the start
  TokenOwners owners;                                  // of a shared context
};

// A call whose context needs other frequencies: what replaces the sequence's own if the call
// succeeds.
struct ContextChange {
  GroupRotations rotations;
  std::vector<bool> changed;  // by layer group
  // LongRoPE: all tokens are computed again, into new caches.
  std::vector<attention::KVCache> caches;
  std::vector<std::int64_t> ids;
  TokenOwners owners;
  std::size_t rerotated = 0;  // layers whose keys were rotated again, to be undone on failure
};

// Tokens of one sequence in one call of forward.
struct Run {
  Sequence::State* sequence = nullptr;
  std::vector<attention::KVCache>* caches = nullptr;  // the sequence's or the change's
  const GroupRotations* rotations = nullptr;
  std::span<const std::int64_t> ids;    // to compute
  std::int64_t skip = 0;                // of them, the first that are only recomputed
  std::int64_t first_row = 0;           // of the call's activations
  std::int64_t had = 0;                 // tokens in the sequence's caches before
  std::span<const std::int64_t> asked;  // the step's
  std::optional<ContextChange> change;
  // Tokens that this rank computes: all, unless the context is shared.
  TokenBlock computed;
  // Of a shared context.
  TokenOwners* owners = nullptr;   // the sequence's or the change's; null: not shared
  std::vector<TokenBlock> blocks;  // that ranks keep
  bool everywhere = false;         // every rank computes all tokens
  std::int64_t had_own = 0;        // tokens in this rank's caches before

  [[nodiscard]] std::int64_t count() const { return computed.count; }
  // Of the sequence.
  [[nodiscard]] std::int64_t first_token() const { return had - skip; }
  // Tokens whose results this rank gives: the asked ones that it keeps.
  [[nodiscard]] TokenBlock given(std::size_t rank) const {
    const TokenBlock& block = owners == nullptr ? computed : blocks[rank];
    const std::int64_t first = std::max(block.first, skip);
    return {first, std::max<std::int64_t>(0, block.first + block.count - first)};
  }
};

// A token's share of an expert.
struct ExpertShare {
  std::int64_t expert = 0, token = 0;
  float weight = 0.0F;
};

// Memory that calls of forward share: a call with the sizes of the last one allocates nothing.
struct Workspace {
  std::vector<float> x, normed, query, key, value, attended, branch, gate, up, router, gathered,
      expert_out;
  std::vector<std::int64_t> rows, asked_rows, expert_order;
  std::vector<ExpertShare> shares, taken;
  std::vector<Run> runs;
  attention::AttentionWorkspace attention;
  std::vector<attention::StepRotations> rotations;  // by run: shared by its layers
  ShareWorkspace share;
};

struct Decoder::State {
  config::ModelConfig config;
  DecoderSettings settings;
  ComputeOptions compute;
  Matrix embedding;
  Matrix positions;     // learned; empty: none
  Norm embedding_norm;  // BLOOM
  Linear head;          // the embedding if tied
  Norm final_norm;
  std::vector<LayerWeights> layers;
  Workspace work;
};

// throws   as Decoder::load refuses
[[nodiscard]] std::unique_ptr<Decoder::State> load_decoder(Checkpoint& checkpoint);

// Runs the steps of `state.work.runs` through every layer, and appends to their caches.
void run_layers(Decoder::State& state, const ForwardOptions& options, ForwardResult& into);

// An empty cache for a layer, with its group's rotation.
[[nodiscard]] attention::KVCache make_cache(const Sequence::State& state,
                                            const GroupRotations& rotations, std::size_t layer);

// Resolves every group's rotation for a context.
[[nodiscard]] GroupRotations resolve_rotations(
    const std::vector<std::optional<encodings::RopeSpec>>& rope, const Decoder::State& decoder,
    std::optional<std::int64_t> context);

}  // namespace phasor::models
