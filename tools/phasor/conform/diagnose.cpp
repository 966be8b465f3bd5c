// Golden kind diagnose: the rotation from `before` to `after`, compared with the answer.
#include <cmath>
#include <optional>
#include <string>

#include "conform/case.hpp"
#include "conform/kinds.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/porting/diagnose.hpp"

namespace phasor::tools {
namespace {

using json = io::Json;

// "scaling.factor" -> object["scaling"]["factor"]; null when missing.
json at_path(const json& object, const std::string& path) {
  const std::size_t dot = path.find('.');
  const std::string key = path.substr(0, dot);
  if (!object.is_object() || !object.contains(key)) return nullptr;
  return dot == std::string::npos ? object.at(key) : at_path(object.at(key), path.substr(dot + 1));
}

void check_field(const json& expected, const json& got, const std::string& field, const json& rule,
                 Comparison& comparison) {
  const json wanted = at_path(expected, field);
  const json found = at_path(got, field);
  const auto text = [](const json& value) {
    return value.dump({.keys = io::JsonStyle::Keys::sorted});
  };
  const auto fail = [&] {
    refuse(message(field, ": expected ", text(wanted), ", got ", text(found)));
  };
  if (rule == "exact") {
    if (wanted != found) fail();
    return;
  }
  if (!wanted.is_number() || !found.is_number()) fail();
  comparison.number(field, found.get<double>(), wanted.get<double>(),
                    member<double>(rule, "rtol", "checked." + field));
}

// The axes of the case's own description are not used: the command line has none either.
void diagnose(const Case& golden, Comparison& comparison) {
  const auto positions = golden.inputs.find("positions");
  const porting::Diagnosis found =
      porting::diagnose({&golden.input("before").data,
                         &golden.input("after").data,
                         positions == golden.inputs.end() ? nullptr : &positions->second.data,
                         {}});
  const json got = json::parse(porting::diagnose_json(found));
  const auto expected = member<json>(golden, "expected");
  const auto checked = member<json>(golden, "checked");
  if (!checked.is_object() || checked.empty()) {
    refuse("case.json: 'checked' is missing or empty; it lists the fields to compare");
  }
  for (const io::JsonMember* const check : checked.sorted_items()) {
    check_field(expected, got, check->key, check->value, comparison);
  }
  for (const auto& [name, truth] : golden.truth) {
    Computed frequencies;
    frequencies.values = found.frequencies;
    frequencies.shape = {static_cast<std::int64_t>(found.frequencies.size())};
    comparison.entry(name, frequencies);
  }
}

}  // namespace

void add_diagnose_kinds(Kinds& kinds) { kinds["diagnose"] = diagnose; }

}  // namespace phasor::tools
