// From a checkpoint's tensors to the weights of every layer.
#include <algorithm>
#include <array>

#include "models/decoder/state.hpp"
#include "phasor/io/internal/json.hpp"

namespace phasor::models {
namespace {

class Loader {
 public:
  explicit Loader(Checkpoint& checkpoint, DecoderSettings settings)
      : read_(checkpoint), settings_(std::move(settings)), names_(*settings_.family->names) {
    find_place();
  }

  [[nodiscard]] std::unique_ptr<Decoder::State> load() {
    auto state = std::make_unique<Decoder::State>();
    state->config = read_.checkpoint().config();
    const DecoderFacts& facts = settings_.facts;
    state->embedding = read_.matrix(weight(names_.embedding), facts.vocabulary, facts.hidden);
    read_positions(*state);
    if (!names_.embedding_norm.empty() && settings_.family->positions == Positions::alibi) {
      state->embedding_norm = norm(std::string(names_.embedding_norm), facts.hidden);
    }
    state->final_norm = norm(std::string(names_.final_norm), facts.hidden);
    state->head.matrix = head(state->embedding);
    if (wants_bias(settings_.family->head_bias, names_.head)) {
      state->head.bias = read_.vector(bias(names_.head), facts.vocabulary);
    }
    for (std::int64_t i = 0; i < facts.layers; ++i) {
      state->layers.push_back(layer(i));
      state->layers.back().group = group_of(state->config, i);
    }
    skip_buffers();
    read_.refuse_unread(facts.model_type);
    finish(*state);
    return state;
  }

 private:
  // Where the decoder is in its file: alone, without the names of its head, or as a part of a model of text
  // and images.
  void find_place() {
    for (const Place& place : {Place{}, Place{names_.prefix, ""}, Place{"", "language_model."},
                               Place{"model.", "model.language_model."}}) {
      place_ = place;
      if (read_.has(weight(names_.embedding))) return;
    }
    place_ = {};
  }
  [[nodiscard]] std::string placed(std::string_view stem) const {
    if (!stem.starts_with(place_.from)) return std::string(stem);
    return std::string(place_.to) + std::string(stem.substr(place_.from.size()));
  }
  [[nodiscard]] std::string weight(std::string_view stem) const { return placed(stem) + ".weight"; }
  [[nodiscard]] std::string bias(std::string_view stem) const { return placed(stem) + ".bias"; }

  [[nodiscard]] bool wants_bias(BiasRule rule, std::string_view stem) const {
    switch (rule) {
      case BiasRule::never:
        return false;
      case BiasRule::always:
        return true;
      case BiasRule::by_attention_bias:
        return settings_.attention_bias;
      case BiasRule::by_mlp_bias:
        return settings_.mlp_bias;
      case BiasRule::if_present:
        return read_.has(bias(stem));
    }
    return false;
  }

  [[nodiscard]] Norm norm(const std::string& stem, std::int64_t width) {
    Norm norm{read_.vector(weight(stem), width), {}};
    if (settings_.family->norm == NormKind::layer) norm.bias = read_.vector(bias(stem), width);
    return norm;
  }

  // Rows of the learned table: the longest sequence that the model can read.
  void read_positions(Decoder::State& state) {
    if (settings_.family->positions != Positions::learned) return;
    const std::string name = weight(names_.positions);
    if (const io::Tensor* table = read_.checkpoint().find(name);
        table != nullptr && !table->shape.empty()) {
      settings_.facts.position_limit = table->shape.front();
    }
    state.positions = read_.matrix(name, settings_.facts.position_limit, settings_.facts.hidden);
  }

  [[nodiscard]] Linear linear(const std::string& stem, std::int64_t rows, std::int64_t columns,
                              BiasRule rule) {
    Linear linear{matrix(stem, rows, columns, {{0, rows}}), {}};
    if (wants_bias(rule, stem)) linear.bias = read_.vector(bias(stem), rows);
    return linear;
  }

  // Some rows of a fused tensor, and the same rows of its bias.
  [[nodiscard]] Linear slice(const std::string& stem, std::int64_t rows, std::int64_t columns,
                             BiasRule rule, const std::vector<RowRange>& parts) {
    Linear linear{matrix(stem, rows, columns, parts), {}};
    if (!wants_bias(rule, stem)) return linear;
    const std::vector<float> all = read_.vector(bias(stem), rows);
    for (const RowRange& part : parts) {
      linear.bias.insert(linear.bias.end(), all.begin() + part.first,
                         all.begin() + part.first + part.count);
    }
    return linear;
  }

  [[nodiscard]] Matrix matrix(const std::string& stem, std::int64_t rows, std::int64_t columns,
                              const std::vector<RowRange>& parts) {
    return settings_.family->transposed ? read_.transposed(weight(stem), rows, columns, parts)
                                        : read_.matrix(weight(stem), rows, columns, parts);
  }

  [[nodiscard]] Matrix head(const Matrix& embedding) {
    const std::string name = weight(names_.head);
    if (!settings_.ties_embeddings) {
      return read_.matrix(name, settings_.facts.vocabulary, settings_.facts.hidden);
    }
    if (read_.has(name)) refuse_other_head(name);
    return embedding;
  }

  // Some checkpoints store the tied head twice; a different head must not be ignored.
  void refuse_other_head(const std::string& name) {
    const io::Tensor* const head = read_.checkpoint().find(name);
    const io::Tensor* const embedding = read_.checkpoint().find(weight(names_.embedding));
    if (io::same_bytes(*head, *embedding)) return;
    throw Error(ErrorCode::invalid_argument,
                message(read_.checkpoint().name(), ": tie_word_embeddings is true, but ", name,
                        " differs from the embedding"));
  }

  void attention(std::int64_t i, LayerWeights& layer) {
    const DecoderFacts& facts = settings_.facts;
    const std::int64_t d = facts.head_dim;
    const std::int64_t q = facts.heads * d;
    const std::int64_t k = facts.key_heads * d;
    const BiasRule rule = settings_.family->attention_bias;
    if (!is_fused(i)) {
      layer.query = linear(numbered(names_.query, i), q, facts.hidden, rule);
      layer.key = linear(numbered(names_.key, i), k, facts.hidden, rule);
      layer.value = linear(numbered(names_.value, i), k, facts.hidden, rule);
    } else {
      const std::string stem = numbered(names_.fused, i);
      const std::array<std::vector<RowRange>, 3> parts = fused_rows(q, k);
      layer.query = slice(stem, q + 2 * k, facts.hidden, rule, parts[0]);
      layer.key = slice(stem, q + 2 * k, facts.hidden, rule, parts[1]);
      layer.value = slice(stem, q + 2 * k, facts.hidden, rule, parts[2]);
    }
    layer.output =
        linear(numbered(names_.output, i), facts.hidden, q, settings_.family->output_bias);
    if (settings_.query_key_norm) {
      layer.query_norm = head_norm(names_.query_norm, i, facts.heads);
      layer.key_norm = head_norm(names_.key_norm, i, facts.key_heads);
    }
  }

  // GGUF files have one tensor or three, whatever the architecture.
  [[nodiscard]] bool is_fused(std::int64_t i) const {
    const DecoderFamily& family = *settings_.family;
    return family.format == WeightFormat::gguf ? read_.has(weight(numbered(names_.fused, i)))
                                               : family.order != HeadOrder::separate;
  }

  // One weight for all heads, a weight for every feature of every head, or a tensor for each head.
  [[nodiscard]] Norm head_norm(std::string_view pattern, std::int64_t i, std::int64_t heads) {
    const QueryKeyNorm kind = settings_.family->query_key_norm;
    const std::int64_t d = settings_.facts.head_dim;
    if (kind == QueryKeyNorm::each_head_if_present) return norm(numbered(pattern, i), d);
    Norm all;
    if (pattern.find("{}") == pattern.rfind("{}")) {
      const std::int64_t width = kind == QueryKeyNorm::each_head ? d : heads * d;
      all.weight = read_.values(weight(numbered(pattern, i)), width);
      return all;
    }
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::vector<float> one = read_.vector(weight(numbered(pattern, i, head)), d);
      all.weight.insert(all.weight.end(), one.begin(), one.end());
    }
    return all;
  }

  [[nodiscard]] std::array<std::vector<RowRange>, 3> fused_rows(std::int64_t q,
                                                                std::int64_t k) const {
    if (settings_.family->order == HeadOrder::sections) {
      return {{{{0, q}}, {{q, k}}, {{q + k, k}}}};
    }
    const std::int64_t d = settings_.facts.head_dim;
    std::array<std::vector<RowRange>, 3> parts;
    for (std::int64_t head = 0; head < settings_.facts.heads; ++head) {
      for (std::int64_t part = 0; part < 3; ++part) {
        parts[static_cast<std::size_t>(part)].push_back({(3 * head + part) * d, d});
      }
    }
    return parts;
  }

  void feed_forward(std::int64_t i, LayerWeights& layer) {
    const std::int64_t hidden = settings_.facts.hidden;
    const std::int64_t wide = settings_.facts.intermediate;
    const BiasRule rule = settings_.family->feed_forward_bias;
    if (settings_.feed_forward == FeedForward::experts) return experts(i, layer);
    Expert& ffn = layer.feed_forward;
    if (settings_.feed_forward == FeedForward::gated_fused) {
      const std::string stem = numbered(names_.gate, i);
      ffn.gate = slice(stem, 2 * wide, hidden, rule, {{0, wide}});
      ffn.up = slice(stem, 2 * wide, hidden, rule, {{wide, wide}});
    } else {
      if (settings_.feed_forward == FeedForward::gated) {
        ffn.gate = linear(numbered(names_.gate, i), wide, hidden, rule);
      }
      ffn.up = linear(numbered(names_.up, i), wide, hidden, rule);
    }
    ffn.down = linear(numbered(names_.down, i), hidden, wide, rule);
  }

  void experts(std::int64_t i, LayerWeights& layer) {
    const DecoderFacts& facts = settings_.facts;
    layer.router = linear(numbered(names_.router, i), facts.experts, facts.hidden, BiasRule::never);
    for (std::int64_t e = 0; e < facts.experts; ++e) {
      Expert expert;
      expert.gate.matrix =
          expert_matrix(names_.expert_gate, i, e, facts.intermediate, facts.hidden);
      expert.up.matrix = expert_matrix(names_.expert_up, i, e, facts.intermediate, facts.hidden);
      expert.down.matrix =
          expert_matrix(names_.expert_down, i, e, facts.hidden, facts.intermediate);
      layer.experts.push_back(std::move(expert));
    }
  }

  // GGUF stacks the experts of a layer in one tensor.
  [[nodiscard]] Matrix expert_matrix(std::string_view pattern, std::int64_t layer,
                                     std::int64_t expert, std::int64_t rows, std::int64_t columns) {
    const std::string name = weight(numbered(pattern, layer, expert));
    if (settings_.family->format == WeightFormat::safetensors) {
      return read_.matrix(name, rows, columns);
    }
    return read_.matrix_of_stack(name, settings_.facts.experts, expert, rows, columns);
  }

  [[nodiscard]] LayerWeights layer(std::int64_t i) {
    LayerWeights layer;
    const std::int64_t hidden = settings_.facts.hidden;
    const Block block = settings_.block;
    if (block != Block::after) {
      layer.attention_norm = norm(numbered(names_.attention_norm, i), hidden);
    }
    if (block != Block::after && block != Block::parallel) {
      layer.feed_forward_norm = norm(numbered(names_.feed_forward_norm, i), hidden);
    }
    if (block == Block::after || block == Block::sandwich) {
      layer.after_attention = norm(numbered(names_.after_attention_norm, i), hidden);
      layer.after_feed_forward = norm(numbered(names_.after_feed_forward_norm, i), hidden);
    }
    attention(i, layer);
    feed_forward(i, layer);
    return layer;
  }

  // Causal masks and frequencies that older code saved with the weights, which follow from the config, and
  // the weights of other parts.
  void skip_buffers() {
    constexpr std::array<std::string_view, 6> kSuffixes = {
        ".rotary_emb.inv_freq", ".attention.bias",   ".attention.masked_bias",
        ".attn.bias",           ".attn.masked_bias", ".attn.embed_positions"};
    constexpr std::array<std::string_view, 3> kFactors = {
        "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"};
    for (const std::string& name : read_.checkpoint().unread()) {
      const bool buffer = std::any_of(kSuffixes.begin(), kSuffixes.end(),
                                      [&](std::string_view end) { return name.ends_with(end); });
      // config_of_gguf has read these.
      const bool factor = std::find(kFactors.begin(), kFactors.end(), name) != kFactors.end();
      // Of a model of several parts, the others.
      const bool other = !read_.checkpoint().config().part.empty() && !place_.to.empty() &&
                         !name.starts_with(place_.to) && !name.starts_with(names_.head);
      if (buffer || factor || other) read_.skip(name);
    }
  }

  [[nodiscard]] static std::size_t group_of(const config::ModelConfig& config, std::int64_t layer) {
    for (std::size_t g = 0; g < config.groups.size(); ++g) {
      const std::vector<std::int64_t>& layers = config.groups[g].layers;
      if (layers.empty() || std::find(layers.begin(), layers.end(), layer) != layers.end()) {
        if (!layers.empty() || config.groups.size() == 1) return g;
      }
    }
    throw Error(ErrorCode::invalid_argument,
                message("layer ", layer, ": the config does not describe its rotation"));
  }

  void finish(Decoder::State& state) {
    DecoderFacts& facts = settings_.facts;
    facts.parameters = read_.parameters();
    facts.weight_types.assign(read_.types().begin(), read_.types().end());
    facts.weight_bytes = state.embedding.bytes();
    if (!settings_.ties_embeddings) facts.weight_bytes += state.head.matrix.bytes();
    if (!state.positions.empty()) facts.weight_bytes += state.positions.bytes();
    const auto add = [&](const Linear& linear) {
      if (!linear.matrix.empty()) facts.weight_bytes += linear.matrix.bytes();
    };
    for (const LayerWeights& layer : state.layers) {
      for (const Linear* linear :
           {&layer.query, &layer.key, &layer.value, &layer.output, &layer.feed_forward.gate,
            &layer.feed_forward.up, &layer.feed_forward.down, &layer.router}) {
        add(*linear);
      }
      for (const Expert& expert : layer.experts) {
        for (const Linear* linear : {&expert.gate, &expert.up, &expert.down}) add(*linear);
      }
    }
    state.settings = std::move(settings_);
  }

  WeightReader read_;
  DecoderSettings settings_;
  const config::TensorNames& names_;
  struct Place {
    std::string_view from = {}, to = {};  // beginnings of names: of the table, and of the file
  } place_;
};

}  // namespace

std::unique_ptr<Decoder::State> load_decoder(Checkpoint& checkpoint) {
  return Loader(checkpoint, read_settings(checkpoint)).load();
}

}  // namespace phasor::models
