#include "porting/convert/checkpoint_names.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "phasor/config/internal/families.hpp"
#include "phasor/core/internal/message_text.hpp"

namespace phasor::porting {
namespace {

using config::AttentionNames;
using config::HeadOrder;
using config::LayerGroup;
using config::ModelConfig;
using core::PairLayout;

// Prefixes of the text model. Tensors of the other towers are skipped; any other prefix is refused
// (an adapter's "base_model.", for example).
constexpr std::array<std::string_view, 14> kPrefixes = {"",
                                                        "model.",
                                                        "language_model.",
                                                        "language_model.model.",
                                                        "model.language_model.",
                                                        "encoder.",
                                                        "transformer.",
                                                        "gpt_neox.",
                                                        "transformer.encoder.",
                                                        "roformer.encoder.",
                                                        "esm.encoder.",
                                                        "bert.encoder.",
                                                        "text_model.",
                                                        "model.text_model."};
constexpr std::array<std::string_view, 6> kTowers = {
    "vision_tower.", "vision_model.", "visual.", "audio_tower.", "audio_model.", "vision_encoder."};

constexpr std::array<std::string_view, 3> kQueryNorms = {"q_norm", "q_layernorm",
                                                         "query_layernorm"};
constexpr std::array<std::string_view, 3> kKeyNorms = {"k_norm", "k_layernorm", "key_layernorm"};

// Tensors of the attention module that have no q or k features.
constexpr std::array<std::string_view, 18> kOthers = {"v_proj.",
                                                      "o_proj.",
                                                      "out_proj.",
                                                      "dense.",
                                                      "wv.",
                                                      "wo.",
                                                      "Wo.",
                                                      "rotary_emb.",
                                                      "sinks",
                                                      "attn_sub_norm.",
                                                      "self.value.",
                                                      "output.",
                                                      "self.rotary_embeddings.",
                                                      "LayerNorm.",
                                                      "bias",
                                                      "masked_bias",
                                                      "rotary.inv_freq",
                                                      "inv_freq"};

[[noreturn]] void refuse_tensors(const std::string& text) { refuse(ErrorCode::unsupported, text); }

struct Place {
  std::string_view prefix;
  std::int64_t layer = 0;
  std::string_view rest;  // inside the module: "q_proj.weight"
};

[[nodiscard]] std::optional<Place> place_in(const AttentionNames& names, std::string_view name) {
  for (std::size_t at = name.find(names.before); at != std::string_view::npos;
       at = name.find(names.before, at + 1)) {
    if (at > 0 && name[at - 1] != '.') continue;
    const std::string_view number = name.substr(at + names.before.size());
    Place place;
    place.prefix = name.substr(0, at);
    const auto [end, problem] =
        std::from_chars(number.data(), number.data() + number.size(), place.layer);
    if (problem != std::errc{} || place.layer < 0) continue;
    const std::string_view rest = number.substr(static_cast<std::size_t>(end - number.data()));
    if (!rest.starts_with(names.after)) continue;
    place.rest = rest.substr(names.after.size());
    return place;
  }
  return std::nullopt;
}

template <std::size_t N>
[[nodiscard]] bool one_of(const std::array<std::string_view, N>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

[[nodiscard]] bool in_tower(std::string_view prefix) {
  return std::any_of(kTowers.begin(), kTowers.end(), [&](std::string_view tower) {
    const std::size_t at = prefix.find(tower);
    return at != std::string_view::npos && (at == 0 || prefix[at - 1] == '.');
  });
}

// The tensors of one layer by their role, before their shapes are checked.
struct Module {
  struct Parts {
    const io::Tensor* weight = nullptr;
    const io::Tensor* bias = nullptr;
  };
  Parts queries, keys, values, query_norm, key_norm, output;
};

// The part that "stem.weight" or "stem.bias" names; null for other names.
[[nodiscard]] const io::Tensor** slot(Module::Parts& parts, std::string_view stem,
                                      std::string_view rest) {
  if (stem.empty() || !rest.starts_with(stem)) return nullptr;
  const std::string_view ending = rest.substr(stem.size());
  if (ending == ".weight") return &parts.weight;
  if (ending == ".bias") return &parts.bias;
  return nullptr;
}

[[nodiscard]] const io::Tensor** slot_of(const AttentionNames& names, Module& module,
                                         std::string_view rest) {
  if (auto* found = slot(module.queries, names.queries, rest)) return found;
  if (names.order == HeadOrder::separate) {
    if (auto* found = slot(module.keys, names.keys, rest)) return found;
    if (auto* found = slot(module.values, names.values, rest)) return found;
  }
  if (auto* found = slot(module.output, names.output, rest)) return found;
  for (const std::string_view norm : kQueryNorms) {
    if (auto* found = slot(module.query_norm, norm, rest)) return found;
  }
  for (const std::string_view norm : kKeyNorms) {
    if (auto* found = slot(module.key_norm, norm, rest)) return found;
  }
  return nullptr;
}

[[nodiscard]] std::map<std::int64_t, Module> collect(const AttentionNames& names,
                                                     std::span<const io::Tensor* const> tensors) {
  std::map<std::int64_t, Module> modules;
  for (const io::Tensor* tensor : tensors) {
    const std::optional<Place> place = place_in(names, tensor->name);
    if (!place || in_tower(place->prefix)) continue;
    const bool other = std::any_of(kOthers.begin(), kOthers.end(), [&](std::string_view stem) {
      return stem.ends_with('.') ? place->rest.starts_with(stem) : place->rest == stem;
    });
    const io::Tensor** found = slot_of(names, modules[place->layer], place->rest);
    if (found == nullptr && other) continue;
    if (found == nullptr) {
      refuse_tensors(
          message(tensor->name,
                  ": unknown tensor in an attention module (quantised checkpoints and adapters "
                  "cannot be converted)"));
    }
    if (!one_of(kPrefixes, place->prefix)) {
      refuse_tensors(message(tensor->name, ": unknown prefix \"", place->prefix, "\" before ",
                             names.before, "N"));
    }
    if (*found != nullptr) {
      refuse_tensors(
          message(tensor->name, ": the layer has the same tensor twice, also as ", (*found)->name));
    }
    *found = tensor;
  }
  std::erase_if(modules, [](const auto& entry) {
    return entry.second.queries.weight == nullptr && entry.second.keys.weight == nullptr;
  });
  return modules;
}

void check_type(const io::Tensor& tensor) {
  using io::TensorType;
  for (const TensorType type :
       {TensorType::f64, TensorType::f32, TensorType::f16, TensorType::bf16}) {
    if (tensor.type == type) return;
  }
  refuse_tensors(message(tensor.name, ": the type must be f64, f32, f16 or bf16, got ",
                         io::name_of(tensor.type)));
}

class Measure {
 public:
  Measure(const ModelConfig& config, const AttentionNames& names, UnknownModel unknown)
      : config_(config), names_(names), unknown_(unknown) {
    if (!config.heads) {
      refuse(ErrorCode::invalid_argument, "config: the number of attention heads is missing");
    }
    heads_ = *config.heads;
    key_heads_ = config.key_heads.value_or(heads_);
    if (heads_ < 1 || key_heads_ < 1 || heads_ % key_heads_ != 0) {
      refuse(ErrorCode::invalid_argument,
             message("config: the query heads must be a multiple of the key heads, got ", heads_,
                     " and ", key_heads_));
    }
  }

  [[nodiscard]] AttentionLayer layer(std::int64_t index, const encodings::RopeSpec& rope,
                                     const Module& module) const {
    AttentionLayer layer;
    layer.index = index;
    layer.rope = rope;
    const std::int64_t head_dim = rope.head_dim;
    if (module.queries.weight == nullptr) {
      refuse_tensors(
          message("layer ", index, ": has keys but no queries: ", module.keys.weight->name));
    }
    if (names_.order == HeadOrder::separate) {
      read_separate(module, head_dim, layer);
    } else {
      read_fused(module, head_dim, layer);
    }
    layer.query_norm = norm(module.query_norm, heads_, head_dim);
    layer.key_norm = norm(module.key_norm, key_heads_, head_dim);
    return layer;
  }

 private:
  void read_separate(const Module& module, std::int64_t head_dim, AttentionLayer& layer) const {
    layer.queries = rows(module.queries, heads_, head_dim);
    if (module.keys.weight == nullptr) {
      if (module.values.weight != nullptr) {
        refuse_tensors(message(module.queries.weight->name, ": ", names_.keys,
                               " of the same layer is missing"));
      }
      return;
    }
    if (module.values.weight == nullptr) {
      refuse_tensors(message(module.keys.weight->name, ": ", names_.values,
                             " of the same layer is missing: keys that serve as values cannot "
                             "be permuted"));
    }
    layer.keys = rows(module.keys, key_heads_, head_dim);
    if (!config_.rotates_values) return;
    layer.values = rows(module.values, key_heads_, head_dim);
    layer.output = module.output.weight;
    if (layer.output == nullptr) {
      refuse_tensors(message(module.values.weight->name,
                             ": rotated values need the output projection, which is missing"));
    }
    check(*layer.output, heads_ * head_dim,
          layer.output->shape.size() == 2 ? layer.output->shape.back() : -1);
  }

  void read_fused(const Module& module, std::int64_t head_dim, AttentionLayer& layer) const {
    if (config_.rotates_values) {
      refuse_tensors(message(module.queries.weight->name,
                             ": rotated values must have a separate tensor, got a fused one"));
    }
    const std::int64_t all = heads_ + 2 * key_heads_;
    const HeadRows fused = rows(module.queries, all, head_dim);
    if (names_.order == HeadOrder::sections) {
      FusedHeads split = split_fused(fused, heads_, key_heads_, head_dim);
      layer.queries = std::move(split.queries);
      layer.keys = std::move(split.keys);
      return;
    }
    // GPT-NeoX is the case of one query head to a key head.
    if (names_.order == HeadOrder::per_head && heads_ != key_heads_) {
      refuse_tensors(message(module.queries.weight->name,
                             ": this order of heads needs as many key heads as query heads, got ",
                             heads_, " query and ", key_heads_, " key heads"));
    }
    layer.queries = layer.keys = fused;
    layer.queries.first_row.clear();
    layer.keys.first_row.clear();
    const std::int64_t group = heads_ / key_heads_;
    for (std::int64_t key = 0; key < key_heads_; ++key) {
      const std::int64_t first = key * (group + 2);
      for (std::int64_t query = 0; query < group; ++query) {
        layer.queries.first_row.push_back((first + query) * head_dim);
      }
      layer.keys.first_row.push_back((first + group) * head_dim);
    }
  }

  [[nodiscard]] HeadRows rows(const Module::Parts& parts, std::int64_t heads,
                              std::int64_t head_dim) const {
    const std::vector<std::int64_t>& shape = parts.weight->shape;
    check(*parts.weight, heads * head_dim, shape.size() == 2 ? shape.front() : -1);
    if (parts.bias != nullptr) {
      check(*parts.bias, heads * head_dim,
            parts.bias->shape.size() == 1 ? parts.bias->shape.front() : -1);
    }
    return consecutive_heads(parts.weight, parts.bias, heads, head_dim);
  }

  void check(const io::Tensor& tensor, std::int64_t expected, std::int64_t got) const {
    if (got != expected) {
      refuse(ErrorCode::shape_mismatch,
             message(tensor.name, ": must have ", expected,
                     " features by the heads of the config, got the shape ",
                     core::shape_text(tensor.shape)));
    }
    if (unknown_ == UnknownModel::refuse) check_type(tensor);
  }

  [[nodiscard]] HeadNorm norm(const Module::Parts& parts, std::int64_t heads,
                              std::int64_t head_dim) const {
    for (const io::Tensor* tensor : {parts.weight, parts.bias}) {
      if (tensor == nullptr) continue;
      if (tensor->size() != head_dim && tensor->size() != heads * head_dim) {
        refuse(ErrorCode::shape_mismatch,
               message(tensor->name, ": must have ", head_dim, " or ", heads * head_dim,
                       " numbers, got the shape ", core::shape_text(tensor->shape)));
      }
      if (unknown_ == UnknownModel::refuse) check_type(*tensor);
    }
    return {parts.weight, parts.bias};
  }

  const ModelConfig& config_;
  const AttentionNames& names_;
  UnknownModel unknown_;
  std::int64_t heads_ = 0, key_heads_ = 0;
};

[[nodiscard]] const LayerGroup& group_of(const ModelConfig& config, std::int64_t layer) {
  for (const LayerGroup& group : config.groups) {
    if (std::find(group.layers.begin(), group.layers.end(), layer) != group.layers.end()) {
      return group;
    }
  }
  if (config.groups.size() == 1 && config.groups.front().layers.empty()) {
    return config.groups.front();
  }
  refuse_tensors(
      message("layer ", layer, ": has q and k tensors, but the config has no such layer"));
}

void check_all_there(const ModelConfig& config, const std::map<std::int64_t, Module>& modules) {
  for (const LayerGroup& group : config.groups) {
    if (!group.rope) continue;
    for (const std::int64_t layer : group.layers) {
      if (!modules.contains(layer)) {
        refuse_tensors(message("layer ", layer,
                               ": q and k projections are missing, by the names of model_type ",
                               config.model_type));
      }
    }
  }
}

[[nodiscard]] bool fit(const AttentionNames& names, std::span<const io::Tensor* const> tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const io::Tensor* tensor) {
    const std::optional<Place> place = place_in(names, tensor->name);
    return place && place->rest.starts_with(names.queries);
  });
}

// The names that fit: weights of a family may be published under two sets of names.
[[nodiscard]] const AttentionNames& names_for(const ModelConfig& config, UnknownModel unknown,
                                              std::span<const io::Tensor* const> tensors) {
  const config::Family* family = config::find_family(config.model_type);
  if (family != nullptr && family->latent_attention) {
    refuse_tensors(message("model_type ", config.model_type,
                           ": latent attention cannot be converted: q and k have no rows of their "
                           "own"));
  }
  if (family != nullptr && family->attention != nullptr) {
    const AttentionNames* other = family->published_attention;
    const bool published = other != nullptr && !fit(*family->attention, tensors);
    return published && fit(*other, tensors) ? *other : *family->attention;
  }
  if (unknown == UnknownModel::read_as_llama) return *config::find_family("llama")->attention;
  refuse_tensors(message("cannot find q and k: unknown model_type \"", config.model_type, "\"",
                         config::suggest_model_type(config.model_type)));
}

[[nodiscard]] AttentionTensors sorted(const ModelConfig& config,
                                      std::span<const io::Tensor* const> tensors,
                                      UnknownModel unknown) {
  const AttentionNames& names = names_for(config, unknown, tensors);
  const std::map<std::int64_t, Module> modules = collect(names, tensors);
  if (modules.empty()) {
    refuse_tensors(message("model_type ", config.model_type, ": no tensor is named ", names.before,
                           "N", names.after, names.queries, ".weight"));
  }
  check_all_there(config, modules);
  const Measure measure(config, names, unknown);
  AttentionTensors found;
  found.layout_of_names = names.layout;
  for (const auto& [index, module] : modules) {
    const LayerGroup& group = group_of(config, index);
    if (!group.rope) continue;
    if (std::holds_alternative<encodings::AxialAxes>(group.rope->axes)) {
      refuse_tensors(
          message("layer ", index,
                  ": cannot convert axial positions of images, only one row of positions or "
                  "M-RoPE"));
    }
    found.layers.push_back(measure.layer(index, *group.rope, module));
  }
  if (found.layers.empty()) {
    refuse_tensors(message("model_type ", config.model_type,
                           ": no layer rotates, so there is nothing to convert"));
  }
  return found;
}

}  // namespace

std::vector<const io::Tensor*> tensors_of(const io::SafetensorsCheckpoint& checkpoint) {
  std::vector<const io::Tensor*> tensors;
  for (const auto& shard : checkpoint.shards()) {
    for (const io::Tensor& tensor : shard.file.tensors()) tensors.push_back(&tensor);
  }
  return tensors;
}

HeadRows consecutive_heads(const io::Tensor* weight, const io::Tensor* bias, std::int64_t heads,
                           std::int64_t head_dim) {
  HeadRows rows{weight, bias, {}};
  for (std::int64_t head = 0; head < heads; ++head) rows.first_row.push_back(head * head_dim);
  return rows;
}

FusedHeads split_fused(const HeadRows& fused, std::int64_t heads, std::int64_t key_heads,
                       std::int64_t head_dim) {
  FusedHeads split{consecutive_heads(fused.weight, fused.bias, heads, head_dim),
                   consecutive_heads(fused.weight, fused.bias, key_heads, head_dim)};
  for (std::int64_t& row : split.keys.first_row) row += heads * head_dim;
  return split;
}

Result<AttentionTensors> find_attention(const ModelConfig& config,
                                        std::span<const io::Tensor* const> tensors,
                                        UnknownModel unknown) {
  try {
    return sorted(config, tensors, unknown);
  } catch (const Error& error) {
    return error;
  }
}

}  // namespace phasor::porting
