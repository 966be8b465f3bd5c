#include <array>
#include <string_view>
#include <utility>

#include "models/roformer/parts.hpp"
#include "phasor/config/internal/json_reader.hpp"

namespace phasor::models {
namespace {

using config::ObjectReader;

struct HeadName {
  std::string_view architecture;
  RoFormerHead head;
};
constexpr std::array kHeads = {
    HeadName{"RoFormerModel", RoFormerHead::none},
    HeadName{"RoFormerForMaskedLM", RoFormerHead::masked_lm},
    HeadName{"RoFormerForSequenceClassification", RoFormerHead::classification},
    HeadName{"RoFormerForCausalLM", RoFormerHead::causal_lm},
    HeadName{"RoFormerForTokenClassification", RoFormerHead::token_classification},
    HeadName{"RoFormerForQuestionAnswering", RoFormerHead::question_answering},
};

[[nodiscard]] std::string known_heads() {
  std::string text;
  for (const HeadName& known : kHeads)
    text += (text.empty() ? "" : ", ") + std::string(known.architecture);
  return text;
}

[[nodiscard]] std::int64_t size_or(const ObjectReader& top, std::string_view key,
                                   std::int64_t absent) {
  const std::int64_t size = top.integer(key).value_or(absent);
  if (size <= 0) top.refuse(key, message("must be a positive integer, got ", size));
  return size;
}

// Attention is causal for every head if is_decoder is set; without it, for none.
void read_causality(const ObjectReader& top, RoFormerFacts& facts) {
  facts.is_causal = top.flag("is_decoder").value_or(false);
  if (top.flag("add_cross_attention").value_or(false)) {
    top.refuse_as(ErrorCode::unsupported, "add_cross_attention",
                  "must be false (there is no encoder to attend to), got true");
  }
}

void read_head(const ObjectReader& top, RoFormerSettings& settings) {
  const auto architectures = top.texts("architectures");
  if (!architectures || architectures->empty()) return;
  for (const HeadName& known : kHeads) {
    if (architectures->front() == known.architecture) {
      settings.facts.head = known.head;
      settings.head_known = true;
      return;
    }
  }
  top.refuse_as(ErrorCode::unsupported, "architectures",
                message("must be one of ", known_heads(), ", got ", architectures->front()));
}

// Hugging Face omits id2label for its default of two labels.
void read_labels(const ObjectReader& top, RoFormerFacts& facts) {
  const std::optional<ObjectReader> names = top.object("id2label");
  constexpr std::int64_t kDefaultLabels = 2;
  facts.labels = names ? static_cast<std::int64_t>(names->keys().size())
                       : size_or(top, "num_labels", kDefaultLabels);
  if (facts.labels < 1) top.refuse("id2label", "must have at least one label");
  for (std::int64_t label = 0; names && label < facts.labels; ++label) {
    const std::string key = std::to_string(label);
    const std::optional<std::string> name = names->text(key);
    if (!name) names->refuse(key, "the name of this label is missing");
    facts.label_names.push_back(io::one_line(*name));
  }
}

void read_sizes(const ObjectReader& top, RoFormerSettings& settings) {
  RoFormerFacts& facts = settings.facts;
  facts.vocabulary = size_or(top, "vocab_size", 50000);
  facts.hidden = size_or(top, "hidden_size", 768);
  facts.embedding = size_or(top, "embedding_size", facts.hidden);
  facts.layers = size_or(top, "num_hidden_layers", 12);
  facts.heads = size_or(top, "num_attention_heads", 12);
  facts.token_types = size_or(top, "type_vocab_size", 2);
  facts.trained_length = size_or(top, "max_position_embeddings", 1536);
  settings.intermediate = size_or(top, "intermediate_size", 3072);
  settings.epsilon = top.number("layer_norm_eps").value_or(1e-12);
  if (!(settings.epsilon >= 0.0)) {
    top.refuse("layer_norm_eps", message("must be at least 0, got ", settings.epsilon));
  }
  if (facts.hidden % facts.heads != 0) {
    top.refuse("hidden_size", message("must be a multiple of num_attention_heads ", facts.heads,
                                      ", got ", facts.hidden));
  }
  facts.head_dim = facts.hidden / facts.heads;
  if (facts.head_dim % 2 != 0) {
    top.refuse("hidden_size", message("must give an even head_dim, got ", facts.head_dim));
  }
}

void read_rope(const Checkpoint& checkpoint, RoFormerSettings& settings) {
  const config::ModelConfig& config = checkpoint.config();
  if (config.groups.size() != 1 || !config.groups.front().rope) {
    refuse(ErrorCode::unsupported, message("all layers must have the same RoPE, got ",
                                           config.groups.size(), " groups of layers"));
  }
  settings.rope = *config.groups.front().rope;
  settings.rotates_values = config.rotates_values;
  if (settings.rope.head_dim != settings.facts.head_dim) {
    refuse(ErrorCode::shape_mismatch,
           message("head_dim must be hidden_size / num_attention_heads, ", settings.facts.head_dim,
                   ", got ", settings.rope.head_dim));
  }
}

}  // namespace

RoFormerSettings roformer_settings(const Checkpoint& checkpoint) {
  if (checkpoint.config().model_type != "roformer" || checkpoint.gguf() != nullptr) {
    refuse(ErrorCode::unsupported,
           message(checkpoint.name(), ": model_type must be roformer, got '",
                   checkpoint.config().model_type, "'",
                   checkpoint.gguf() != nullptr ? " in a GGUF file" : ""));
  }
  try {
    const io::Json json = io::parse_object(checkpoint.config_json());
    const ObjectReader top(json);
    RoFormerSettings settings;
    read_causality(top, settings.facts);
    read_head(top, settings);
    read_sizes(top, settings);
    read_rope(checkpoint, settings);
    read_labels(top, settings.facts);
    settings.activation = activation_of(top.text("hidden_act").value_or("gelu"));
    settings.tied = top.flag("tie_word_embeddings").value_or(true);
    return settings;
  } catch (const Error& error) {
    throw io::in_file(checkpoint.name(), error);
  }
}

}  // namespace phasor::models
