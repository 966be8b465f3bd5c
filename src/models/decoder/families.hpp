// What tells one family of decoders from another: a row of settings and a map of names. Layers are
// written once, in decoder_forward.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "models/matrix/layer_ops.hpp"

namespace phasor::models {

enum class WeightFormat : std::uint8_t { safetensors, gguf };

enum class NormKind : std::uint8_t {
  rms,
  rms_from_one,        // multiplies by 1 + weight
  layer,               // mean and variance, weight and bias
  layer_without_bias,  // mean and variance, weight alone
};

// How attention A and feed-forward F meet the residual x; N are norms.
enum class Block : std::uint8_t {
  sequential,    // x += A(N1 x); x += F(N2 x)
  parallel,      // x += A(N1 x) + F(N1 x)
  parallel_two,  // x += A(N1 x) + F(N2 x)
  sandwich,      // x += N2 A(N1 x); x += N4 F(N3 x)
};

// Which rows of a fused tensor are queries, keys and values.
enum class FusedRows : std::uint8_t {
  separate,  // three tensors
  in_turn,   // all queries, all keys, all values
  by_head,   // query, key and value of head 0, then of head 1, ...
};

enum class QueryKeyNorm : std::uint8_t { none, each_head, layer_if_present };

enum class FeedForward : std::uint8_t {
  gated,        // down(f(gate x) * up x)
  gated_fused,  // gate and up in one tensor, gate first
  plain,        // down(f(up x))
  experts,      // a router's top experts, each gated
};

enum class BiasRule : std::uint8_t {
  never,
  always,
  by_attention_bias,  // the config's attention_bias
  by_mlp_bias,        // the config's mlp_bias
  if_present,         // GGUF has no such key
};

// Names without ".weight" and ".bias"; `{}` is the layer, a second `{}` the expert. Empty: the
// family has none.
struct NameMap {
  std::string_view embedding, final_norm, head;
  std::string_view attention_norm, feed_forward_norm;
  std::string_view after_attention_norm = {}, after_feed_forward_norm = {};
  std::string_view query = {}, key = {}, value = {}, fused = {}, output = {};
  std::string_view query_norm = {}, key_norm = {};
  std::string_view gate = {}, up = {}, down = {};
  std::string_view router = {}, expert_gate = {}, expert_up = {}, expert_down = {};
};

struct DecoderFamily {
  std::string_view model_type;
  WeightFormat format = WeightFormat::safetensors;
  const NameMap* names = nullptr;
  NormKind norm = NormKind::rms;
  Block block = Block::sequential;
  FusedRows fused = FusedRows::separate;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  FeedForward feed_forward = FeedForward::gated;
  Activation activation = Activation::silu;   // where the config does not name one
  BiasRule attention_bias = BiasRule::never;  // of q, k and v
  BiasRule output_bias = BiasRule::never;
  BiasRule feed_forward_bias = BiasRule::never;
  BiasRule head_bias = BiasRule::never;
  // Embeddings times sqrt(hidden).
  bool scales_embeddings = false;
  // The head is the embedding where the config does not say.
  bool ties_embeddings = false;
  double logit_scale = 1.0;  // where the config does not say; read only if reads_logit_scale
  bool reads_logit_scale = false;
  // use_parallel_residual: false turns parallel_two into sequential (GPT-NeoX).
  bool reads_parallel_residual = false;
};

// Null when there is no row.
[[nodiscard]] const DecoderFamily* find_family(std::string_view model_type, WeightFormat format);
// For messages: "llama, mistral, ...".
[[nodiscard]] std::string family_names(WeightFormat format);

// "model.layers.{}.mlp" with its layer, and its expert where it has a second {}.
[[nodiscard]] std::string numbered(std::string_view pattern, std::int64_t layer,
                                   std::int64_t expert = 0);

}  // namespace phasor::models
