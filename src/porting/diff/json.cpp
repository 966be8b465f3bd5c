#include <algorithm>

#include "phasor/porting/diff.hpp"
#include "porting/json_values.hpp"

namespace phasor::porting {
namespace {

[[nodiscard]] Json rule_json(const DialectRule& rule) {
  Json made;
  made["id"] = rule.id;
  made["sentence"] = rule.sentence;
  made["source"] = rule.source;
  made["evidence"] = name_of(rule.evidence);
  made["touches"] = name_of(rule.touches);
  return made;
}

[[nodiscard]] Json in_force_json(const RuleInForce& rule) {
  Json made = rule_json(rule.rule);
  made["effect"] = rule.effect;
  made["changes"] = rule.changes;
  return made;
}

[[nodiscard]] Json dialect_json(const Dialect& dialect) {
  Json made;
  made["name"] = dialect.name;
  made["engine"] = dialect.engine;
  made["version"] = dialect.version;
  made["rules"] = Json::array();
  for (const DialectRule& rule : dialect.rules) made["rules"].push_back(rule_json(rule));
  return made;
}

[[nodiscard]] Json view_json(const EngineView& view) {
  Json made;
  made["dialect"] = view.dialect;
  made["readable"] = view.refusal.empty();
  if (!view.refusal.empty()) {
    made["refusal"] = view.refusal;
  } else {
    made["frequencies"] = view.frequencies;
    made["position_divisor"] = view.position_divisor;
    made["amplitude"] = json_of(view.amplitude);
    made["softmax_scale"] = view.softmax_scale > 0.0 ? json_of(view.softmax_scale) : Json(nullptr);
    made["key_gain_per_shift"] = json_of(view.key_gain_per_shift);
    made["key_gain"] = json_of(view.key_gain);
    made["stale_key_angle"] = json_of(view.stale_key_angle);
    double rounding = 0.0;
    for (const double error : view.rounding) rounding = std::max(rounding, error);
    made["float32_angle_error"] = json_of(rounding);
  }
  made["rules"] = Json::array();
  for (const RuleInForce& rule : view.rules) made["rules"].push_back(in_force_json(rule));
  return made;
}

[[nodiscard]] Json frequency_json(const std::optional<FrequencyPart>& part) {
  if (!part) return nullptr;
  return {{"pair", part->pair},
          {"first", part->first},
          {"second", part->second},
          {"ratio", json_of(part->ratio)}};
}

[[nodiscard]] std::string_view name_of(PartStatus status) {
  switch (status) {
    case PartStatus::agree:
      return "agree";
    case PartStatus::differ:
      return "differ";
    case PartStatus::unreadable:
      break;
  }
  return "unreadable";
}

[[nodiscard]] Json part_json(const EnginePart& part) {
  Json made;
  made["first"] = part.first;
  made["second"] = part.second;
  made["status"] = name_of(part.status);
  made["first_difference"] = frequency_json(part.first_difference);
  made["largest_ratio"] = frequency_json(part.largest_ratio);
  made["amplitude_ratio"] = json_of(part.amplitude_ratio);
  made["softmax_ratio"] = json_of(part.softmax_ratio);
  made["key_gain_ratio"] = json_of(part.key_gain_ratio);
  made["angle_difference"] = json_of(part.angle_difference);
  made["angle_pair"] = part.angle_pair;
  made["rounding_difference"] = json_of(part.rounding_difference);
  made["score_bound_even"] = json_of(part.score_bound_even);
  made["score_bound"] = json_of(part.score_bound);
  made["causes"] = Json::array();
  for (const CauseOfPart& cause : part.causes) {
    Json rule = in_force_json(cause.rule);
    rule["dialect"] = cause.dialect;
    made["causes"].push_back(std::move(rule));
  }
  return made;
}

[[nodiscard]] std::string_view name_of(ConfigForm form) {
  switch (form) {
    case ConfigForm::plain:
      return "plain";
    case ConfigForm::legacy:
      return "legacy";
    case ConfigForm::flat:
      return "rope_parameters";
    case ConfigForm::nested:
      break;
  }
  return "rope_parameters_per_layer_type";
}

}  // namespace

std::string diff_json(const DiffReport& report) {
  Json made;
  made["model_type"] = report.model_type;
  made["form"] = name_of(report.form);
  made["context"] = report.context;
  made["context_source"] = report.context_source;
  made["max_length"] = report.max_length ? Json(*report.max_length) : Json(nullptr);
  made["shifts"] = report.shifts;
  made["agree"] = report.agree;
  made["dialects"] = Json::array();
  for (const Dialect& dialect : report.dialects) made["dialects"].push_back(dialect_json(dialect));
  made["groups"] = Json::array();
  for (const GroupDiff& group : report.groups) {
    Json entry;
    entry["layer_type"] = group.layer_type;
    entry["layers"] = group.layers;
    entry["scaling"] = group.scaling;
    entry["head_dim"] = group.head_dim;
    entry["rotary_dim"] = group.rotary_dim;
    entry["base"] = group.base;
    entry["views"] = Json::array();
    for (const EngineView& view : group.views) entry["views"].push_back(view_json(view));
    entry["comparisons"] = Json::array();
    for (const EnginePart& part : group.parts) entry["comparisons"].push_back(part_json(part));
    made["groups"].push_back(std::move(entry));
  }
  made["layers_without_rotation"] = report.layers_without_rotation;
  return made.dump();
}

std::string dialects_json() {
  Json made = Json::array();
  for (const Dialect& dialect : dialects()) made.push_back(dialect_json(dialect));
  return made.dump();
}

}  // namespace phasor::porting
