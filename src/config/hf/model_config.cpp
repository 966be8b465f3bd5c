#include "config/hf/model_config.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "config/hf/known_keys.hpp"
#include "config/hf/layer_plan.hpp"
#include "config/hf/layer_rope.hpp"
#include "config/hf/model_keys.hpp"
#include "config/hf/parts.hpp"
#include "config/hf/position_encodings.hpp"
#include "config/hf/rope_dictionary.hpp"
#include "config/hf/unrotated_model.hpp"
#include "config/hf/windows.hpp"
#include "phasor/core/internal/message_text.hpp"

namespace phasor::config {
namespace {

using encodings::MropeAxes;
using encodings::RopeSpec;

[[nodiscard]] bool is_nested(const ObjectReader& parameters) {
  const std::vector<std::string> keys = parameters.keys();
  return std::any_of(keys.begin(), keys.end(), [&](const std::string& key) {
    const Json& value = parameters.value(key);
    return value.is_object() || (value.is_null() && key.ends_with("_attention"));
  });
}

class GroupBuilder {
 public:
  GroupBuilder(const ObjectReader& top, const ModelKeys& keys, const LayerPlan& plan)
      : top_(top), keys_(keys), plan_(plan) {}

  // nullopt: these layers do not rotate; `why` is the source.
  void add(std::string_view layer_type, std::nullopt_t, const std::string& why) {
    add_group(layer_type, nullptr, why);
  }
  void add(std::string_view layer_type, const LayerRope& rope) { add_group(layer_type, &rope, {}); }
  // One group that holds every layer.
  void add_all(std::nullopt_t, const std::string& why) {
    add("", std::nullopt, why);
    take_all_layers();
  }
  void add_all(const LayerRope& rope) {
    add("", rope);
    take_all_layers();
  }
  [[nodiscard]] std::vector<LayerGroup> take() { return std::move(groups_); }

 private:
  void add_group(std::string_view layer_type, const LayerRope* rope, const std::string& why) {
    groups_.push_back(group_of(top_, keys_, layer_type, rope, why));
    groups_.back().layers = plan_.layers_of(layer_type);
  }
  void take_all_layers() {
    groups_.back().layers.resize(plan_.types.size());
    std::iota(groups_.back().layers.begin(), groups_.back().layers.end(), std::int64_t{0});
  }

  const ObjectReader& top_;
  const ModelKeys& keys_;
  const LayerPlan& plan_;
  std::vector<LayerGroup> groups_;
};

void refuse_other_types(const ObjectReader& top, const LayerPlan& plan,
                        const std::vector<std::string>& known) {
  for (const std::string& type : plan.types) {
    if (std::find(known.begin(), known.end(), type) == known.end() && !never_rotates(type)) {
      const std::vector<std::string_view> names(known.begin(), known.end());
      top.refuse("layer_types",
                 message("unknown type \"", type, "\"; expected ", core::list_text(names)));
    }
  }
}

void add_types_that_never_rotate(const LayerPlan& plan, GroupBuilder& builder) {
  std::vector<std::string> done;
  for (const std::string& type : plan.types) {
    if (!never_rotates(type) || std::find(done.begin(), done.end(), type) != done.end()) continue;
    builder.add(type, std::nullopt, "layer type " + type + " does not rotate");
    done.push_back(type);
  }
}

// rope_parameters with an entry per layer type; null: those layers do not rotate.
[[nodiscard]] std::vector<LayerGroup> nested_groups(const ObjectReader& top, const ModelKeys& keys,
                                                    const LayerPlan& plan,
                                                    std::vector<KeyNote>& notes) {
  const ObjectReader parameters = *top.object(kRopeParameters);
  if (plan.uses("rope") || plan.uses("no_rope")) {
    top.refuse(kRopeParameters, message("must be one dictionary for model_type ", keys.model_type,
                                        ", got one per layer type"));
  }
  GroupBuilder builder(top, keys, plan);
  std::vector<std::string> types = parameters.keys();
  for (const std::string& type : types) parameters.require_name(type, type);
  refuse_other_types(top, plan, types);
  for (const std::string& type : types) {
    const std::optional<ObjectReader> entry = parameters.object(type);
    if (!entry) {
      builder.add(type, std::nullopt, parameters.path_of(type) + " is null");
      continue;
    }
    LayerRope rope;
    rope.path = parameters.path_of(type);
    rope.head_dim = head_dim_of(keys, type);
    rope.dictionary = read_rope_dictionary(*entry, DictionaryForm::rope_parameters, keys.lengths);
    const bool sliding = type == kSlidingAttention;
    const std::optional<double>& legacy = sliding ? keys.local_base : keys.base;
    rope.base = rope.dictionary.base;
    rope.base_key = rope.path + ".rope_theta";
    if (!rope.base) {
      rope.base = legacy;
      rope.base_key = sliding ? keys.local_base_key : keys.base_key;
    }
    if (!rope.base && keys.family != nullptr) {
      rope.base = sliding ? keys.family->local_base : keys.family->base;
      rope.base_key = default_of(keys);
    }
    if (legacy && rope.base != legacy && (sliding || type == kFullAttention)) {
      top.refuse(
          sliding ? "rope_local_base_freq" : keys.base_key,
          message("must be equal to ", rope.path, ".rope_theta ", *rope.base, ", got ", *legacy));
    }
    builder.add(type, rope);
    notes.insert(notes.end(), rope.dictionary.notes.begin(), rope.dictionary.notes.end());
  }
  if (const std::optional<ObjectReader> scaling = top.object(kRopeScaling)) {
    const RopeDictionary legacy =
        read_rope_dictionary(*scaling, DictionaryForm::rope_scaling, keys.lengths);
    const std::optional<ObjectReader> full = parameters.object(kFullAttention);
    if (!full ||
        read_rope_dictionary(*full, DictionaryForm::rope_parameters, keys.lengths).scaling !=
            legacy.scaling) {
      top.refuse(kRopeScaling, message("must be equal to rope_parameters.full_attention, got ",
                                       shown(top.value(kRopeScaling))));
    }
  }
  add_types_that_never_rotate(plan, builder);
  return builder.take();
}

[[nodiscard]] std::vector<LayerGroup> local_base_groups(const ObjectReader& top,
                                                        const ModelKeys& keys,
                                                        const LayerPlan& plan,
                                                        const LayerRope& full) {
  GroupBuilder builder(top, keys, plan);
  refuse_other_types(top, plan, {std::string(kFullAttention), std::string(kSlidingAttention)});
  LayerRope sliding;
  sliding.path = full.path;
  sliding.head_dim = keys.head_dim;
  sliding.base = keys.local_base ? keys.local_base : keys.family->local_base;
  sliding.base_key = keys.local_base ? keys.local_base_key : default_of(keys);
  // OLMo 3: the same base, only unscaled.
  if (!sliding.base) {
    sliding.base = full.base;
    sliding.base_key = full.base_key;
  }
  builder.add(kFullAttention, full);
  builder.add(kSlidingAttention, sliding);
  add_types_that_never_rotate(plan, builder);
  return builder.take();
}

// layer_rope_theta: a base for each layer, 0 for one that does not rotate.
[[nodiscard]] std::vector<LayerGroup> listed_groups(const ObjectReader& top, const ModelKeys& keys,
                                                    const LayerPlan& layers,
                                                    const LayerRope& shared) {
  constexpr std::string_view kKey = "layer_rope_theta";
  if (!layers.types.empty() && layers.types.size() != keys.layer_bases.size()) {
    top.refuse(kKey, message("must have one entry per layer (", layers.types.size(), "), got ",
                             keys.layer_bases.size()));
  }
  const auto name_of_base = [](double base) {
    return base == 0.0 ? std::string("no_rope") : message("base ", base);
  };
  LayerPlan plan;
  for (const double base : keys.layer_bases) {
    if (base != 0.0 && keys.family != nullptr && keys.family->quirk == Quirk::one_listed_base &&
        shared.base && base != *shared.base) {
      top.refuse(kKey, message("entries must be 0 or the base ", *shared.base, " of model_type ",
                               keys.model_type, ", got ", base));
    }
    plan.types.push_back(name_of_base(base));
  }
  GroupBuilder builder(top, keys, plan);
  const auto rope_of_base = [&](double base) {
    LayerRope rope = shared;
    rope.base = base;
    rope.base_key = kKey;
    return rope;
  };
  const std::string not_rotated = message(kKey, " is 0");
  const double first = keys.layer_bases.front();
  if (std::all_of(keys.layer_bases.begin(), keys.layer_bases.end(),
                  [&](double base) { return base == first; })) {
    if (first == 0.0) {
      builder.add_all(std::nullopt, not_rotated);
    } else {
      builder.add_all(rope_of_base(first));
    }
    return builder.take();
  }
  std::vector<double> done;
  for (const double base : keys.layer_bases) {
    if (std::find(done.begin(), done.end(), base) != done.end()) continue;
    done.push_back(base);
    if (base == 0.0) {
      builder.add(name_of_base(base), std::nullopt, not_rotated);
    } else {
      builder.add(name_of_base(base), rope_of_base(base));
    }
  }
  return builder.take();
}

[[nodiscard]] std::vector<LayerGroup> flat_groups(const ObjectReader& top, const ModelKeys& keys,
                                                  const LayerPlan& plan,
                                                  std::vector<KeyNote>& notes) {
  LayerRope rope = read_flat(top, keys);
  notes.insert(notes.end(), rope.dictionary.notes.begin(), rope.dictionary.notes.end());
  if (!rope.base && keys.family != nullptr) {
    rope.base = keys.family->base;
    rope.base_key = default_of(keys);
  }
  if (!keys.layer_bases.empty()) return listed_groups(top, keys, plan, rope);
  LayerRule rule = keys.family == nullptr ? LayerRule::all_alike : keys.family->layers;
  if (keys.family != nullptr && keys.family->quirk == Quirk::rotates_without_window &&
      !top.has("sliding_window")) {
    rule = LayerRule::all_alike;
  }
  if (rule == LayerRule::local_base) {
    rope.head_dim = head_dim_of(keys, kFullAttention);
    return local_base_groups(top, keys, plan, rope);
  }
  GroupBuilder builder(top, keys, plan);
  if (rule == LayerRule::full_unrotated) {
    refuse_other_types(top, plan,
                       {std::string(kFullAttention), std::string(kSlidingAttention),
                        std::string(kDenseAttention)});
    builder.add(kFullAttention, std::nullopt,
                "model_type " + keys.model_type + ": full-attention layers do not rotate");
    builder.add(kSlidingAttention, rope);
    if (plan.uses(kDenseAttention)) builder.add(kDenseAttention, rope);
  } else if (rule == LayerRule::skip_interval) {
    builder.add("rope", rope);
    builder.add(
        "no_rope", std::nullopt,
        top.has("no_rope_layers") ? "no_rope_layers" : "every n-th layer: " + default_of(keys));
  } else if (std::any_of(plan.types.begin(), plan.types.end(),
                         [](const auto& t) { return never_rotates(t); })) {
    std::vector<std::string> done;
    for (const std::string& type : plan.types) {
      if (never_rotates(type) || std::find(done.begin(), done.end(), type) != done.end()) continue;
      builder.add(type, rope);
      done.push_back(type);
    }
    add_types_that_never_rotate(plan, builder);
  } else {
    builder.add_all(rope);
  }
  return builder.take();
}

// Nothing rotates: layers that attend have the positions that the keys name, or none.
[[nodiscard]] std::vector<LayerGroup> groups_without_rotation(const ObjectReader& top,
                                                              const ModelKeys& keys,
                                                              const LayerPlan& plan) {
  GroupBuilder builder(top, keys, plan);
  std::vector<std::string> done;
  for (const std::string& type : plan.types) {
    if (!never_rotates(type) && std::find(done.begin(), done.end(), type) == done.end())
      done.push_back(type);
  }
  if (std::none_of(plan.types.begin(), plan.types.end(),
                   [](const std::string& type) { return never_rotates(type); })) {
    builder.add_all(std::nullopt, keys.no_rotation);
  } else {
    for (const std::string& type : done) builder.add(type, std::nullopt, keys.no_rotation);
    add_types_that_never_rotate(plan, builder);
  }
  std::vector<LayerGroup> groups = builder.take();
  for (LayerGroup& group : groups) {
    if (!keys.positions || never_rotates(group.layer_type)) continue;
    std::optional<PositionEncoding> made =
        read_position_encoding(top, keys.model_type, *keys.positions, PositionSide::all);
    if (made) group.positions.push_back(*std::move(made));
  }
  return groups;
}

void refuse_unknown_position_keys(const ObjectReader& top) {
  for (const std::string& key : top.keys_not_understood()) {
    if (!is_about_positions(key) || top.value(key).is_null()) continue;
    top.refuse_unknown(key);
  }
}

// Bamba and Falcon-H1 repeat the width that rotates; their code does not read the key.
void note_repeated_width(const ObjectReader& top, const ModelKeys& keys, ModelConfig& config) {
  constexpr std::string_view kKey = "attn_rotary_emb";
  if (keys.family == nullptr || keys.family->quirk != Quirk::repeats_width) return;
  const std::optional<std::int64_t> width = top.integer(kKey);
  for (const LayerGroup& group : config.groups) {
    if (!width || !group.rope || group.rope->rotary_dim == *width) continue;
    config.notes.push_back(
        {top.path_of(kKey), message("not used: model_type ", keys.model_type, " rotates ",
                                    group.rope->rotary_dim, " features, not ", *width)});
    return;
  }
}

// Molmo 2: layers outside this list have the unscaled frequencies.
void check_scaled_layers(const ObjectReader& top, const LayerPlan& plan,
                         const ModelConfig& config) {
  constexpr std::string_view kKey = "rope_scaling_layers";
  const std::optional<std::vector<std::int64_t>> layers = top.integers(kKey);
  const auto scaled = [](const LayerGroup& group) {
    return group.rope && !std::holds_alternative<encodings::DefaultScaling>(group.rope->scaling);
  };
  if (layers && layers->size() < plan.types.size() &&
      std::any_of(config.groups.begin(), config.groups.end(), scaled)) {
    top.refuse_as(ErrorCode::unsupported, kKey,
                  message("must list every layer (", plan.types.size(), "), got ", layers->size()));
  }
}

[[nodiscard]] ModelConfig read_one_model(const ObjectReader& top) {
  const ModelKeys keys = read_model_keys(top);
  const LayerPlan plan = read_layer_plan(top, keys.family);
  ModelConfig config;
  config.model_type = keys.model_type;
  config.max_position = keys.lengths.max_position;
  config.max_position_key = keys.length_key;
  config.trained_length = keys.trained_length;
  config.trained_length_key = keys.trained_length_key;
  config.notes = keys.notes;
  config.rotates_values = keys.rotates_values;
  config.head_dim = keys.head_dim;
  config.heads = keys.heads;
  config.key_heads = keys.key_heads ? keys.key_heads : keys.heads;
  config.other_positions = keys.other_positions;
  const std::optional<ObjectReader> parameters = top.object(kRopeParameters);
  if (!keys.no_rotation.empty()) {
    config.groups = groups_without_rotation(top, keys, plan);
    for (const std::string_view key : {kRopeParameters, kRopeScaling}) top.mark_understood(key);
  } else if (parameters && is_nested(*parameters)) {
    config.groups = nested_groups(top, keys, plan, config.notes);
  } else {
    config.groups = flat_groups(top, keys, plan, config.notes);
  }
  if (plan.note) config.notes.push_back(*plan.note);
  note_repeated_width(top, keys, config);
  if (const Family* row = find_family(keys.model_type); row != nullptr && !row->unsupported.empty())
    config.notes.push_back({top.path_of("model_type"), std::string(row->unsupported)});
  check_scaled_layers(top, plan, config);
  apply_windows(top, keys.family, plan, config);
  apply_chunks(top, keys.family, config);
  refuse_unknown_position_keys(top);
  config.unread_keys = top.keys_not_understood();
  return config;
}

[[nodiscard]] ModelConfig read_any_model(const ObjectReader& top) {
  const std::string type = top.text("model_type").value_or("");
  top.require_name("model_type", type);
  try {
    if (const std::optional<std::string> part = part_to_read(top))
      return read_part(top, *part, read_model_config);
    const Family* const row = find_family(type);
    if (row != nullptr && !row->unsupported.empty() && !row->rotary) {
      top.refuse_as(ErrorCode::unsupported, "model_type",
                    message("\"", type, "\" is not supported: ", row->unsupported));
    }
    if (row != nullptr && !row->other_positions.empty()) return read_unrotated_model(top, *row);
    return read_one_model(top);
  } catch (const Error& error) {
    const std::string text = error.what();
    // A part has named itself.
    if (type.empty() || text.find(type) != std::string::npos ||
        text.find("(model_type ") != std::string::npos) {
      throw;
    }
    throw Error(error.code(), message(text, " (model_type ", type, ")"));
  }
}

}  // namespace

ModelConfig read_model_config(const ObjectReader& top) {
  ModelConfig config = read_any_model(top);
  // A part has said which of its keys are not known.
  if (!config.part.empty()) return config;
  config.unknown_keys = config.unread_keys;
  std::erase_if(config.unknown_keys, [&](const std::string& key) {
    return top.value(key).is_null() || is_known_elsewhere(key);
  });
  return config;
}

}  // namespace phasor::config
