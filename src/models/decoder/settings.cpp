#include "models/decoder/settings.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <optional>

#include "phasor/config/internal/json_reader.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/tensors.hpp"

namespace phasor::models {
namespace {

// Far above every real model: a damaged header must not allocate all memory.
constexpr std::int64_t kMostLayers = 4096;
constexpr std::int64_t kWidest = std::int64_t{1} << 24;

// Keys that change what a layer computes, and that no family reads.
constexpr std::string_view kRefusedKeys[] = {"clip_qkv", "quantization_config"};
// Read by the families with multipliers.
constexpr std::string_view kMultipliers[] = {"attention_multiplier", "residual_multiplier",
                                             "embedding_multiplier", "logits_scaling"};
// Switches of single families that must be off.
constexpr std::string_view kRefusedFlags[] = {"use_bidirectional_attention", "add_cross_attention",
                                              "apply_residual_connection_post_layernorm"};

[[nodiscard]] std::int64_t in_range(std::string_view key, std::int64_t value, std::int64_t most) {
  if (value >= 1 && value <= most) return value;
  throw Error(ErrorCode::invalid_argument,
              message(key, ": must be from 1 to ", most, ", got ", value));
}

class HuggingFace {
 public:
  explicit HuggingFace(const config::ObjectReader& top) : top_(top) {}

  [[nodiscard]] std::int64_t integer(std::initializer_list<std::string_view> keys,
                                     std::int64_t most) const {
    for (const std::string_view key : keys) {
      if (const auto value = top_.integer(key)) return in_range(key, *value, most);
    }
    top_.refuse_missing(*keys.begin(), "expected an integer");
  }

  [[nodiscard]] double epsilon() const {
    for (const std::string_view key : {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"}) {
      if (const auto value = top_.number(key)) {
        if (*value > 0.0 && *value < 1.0) return *value;
        top_.refuse(key, message("must be between 0 and 1, got ", *value));
      }
    }
    top_.refuse_missing("rms_norm_eps", "expected a number");
  }

  [[nodiscard]] std::optional<Activation> activation() const {
    for (const std::string_view key : {"hidden_activation", "hidden_act", "activation_function"}) {
      if (const auto name = top_.text(key)) return activation_of(*name);
    }
    return std::nullopt;
  }

  // Null means none, even if the family has a default.
  [[nodiscard]] double soft_cap(std::string_view key, double otherwise) const {
    const double cap = top_.number(key).value_or(top_.has_even_null(key) ? 0.0 : otherwise);
    if (cap >= 0.0 && std::isfinite(cap)) return cap;
    top_.refuse(key, message("must be a positive number, got ", cap));
  }

  [[nodiscard]] double multiplier(std::string_view key) const {
    const double value = top_.number(key).value_or(1.0);
    if (value > 0.0 && std::isfinite(value)) return value;
    top_.refuse(key, message("must be a positive number, got ", value));
  }

  [[nodiscard]] std::vector<std::int64_t> stops() const {
    const config::Json& value = top_.value("eos_token_id");
    if (value.is_number_integer()) return {value.get<std::int64_t>()};
    if (value.is_array())
      return top_.integers("eos_token_id").value_or(std::vector<std::int64_t>{});
    return {};
  }

 private:
  const config::ObjectReader& top_;
};

[[nodiscard]] bool always_normalises(const DecoderFamily& family) {
  return family.query_key_norm == QueryKeyNorm::each_head ||
         family.query_key_norm == QueryKeyNorm::whole;
}

void read_experts(DecoderFacts& facts, const HuggingFace& read) {
  facts.experts = read.integer({"num_local_experts", "num_experts"}, 4096);
  facts.experts_used = read.integer({"num_experts_per_tok"}, facts.experts);
}

void refuse_keys(const config::ObjectReader& top, const DecoderFamily& family) {
  const auto refuse = [&](std::string_view key) {
    if (!top.has(key)) return;
    top.refuse_as(ErrorCode::unsupported, key,
                  message("not supported for model_type ", family.name, ", got ",
                          config::shown(top.value(key))));
  };
  std::for_each(std::begin(kRefusedKeys), std::end(kRefusedKeys), refuse);
  if (!family.multipliers) {
    std::for_each(std::begin(kMultipliers), std::end(kMultipliers), refuse);
  }
  for (const std::string_view key : kRefusedFlags) {
    if (!top.flag(key).value_or(false)) continue;
    top.refuse_as(ErrorCode::unsupported, key, "must be false for a decoder, got true");
  }
}

// Sizes that config::parse_config() leaves out for a model without rotation, and its factor on q.k.
void read_unrotated(const config::ObjectReader& top, const HuggingFace& read,
                    DecoderSettings& settings) {
  DecoderFacts& facts = settings.facts;
  facts.heads = read.integer({"num_attention_heads", "n_head"}, kWidest);
  facts.key_heads = facts.heads;
  if (facts.hidden % facts.heads != 0) {
    top.refuse("n_head", message("must divide the width ", facts.hidden, ", got ", facts.heads));
  }
  facts.head_dim = facts.hidden / facts.heads;
  for (const std::string_view key : {"n_positions", "max_position_embeddings", "seq_length"}) {
    if (facts.trained_length == 0 && top.has(key)) {
      facts.trained_length = read.integer({key}, kWidest);
    }
  }
  settings.scale_by_layer = top.flag("scale_attn_by_inverse_layer_idx").value_or(false);
  settings.softmax_scale = top.flag("scale_attn_weights").value_or(true)
                               ? 1.0 / std::sqrt(static_cast<double>(facts.head_dim))
                               : 1.0;
}

// The part of a config that describes the decoder: "text_config", or the config itself.
[[nodiscard]] config::ObjectReader part_of(config::ObjectReader reader, std::string_view path) {
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('.'), path.size());
    const std::optional<config::ObjectReader> inner = reader.object(path.substr(0, end));
    if (!inner) reader.refuse_missing(path, "expected an object");
    reader = *inner;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return reader;
}

void read_json(const Checkpoint& checkpoint, DecoderSettings& settings) {
  const config::Json object = io::parse_object(checkpoint.config_json());
  const config::ObjectReader whole(object);
  const config::ObjectReader top = part_of(whole, checkpoint.config().part);
  const DecoderFamily& family = *settings.family;
  refuse_keys(whole, family);
  refuse_keys(top, family);
  const HuggingFace read(top);
  DecoderFacts& facts = settings.facts;
  facts.layers = read.integer({"num_hidden_layers", "n_layer"}, kMostLayers);
  facts.hidden = read.integer({"hidden_size", "n_embd", "n_embed"}, kWidest);
  facts.vocabulary = read.integer({"vocab_size"}, kWidest);
  const bool has_width = top.has("intermediate_size") || top.has("n_inner");
  facts.intermediate = family.feed_forward_multiple != 0 && !has_width
                           ? family.feed_forward_multiple * facts.hidden
                           : read.integer({"intermediate_size", "n_inner"}, kWidest);
  if (settings.feed_forward == FeedForward::experts) read_experts(facts, read);
  facts.stops = (top.has("eos_token_id") ? read : HuggingFace(whole)).stops();
  settings.epsilon = read.epsilon();
  settings.activation = read.activation().value_or(family.activation);
  settings.final_soft_cap = read.soft_cap("final_logit_softcapping", family.final_soft_cap);
  settings.attention_soft_cap = read.soft_cap("attn_logit_softcapping", family.attention_soft_cap);
  const std::string_view kTied = "tie_word_embeddings";
  settings.ties_embeddings =
      (top.has(kTied) ? top : whole).flag(kTied).value_or(family.ties_embeddings);
  settings.query_key_norm =
      always_normalises(family) ||
      (family.query_key_norm != QueryKeyNorm::none &&
       (top.flag("use_qk_norm").value_or(false) || top.flag("qk_layernorm").value_or(false)));
  settings.attention_bias =
      top.flag(family.attention_bias_key).value_or(family.attention_bias_default);
  settings.mlp_bias = top.flag("mlp_bias").value_or(false);
  if (family.logit_scale) {
    settings.logit_scale = top.number("logit_scale").value_or(*family.logit_scale);
  }
  if (family.multipliers) {
    settings.embedding_scale = read.multiplier("embedding_multiplier");
    settings.residual_scale = read.multiplier("residual_multiplier");
    settings.logit_scale = 1.0 / read.multiplier("logits_scaling");
  }
  if (family.parallel_block) {
    const bool parallel =
        top.flag("use_parallel_residual").value_or(family.block != Block::sequential);
    settings.block = parallel ? *family.parallel_block : Block::sequential;
  }
  if (family.positions != Positions::rotary) read_unrotated(top, read, settings);
}

class Metadata {
 public:
  Metadata(const io::GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const {
    return file_.integer(prefix_ + std::string(key)).value_or_throw();
  }
  [[nodiscard]] std::int64_t required(std::string_view key, std::int64_t most) const {
    const std::optional<std::int64_t> value = integer(key);
    if (!value) {
      throw Error(ErrorCode::invalid_argument, message("missing key \"", prefix_, key, "\""));
    }
    return in_range(prefix_ + std::string(key), *value, most);
  }
  [[nodiscard]] std::optional<double> number(std::string_view key) const {
    return file_.number(prefix_ + std::string(key)).value_or_throw();
  }
  // 1 when it is missing or 0, as llama.cpp writes none.
  [[nodiscard]] double factor(std::string_view key) const {
    const double value = number(key).value_or(1.0);
    if (value == 0.0) return 1.0;
    if (value > 0.0 && std::isfinite(value)) return value;
    throw Error(ErrorCode::invalid_argument,
                message(prefix_, key, ": must be a positive number, got ", value));
  }
  [[nodiscard]] bool flag(std::string_view key, bool otherwise) const {
    return file_.flag(prefix_ + std::string(key)).value_or_throw().value_or(otherwise);
  }

 private:
  const io::GgufFile& file_;
  std::string prefix_;
};

void read_metadata(const io::GgufFile& file, DecoderSettings& settings) {
  const DecoderFamily& family = *settings.family;
  const Metadata read(file, family.name);
  DecoderFacts& facts = settings.facts;
  facts.layers = read.required("block_count", kMostLayers);
  facts.hidden = read.required("embedding_length", kWidest);
  facts.intermediate = read.required("feed_forward_length", kWidest);
  const io::Tensor* const embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    throw Error(ErrorCode::invalid_argument,
                "tensor token_embd.weight is missing, or is not a matrix");
  }
  facts.vocabulary = embedding->shape.front();
  facts.experts = read.integer("expert_count").value_or(0);
  if (facts.experts != 0) {
    facts.experts = in_range("expert_count", facts.experts, 4096);
    facts.experts_used = read.required("expert_used_count", facts.experts);
    facts.intermediate = read.integer("expert_feed_forward_length").value_or(facts.intermediate);
    settings.feed_forward = FeedForward::experts;
  }
  const std::optional<double> rms = read.number("attention.layer_norm_rms_epsilon");
  settings.epsilon = rms ? *rms : read.number("attention.layer_norm_epsilon").value_or(0.0);
  if (!(settings.epsilon > 0.0 && settings.epsilon < 1.0)) {
    throw Error(ErrorCode::invalid_argument,
                message("attention.layer_norm_rms_epsilon: must be between 0 and 1, got ",
                        settings.epsilon));
  }
  settings.activation = family.activation;
  settings.final_soft_cap = read.number("final_logit_softcapping").value_or(family.final_soft_cap);
  settings.attention_soft_cap =
      read.number("attn_logit_softcapping").value_or(family.attention_soft_cap);
  settings.ties_embeddings = file.find("output.weight") == nullptr && family.ties_embeddings;
  settings.query_key_norm =
      always_normalises(family) || (family.query_key_norm != QueryKeyNorm::none &&
                                    file.find("blk.0.attn_q_norm.weight") != nullptr);
  if (family.logit_scale) {
    settings.logit_scale = read.number("logit_scale").value_or(*family.logit_scale);
  }
  if (family.multipliers) {
    settings.embedding_scale = read.factor("embedding_scale");
    settings.residual_scale = read.factor("residual_scale");
    settings.logit_scale = 1.0 / read.factor("logit_scale");
  }
  if (family.parallel_block == Block::parallel) {
    // Converters write the key as true for every StableLM; the norm is what tells.
    const bool parallel = file.find("blk.0.ffn_norm.weight") == nullptr;
    settings.block = parallel ? Block::parallel : Block::sequential;
  } else if (family.parallel_block && !read.flag("use_parallel_residual", true)) {
    settings.block = Block::sequential;
  }
}

// The config must describe the positions of all layers, and the heads must divide.
void check_layers(const config::ModelConfig& config, DecoderSettings& settings) {
  DecoderFacts& facts = settings.facts;
  if (facts.heads == 0) {
    if (!config.heads || *config.heads < 1) {
      throw Error(ErrorCode::invalid_argument, "missing key \"num_attention_heads\"");
    }
    facts.heads = *config.heads;
    facts.key_heads = config.key_heads.value_or(facts.heads);
    facts.head_dim = config.head_dim;
    facts.trained_length = config.max_position.value_or(0);
  }
  if (facts.key_heads < 1 || facts.heads % facts.key_heads != 0 || facts.head_dim < 1) {
    throw Error(ErrorCode::invalid_argument,
                message("num_key_value_heads: must divide num_attention_heads ", facts.heads,
                        ", got ", facts.key_heads));
  }
  std::int64_t covered = 0;
  for (const config::LayerGroup& group : config.groups) {
    covered += static_cast<std::int64_t>(group.layers.size());
    if (group.rope && !std::holds_alternative<encodings::OneAxis>(group.rope->axes)) {
      throw Error(ErrorCode::unsupported,
                  "positions with several axes are not supported by the decoder of text");
    }
    if (!(group.softmax_scale > 0.0) && settings.softmax_scale == 0.0) {
      throw Error(ErrorCode::unsupported, "the config does not give the factor on q.k");
    }
  }
  if (covered != facts.layers && !(config.groups.size() == 1 && covered == 0)) {
    throw Error(ErrorCode::invalid_argument,
                message("the config describes ", covered, " of ", facts.layers, " layers"));
  }
}

[[noreturn]] void refuse_family(const std::string& name, WeightFormat format) {
  const std::string_view key = format == WeightFormat::gguf ? "architecture" : "model_type";
  const config::Family* row = config::find_family(name);
  refuse(ErrorCode::unsupported,
         name.empty() ? message("missing key \"", key, "\"; expected ", decoder_names(format))
         : row != nullptr && row->encoder
             ? message(key, " ", name, " is an encoder, not a decoder: see `phasor fill`")
         : row != nullptr && row->encoder_decoder
             ? message(key, " ", name, " is an encoder-decoder: see `phasor run` and `logits`")
             : message("the decoder does not support ", key, " \"", io::one_line(name),
                       "\"; expected ", decoder_names(format)));
}

}  // namespace

DecoderSettings read_settings(const Checkpoint& checkpoint) {
  const config::ModelConfig& config = checkpoint.config();
  const WeightFormat format =
      checkpoint.gguf() != nullptr ? WeightFormat::gguf : WeightFormat::safetensors;
  try {
    DecoderSettings settings;
    settings.family = find_decoder(config.model_type, format);
    if (settings.family == nullptr) refuse_family(config.model_type, format);
    settings.facts.model_type = config.model_type;
    settings.block = settings.family->block;
    settings.feed_forward = settings.family->feed_forward;
    if (format == WeightFormat::gguf) {
      read_metadata(*checkpoint.gguf(), settings);
    } else {
      read_json(checkpoint, settings);
    }
    check_layers(config, settings);
    if (settings.family->scales_embeddings) {
      settings.embedding_scale = std::sqrt(static_cast<double>(settings.facts.hidden));
    }
    return settings;
  } catch (const Error& error) {
    throw Error(error.code(), message(checkpoint.name(), ": ", error.what()));
  }
}

}  // namespace phasor::models
