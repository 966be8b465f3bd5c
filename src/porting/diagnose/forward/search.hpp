// The steps of check_config(): from tensors and a spec to a verdict and its cause.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "phasor/encodings/rope.hpp"
#include "phasor/porting/diagnose.hpp"
#include "porting/diagnose/forward/model.hpp"
#include "porting/mistakes.hpp"

namespace phasor::porting::forward {

// ---- what the spec says (setup.cpp) -------------------------------------------------------------

// One way to name the axes of the tensors.
struct Reading {
  Data data;
  bool usual = true;          // [batch, tokens, heads, dim]
  bool contradicted = false;  // by the head counts of the config
};
// Every naming that the axes' names, the positions and the head counts allow; the most likely first.
//
// throws   Error(shape_mismatch | invalid_argument): positions or names that do not fit
[[nodiscard]] std::vector<Reading> readings_of(const diagnosis::Vectors& vectors,
                                               const DiagnoseInput& input,
                                               const CheckOptions& options, int spec_axes);

// The given positions, or 0, 1, ... on every axis.
[[nodiscard]] Positions positions_of(const DiagnoseInput& input, const Data& data, int spec_axes);
[[nodiscard]] double largest_position(const PositionTable& table);

// The model of the spec. `role`: xPos.
[[nodiscard]] Model model_of(const encodings::RopeSpec& spec, core::PairLayout layout,
                             std::optional<std::int64_t> context, const Positions& positions,
                             core::Role role);
// The pairs of a window: pair i in `pairing`.
[[nodiscard]] std::vector<PairPlace> places_of(const diagnosis::Window& window);
[[nodiscard]] std::vector<PairPlace> places_of(const core::Rotary& rotary);

// ---- angles in the data (angles.cpp) ------------------------------------------------------------

// cos and sin of one token's pairs as the data have them, if they were made in the model's form.
struct MeasuredRow {
  std::vector<std::complex<double>> direction;  // per pair, length 1 or 0
  std::vector<double> length;                   // of (cos, sin), per pair
  std::vector<double> weight;                   // per pair
};
[[nodiscard]] MeasuredRow measured_row(const Data& data, const Model& model,
                                       const Sample::Row& row);

struct ShiftBounds {
  std::int64_t lowest = 0, highest = 0;
};
// Shifts of the model's positions that give the phases of `row`, the best first; at most `most`.
[[nodiscard]] std::vector<double> likely_shifts(const Model& model, const MeasuredRow& measured,
                                                const Sample::Row& row, ShiftBounds bounds,
                                                std::size_t most);
// The frequencies in the data, modulo 2 pi, if positions ascend by one somewhere.
struct MeasuredFrequencies {
  std::vector<double> value, error;
};
[[nodiscard]] std::optional<MeasuredFrequencies> measured_frequencies(const Data& data,
                                                                      const Model& model);

// ---- candidates (forms.cpp, axes.cpp, lists.cpp, fitted.cpp, places.cpp) ----------------------------------------------------------

struct Candidate {
  std::string id, text;
  std::vector<ConfigDifference> fields;
  Model model;
  int rank = 0;  // lower is simpler
  // Of positions that were not given, or that differ from the given.
  std::optional<double> shift = std::nullopt;
  Score whole = {};
};

// The share of a check in which the config itself is tried; the mistakes take the rest.
inline constexpr double kConfigTried = 0.5;

// What the search works on.
struct Problem {
  const encodings::RopeSpec& spec;
  const DiagnoseInput& input;
  const CheckOptions& options;
  Data data;
  core::PairLayout layout = core::PairLayout::half;
  std::optional<std::int64_t> context;
  core::Role role = core::Role::query;
  bool given = false;  // positions
  Model asked = {};
  Sample few = {}, some = {}, all = {};
};
// Mistakes in layout, signs, tables, widths, axes and precision, each as a model.
[[nodiscard]] std::vector<Candidate> form_mistakes(const Problem& problem);
[[nodiscard]] std::vector<Candidate> axis_mistakes(const Problem& problem);
[[nodiscard]] std::vector<Candidate> width_mistakes(const Problem& problem);
[[nodiscard]] std::vector<Candidate> precision_mistakes(const Problem& problem);
[[nodiscard]] std::vector<Candidate> frequency_candidates(const Problem& problem);
// Base, factor, ... fitted to the frequencies in the data.
enum class Fit : std::uint8_t { context_only, everything };
[[nodiscard]] std::vector<Candidate> fitted_candidates(const Problem& problem, const Model& like,
                                                       Fit what);
// The 16-bit type whose numbers the cos/sin table of the data holds; none for other tables.
[[nodiscard]] std::optional<core::DType> table_type(const Data& data, const Model& model,
                                                    const Sample& sample);
// Positions per token or head that explain the data with the spec's own frequencies.
[[nodiscard]] std::vector<Candidate> position_mistakes(const Problem& problem);

// All but the fitted ones and the positions.
[[nodiscard]] std::vector<Candidate> plain_candidates(const Problem& problem);

// ---- models and data (shifts.cpp) -----------------------------------------------------------------

// Shifts within bounds with which the model fits the sample, the smallest first.
[[nodiscard]] std::vector<double> fitting_shifts(const Data& data, const Model& model,
                                                 const Sample& sample, ShiftBounds bounds);
// The shift that comes nearest, for data that no shift fits within rounding.
[[nodiscard]] std::optional<double> rough_shift(const Data& data, const Model& model,
                                                const Sample& sample, ShiftBounds bounds);
[[nodiscard]] bool fits_everywhere(const Problem& problem, const Model& model,
                                   Score* whole = nullptr);
// The largest |difference of two models| in units of the bound.
[[nodiscard]] double apart(const Data& data, const Model& a, const Model& b, const Sample& sample);

// ---- the cause (cause.cpp) ------------------------------------------------------------------------

// Evidence (per head) from which on two models can be told apart, and the lean that decides.
inline constexpr double kEvidence = 150.0;
inline constexpr double kLean = 0.5;
// Causes of this rank or more are taken only if no reading of the axes has a better one.
inline constexpr int kWeakRank = 80;

struct Verdict {
  int rank = 0;
  FoundCause cause;
  std::vector<FoundCause> others = {};
  std::optional<std::int64_t> offset = std::nullopt;
  std::vector<std::string> notes = {};
};
[[nodiscard]] std::optional<Verdict> find_cause(const Problem& problem);
// Of candidates that fit: the simplest, unless the data lean to another.
[[nodiscard]] Verdict choose(const Problem& problem, std::vector<Candidate> fitting);

// Significant digits of a fitted number that the tensors' type can carry.
[[nodiscard]] inline int known_digits(const Data& data) noexcept {
  const double unit = data.vectors->unit;
  return unit > 1e-3 ? 2 : unit > 1e-5 ? 3 : 5;
}

// "0-39, then 39-62"
[[nodiscard]] std::string positions_text(const std::vector<double>& positions);

}  // namespace phasor::porting::forward
