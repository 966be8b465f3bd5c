// Two configs compared, layer by layer.
#include <algorithm>
#include <iterator>
#include <utility>

#include "phasor/core/internal/message_text.hpp"
#include "phasor/encodings/internal/listed_frequencies.hpp"
#include "porting/diff/compare_views.hpp"
#include "porting/json_values.hpp"
#include "porting/number_text.hpp"
#include "porting/plan/scaling_keys.hpp"

namespace phasor::porting {
namespace {

using config::LayerGroup;
using config::ModelConfig;

template <class Number>
[[nodiscard]] std::string text_of(const std::optional<Number>& value) {
  return value ? message(*value) : std::string("none");
}

class Facts {
 public:
  explicit Facts(std::vector<ConfigFact>& to) : to_(to) {}

  void add(std::string_view name, std::string first, std::string second) {
    if (first != second) to_.push_back({std::string(name), std::move(first), std::move(second)});
  }

 private:
  std::vector<ConfigFact>& to_;
};

[[nodiscard]] std::string layout_name(const encodings::RopeSpec& rope) {
  return rope.layout ? std::string(core::name_of(*rope.layout)) : std::string("unknown");
}

[[nodiscard]] std::string axes_text(const encodings::RopeSpec& rope) {
  if (const auto* mrope = std::get_if<encodings::MropeAxes>(&rope.axes)) {
    return message("sections ", core::shape_text(mrope->sections), " ",
                   encodings::name_of(mrope->order));
  }
  if (const auto* axial = std::get_if<encodings::AxialAxes>(&rope.axes))
    return message("height and width ", encodings::name_of(axial->kind));
  return "one";
}

// Parameters of other encodings, by name.
[[nodiscard]] std::string parameter_text(const config::PositionParameter& parameter) {
  if (const auto* flag = std::get_if<bool>(&parameter.value)) return *flag ? "true" : "false";
  if (const auto* list = std::get_if<std::vector<double>>(&parameter.value)) {
    return list->empty() ? "none"
                         : message(digits(list->front()), " to ", digits(list->back()), " (",
                                   list->size(), ")");
  }
  if (const auto* text = std::get_if<std::string>(&parameter.value)) return *text;
  if (const auto* number = std::get_if<double>(&parameter.value)) return message(*number);
  return message(std::get<std::int64_t>(parameter.value));
}

[[nodiscard]] std::string positions_text(const LayerGroup& group) {
  std::string text;
  for (const config::PositionEncoding& encoding : group.positions) {
    text += (text.empty() ? "" : "; ") + encoding.name;
    for (const config::PositionParameter& parameter : encoding.parameters)
      text += message(", ", parameter.name, " ", parameter_text(parameter));
  }
  return text.empty() ? "none" : text;
}

void add_rope_facts(const encodings::RopeSpec& first, const encodings::RopeSpec& second,
                    Facts& facts) {
  facts.add("layout", layout_name(first), layout_name(second));
  facts.add("head_dim", message(first.head_dim), message(second.head_dim));
  facts.add("rotary_dim", message(first.rotary_dim), message(second.rotary_dim));
  facts.add("rotary_offset", message(first.rotary_offset), message(second.rotary_offset));
  facts.add("base", text_of(encodings::base_of(first)), text_of(encodings::base_of(second)));
  facts.add("scaling", scaling_text(first.scaling), scaling_text(second.scaling));
  facts.add("axes", axes_text(first), axes_text(second));
}

// What the config means, as a reading that can be compared.
[[nodiscard]] EngineView view_of_meaning(const LayerGroup& group, std::string name,
                                         std::int64_t context) {
  EngineView view;
  view.dialect = std::move(name);
  const core::Frequencies resolved = encodings::listed_frequencies(*group.rope, context);
  view.frequencies.assign(resolved.values().begin(), resolved.values().end());
  view.rounding.assign(view.frequencies.size(), 0.0);
  view.amplitude = resolved.amplitude();
  view.softmax_scale = group.softmax_scale;
  return view;
}

[[nodiscard]] std::string query_scale_text(const LayerGroup& group) {
  if (!group.query_scale) return "none";
  return message("beta ", group.query_scale->beta, ", length ", group.query_scale->length,
                 ", offset ", group.query_scale->offset);
}

[[nodiscard]] ConfigGroupDiff compare_groups(const LayerGroup& first, const LayerGroup& second,
                                             const RunState& state) {
  ConfigGroupDiff made;
  made.first_type = first.layer_type;
  made.second_type = second.layer_type;
  Facts facts(made.facts);
  facts.add("encoding", encoding_name(first), encoding_name(second));
  facts.add("window", text_of(first.window), text_of(second.window));
  facts.add("chunk", text_of(first.chunk), text_of(second.chunk));
  facts.add("softmax_scale", digits(first.softmax_scale), digits(second.softmax_scale));
  facts.add("query_scale", query_scale_text(first), query_scale_text(second));
  facts.add("positions", positions_text(first), positions_text(second));
  if (first.rope && second.rope) {
    add_rope_facts(*first.rope, *second.rope, facts);
    EngineComparison rotation = compare_views(view_of_meaning(first, "A", state.context),
                                              view_of_meaning(second, "B", state.context), state);
    facts.add("amplitude", digits(view_of_meaning(first, "A", state.context).amplitude),
              digits(view_of_meaning(second, "B", state.context).amplitude));
    if (rotation.status != ComparisonStatus::agree) made.rotation = std::move(rotation);
  }
  return made;
}

[[nodiscard]] std::vector<std::int64_t> common(const std::vector<std::int64_t>& a,
                                               const std::vector<std::int64_t>& b) {
  std::vector<std::int64_t> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

[[nodiscard]] std::int64_t layer_count(const ModelConfig& model) {
  std::int64_t count = 0;
  for (const LayerGroup& group : model.groups)
    count += static_cast<std::int64_t>(group.layers.size());
  return count;
}

void compare_layers(const ModelConfig& first, const ModelConfig& second, const RunState& state,
                    ConfigDiff& report) {
  // Encoders and decoders count their layers separately: groups meet under one name.
  const auto sides = [](const ModelConfig& model) {
    return std::any_of(model.groups.begin(), model.groups.end(),
                       [](const LayerGroup& group) { return group.layer_type == "decoder"; });
  };
  const bool by_side = sides(first) && sides(second);
  const bool counted = layer_count(first) > 0 && layer_count(second) > 0;
  for (std::size_t i = 0; i < first.groups.size(); ++i) {
    for (std::size_t j = 0; j < second.groups.size(); ++j) {
      const LayerGroup &a = first.groups[i], &b = second.groups[j];
      if (by_side && a.layer_type != b.layer_type) continue;
      std::vector<std::int64_t> layers = common(a.layers, b.layers);
      if (counted ? layers.empty() : i != j) continue;
      ConfigGroupDiff made = compare_groups(a, b, state);
      if (made.facts.empty() && !made.rotation) {
        report.same_layers += static_cast<std::int64_t>(layers.size());
        continue;
      }
      made.layers = std::move(layers);
      report.groups.push_back(std::move(made));
    }
  }
}

[[nodiscard]] Json facts_json(const std::vector<ConfigFact>& facts) {
  Json made = Json::array();
  for (const ConfigFact& fact : facts)
    made.push_back({{"name", fact.name}, {"first", fact.first}, {"second", fact.second}});
  return made;
}

}  // namespace

Result<ConfigDiff> diff_configs(const ReadableConfig& first, const ReadableConfig& second,
                                const DiffOptions& options) {
  const ModelConfig &a = first.meaning, &b = second.meaning;
  ConfigDiff report;
  report.first_type = a.model_type;
  report.second_type = b.model_type;
  report.context = options.context.value_or(
      std::max(a.max_position.value_or(kAssumedContext), b.max_position.value_or(kAssumedContext)));
  if (report.context < 1 || report.context >= kContextLimit) {
    return Error(ErrorCode::invalid_argument,
                 message("diff: context must be at least 1 and below 2^40, got ", report.context));
  }
  try {
    Facts facts(report.facts);
    facts.add("model_type", a.model_type, b.model_type);
    facts.add("layers", message(layer_count(a)), message(layer_count(b)));
    facts.add("heads", text_of(a.heads), text_of(b.heads));
    facts.add("key_heads", text_of(a.key_heads), text_of(b.key_heads));
    facts.add("max_position_embeddings", text_of(a.max_position), text_of(b.max_position));
    facts.add("trained_length", text_of(a.trained_length), text_of(b.trained_length));
    facts.add("rotates_values", a.rotates_values ? "true" : "false",
              b.rotates_values ? "true" : "false");
    compare_layers(a, b, {report.context, std::nullopt, 0}, report);
  } catch (const Error& error) {
    return error;
  }
  report.agree = report.facts.empty() && report.groups.empty();
  return report;
}

std::string config_diff_json(const ConfigDiff& diff) {
  Json made;
  made["first"] = diff.first_type;
  made["second"] = diff.second_type;
  made["context"] = diff.context;
  made["agree"] = diff.agree;
  made["same_layers"] = diff.same_layers;
  made["facts"] = facts_json(diff.facts);
  made["groups"] = Json::array();
  for (const ConfigGroupDiff& group : diff.groups) {
    Json entry;
    entry["layers"] = group.layers;
    entry["first_type"] = group.first_type;
    entry["second_type"] = group.second_type;
    entry["facts"] = facts_json(group.facts);
    entry["rotation"] = group.rotation ? comparison_json(*group.rotation) : Json(nullptr);
    made["groups"].push_back(std::move(entry));
  }
  return made.dump({.bad_utf8 = io::JsonStyle::BadUtf8::replace});
}

}  // namespace phasor::porting
