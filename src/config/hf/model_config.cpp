#include "config/hf/model_config.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "config/hf/layer_plan.hpp"
#include "config/hf/model_keys.hpp"
#include "config/hf/rope_dictionary.hpp"
#include "config/hf/windows.hpp"
#include "phasor/core/internal/message_text.hpp"

namespace phasor::config {
namespace {

using encodings::MropeAxes;
using encodings::RopeSpec;

constexpr std::string_view kParameters = "rope_parameters";
constexpr std::string_view kScaling = "rope_scaling";

// The rotation of the layers of one type, before it is put into a RopeSpec.
struct LayerRope {
  RopeDictionary dictionary;
  std::optional<double> base;
  std::string base_key;  // the source of the base
  std::int64_t head_dim = 0;
  std::string path;  // of the dictionary, for messages
};

[[nodiscard]] bool is_nested(const ObjectReader& parameters) {
  const std::vector<std::string> keys = parameters.keys();
  return std::any_of(keys.begin(), keys.end(), [&](const std::string& key) {
    const Json& value = parameters.value(key);
    return value.is_object() || (value.is_null() && key.ends_with("_attention"));
  });
}

// The dictionary that all layers share: rope_parameters, rope_scaling, or both if they are equal.
[[nodiscard]] LayerRope read_flat(const ObjectReader& top, const ModelKeys& keys) {
  LayerRope rope;
  rope.base = keys.base;
  rope.base_key = keys.base_key;
  rope.head_dim = keys.head_dim;
  rope.path = kParameters;
  const std::optional<ObjectReader> parameters = top.object(kParameters);
  const std::optional<ObjectReader> scaling = top.object(kScaling);
  if (parameters) {
    rope.dictionary =
        read_rope_dictionary(*parameters, DictionaryForm::rope_parameters, keys.lengths);
  }
  if (scaling) {
    RopeDictionary legacy =
        read_rope_dictionary(*scaling, DictionaryForm::rope_scaling, keys.lengths);
    if (parameters && (legacy.scaling != rope.dictionary.scaling ||
                       legacy.mrope_sections != rope.dictionary.mrope_sections)) {
      top.refuse(kScaling,
                 message("must be equal to rope_parameters, got ", shown(top.value(kScaling))));
    }
    if (!parameters) {
      rope.dictionary = std::move(legacy);
      rope.path = kScaling;
    }
  }
  if (!parameters && !scaling && keys.family != nullptr &&
      keys.family->quirk == Quirk::scaling_required) {
    top.refuse_missing(kParameters,
                       message("model_type ", keys.model_type, " needs it, or rope_scaling"));
  }
  if (rope.dictionary.base) {
    if (keys.base && *keys.base != *rope.dictionary.base) {
      top.refuse(keys.base_key, message("must be equal to ", rope.path, ".rope_theta ",
                                        *rope.dictionary.base, ", got ", *keys.base));
    }
    rope.base = rope.dictionary.base;
    rope.base_key = rope.path + ".rope_theta";
  }
  return rope;
}

[[nodiscard]] std::string width_source(const ModelKeys& keys, const LayerRope& rope) {
  if (std::holds_alternative<encodings::ProportionalScaling>(rope.dictionary.scaling)) {
    return "head_dim: the proportional type pairs the whole head";
  }
  if (keys.rotary_dim) return "rotary_dim";
  if (rope.dictionary.partial) return rope.path + ".partial_rotary_factor";
  if (keys.partial) return keys.partial_key.empty() ? "position_encoding_2d" : keys.partial_key;
  const bool family_knows =
      keys.family != nullptr && (keys.family->partial != 1.0 || keys.family->rotary_dim > 0);
  return family_knows ? default_of(keys) : "head_dim: no key narrows it";
}

[[nodiscard]] std::vector<Source> sources_of(const ModelKeys& keys, const LayerRope& rope) {
  std::vector<Source> sources = {{"head_dim", keys.head_dim_key},
                                 {"rotary_dim", width_source(keys, rope)},
                                 {"base", rope.base_key}};
  if (keys.layout) sources.push_back({"layout", keys.layout_key});
  sources.push_back({"scaling", rope.dictionary.type_key.empty() ? std::string("no key: unscaled")
                                                                 : rope.dictionary.type_key});
  if (rope.dictionary.mrope_sections) sources.push_back({"mrope", rope.path + ".mrope_section"});
  return sources;
}

[[nodiscard]] std::string softmax_source(const ObjectReader& top, const ModelKeys& keys) {
  switch (keys.family == nullptr ? SoftmaxRule::unknown : keys.family->softmax) {
    case SoftmaxRule::unknown:
      break;
    case SoftmaxRule::head_dim:
      return "head_dim^-1/2";
    case SoftmaxRule::query_pre_attn_scalar:
      return top.has("query_pre_attn_scalar") ? "query_pre_attn_scalar^-1/2"
                                              : "query_pre_attn_scalar^-1/2, " + default_of(keys);
    case SoftmaxRule::attention_multiplier:
      return top.has("attention_multiplier") ? "attention_multiplier"
                                             : "attention_multiplier, " + default_of(keys);
    case SoftmaxRule::latent:
      return "(qk_nope_head_dim + qk_rope_head_dim)^-1/2, times yarn's g(mscale_all_dim)^2";
  }
  return {};
}

[[nodiscard]] std::int64_t rotary_width(const ObjectReader& top, const ModelKeys& keys,
                                        const LayerRope& rope) {
  std::optional<double> partial = keys.partial;
  if (rope.dictionary.partial) {
    if (partial && *partial != *rope.dictionary.partial) {
      top.refuse("partial_rotary_factor",
                 message("must be equal to ", rope.path, ".partial_rotary_factor ",
                         *rope.dictionary.partial, ", got ", *partial));
    }
    partial = rope.dictionary.partial;
  }
  if (partial && !(*partial > 0.0 && *partial <= 1.0)) {
    top.refuse(rope.path + ".partial_rotary_factor",
               message("must be above 0 and at most 1, got ", *partial));
  }
  const double share = partial.value_or(keys.family == nullptr ? 1.0 : keys.family->partial);
  // Truncated, as every engine does; a result that is odd is refused later.
  const auto width = static_cast<std::int64_t>(static_cast<double>(rope.head_dim) * share);
  if (keys.rotary_dim) {
    if (partial && width != *keys.rotary_dim) {
      top.refuse("rotary_dim", message("must be head_dim * partial_rotary_factor = ", width,
                                       ", got ", *keys.rotary_dim));
    }
    return *keys.rotary_dim;
  }
  if (!partial && keys.family != nullptr && keys.family->rotary_dim > 0)
    return keys.family->rotary_dim;
  return width;
}

[[nodiscard]] encodings::RopeAxes axes_of(const ObjectReader& top, const ModelKeys& keys,
                                          const LayerRope& rope) {
  const RopeDictionary& dictionary = rope.dictionary;
  if (keys.axial) return encodings::AxialAxes{*keys.axial};
  if (dictionary.axial) {
    top.refuse(rope.path + ".rope_type",
               message("\"axial\" is not supported for model_type \"", keys.model_type,
                       "\": its order of axes is unknown"));
  }
  const std::string section_key = rope.path + ".mrope_section";
  if (!dictionary.mrope_sections) {
    if (keys.mrope) {
      top.refuse_missing(section_key,
                         message("model_type ", keys.model_type, " needs three integers"));
    }
    return encodings::OneAxis{};
  }
  MropeAxes axes;
  axes.sections = *dictionary.mrope_sections;
  if (dictionary.mrope_interleaved) {
    axes.order =
        *dictionary.mrope_interleaved ? MropeAxes::Order::interleaved : MropeAxes::Order::chunked;
    if (keys.mrope && *keys.mrope != axes.order) {
      top.refuse(
          rope.path + ".mrope_interleaved",
          message("must be ", *dictionary.mrope_interleaved ? "false" : "true", " for model_type ",
                  keys.model_type, ", got ", *dictionary.mrope_interleaved ? "true" : "false"));
    }
  } else if (keys.mrope) {
    axes.order = *keys.mrope;
  } else {
    top.refuse_missing(
        rope.path + ".mrope_interleaved",
        message("the order of the sections of model_type \"", keys.model_type, "\" is unknown"));
  }
  return axes;
}

[[nodiscard]] RopeSpec spec_of(const ObjectReader& top, const ModelKeys& keys,
                               const LayerRope& rope) {
  if (!rope.base) {
    top.refuse_missing("rope_theta",
                       message("expected a base, here or in ", kParameters, "; model_type \"",
                               keys.model_type, "\" has no known default",
                               keys.family == nullptr ? suggest_model_type(keys.model_type) : ""));
  }
  RopeSpec spec;
  spec.head_dim = rope.head_dim;
  spec.base = *rope.base;
  spec.layout = keys.layout;
  spec.scaling = rope.dictionary.scaling;
  spec.axes = axes_of(top, keys, rope);
  if (auto* proportional = std::get_if<encodings::ProportionalScaling>(&spec.scaling)) {
    // The share is part of the scaling here: the pairing spans the whole head.
    spec.rotary_dim = spec.head_dim;
    if (!rope.dictionary.partial && keys.partial) proportional->proportion = *keys.partial;
  } else {
    spec.rotary_dim = rotary_width(top, keys, rope);
  }
  encodings::validate(spec);
  return spec;
}

[[nodiscard]] double softmax_scale_of(const ObjectReader& top, const ModelKeys& keys,
                                      std::int64_t head_dim, const std::optional<RopeSpec>& rope) {
  const auto inverse_root = [&](std::string_view key, double value) {
    if (!(value > 0.0)) top.refuse(key, message("must be a positive number, got ", value));
    return 1.0 / std::sqrt(value);
  };
  switch (keys.family == nullptr ? SoftmaxRule::unknown : keys.family->softmax) {
    case SoftmaxRule::unknown:
      return 0.0;
    case SoftmaxRule::head_dim:
      return inverse_root("head_dim", static_cast<double>(head_dim));
    case SoftmaxRule::query_pre_attn_scalar:
      return inverse_root("query_pre_attn_scalar", keys.query_pre_attn_scalar.value_or(256.0));
    case SoftmaxRule::attention_multiplier:
      return keys.attention_multiplier.value_or(1.0);
    case SoftmaxRule::latent:
      break;
  }
  if (keys.latent_width == 0) return 0.0;
  const double scale = 1.0 / std::sqrt(static_cast<double>(keys.latent_width));
  const auto* yarn = rope ? std::get_if<encodings::YarnScaling>(&rope->scaling) : nullptr;
  if (yarn == nullptr || yarn->mscale_all_dim == 0.0) return scale;
  const double amplitude = encodings::yarn_amplitude(yarn->factor, yarn->mscale_all_dim);
  return scale * amplitude * amplitude;
}

[[nodiscard]] std::int64_t head_dim_of(const ModelKeys& keys, std::string_view layer_type) {
  return layer_type == kFullAttention && keys.global_head_dim > 0 ? keys.global_head_dim
                                                                  : keys.head_dim;
}

class GroupBuilder {
 public:
  GroupBuilder(const ObjectReader& top, const ModelKeys& keys, const LayerPlan& plan)
      : top_(top), keys_(keys), plan_(plan) {}

  // nullopt: these layers do not rotate; `why` is the source.
  void add(std::string_view layer_type, std::nullopt_t, const std::string& why) {
    add(layer_type, std::optional<RopeSpec>(), {{"encoding", why}});
  }
  void add(std::string_view layer_type, const LayerRope& rope) {
    add(layer_type, spec_of(top_, keys_, rope), sources_of(keys_, rope));
  }
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
  void add(std::string_view layer_type, std::optional<RopeSpec> rope, std::vector<Source> sources) {
    LayerGroup group;
    group.layer_type = layer_type;
    group.layers = plan_.layers_of(layer_type);
    group.softmax_scale = softmax_scale_of(top_, keys_, head_dim_of(keys_, layer_type), rope);
    group.rope = std::move(rope);
    group.sources = std::move(sources);
    if (group.softmax_scale != 0.0)
      group.sources.push_back({"softmax_scale", softmax_source(top_, keys_)});
    groups_.push_back(std::move(group));
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
  const ObjectReader parameters = *top.object(kParameters);
  if (plan.uses("rope") || plan.uses("no_rope")) {
    top.refuse(kParameters, message("must be one dictionary for model_type ", keys.model_type,
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
  if (const std::optional<ObjectReader> scaling = top.object(kScaling)) {
    const RopeDictionary legacy =
        read_rope_dictionary(*scaling, DictionaryForm::rope_scaling, keys.lengths);
    const std::optional<ObjectReader> full = parameters.object(kFullAttention);
    if (!full ||
        read_rope_dictionary(*full, DictionaryForm::rope_parameters, keys.lengths).scaling !=
            legacy.scaling) {
      top.refuse(kScaling, message("must be equal to rope_parameters.full_attention, got ",
                                   shown(top.value(kScaling))));
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

[[nodiscard]] std::vector<LayerGroup> flat_groups(const ObjectReader& top, const ModelKeys& keys,
                                                  const LayerPlan& plan,
                                                  std::vector<KeyNote>& notes) {
  LayerRope rope = read_flat(top, keys);
  notes.insert(notes.end(), rope.dictionary.notes.begin(), rope.dictionary.notes.end());
  if (!rope.base && keys.family != nullptr) {
    rope.base = keys.family->base;
    rope.base_key = default_of(keys);
  }
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
    refuse_other_types(top, plan, {std::string(kFullAttention), std::string(kSlidingAttention)});
    builder.add(kFullAttention, std::nullopt,
                "model_type " + keys.model_type + ": full-attention layers do not rotate");
    builder.add(kSlidingAttention, rope);
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

void refuse_unknown_position_keys(const ObjectReader& top) {
  for (const std::string& key : top.keys_not_understood()) {
    if (!is_about_positions(key) || top.value(key).is_null()) continue;
    top.refuse_unknown(key);
  }
}

// A model of text and images: the text part is read, and outer keys about positions must be equal to
// those of that part.
[[nodiscard]] ModelConfig read_text_part(const ObjectReader& top) {
  const Json& text = top.value("text_config");
  Json inner = text;
  if (!inner.contains("model_type") && top.has("model_type"))
    inner["model_type"] = top.value("model_type");
  for (const std::string& key : top.keys()) {
    if (!is_about_positions(key) || top.value(key).is_null()) continue;
    if (!text.contains(key) || text[key] != top.value(key)) {
      top.refuse(key,
                 message("must be equal to text_config.", key, ", got ", shown(top.value(key))));
    }
  }
  ModelConfig config = read_model_config(ObjectReader(inner, "text_config"));
  config.notes.push_back(
      {"text_config", "only this part is read, not the parts for images and sound"});
  return config;
}

}  // namespace

ModelConfig read_model_config(const ObjectReader& top) {
  if (top.object("text_config")) return read_text_part(top);
  const ModelKeys keys = read_model_keys(top);
  const LayerPlan plan = read_layer_plan(top, keys.family);
  ModelConfig config;
  config.model_type = keys.model_type;
  config.max_position = keys.lengths.max_position;
  config.max_position_key = keys.length_key;
  config.rotates_values = keys.rotates_values;
  config.head_dim = keys.head_dim;
  config.heads = keys.heads;
  config.key_heads = keys.key_heads ? keys.key_heads : keys.heads;
  const std::optional<ObjectReader> parameters = top.object(kParameters);
  if (keys.no_positions) {
    GroupBuilder builder(top, keys, plan);
    builder.add_all(std::nullopt, "position_embedding_type is \"nope\"");
    config.groups = builder.take();
    for (const std::string_view key : {kParameters, kScaling}) top.mark_understood(key);
  } else if (parameters && is_nested(*parameters)) {
    config.groups = nested_groups(top, keys, plan, config.notes);
  } else {
    config.groups = flat_groups(top, keys, plan, config.notes);
  }
  apply_windows(top, keys.family, plan, config);
  refuse_unknown_position_keys(top);
  config.unread_keys = top.keys_not_understood();
  return config;
}

}  // namespace phasor::config
