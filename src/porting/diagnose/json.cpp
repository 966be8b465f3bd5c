#include <cmath>

#include "phasor/porting/diagnose.hpp"
#include "porting/json_values.hpp"

namespace phasor::porting {
namespace {

Json list(const std::vector<double>& values) {
  Json array = Json::array();
  for (const double value : values) array.push_back(json_of(value));
  return array;
}

Json scaling_json(const FoundScaling& scaling) {
  Json object;
  object["type"] = scaling.type;
  for (const auto& [name, value] : scaling.numbers) {
    if (name == "truncate") {
      object[name] = value != 0.0;
    } else if (name == "original_max_position_embeddings" && std::abs(value) < 0x1p53) {
      object[name] = static_cast<std::int64_t>(std::llround(value));
    } else {
      object[name] = json_of(value);
    }
  }
  if (!scaling.factors.empty()) object["factors"] = list(scaling.factors);
  return object;
}

Json differences_json(const std::vector<ConfigDifference>& differences) {
  Json array = Json::array();
  for (const ConfigDifference& difference : differences) {
    array.push_back({{"field", difference.field},
                     {"asked", difference.asked},
                     {"found", difference.found},
                     {"text", difference.text}});
  }
  return array;
}

Json found_cause_json(const FoundCause& cause) {
  return {{"id", cause.id},
          {"text", cause.text},
          {"residual", json_of(cause.residual)},
          {"fields", differences_json(cause.fields)}};
}

void add_rotation(const Diagnosis& found, Json& answer) {
  answer["layout"] = json_of(found.layout);
  answer["head_dim"] = found.head_dim;
  answer["rotary_dim"] = json_of(found.rotary_dim);
  answer["rotary_offset"] = found.rotary_offset;
  answer["base"] = json_of(found.base);
  answer["scaling"] = found.scaling ? scaling_json(*found.scaling) : Json(nullptr);
  answer["effective_base"] = json_of(found.effective_base);
  answer["inverse"] = json_of(found.inverse);
  answer["amplitude"] = json_of(found.amplitude);
  answer["positions"] = found.positions;
  answer["offset"] = json_of(found.offset);
  if (!found.found_positions.empty()) answer["found_positions"] = list(found.found_positions);
  answer["table_dtype"] = json_of(found.table_dtype);
  answer["tensor_dtype"] = found.tensor_dtype;
  if (found.arithmetic) answer["arithmetic"] = *found.arithmetic;
  answer["frequencies"] = list(found.frequencies);
  answer["measured_frequencies"] = list(found.measured_frequencies);
  answer["frequency_errors"] = list(found.frequency_errors);
}

}  // namespace

std::string diagnose_json(const Diagnosis& found, const ConfigCheck* check) {
  Json answer;
  if (check != nullptr) {
    answer["verdict"] = check->agrees ? "as_config" : "differs";
    answer["verdict_text"] = check->text;
    answer["cause"] = check->cause ? found_cause_json(*check->cause) : Json(nullptr);
    answer["alternatives"] = Json::array();
    for (const FoundCause& other : check->alternatives) {
      answer["alternatives"].push_back(found_cause_json(other));
    }
    answer["agrees_with_config"] = check->agrees;
    answer["differences"] = differences_json(check->differences);
    answer["context"] = json_of(check->context);
  }
  answer["answer"] = found.answer == Answer::rope ? "rope" : "none";
  if (found.answer == Answer::rope) {
    add_rotation(found, answer);
  } else {
    answer["reason"] = found.reason;
    answer["head_dim"] = found.head_dim;
    answer["tensor_dtype"] = found.tensor_dtype;
  }
  answer["residual"] = json_of(found.residual);
  answer["rounding_floor"] = json_of(found.rounding_floor);
  answer["runner_up"] = nullptr;
  if (found.runner_up) {
    Json& other = answer["runner_up"];
    other = Json::object();
    other["what"] = found.runner_up->what;
    other["layout"] = found.runner_up->layout;
    if (!found.runner_up->scaling.empty()) other["scaling"] = {{"type", found.runner_up->scaling}};
    other["residual"] = json_of(found.runner_up->residual);
  }
  answer["readings"] = Json::array();
  for (const Reading& reading : found.readings) {
    answer["readings"].push_back({{"text", reading.text},
                                  {"base", json_of(reading.base)},
                                  {"scaling", scaling_json(reading.scaling)}});
  }
  answer["undetermined"] = Json::object();
  for (const auto& [field, reason] : found.undetermined) answer["undetermined"][field] = reason;
  answer["axes"] = found.axes;
  answer["notes"] = found.notes;
  return answer.dump();
}

}  // namespace phasor::porting
