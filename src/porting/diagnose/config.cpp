// The rotation in the data together with the verdict on a config.
#include <algorithm>

#include "phasor/core/rotate.hpp"
#include "phasor/porting/diagnose.hpp"

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

}  // namespace

ConfigDiagnosis diagnose(const DiagnoseInput& input, const encodings::RopeSpec& spec,
                         const CheckOptions& options) {
  ConfigDiagnosis both{{}, check_config(input, spec, options)};
  DiagnoseInput alone = input;
  if (encodings::axis_count(spec.axes) > 1) alone.positions = nullptr;
  if (!both.check.axes.empty()) alone.axes = both.check.axes;
  both.found = diagnose(alone);
  if (both.check.agrees) {
    both.found.notes = both.check.notes;
    adopt(spec, both.check, both.found);
  } else {
    both.found.notes.insert(both.found.notes.begin(), both.check.notes.begin(),
                            both.check.notes.end());
  }
  both.found.axes = both.check.axes;
  return both;
}

}  // namespace phasor::porting
