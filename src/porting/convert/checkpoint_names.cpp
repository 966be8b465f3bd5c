#include "porting/convert/checkpoint_names.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "phasor/core/internal/message_text.hpp"
#include "porting/convert/checkpoint_names_table.hpp"

namespace phasor::porting {
namespace {

using config::LayerGroup;
using config::ModelConfig;
using core::PairLayout;

[[nodiscard]] bool lists(std::string_view model_types, std::string_view model_type) {
  return model_types.find(message(" ", model_type, " ")) != std::string_view::npos;
}

[[noreturn]] void refuse(const std::string& text) { throw Error(ErrorCode::unsupported, text); }
[[noreturn]] void refuse_shape(const std::string& text) {
  throw Error(ErrorCode::shape_mismatch, text);
}

struct Place {
  std::string_view prefix;
  std::int64_t layer = 0;
  std::string_view rest;  // inside the module: "q_proj.weight"
};

[[nodiscard]] std::optional<Place> place_in(const Names& names, std::string_view name) {
  for (std::size_t at = name.find(names.before); at != std::string_view::npos;
       at = name.find(names.before, at + 1)) {
    if (at > 0 && name[at - 1] != '.') continue;
    const std::string_view number = name.substr(at + names.before.size());
    Place place;
    place.prefix = name.substr(0, at);
    const auto [end, problem] =
        std::from_chars(number.data(), number.data() + number.size(), place.layer);
    if (problem != std::errc{} || place.layer < 0) continue;
    const std::string_view behind = number.substr(static_cast<std::size_t>(end - number.data()));
    if (!behind.starts_with(names.after)) continue;
    place.rest = behind.substr(names.after.size());
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

// One layer's tensors by what they do, before they are measured.
struct Module {
  struct Parts {
    const io::Tensor* weight = nullptr;
    const io::Tensor* bias = nullptr;
  };
  Parts queries, keys, values, query_norm, key_norm, output;
};

// The part of the module that "stem.weight" or "stem.bias" names; null when it names another.
[[nodiscard]] const io::Tensor** slot(Module::Parts& parts, std::string_view stem,
                                      std::string_view rest) {
  if (stem.empty() || !rest.starts_with(stem)) return nullptr;
  const std::string_view ending = rest.substr(stem.size());
  if (ending == ".weight") return &parts.weight;
  if (ending == ".bias") return &parts.bias;
  return nullptr;
}

[[nodiscard]] const io::Tensor** slot_of(const Names& names, Module& module,
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

[[nodiscard]] std::map<std::int64_t, Module> collect(const Names& names,
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
      refuse(message(tensor->name,
                     ": tensors beside q and k must be known, got a name that is not "
                     "(quantised checkpoints and adapters are not converted)"));
    }
    if (!one_of(kPrefixes, place->prefix)) {
      refuse(message(tensor->name, ": the model in front of ", names.before,
                     "N must be one that is known, got \"", place->prefix, "\""));
    }
    if (*found != nullptr) {
      refuse(message(tensor->name, ": a layer must have one tensor of a kind, got also ",
                     (*found)->name));
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
  refuse(message(tensor.name, ": the type must be f64, f32, f16 or bf16, got ",
                 io::name_of(tensor.type)));
}

class Measure {
 public:
  Measure(const ModelConfig& config, const Names& names, UnknownModel unknown)
      : config_(config), names_(names), unknown_(unknown) {
    if (!config.heads) {
      throw Error(ErrorCode::invalid_argument,
                  "config: the number of attention heads must be given, got none");
    }
    heads_ = *config.heads;
    key_heads_ = config.key_heads.value_or(heads_);
    if (heads_ < 1 || key_heads_ < 1 || heads_ % key_heads_ != 0) {
      throw Error(ErrorCode::invalid_argument,
                  message("config: the query heads must be a multiple of the key heads, got ",
                          heads_, " and ", key_heads_));
    }
  }

  [[nodiscard]] AttentionLayer layer(std::int64_t index, const encodings::RopeSpec& rope,
                                     const Module& module) const {
    AttentionLayer layer;
    layer.index = index;
    layer.rope = rope;
    const std::int64_t head_dim = rope.head_dim;
    if (module.queries.weight == nullptr) {
      refuse(message("layer ", index, ": keys must come with queries, got only ",
                     module.keys.weight->name));
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
        refuse(message(module.queries.weight->name, ": queries must come with ", names_.keys,
                       ", got none"));
      }
      return;
    }
    if (module.values.weight == nullptr) {
      refuse(message(module.keys.weight->name, ": keys must come with ", names_.values,
                     ", got none: keys that serve as values cannot be permuted alone"));
    }
    layer.keys = rows(module.keys, key_heads_, head_dim);
    if (!config_.rotates_values) return;
    layer.values = rows(module.values, key_heads_, head_dim);
    layer.output = module.output.weight;
    if (layer.output == nullptr) {
      refuse(message(module.values.weight->name,
                     ": values that turn must come with the projection that reads them, got none"));
    }
    check(*layer.output, heads_ * head_dim,
          layer.output->shape.size() == 2 ? layer.output->shape.back() : -1);
  }

  void read_fused(const Module& module, std::int64_t head_dim, AttentionLayer& layer) const {
    if (config_.rotates_values) {
      refuse(message(module.queries.weight->name,
                     ": values that turn must have a tensor of their own, got a fused one"));
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
      refuse(message(module.queries.weight->name,
                     ": heads must have a key each in this order, got ", heads_, " query and ",
                     key_heads_, " key heads"));
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
      refuse_shape(message(tensor.name, ": must have ", expected,
                           " features of heads by the config, ", "got the shape ",
                           core::shape_text(tensor.shape)));
    }
    if (unknown_ == UnknownModel::refuse) check_type(tensor);
  }

  [[nodiscard]] HeadNorm norm(const Module::Parts& parts, std::int64_t heads,
                              std::int64_t head_dim) const {
    for (const io::Tensor* tensor : {parts.weight, parts.bias}) {
      if (tensor == nullptr) continue;
      if (tensor->size() != head_dim && tensor->size() != heads * head_dim) {
        refuse_shape(message(tensor->name, ": must have ", head_dim, " or ", heads * head_dim,
                             " numbers, got the shape ", core::shape_text(tensor->shape)));
      }
      if (unknown_ == UnknownModel::refuse) check_type(*tensor);
    }
    return {parts.weight, parts.bias};
  }

  const ModelConfig& config_;
  const Names& names_;
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
  refuse(message("layer ", layer, ": must be one that the config has, got q and k tensors for it"));
}

void check_all_there(const ModelConfig& config, const std::map<std::int64_t, Module>& modules) {
  for (const LayerGroup& group : config.groups) {
    if (!group.rope) continue;
    for (const std::int64_t layer : group.layers) {
      if (!modules.contains(layer)) {
        refuse(message("layer ", layer,
                       ": q and k projections must be there, got none by the "
                       "names of model_type ",
                       config.model_type));
      }
    }
  }
}

// The names that fit: a family may be published under two.
[[nodiscard]] const Names& names_for(const ModelConfig& config, UnknownModel unknown,
                                     std::span<const io::Tensor* const> tensors) {
  if (one_of(kLatent, config.model_type)) {
    refuse(message("model_type ", config.model_type,
                   ": q and k must have rows of their own, got latent attention, which is not "
                   "converted"));
  }
  const Names* known = nullptr;
  for (const Names& names : kNames) {
    if (!lists(names.model_types, config.model_type)) continue;
    if (known == nullptr) known = &names;
    const bool fits = std::any_of(tensors.begin(), tensors.end(), [&](const io::Tensor* tensor) {
      const std::optional<Place> place = place_in(names, tensor->name);
      return place && place->rest.starts_with(names.queries);
    });
    if (fits) return names;
  }
  if (known != nullptr) return *known;
  if (unknown == UnknownModel::read_as_llama) return kNames.front();
  refuse(message("model_type must be one whose order of heads is known, got \"", config.model_type,
                 "\""));
}

[[nodiscard]] AttentionTensors sorted(const ModelConfig& config,
                                      std::span<const io::Tensor* const> tensors,
                                      UnknownModel unknown) {
  const Names& names = names_for(config, unknown, tensors);
  const std::map<std::int64_t, Module> modules = collect(names, tensors);
  if (modules.empty()) {
    refuse(message("model_type ", config.model_type, ": tensors ", names.before, "N", names.after,
                   names.queries, ".weight must be there, got none"));
  }
  check_all_there(config, modules);
  const Measure measure(config, names, unknown);
  AttentionTensors found;
  found.layout_of_names = names.layout;
  for (const auto& [index, module] : modules) {
    const LayerGroup& group = group_of(config, index);
    if (!group.rope) continue;
    if (std::holds_alternative<encodings::AxialAxes>(group.rope->axes)) {
      refuse(message("layer ", index,
                     ": must turn by one row of positions or by M-RoPE, got the "
                     "axes of an image"));
    }
    found.layers.push_back(measure.layer(index, *group.rope, module));
  }
  if (found.layers.empty()) {
    refuse(message("model_type ", config.model_type, ": a layer must rotate, got none that does"));
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

void release_pages(const io::SafetensorsCheckpoint& checkpoint) {
  for (const auto& shard : checkpoint.shards()) {
    shard.file.file().release(shard.file.file().bytes());
  }
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
