#include "config/hf/layer_plan.hpp"

#include "config/hf/model_keys.hpp"

#include <algorithm>

namespace phasor::config {
namespace {

// Far more layers than any model has; keeps a damaged config from filling the memory.
[[nodiscard]] std::optional<std::int64_t> layer_count(const ObjectReader& top,
                                                      const RotaryFacts* family) {
  for (const std::string_view key : {"num_hidden_layers", "n_layer", "num_layers", "n_layers"}) {
    if (const std::optional<std::int64_t> count = top.integer(key)) {
      if (*count < 1 || *count > kMaxLayers) {
        top.refuse(key, message("must be from 1 to ", kMaxLayers, ", got ", *count));
      }
      return count;
    }
  }
  if (family != nullptr && family->sizes.layers > 0 && is_part(top)) return family->sizes.layers;
  return std::nullopt;
}

[[nodiscard]] std::int64_t interval_of(const ObjectReader& top, const RotaryFacts& family) {
  for (const std::string_view key :
       {"no_rope_layer_interval", "sliding_window_pattern", "_sliding_window_pattern",
        "global_attn_every_n_layers", "full_attention_interval"}) {
    // EXAONE 4 writes "LLLG": local layers, then a global one.
    if (top.value(key).is_string()) {
      const std::string pattern = *top.text(key);
      if (pattern.empty() || pattern.find_first_not_of('L') != pattern.size() - 1 ||
          pattern.back() != 'G') {
        top.refuse(
            key, message("must be an integer or a pattern like LLLG, got ", shown(top.value(key))));
      }
      return static_cast<std::int64_t>(pattern.size());
    }
    if (const std::optional<std::int64_t> interval = top.integer(key)) {
      if (*interval < 1) top.refuse(key, message("must be a positive integer, got ", *interval));
      return *interval;
    }
  }
  return family.layer_interval;
}

// 1 where a layer rotates, as Llama 4 and SmolLM3 write it; an empty list means the interval.
[[nodiscard]] LayerPlan read_unrotated(const ObjectReader& top, const RotaryFacts& family,
                                       std::optional<std::int64_t> count) {
  constexpr std::string_view kKey = "no_rope_layers";
  LayerPlan plan;
  const std::int64_t interval = interval_of(top, family);
  const std::vector<std::int64_t> listed = top.integers(kKey).value_or(std::vector<std::int64_t>{});
  if (!listed.empty()) {
    if (count && *count != static_cast<std::int64_t>(listed.size())) {
      top.refuse(kKey,
                 message("must have one entry per layer (", *count, "), got ", listed.size()));
    }
    for (const std::int64_t rotates : listed) {
      if (rotates != 0 && rotates != 1)
        top.refuse(kKey, message("entries must be 0 or 1, got ", rotates));
      plan.types.emplace_back(rotates == 1 ? "rope" : "no_rope");
    }
    return plan;
  }
  for (std::int64_t layer = 0; layer < count.value_or(0); ++layer) {
    plan.types.emplace_back((layer + 1) % interval == 0 ? "no_rope" : "rope");
  }
  return plan;
}

// Layers of one type by their indices: attention among recurrent layers (Bamba), attention to an image
// among others (Llama 3.2 Vision).
struct ListedTypes {
  std::string_view listed, others;
};
[[nodiscard]] LayerPlan read_listed_layers(const ObjectReader& top, std::string_view key,
                                           std::optional<std::int64_t> count,
                                           const ListedTypes& types) {
  LayerPlan plan;
  if (!count) return plan;
  plan.types.assign(static_cast<std::size_t>(*count), std::string(types.others));
  const std::vector<std::int64_t> listed = top.integers(key).value_or(std::vector<std::int64_t>());
  for (const std::int64_t layer : listed) {
    if (layer < 0 || layer >= *count) {
      top.refuse(key, message("entries must be from 0 to ", *count - 1, ", got ", layer));
    }
    plan.types[static_cast<std::size_t>(layer)] = types.listed;
  }
  return plan;
}

// Attention in layers offset, offset + period, ... among recurrent ones (Jamba).
[[nodiscard]] LayerPlan read_periodic_layers(const ObjectReader& top,
                                             std::optional<std::int64_t> count) {
  constexpr std::string_view kPeriod = "attn_layer_period", kOffset = "attn_layer_offset";
  const std::int64_t period = top.integer(kPeriod).value_or(1);
  const std::int64_t offset = top.integer(kOffset).value_or(0);
  if (period < 1) top.refuse(kPeriod, message("must be a positive integer, got ", period));
  if (offset < 0) top.refuse(kOffset, message("must not be negative, got ", offset));
  LayerPlan plan;
  for (std::int64_t layer = 0; layer < count.value_or(0); ++layer)
    plan.types.emplace_back(layer % period == offset % period ? "attention" : "mamba");
  return plan;
}

// One letter per layer (Nemotron-H).
[[nodiscard]] LayerPlan read_lettered_layers(const ObjectReader& top, std::string_view key) {
  LayerPlan plan;
  const std::string letters = *top.text(key);
  if (letters.size() > static_cast<std::size_t>(kMaxLayers))
    top.refuse(key, message("must have at most ", kMaxLayers, " letters, got ", letters.size()));
  for (const char letter : letters) {
    const std::string_view type = letter == 'M'   ? "mamba"
                                  : letter == '*' ? "attention"
                                  : letter == '-' ? "mlp"
                                  : letter == 'E' ? "moe"
                                                  : "";
    if (type.empty())
      top.refuse(key, message("must have the letters M, *, - and E, got ", shown(top.value(key))));
    plan.types.emplace_back(type);
  }
  return plan;
}

// 1 where a layer has softmax attention, 0 where it is linear (MiniMax-Text-01).
[[nodiscard]] LayerPlan read_attention_kinds(const ObjectReader& top, std::string_view key,
                                             std::optional<std::int64_t> count) {
  LayerPlan plan;
  const std::vector<std::int64_t> kinds = *top.integers(key);
  if (count && *count != static_cast<std::int64_t>(kinds.size())) {
    top.refuse(key, message("must have one entry per layer (", *count, "), got ", kinds.size()));
  }
  for (const std::int64_t kind : kinds) {
    if (kind != 0 && kind != 1) top.refuse(key, message("entries must be 0 or 1, got ", kind));
    plan.types.emplace_back(kind == 1 ? kFullAttention : kLinearAttention);
  }
  return plan;
}

// Kimi Linear counts layers from 1.
[[nodiscard]] LayerPlan read_linear_config(const ObjectReader& top,
                                           std::optional<std::int64_t> count) {
  constexpr std::string_view kKey = "full_attn_layers";
  const ObjectReader linear = *top.object("linear_attn_config");
  LayerPlan plan;
  if (!count) return plan;
  plan.types.assign(static_cast<std::size_t>(*count), std::string(kLinearAttention));
  const std::vector<std::int64_t> full =
      linear.integers(kKey).value_or(std::vector<std::int64_t>());
  for (const std::int64_t layer : full) {
    if (layer < 1 || layer > *count)
      linear.refuse(kKey, message("entries must be from 1 to ", *count, ", got ", layer));
    plan.types[static_cast<std::size_t>(layer - 1)] = kFullAttention;
  }
  return plan;
}

// The keys of models whose layers are of several kinds; nullopt: the config has none of them.
[[nodiscard]] std::optional<LayerPlan> read_hybrid_layers(const ObjectReader& top,
                                                          const RotaryFacts* family,
                                                          std::optional<std::int64_t> count) {
  // Without a list, no layer of Bamba attends.
  const bool listed = family != nullptr && family->layers == LayerRule::listed;
  if (listed || top.has("attn_layer_indices")) {
    return read_listed_layers(top, "attn_layer_indices", count, {kFullAttention, "mamba"});
  }
  if (top.has("full_attn_idxs"))
    return read_listed_layers(top, "full_attn_idxs", count, {kFullAttention, "conv"});
  if (top.has("cross_attention_layers")) {
    return read_listed_layers(top, "cross_attention_layers", count,
                              {"cross_attention", kFullAttention});
  }
  if (top.has("attn_type_list")) return read_attention_kinds(top, "attn_type_list", count);
  if (top.has("hybrid_override_pattern"))
    return read_lettered_layers(top, "hybrid_override_pattern");
  if (top.has("attn_layer_period")) return read_periodic_layers(top, count);
  if (top.value("linear_attn_config").is_object()) return read_linear_config(top, count);
  if (const std::optional<std::vector<std::string>> types =
          top.value("attention_layers").is_array() ? top.texts("attention_layers") : std::nullopt) {
    LayerPlan plan;
    for (const std::string& type : *types) top.require_name("attention_layers", type);
    plan.types = *types;
    return plan;
  }
  if (const std::optional<std::vector<std::string>> pattern = top.texts("block_types");
      pattern && !pattern->empty()) {
    LayerPlan plan;
    for (const std::string& type : *pattern) top.require_name("block_types", type);
    for (std::int64_t layer = 0; layer < count.value_or(0); ++layer)
      plan.types.push_back((*pattern)[static_cast<std::size_t>(layer) % pattern->size()]);
    return plan;
  }
  return std::nullopt;
}

// Cohere 2 MoE: full-attention layers with a dense feed-forward rotate, unless those layers have a pattern
// of their own.
void name_dense_layers(const ObjectReader& top, LayerPlan& plan) {
  const std::int64_t pattern = top.integer("prefix_dense_sliding_window_pattern").value_or(1);
  const std::vector<std::string> kinds =
      top.texts("mlp_layer_types").value_or(std::vector<std::string>());
  for (std::size_t layer = 0; layer < std::min(kinds.size(), plan.types.size()); ++layer) {
    if (pattern == 1 && kinds[layer] == "dense" && plan.types[layer] == kFullAttention)
      plan.types[layer] = kDenseAttention;
  }
}

}  // namespace

std::vector<std::int64_t> LayerPlan::layers_of(std::string_view type) const {
  std::vector<std::int64_t> layers;
  for (std::size_t layer = 0; layer < types.size(); ++layer) {
    if (types[layer] == type) layers.push_back(static_cast<std::int64_t>(layer));
  }
  return layers;
}

bool LayerPlan::uses(std::string_view type) const {
  return std::find(types.begin(), types.end(), type) != types.end();
}

LayerPlan read_layer_plan(const ObjectReader& top, const RotaryFacts* family) {
  const std::optional<std::int64_t> count = layer_count(top, family);
  if (family != nullptr && family->layers == LayerRule::skip_interval)
    return read_unrotated(top, *family, count);

  LayerPlan plan;
  for (const std::string_view key : {"layer_types", "layers_block_type"}) {
    std::optional<std::vector<std::string>> types = top.texts(key);
    if (!types) continue;
    if (types->size() > static_cast<std::size_t>(kMaxLayers)) {
      top.refuse(key, message("must have at most ", kMaxLayers, " entries, got ", types->size()));
    }
    if (count && *count != static_cast<std::int64_t>(types->size())) {
      plan.note = KeyNote{top.path_of(key), message("has ", types->size(), " entries for ", *count,
                                                    " layers; layers are read by their index")};
    }
    for (const std::string& type : *types) top.require_name(key, type);
    plan.types = *std::move(types);
    if (family != nullptr && family->quirk == Quirk::dense_rotates) name_dense_layers(top, plan);
    return plan;
  }
  if (std::optional<LayerPlan> hybrid = read_hybrid_layers(top, family, count))
    return *std::move(hybrid);
  if (count && family != nullptr && family->layers != LayerRule::all_alike &&
      family->layer_interval == 0) {
    top.refuse_missing("layer_types", "no rule says which layers of this model are of which type");
  }
  const LayerRule rule = family == nullptr ? LayerRule::all_alike : family->layers;
  const std::int64_t interval = rule == LayerRule::all_alike ? 0 : interval_of(top, *family);
  const std::int64_t full = family != nullptr && family->full_first ? 0 : interval - 1;
  for (std::int64_t layer = 0; layer < count.value_or(0); ++layer) {
    const bool is_full = rule == LayerRule::all_alike || layer % interval == full;
    plan.types.emplace_back(is_full                         ? kFullAttention
                            : rule == LayerRule::linear_but ? kLinearAttention
                                                            : kSlidingAttention);
  }
  return plan;
}

bool never_rotates(std::string_view layer_type) noexcept {
  return layer_type == kLinearAttention || layer_type == "conv" || layer_type == "mamba" ||
         layer_type == "recurrent" || layer_type == "cross_attention" || layer_type == "mlp" ||
         layer_type == "moe";
}

}  // namespace phasor::config
