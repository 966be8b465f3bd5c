#include <algorithm>

#include "phasor/core/internal/enum_names.hpp"
#include "phasor/porting/config_reports.hpp"
#include "porting/diff/compare_views.hpp"
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

[[nodiscard]] Json frequency_json(const std::optional<FrequencyDifference>& difference) {
  if (!difference) return nullptr;
  return {{"pair", difference->pair},
          {"first", difference->first},
          {"second", difference->second},
          {"ratio", json_of(difference->ratio)}};
}

constexpr core::EnumNames<ComparisonStatus::unreadable> kStatuses("agree", "differ", "unreadable");
constexpr core::EnumNames<ConfigForm::nested> kForms("plain", "legacy", "rope_parameters",
                                                     "rope_parameters_per_layer_type");

}  // namespace

Json comparison_json(const EngineComparison& compared) {
  Json made;
  made["first"] = compared.first;
  made["second"] = compared.second;
  made["status"] = kStatuses[compared.status];
  made["first_difference"] = frequency_json(compared.first_difference);
  made["largest_ratio"] = frequency_json(compared.largest_ratio);
  made["amplitude_ratio"] = json_of(compared.amplitude_ratio);
  made["softmax_ratio"] = json_of(compared.softmax_ratio);
  made["key_gain_ratio"] = json_of(compared.key_gain_ratio);
  made["angle_difference"] = json_of(compared.angle_difference);
  made["angle_pair"] = compared.angle_pair;
  made["rounding_difference"] = json_of(compared.rounding_difference);
  made["score_bound_even"] = json_of(compared.score_bound_even);
  made["score_bound"] = json_of(compared.score_bound);
  made["causes"] = Json::array();
  for (const DifferenceCause& cause : compared.causes) {
    Json rule = in_force_json(cause.rule);
    rule["dialect"] = cause.dialect;
    made["causes"].push_back(std::move(rule));
  }
  return made;
}

std::string diff_json(const DiffReport& report) {
  Json made;
  made["model_type"] = report.model_type;
  made["form"] = kForms[report.form];
  made["context"] = report.context;
  made["context_source"] = report.context_source;
  made["max_length"] = json_of(report.max_length);
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
    entry["base"] = json_of(group.base);
    entry["views"] = Json::array();
    for (const EngineView& view : group.views) entry["views"].push_back(view_json(view));
    entry["comparisons"] = Json::array();
    for (const EngineComparison& compared : group.comparisons)
      entry["comparisons"].push_back(comparison_json(compared));
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
