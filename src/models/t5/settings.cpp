// The numbers of a T5, from config.json or GGUF metadata.
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

#include "models/t5/parts.hpp"
#include "phasor/config/internal/families.hpp"
#include "phasor/config/internal/json_reader.hpp"
#include "phasor/io/internal/file_text.hpp"

namespace phasor::models {
namespace {

// Far above every real model: a damaged header must not allocate all memory.
constexpr std::int64_t kMostT5Layers = 4096;
constexpr std::int64_t kWidestT5 = std::int64_t{1} << 24;

[[nodiscard]] std::int64_t t5_size(const std::string& key, std::int64_t value, std::int64_t most) {
  if (value < 1 || value > most)
    refuse(message(key, ": must be from 1 to ", most, ", got ", value));
  return value;
}

[[nodiscard]] double t5_epsilon(const std::string& key, double value) {
  if (!(value > 0.0 && value < 1.0)) {
    refuse(message(key, ": must be between 0 and 1, got ", value));
  }
  return value;
}

// "relu", "gated-gelu", ...: the last word is the activation. gated-gelu means the tanh form, with which
// these models were trained.
void read_t5_activation(const std::string& name, T5Settings& settings) {
  constexpr std::string_view kGated = "gated-";
  settings.gated = name.starts_with(kGated);
  const std::string_view last = std::string_view(name).substr(settings.gated ? kGated.size() : 0);
  settings.activation = name == "gated-gelu" ? Activation::gelu_tanh : activation_of(last);
}

// T5 1.0 shares the head with the embedding, whose numbers are large.
void scale_output(T5Settings& settings) {
  settings.output_scale = 1.0 / std::sqrt(static_cast<double>(settings.facts.hidden));
}

void read_t5_json(const Checkpoint& checkpoint, T5Settings& settings) {
  const config::Json object = io::parse_object(checkpoint.config_json());
  const config::ObjectReader top(object);
  const config::Family& family = *config::find_family(settings.facts.model_type);
  const config::PositionFacts positions = config::position_facts(family.model_type).front();
  T5Facts& facts = settings.facts;
  const auto size = [&](std::string_view key, std::int64_t most = kWidestT5) {
    return t5_size(std::string(key), top.required_integer(key), most);
  };
  facts.hidden = size("d_model");
  facts.head_dim = size("d_kv");
  facts.intermediate = size("d_ff");
  facts.heads = size("num_heads");
  facts.vocabulary = size("vocab_size");
  facts.encoder_layers = size("num_layers", kMostT5Layers);
  facts.decoder_layers = top.has("num_decoder_layers") ? size("num_decoder_layers", kMostT5Layers)
                                                       : facts.encoder_layers;
  facts.buckets =
      t5_size(std::string(positions.buckets_key),
              top.integer(positions.buckets_key).value_or(positions.buckets), kWidestT5);
  facts.max_distance =
      t5_size(std::string(positions.distance_key),
              top.integer(positions.distance_key).value_or(positions.distance), kWidestT5);
  settings.table_per_layer = positions.table_per_layer;
  settings.epsilon =
      t5_epsilon("layer_norm_epsilon", top.number("layer_norm_epsilon").value_or(1e-6));
  const config::EncoderDecoderPart& part = *family.encoder_decoder;
  read_t5_activation(top.text("feed_forward_proj").value_or(std::string(part.feed_forward)),
                     settings);
  settings.ties_embeddings = top.flag("tie_word_embeddings").value_or(true);
  if (part.scales_output && top.flag("scale_decoder_outputs").value_or(settings.ties_embeddings)) {
    scale_output(settings);
  }
  // T5 was trained with its padding token in front of every answer.
  facts.start_token =
      top.integer("decoder_start_token_id").value_or(top.integer("pad_token_id").value_or(0));
  facts.stops = top.value("eos_token_id").is_array()
                    ? *top.integers("eos_token_id")
                    : std::vector<std::int64_t>{top.integer("eos_token_id").value_or(1)};
}

void read_t5_metadata(const io::GgufFile& file, T5Settings& settings) {
  T5Facts& facts = settings.facts;
  const auto name_of_key = [](std::string_view key) { return message("t5.", key); };
  const auto integer = [&](std::string_view key) {
    return file.integer(name_of_key(key)).value_or_throw();
  };
  const auto size = [&](std::string_view key, std::int64_t most = kWidestT5) {
    const std::optional<std::int64_t> value = integer(key);
    if (!value) refuse(message("missing key \"", name_of_key(key), "\""));
    return t5_size(name_of_key(key), *value, most);
  };
  facts.hidden = size("embedding_length");
  facts.intermediate = size("feed_forward_length");
  facts.heads = size("attention.head_count");
  facts.head_dim =
      integer("attention.key_length") ? size("attention.key_length") : facts.hidden / facts.heads;
  facts.encoder_layers = size("block_count", kMostT5Layers);
  facts.decoder_layers = integer("decoder_block_count") ? size("decoder_block_count", kMostT5Layers)
                                                        : facts.encoder_layers;
  facts.buckets = size("attention.relative_buckets_count");
  facts.max_distance = 128;  // the format has no key for it
  constexpr std::string_view kEpsilon = "attention.layer_norm_rms_epsilon";
  settings.epsilon = t5_epsilon(name_of_key(kEpsilon),
                                file.number(name_of_key(kEpsilon)).value_or_throw().value_or(1e-6));
  const io::Tensor* const embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    refuse("tensor token_embd.weight is missing, or is not a matrix");
  }
  facts.vocabulary = embedding->shape.front();
  // The format has no key for it either: its files hold ReLU models and gated ones with tanh-GELU.
  settings.gated = file.find("enc.blk.0.ffn_gate.weight") != nullptr;
  settings.activation = settings.gated ? Activation::gelu_tanh : Activation::relu;
  settings.table_per_layer = file.find("enc.blk.1.attn_rel_b.weight") != nullptr;
  settings.ties_embeddings = file.find("output.weight") == nullptr;
  if (settings.ties_embeddings) scale_output(settings);
  const auto token = [&](std::string_view key) {
    return file.integer(message("tokenizer.ggml.", key)).value_or_throw();
  };
  facts.start_token =
      integer("decoder_start_token_id").value_or(token("padding_token_id").value_or(0));
  if (const std::optional<std::int64_t> stop = token("eos_token_id")) facts.stops = {*stop};
}

void check_t5(const T5Settings& settings) {
  const T5Facts& facts = settings.facts;
  if (facts.heads * facts.head_dim > kWidestT5) {
    refuse(message("num_heads: must be at most ", kWidestT5 / facts.head_dim, " with d_kv ",
                   facts.head_dim, ", got ", facts.heads));
  }
  if (facts.start_token < 0 || facts.start_token >= facts.vocabulary) {
    refuse(message("decoder_start_token_id: must be from 0 to ", facts.vocabulary - 1, ", got ",
                   facts.start_token));
  }
  // The same bounds as attention's, before a tensor is read.
  (void)encodings::t5_bucket(0, facts.buckets, facts.max_distance,
                             encodings::BucketRange::bidirectional);
}

}  // namespace

bool is_t5(std::string_view model_type) {
  const config::Family* const family = config::find_family(model_type);
  return family != nullptr && family->encoder_decoder.has_value();
}

T5Settings t5_settings(const Checkpoint& checkpoint) {
  try {
    T5Settings settings;
    settings.facts.model_type = checkpoint.config().model_type;
    if (!is_t5(settings.facts.model_type)) {
      refuse(ErrorCode::unsupported, message("model_type must be t5, mt5 or umt5, got '",
                                             io::one_line(settings.facts.model_type), "'"));
    }
    if (checkpoint.gguf() != nullptr) {
      read_t5_metadata(*checkpoint.gguf(), settings);
    } else {
      read_t5_json(checkpoint, settings);
    }
    check_t5(settings);
    return settings;
  } catch (const Error& error) {
    throw io::in_file(checkpoint.name(), error);
  }
}

}  // namespace phasor::models
