// The mistakes that ports make in frequencies and amplitude: one list, which diagnose and audit share.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "phasor/core/rotate.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::porting {

// The frequencies that a mistake makes of a spec.
struct Mistake {
  std::string id;    // stable, for programs
  std::string text;  // one sentence without a full stop
  // The parameter that differs, with its value in the config and in the mistake; empty: none.
  std::string field, asked, found;
  std::vector<double> frequencies;  // one per pair
  double amplitude = 1.0;
};

// Every mistake that changes the frequencies of `spec` at `context`, the simplest first. `exact` are its
// correct frequencies.
[[nodiscard]] std::vector<Mistake> frequency_mistakes(const encodings::RopeSpec& spec,
                                                      std::optional<std::int64_t> context,
                                                      const core::Frequencies& exact);

// A parameter of a spec that may have another value: how to set it.
struct Knob {
  std::string id, field;
  double asked = 0.0;
  double lowest = 0.0, highest = 0.0;  // bounds of the values that are believed
  std::vector<double> likely;          // values to try without a fit
  // The frequencies with another value; none when it is invalid.
  std::function<std::optional<core::Frequencies>(double)> with;
};
[[nodiscard]] std::vector<Knob> knobs_of(const encodings::RopeSpec& spec,
                                         std::optional<std::int64_t> context);
// The mistake of a knob at `value`.
[[nodiscard]] Mistake mistake_of(const Knob& knob, double value, const core::Frequencies& made,
                                 int digits_known = 6);

}  // namespace phasor::porting
