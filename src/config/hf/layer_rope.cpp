#include "config/hf/layer_rope.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "config/hf/layer_plan.hpp"

namespace phasor::config {
namespace {

using encodings::MropeAxes;
using encodings::RopeSpec;

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

// Latent attention: the part that rotates has a key of its own, and a share can only repeat it.
[[nodiscard]] std::int64_t latent_rotary_width(const ObjectReader& top, const ModelKeys& keys,
                                               const LayerRope& rope) {
  const double share = rope.dictionary.partial.value_or(keys.partial.value_or(1.0));
  const std::int64_t whole =
      top.integer("head_dim").value_or(keys.latent_width > 0 ? keys.latent_width : keys.head_dim);
  const auto width = static_cast<std::int64_t>(static_cast<double>(whole) * share);
  if (share != 1.0 && width != rope.head_dim) {
    top.refuse("qk_rope_head_dim", message("must be head_dim * partial_rotary_factor = ", width,
                                           ", got ", rope.head_dim));
  }
  return rope.head_dim;
}

[[nodiscard]] std::int64_t rotary_width(const ObjectReader& top, const ModelKeys& keys,
                                        const LayerRope& rope) {
  if (keys.latent) return latent_rotary_width(top, keys, rope);
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
      MropeAxes axes;
      axes.sections.assign(keys.family->sections.begin(), keys.family->sections.end());
      axes.order = *keys.mrope;
      const std::int64_t pairs = rotary_width(top, keys, rope) / 2;
      std::int64_t &time = axes.sections[0], &height = axes.sections[1], &width = axes.sections[2];
      if (axes.order == MropeAxes::Order::interleaved) {
        // thwthw...: the lists end with the pairs, and time has every pair that is left.
        height = std::min(height, (pairs + 1) / 3);
        width = std::min(width, pairs / 3);
        time = pairs - height - width;
      }
      if (height > 0 && time + height + width == pairs) return axes;
      top.refuse_missing(section_key, message("model_type ", keys.model_type,
                                              " needs one integer for each row of positions"));
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
    // ERNIE lists height, width, time.
    if (axes.order == MropeAxes::Order::alternating && axes.sections.size() == 3)
      std::rotate(axes.sections.begin(), axes.sections.begin() + 2, axes.sections.end());
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
                       message("expected a base, here or in ", kRopeParameters, "; model_type \"",
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

// The factor on each query by its position: Ministral 3 and Mistral 4 name it next to their rope,
// Llama 4 applies it on the layers that do not rotate.
void read_query_scale(const ObjectReader& top, const ModelKeys& keys, const LayerRope* rope,
                      LayerGroup& group) {
  if (rope != nullptr && rope->dictionary.query_beta) {
    group.query_scale = encodings::QueryScale{*rope->dictionary.query_beta,
                                              rope->dictionary.query_length.value_or(0), 0};
    group.sources.push_back({"query_scale", rope->path + ".llama_4_scaling_beta"});
  }
  if (rope == nullptr && keys.family != nullptr && keys.family->quirk == Quirk::temperature) {
    // Published configs write the switch as a number, too.
    const Json& use = top.value("attn_temperature_tuning");
    top.mark_understood("attn_temperature_tuning");
    if (use.is_boolean() ? !use.get<bool>() : use.is_number() && use.get<double>() == 0.0) return;
    group.query_scale = encodings::QueryScale{top.number("attn_scale").value_or(0.1),
                                              top.integer("floor_scale").value_or(8192), 1};
    group.sources.push_back({"query_scale", "attn_temperature_tuning, attn_scale, floor_scale"});
  }
  if (group.query_scale) encodings::validate(*group.query_scale);
}

}  // namespace

LayerRope read_flat(const ObjectReader& top, const ModelKeys& keys) {
  LayerRope rope;
  rope.base = keys.base;
  rope.base_key = keys.base_key;
  rope.head_dim = keys.head_dim;
  rope.path = kRopeParameters;
  const std::optional<ObjectReader> parameters = top.object(kRopeParameters);
  const std::optional<ObjectReader> scaling = top.object(kRopeScaling);
  if (parameters) {
    rope.dictionary =
        read_rope_dictionary(*parameters, DictionaryForm::rope_parameters, keys.lengths);
  }
  if (scaling) {
    RopeDictionary legacy =
        read_rope_dictionary(*scaling, DictionaryForm::rope_scaling, keys.lengths);
    if (parameters && (legacy.scaling != rope.dictionary.scaling ||
                       legacy.mrope_sections != rope.dictionary.mrope_sections)) {
      top.refuse(kRopeScaling,
                 message("must be equal to rope_parameters, got ", shown(top.value(kRopeScaling))));
    }
    if (!parameters) {
      rope.dictionary = std::move(legacy);
      rope.path = kRopeScaling;
    }
  }
  if (!parameters && !scaling && keys.family != nullptr &&
      keys.family->quirk == Quirk::scaling_required) {
    top.refuse_missing(kRopeParameters,
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

std::int64_t head_dim_of(const ModelKeys& keys, std::string_view layer_type) {
  return layer_type == kFullAttention && keys.global_head_dim > 0 ? keys.global_head_dim
                                                                  : keys.head_dim;
}

LayerGroup group_of(const ObjectReader& top, const ModelKeys& keys, std::string_view layer_type,
                    const LayerRope* rope, const std::string& why) {
  LayerGroup group;
  group.layer_type = layer_type;
  if (rope != nullptr) {
    group.rope = spec_of(top, keys, *rope);
    group.sources = sources_of(keys, *rope);
  } else {
    group.sources = {{"encoding", why}};
  }
  const std::int64_t head_dim = head_dim_of(keys, layer_type);
  group.softmax_scale = head_dim == 0 ? 0.0 : softmax_scale_of(top, keys, head_dim, group.rope);
  if (group.softmax_scale != 0.0)
    group.sources.push_back({"softmax_scale", softmax_source(top, keys)});
  read_query_scale(top, keys, rope, group);
  return group;
}

}  // namespace phasor::config
