// The rotation in the data together with the verdict on a config.
#include <algorithm>

#include "phasor/core/error.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/porting/diagnose.hpp"
#include "porting/number_text.hpp"
#include "porting/share.hpp"

namespace phasor::porting {
namespace {

// The config explains the data: its numbers hold also where the data alone do not determine them.
void adopt(const encodings::RopeSpec& spec, const ConfigCheck& check, Diagnosis& found) {
  const core::Frequencies frequencies = encodings::resolve_frequencies(spec, check.context);
  const std::string type(encodings::name_of(spec.scaling));
  found.answer = Answer::rope;
  found.reason.clear();
  found.layout = check.layout;
  found.rotary_dim = 2 * frequencies.pairs();
  found.rotary_offset = spec.rotary_offset;
  found.base = encodings::base_of(spec);
  if (!found.scaling || found.scaling->type != type) found.scaling = FoundScaling{type, {}, {}};
  found.effective_base.reset();
  found.inverse = false;
  found.amplitude = frequencies.amplitude();
  found.positions = check.positions;
  found.offset = check.offset;
  found.found_positions.clear();
  if (!found.table_dtype) {
    found.table_dtype = check.angles == "float32" ? "float32_angles" : "exact";
  }
  found.frequencies.assign(frequencies.values().begin(), frequencies.values().end());
  found.residual = check.residual;
  found.readings.clear();
  found.undetermined.clear();
}

// Frequencies that no mistake explains may follow the formula of another config.
void name_formula(const encodings::RopeSpec& spec, const Diagnosis& found, ConfigCheck& check) {
  const bool open = check.cause && check.cause->id == "frequencies";
  if (!open || found.answer != Answer::rope || !found.base || !found.scaling) return;
  if (found.scaling->type == "unknown" || found.scaling->type == "longrope") return;
  const std::string asked(encodings::name_of(spec.scaling));
  std::string text = message("the frequencies are those of ", found.scaling->type,
                             " scaling with base ", digits(*found.base));
  for (const auto& [name, value] : found.scaling->numbers) {
    text += message(", ", name, " ", digits(value, 5));
  }
  text += message("; the config has ", asked, " scaling");
  if (const auto base = encodings::base_of(spec)) text += message(" with base ", digits(*base));
  check.cause->id = found.scaling->type == asked ? "scaling_parameters" : "scaling_type";
  check.cause->text = check.text = text;
  check.differences = {{"scaling", asked, found.scaling->type, text}};
  check.cause->fields = check.differences;
}

}  // namespace

ConfigDiagnosis diagnose(const DiagnoseInput& input, const encodings::RopeSpec& spec,
                         const CheckOptions& options) {
  DiagnoseInput alone = input;
  constexpr double kCheck = 0.25;  // of the time, for tensors that are as the config says
  const Share whole(input.progress);
  alone.progress = [check = whole.part(0.0, kCheck)](double done) { check.at(done); };
  ConfigDiagnosis both{{}, check_config(alone, spec, options)};
  alone.progress = [rest = whole.part(kCheck, 1.0)](double done) { rest.at(done); };
  if (encodings::axis_count(spec.axes) > 1) alone.positions = nullptr;
  if (!both.check.axes.empty()) alone.axes = both.check.axes;
  both.found = diagnose(alone);
  if (both.check.agrees) {
    both.found.notes = both.check.notes;
    adopt(spec, both.check, both.found);
  } else {
    name_formula(spec, both.found, both.check);
    both.found.notes.insert(both.found.notes.begin(), both.check.notes.begin(),
                            both.check.notes.end());
  }
  both.found.axes = both.check.axes;
  return both;
}

}  // namespace phasor::porting
