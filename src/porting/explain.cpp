#include "phasor/porting/config_reports.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "phasor/encodings/internal/listed_frequencies.hpp"
#include "phasor/io/internal/json.hpp"
#include "porting/json_values.hpp"
#include "porting/plan/scaling_keys.hpp"

namespace phasor::porting {
namespace {

using config::LayerGroup;
using encodings::RopeSpec;

[[nodiscard]] LayerExplanation explain_group(const LayerGroup& group,
                                             const config::ModelConfig& config,
                                             std::optional<std::int64_t> context) {
  LayerExplanation layer;
  layer.group = group;
  if (!group.rope) return layer;
  const RopeSpec& rope = *group.rope;
  layer.trained_length = encodings::original_length(rope.scaling);
  if (!layer.trained_length) layer.trained_length = config.trained_length;
  if (!layer.trained_length) layer.trained_length = config.max_position;
  const core::Frequencies frequencies = encodings::listed_frequencies(rope, context);
  layer.amplitude = frequencies.amplitude();
  for (const double frequency : frequencies.values()) {
    PairRotations pair;
    pair.frequency = frequency;
    pair.wavelength = frequency == 0.0 ? std::numeric_limits<double>::infinity()
                                       : 2.0 * std::numbers::pi / std::abs(frequency);
    if (layer.trained_length)
      pair.rotations = static_cast<double>(*layer.trained_length) / pair.wavelength;
    layer.pairs.push_back(pair);
  }
  return layer;
}

class Warnings {
 public:
  explicit Warnings(Explanation& explanation) : to_(explanation) {}

  void add(std::string text) {
    if (seen_.insert(text).second) to_.warnings.push_back(std::move(text));
  }

  void about_context() {
    for (const LayerExplanation& layer : to_.layers) {
      // A sliding window bounds the distances for every length of the sequence.
      if (!layer.group.rope || !to_.context || !layer.trained_length || layer.group.window)
        continue;
      const std::int64_t offered =
          std::max(*layer.trained_length, to_.config.max_position.value_or(0));
      if (*to_.context > offered) beyond_training(layer, offered);
    }
  }

  void about_numbers() {
    for (const LayerExplanation& layer : to_.layers) {
      if (!layer.group.rope) continue;
      const RopeSpec& rope = *layer.group.rope;
      if (!rope.layout) {
        add(message("layout: unknown for model_type \"", to_.config.model_type,
                    "\"; no key of the config says which two features form a pair"));
      }
      for (const config::Source& source : layer.group.sources) {
        if (source.what == "base" && source.key.starts_with("default of model_type")) {
          add(message("base: missing in the config; ", rope.base, " is the ", source.key));
        }
      }
      if (encodings::depends_on_context(rope)) {
        add(message("scaling ", name_of(rope.scaling),
                    ": the frequencies change with the length of the sequence, so keys cached at "
                    "another length must be rotated again"));
      }
      about_lengths(rope);
    }
  }

  void about_keys() {
    for (const config::KeyNote& note : to_.config.notes) add(note.key + ": " + note.note);
  }

  // How other engines read the config.
  void about_engines(const DiffReport& report) {
    for (const GroupDiff& group : report.groups) {
      for (const EngineView& view : group.views) {
        if (!view.refusal.empty())
          add(message(view.dialect, " cannot read this config: ", view.refusal));
        for (const RuleInForce& rule : view.rules) {
          if (!rule.changes) continue;
          const std::string source =
              rule.rule.source.empty() ? "" : message(" (", rule.rule.source, ")");
          add(message(view.dialect, " reads this config differently: ", rule.effect, source));
        }
      }
    }
  }

 private:
  void beyond_training(const LayerExplanation& layer, std::int64_t offered) {
    const auto slow = std::count_if(layer.pairs.begin(), layer.pairs.end(), [](const auto& pair) {
      return pair.rotations && *pair.rotations < 1.0 && *pair.rotations > 0.0;
    });
    const std::string& type = layer.group.layer_type;
    add(message("context ", *to_.context, " exceeds the ", offered,
                " positions that the model was trained for", type.empty() ? "" : " (" + type + ")",
                ": ", slow, " of ", layer.pairs.size(),
                " pairs make less than one full rotation within the trained length and reach "
                "angles that did not occur in training; compare scalings with phasor plan"));
  }

  // YaRN is made for factor * original positions; max_position_embeddings may differ.
  void about_lengths(const RopeSpec& rope) {
    const std::optional<std::int64_t> original = encodings::original_length(rope.scaling);
    const auto* yarn = std::get_if<encodings::YarnScaling>(&rope.scaling);
    if (yarn == nullptr || !original || !to_.config.max_position) return;
    const double reach = yarn->factor * static_cast<double>(*original);
    const auto offered = static_cast<double>(*to_.config.max_position);
    if (std::abs(reach / offered - 1.0) < 0.01) return;
    add(message(to_.config.max_position_key, ": ", *to_.config.max_position, " is not factor ",
                yarn->factor, " times the original ", *original, " = ", reach,
                "; servers take their limit from the first, the frequencies follow the second"));
  }

  Explanation& to_;
  std::set<std::string> seen_;
};

// Engines can be compared if a layer rotates.
[[nodiscard]] bool comparable(const Explanation& explanation) {
  return std::any_of(explanation.layers.begin(), explanation.layers.end(),
                     [](const LayerExplanation& layer) { return layer.group.rope.has_value(); });
}

[[nodiscard]] Json axes_json(const RopeSpec& rope) {
  if (const auto* mrope = std::get_if<encodings::MropeAxes>(&rope.axes)) {
    return {{"kind", "mrope"},
            {"sections", mrope->sections},
            {"order", encodings::name_of(mrope->order)}};
  }
  if (const auto* axial = std::get_if<encodings::AxialAxes>(&rope.axes))
    return {{"kind", "axial"}, {"order", encodings::name_of(axial->kind)}};
  return nullptr;
}

void add_rope_json(const LayerExplanation& layer, Json& to) {
  const RopeSpec& rope = *layer.group.rope;
  to["layout"] = rope.layout ? Json(core::name_of(*rope.layout)) : Json(nullptr);
  to["head_dim"] = rope.head_dim;
  to["rotary_dim"] = rope.rotary_dim;
  to["rotary_offset"] = rope.rotary_offset;
  to["base"] = json_of(encodings::base_of(rope));
  to["scaling"] = {{"type", encodings::name_of(rope.scaling)}};
  write_scaling_keys(rope.scaling, DefaultKeys::write, to["scaling"]);
  to["axes"] = axes_json(rope);
  to["amplitude"] = layer.amplitude;
  to["depends_on_context"] = encodings::depends_on_context(rope);
  to["trained_length"] = json_of(layer.trained_length);
  Json frequencies = Json::array(), wavelengths = Json::array(), rotations = Json::array();
  for (const PairRotations& pair : layer.pairs) {
    frequencies.push_back(pair.frequency);
    wavelengths.push_back(json_of(pair.wavelength));
    rotations.push_back(json_of(pair.rotations));
  }
  to["frequencies"] = std::move(frequencies);
  to["wavelengths"] = std::move(wavelengths);
  to["turns"] = std::move(rotations);
}

[[nodiscard]] Json value_json(const config::PositionParameter& parameter) {
  const auto* list = std::get_if<std::vector<double>>(&parameter.value);
  const auto is_whole = [](double value) {
    return std::floor(value) == value && std::abs(value) < 1e15;
  };
  if (list != nullptr && std::all_of(list->begin(), list->end(), is_whole)) {
    Json sizes = Json::array();
    for (const double value : *list) sizes.push_back(static_cast<std::int64_t>(value));
    return sizes;
  }
  return std::visit([](const auto& value) { return Json(value); }, parameter.value);
}

[[nodiscard]] Json position_json(const config::PositionEncoding& encoding) {
  Json to;
  to["encoding"] = encoding.name;
  to["acts_on"] = encoding.acts_on;
  to["parameters"] = Json::object();
  to["sources"] = Json::object();
  for (const config::PositionParameter& parameter : encoding.parameters) {
    to["parameters"][parameter.name] = value_json(parameter);
    to["sources"][parameter.name] = parameter.key;
  }
  return to;
}

[[nodiscard]] Json layer_json(const LayerExplanation& layer, const config::ModelConfig& config) {
  Json to;
  to["layers"] = layer.group.layers;
  to["layer_type"] = layer.group.layer_type;
  to["encoding"] = encoding_name(layer.group);
  if (layer.group.rope) {
    add_rope_json(layer, to);
  } else {
    for (const char* key : {"layout", "rotary_dim", "base", "scaling", "amplitude"})
      to[key] = nullptr;
    to["head_dim"] = config.head_dim;
    to["frequencies"] = Json::array();
  }
  to["softmax_scale"] =
      layer.group.softmax_scale == 0.0 ? Json(nullptr) : Json(layer.group.softmax_scale);
  to["window"] = json_of(layer.group.window);
  to["chunk"] = json_of(layer.group.chunk);
  to["positions"] = Json::array();
  for (const config::PositionEncoding& encoding : layer.group.positions)
    to["positions"].push_back(position_json(encoding));
  const std::optional<encodings::QueryScale>& scale = layer.group.query_scale;
  to["query_scale"] =
      !scale ? Json(nullptr)
             : Json{{"beta", scale->beta}, {"length", scale->length}, {"offset", scale->offset}};
  to["sources"] = Json::object();
  for (const config::Source& source : layer.group.sources) to["sources"][source.what] = source.key;
  return to;
}

}  // namespace

std::string encoding_name(const config::LayerGroup& group) {
  if (group.rope) return group.rope->xpos ? "xpos" : "rope";
  return group.positions.empty() ? "none" : group.positions.front().name;
}

Result<Explanation> explain(const ReadableConfig& config, std::optional<std::int64_t> context) {
  if (context && *context < 1) {
    return Error(ErrorCode::invalid_argument,
                 message("explain: context must be at least 1, got ", *context));
  }
  Explanation explanation;
  explanation.config = config.meaning;
  explanation.context = context;
  try {
    for (const LayerGroup& group : config.meaning.groups) {
      explanation.layers.push_back(explain_group(group, config.meaning, context));
    }
  } catch (const Error& error) {
    return error;
  }
  Warnings warnings(explanation);
  warnings.about_context();
  warnings.about_numbers();
  if (comparable(explanation)) {
    DiffOptions options;
    options.context = context;
    const Result<DiffReport> report = diff(config, options);
    if (!report) return report.error();
    warnings.about_engines(*report);
  }
  warnings.about_keys();
  return explanation;
}

std::string explain_json(const Explanation& explanation) {
  const config::ModelConfig& config = explanation.config;
  Json to;
  to["model_type"] = config.model_type;
  to["part"] = config.part;
  to["other_positions"] =
      config.other_positions.empty() ? Json(nullptr) : Json(config.other_positions);
  to["max_position_embeddings"] = json_of(config.max_position);
  to["trained_length"] = json_of(config.trained_length);
  to["context"] = json_of(explanation.context);
  to["heads"] = json_of(config.heads);
  to["key_heads"] = json_of(config.key_heads);
  to["rotates_values"] = config.rotates_values;
  to["layers"] = Json::array();
  for (const LayerExplanation& layer : explanation.layers) {
    to["layers"].push_back(layer_json(layer, config));
  }
  to["warnings"] = explanation.warnings;
  to["unread_keys"] = config.unread_keys;
  to["unknown_keys"] = config.unknown_keys;
  return to.dump({.bad_utf8 = io::JsonStyle::BadUtf8::replace});
}

std::string scaling_text(const encodings::RopeScaling& scaling) {
  Json keys = Json::object();
  write_scaling_keys(scaling, DefaultKeys::write, keys);
  std::string text(encodings::name_of(scaling));
  for (const auto& [key, value] : keys.items()) {
    text += (text.find(':') == std::string::npos ? ": " : ", ") + key + " ";
    if (value.is_number()) {
      text += message(value.get<double>());
    } else if (!value.is_array()) {
      text += value.dump();
    } else if (!value.empty()) {
      text += message(value.front().dump(), " to ", value.back().dump(), " (", value.size(), ")");
    }
  }
  return text;
}

}  // namespace phasor::porting
