// From a checkpoint's tensors to the weights of both stacks.
#include <string>
#include <string_view>
#include <utility>

#include "models/decoder/families.hpp"
#include "models/t5/parts.hpp"

namespace phasor::models {
namespace {

// Names of one stack; `{}` is the layer. The parts of an attention end its name.
struct T5StackNames {
  std::string_view self, self_norm, bias;
  std::string_view cross, cross_norm, cross_bias;  // empty: an encoder
  std::string_view feed_forward_norm, gate, up, plain_up, down, final_norm;
  std::string_view copy;  // of the embedding; empty: none
};
struct T5Names {
  std::string_view embedding, head;
  std::string_view query, key, value, output;
  T5StackNames encoder, decoder;
};

constexpr T5Names kT5Names = {
    .embedding = "shared.weight",
    .head = "lm_head.weight",
    .query = "q.weight",
    .key = "k.weight",
    .value = "v.weight",
    .output = "o.weight",
    .encoder = {.self = "encoder.block.{}.layer.0.SelfAttention.",
                .self_norm = "encoder.block.{}.layer.0.layer_norm.weight",
                .bias = "encoder.block.{}.layer.0.SelfAttention.relative_attention_bias.weight",
                .cross = {},
                .cross_norm = {},
                .cross_bias = {},
                .feed_forward_norm = "encoder.block.{}.layer.1.layer_norm.weight",
                .gate = "encoder.block.{}.layer.1.DenseReluDense.wi_0.weight",
                .up = "encoder.block.{}.layer.1.DenseReluDense.wi_1.weight",
                .plain_up = "encoder.block.{}.layer.1.DenseReluDense.wi.weight",
                .down = "encoder.block.{}.layer.1.DenseReluDense.wo.weight",
                .final_norm = "encoder.final_layer_norm.weight",
                .copy = "encoder.embed_tokens.weight"},
    .decoder = {
        .self = "decoder.block.{}.layer.0.SelfAttention.",
        .self_norm = "decoder.block.{}.layer.0.layer_norm.weight",
        .bias = "decoder.block.{}.layer.0.SelfAttention.relative_attention_bias.weight",
        .cross = "decoder.block.{}.layer.1.EncDecAttention.",
        .cross_norm = "decoder.block.{}.layer.1.layer_norm.weight",
        .cross_bias = "decoder.block.{}.layer.1.EncDecAttention.relative_attention_bias.weight",
        .feed_forward_norm = "decoder.block.{}.layer.2.layer_norm.weight",
        .gate = "decoder.block.{}.layer.2.DenseReluDense.wi_0.weight",
        .up = "decoder.block.{}.layer.2.DenseReluDense.wi_1.weight",
        .plain_up = "decoder.block.{}.layer.2.DenseReluDense.wi.weight",
        .down = "decoder.block.{}.layer.2.DenseReluDense.wo.weight",
        .final_norm = "decoder.final_layer_norm.weight",
        .copy = "decoder.embed_tokens.weight"}};

constexpr T5Names kT5GgufNames = {.embedding = "token_embd.weight",
                                  .head = "output.weight",
                                  .query = "q.weight",
                                  .key = "k.weight",
                                  .value = "v.weight",
                                  .output = "o.weight",
                                  .encoder = {.self = "enc.blk.{}.attn_",
                                              .self_norm = "enc.blk.{}.attn_norm.weight",
                                              .bias = "enc.blk.{}.attn_rel_b.weight",
                                              .cross = {},
                                              .cross_norm = {},
                                              .cross_bias = {},
                                              .feed_forward_norm = "enc.blk.{}.ffn_norm.weight",
                                              .gate = "enc.blk.{}.ffn_gate.weight",
                                              .up = "enc.blk.{}.ffn_up.weight",
                                              .plain_up = "enc.blk.{}.ffn_up.weight",
                                              .down = "enc.blk.{}.ffn_down.weight",
                                              .final_norm = "enc.output_norm.weight",
                                              .copy = {}},
                                  .decoder = {.self = "dec.blk.{}.attn_",
                                              .self_norm = "dec.blk.{}.attn_norm.weight",
                                              .bias = "dec.blk.{}.attn_rel_b.weight",
                                              .cross = "dec.blk.{}.cross_attn_",
                                              .cross_norm = "dec.blk.{}.cross_attn_norm.weight",
                                              .cross_bias = "dec.blk.{}.cross_attn_rel_b.weight",
                                              .feed_forward_norm = "dec.blk.{}.ffn_norm.weight",
                                              .gate = "dec.blk.{}.ffn_gate.weight",
                                              .up = "dec.blk.{}.ffn_up.weight",
                                              .plain_up = "dec.blk.{}.ffn_up.weight",
                                              .down = "dec.blk.{}.ffn_down.weight",
                                              .final_norm = "dec.output_norm.weight",
                                              .copy = {}}};

class T5Reading {
 public:
  T5Reading(Checkpoint& checkpoint, T5Settings& settings)
      : reader_(checkpoint),
        settings_(settings),
        facts_(settings.facts),
        names_(checkpoint.gguf() != nullptr ? kT5GgufNames : kT5Names) {}

  [[nodiscard]] T5Weights run() {
    T5Weights weights;
    weights.embedding = embedding();
    // A stored head is the head, even with tie_word_embeddings: transformers 5 writes true for all of
    // these models, and stores the head of those that have one.
    const bool shared = settings_.ties_embeddings && !reader_.has(names_.head);
    weights.head =
        shared ? weights.embedding : matrix(names_.head, facts_.vocabulary, facts_.hidden);
    weights.encoder = stack(names_.encoder, facts_.encoder_layers);
    weights.decoder = stack(names_.decoder, facts_.decoder_layers);
    reader_.refuse_unread(facts_.model_type);
    facts_.parameters = reader_.parameters();
    facts_.weight_types.assign(reader_.types().begin(), reader_.types().end());
    return weights;
  }

 private:
  [[nodiscard]] Matrix matrix(std::string_view name, std::int64_t rows, std::int64_t columns) {
    Matrix read = reader_.matrix(name, rows, columns);
    facts_.weight_bytes += read.bytes();
    return read;
  }
  // Both stacks share it. Files hold it under one of its names, or under all of them.
  [[nodiscard]] Matrix embedding() {
    std::string_view name = names_.embedding;
    for (const std::string_view copy : {names_.encoder.copy, names_.decoder.copy}) {
      if (copy.empty() || !reader_.has(copy)) continue;
      if (!reader_.has(name)) name = copy;
      reader_.skip(copy);
    }
    return matrix(name, facts_.vocabulary, facts_.hidden);
  }
  [[nodiscard]] Matrix numbered_matrix(std::string_view pattern, std::int64_t layer,
                                       std::int64_t rows, std::int64_t columns) {
    return matrix(numbered(pattern, layer), rows, columns);
  }

  [[nodiscard]] T5Attention attention(std::string_view stem, std::string_view norm,
                                      std::int64_t layer) {
    const std::string at = numbered(stem, layer);
    const std::int64_t width = facts_.heads * facts_.head_dim, hidden = facts_.hidden;
    return {.norm = reader_.vector(numbered(norm, layer), hidden),
            .query = matrix(message(at, names_.query), width, hidden),
            .key = matrix(message(at, names_.key), width, hidden),
            .value = matrix(message(at, names_.value), width, hidden),
            .output = matrix(message(at, names_.output), hidden, width)};
  }

  [[nodiscard]] T5Stack stack(const T5StackNames& names, std::int64_t layers) {
    T5Stack stack;
    for (std::int64_t i = 0; i < layers; ++i) {
      T5Layer layer;
      layer.self = attention(names.self, names.self_norm, i);
      if (!names.cross.empty()) {
        layer.cross = attention(names.cross, names.cross_norm, i);
        reader_.skip(numbered(names.cross_bias, i));  // written by the first checkpoints; not used
      }
      layer.feed_forward_norm = reader_.vector(numbered(names.feed_forward_norm, i), facts_.hidden);
      if (settings_.gated)
        layer.gate = numbered_matrix(names.gate, i, facts_.intermediate, facts_.hidden);
      layer.up = numbered_matrix(settings_.gated ? names.up : names.plain_up, i,
                                 facts_.intermediate, facts_.hidden);
      layer.down = numbered_matrix(names.down, i, facts_.hidden, facts_.intermediate);
      stack.layers.push_back(std::move(layer));
      if (i == 0 || settings_.table_per_layer) stack.bias.push_back(bias(names, i));
    }
    stack.final_norm = reader_.vector(names.final_norm, facts_.hidden);
    return stack;
  }

  [[nodiscard]] std::vector<float> bias(const T5StackNames& names, std::int64_t layer) {
    const Matrix table = reader_.matrix(numbered(names.bias, layer), facts_.buckets, facts_.heads);
    const auto width = static_cast<std::size_t>(facts_.heads);
    std::vector<float> values(static_cast<std::size_t>(facts_.buckets) * width);
    for (std::int64_t row = 0; row < facts_.buckets; ++row) {
      table.row(row, std::span(values).subspan(static_cast<std::size_t>(row) * width, width));
    }
    return values;
  }

  WeightReader reader_;
  T5Settings& settings_;
  T5Facts& facts_;
  const T5Names& names_;
};

}  // namespace

T5Weights t5_weights(Checkpoint& checkpoint, T5Settings& settings) {
  return T5Reading(checkpoint, settings).run();
}

}  // namespace phasor::models
