#include "phasor/porting/internal/runs.hpp"
#include "porting/json_values.hpp"

namespace phasor::porting {
namespace {

Json part_json(const RunPart& part) {
  return {{"name", part.name},
          {"other_name", part.other_name},
          {"relation", name_of(part.difference.relation)},
          {"difference", json_of(part.difference.difference)},
          {"tolerance", json_of(part.difference.tolerance)},
          {"precision", part.difference.precision},
          {"text", part.difference.text}};
}

Json rotation_json(const std::optional<RunRotation>& rotation) {
  if (!rotation) return nullptr;
  return {{"text", rotation->text},
          {"as_the_config_says", rotation->check ? Json(rotation->check->agrees) : Json(nullptr)},
          {"diagnosis", Json::parse(diagnose_json(rotation->found,
                                                  rotation->check ? &*rotation->check : nullptr))}};
}

Json index_json(const RunsReport& report, const std::optional<std::size_t>& index) {
  return index ? Json(report.parts[*index].name) : Json(nullptr);
}

}  // namespace

std::string runs_json(const RunsReport& report) {
  Json answer;
  answer["equal"] = !report.first.has_value();
  answer["first_difference"] =
      report.first ? part_json(report.parts[*report.first]) : Json(nullptr);
  answer["rotated_from"] = report.rotated_from.empty() ? Json(nullptr) : Json(report.rotated_from);
  answer["rotation_a"] = rotation_json(report.rotation_a);
  answer["rotation_b"] = rotation_json(report.rotation_b);
  answer["rotations_differ_in"] = report.rotations;
  answer["both_differ_from_the_config"] =
      report.both_differ.empty() ? Json(nullptr) : Json(report.both_differ);
  answer["later"] = report.later;
  answer["later_differing"] = report.later_differing;
  answer["next_jump"] = index_json(report, report.next_jump);
  answer["only_a"] = report.only_a;
  answer["only_b"] = report.only_b;
  answer["tensors"] = Json::array();
  for (const RunPart& part : report.parts) answer["tensors"].push_back(part_json(part));
  return answer.dump({.bad_utf8 = io::JsonStyle::BadUtf8::replace});
}

}  // namespace phasor::porting
