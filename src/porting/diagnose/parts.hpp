// The parts of the detective, from raw vectors to a law of frequencies.
#pragma once

#include <complex>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "phasor/core/view.hpp"
#include "phasor/porting/diagnose.hpp"

namespace phasor::porting::detective {

using Complex = std::complex<double>;

// ---- vectors (diagnose_vectors.cpp) -----------------------------------------------------------

// Both tensors as doubles, one vector of head_dim features per place.
struct Vectors {
  std::vector<double> before, after;
  std::vector<std::int64_t> shape;  // of the leading axes
  std::int64_t count = 0, dim = 0;
  core::DType stored = core::DType::f32;     // of `after`
  core::DType precision = core::DType::f32;  // the narrowest type that holds every value of it
  std::vector<std::uint8_t> usable;          // 0: not finite before, left out
};
[[nodiscard]] Vectors read_vectors(const DiagnoseInput& input, std::vector<std::string>& notes);
// The largest relative error of one rounding: 2^-24 for f32.
[[nodiscard]] double unit_of(core::DType type) noexcept;
[[nodiscard]] std::string type_name(core::DType type);
// The first value after the rotation that is not finite where the vector before was: a sentence.
[[nodiscard]] std::optional<std::string> not_finite(const Vectors& vectors);
// Per feature: whether `after` differs from `before` by more than the rounding of one store.
[[nodiscard]] std::vector<std::uint8_t> changed_features(const Vectors& vectors);

// ---- layouts (diagnose_layout.cpp) ------------------------------------------------------------

// Which features pair i reads and writes within the window [first, first + width).
enum class Pairing : std::uint8_t { half, interleaved, interleaved_to_half, half_to_interleaved };
[[nodiscard]] std::string_view name_of(Pairing pairing) noexcept;

struct Window {
  Pairing pairing = Pairing::half;
  std::int64_t first = 0, width = 0;

  [[nodiscard]] std::int64_t pairs() const noexcept { return width / 2; }
};
struct PairFeatures {
  std::int64_t read_a, read_b, write_a, write_b;
};
[[nodiscard]] PairFeatures features_of(const Window& window, std::int64_t pair) noexcept;

struct LayoutScore {
  Window window;
  // Root mean square of what no turn of these pairs explains, over that of `after`: the pairs'
  // lengths must all change by one factor, features outside must not change.
  double residual = 0.0;
};
// Every window that covers what changed, best first.
[[nodiscard]] std::vector<LayoutScore> rank_layouts(const Vectors& vectors,
                                                    const std::vector<std::uint8_t>& changed);

// ---- gains (diagnose_gains.cpp) ---------------------------------------------------------------

struct Axes {
  std::vector<std::string> names;  // per leading axis: batch, tokens, heads
  std::int64_t tokens = 1, batch = 1;
  std::vector<std::int64_t> token_of, batch_of;  // per vector
};
// What the data say about each leading axis: 1 when vectors along it turn alike.
[[nodiscard]] std::vector<double> coherence_by_axis(const Vectors& vectors, const Window& window);
// throws   Error(shape_mismatch) when no axis fits the positions or the names
[[nodiscard]] Axes find_axes(const Vectors& vectors, const Window& window,
                             const DiagnoseInput& input, std::vector<std::string>& notes);

// The complex factor on each pair, pooled over the vectors that share a position.
struct Gains {
  std::int64_t rows = 0, pairs = 0, sequences = 1;
  std::vector<Complex> gain;           // [rows, pairs]
  std::vector<double> weight;          // [rows, pairs]: sum of |before|^2
  std::vector<double> position;        // [rows]
  std::vector<std::int64_t> sequence;  // [rows]: rows of one sequence share an offset
  double residual = 0.0;               // of the best free gains over the energy of the pairs

  [[nodiscard]] std::size_t at(std::int64_t row, std::int64_t pair) const noexcept {
    return static_cast<std::size_t>(row * pairs + pair);
  }
};
enum class BatchRows : std::uint8_t { pooled, apart };
[[nodiscard]] Gains measure_gains(const Vectors& vectors, const Window& window, const Axes& axes,
                                  const std::vector<double>& positions, BatchRows batch_rows);
void conjugate(Gains& gains);
// Weighted mean of |gain|.
[[nodiscard]] double mean_length(const Gains& gains);

// ---- frequencies (diagnose_frequencies.cpp) ---------------------------------------------------

struct FrequencyFit {
  std::vector<double> value, error;     // radians per position; error: one standard deviation
  std::vector<std::uint8_t> ambiguous;  // others fit as well: the positions have no small gaps
  std::vector<Complex> phase;           // [sequences, pairs]: the gain at position 0 of the list
  double residual = 0.0;                // root mean square over rows and pairs, relative
  std::vector<double> pair_residual;
};
// Each pair's frequency on its own, with a free phase per sequence.
[[nodiscard]] FrequencyFit fit_frequencies(const Gains& gains);
// The same with the phases known to be 0 at position 0.
void anchor_frequencies(const Gains& gains, FrequencyFit& fit);

struct ShiftSearch {
  std::optional<double> shift;  // what to add to the listed positions
  double mismatch = 0.0;        // mean square of the phase error left, radians^2
  std::optional<double> rival;  // another shift that fits as well
};
enum class ShiftRange : std::uint8_t { only_zero, everywhere };
[[nodiscard]] ShiftSearch find_shift(const Gains& gains, const FrequencyFit& fit,
                                     const std::vector<double>& frequencies,
                                     const std::vector<double>& errors, std::int64_t sequence,
                                     ShiftRange range);

// Root mean square distance between the gains and amplitude e^{i f p}, relative.
[[nodiscard]] double model_residual(const Gains& gains, const std::vector<double>& frequencies,
                                    double amplitude);
// The amplitude that fits best.
[[nodiscard]] double fit_amplitude(const Gains& gains, const std::vector<double>& frequencies);

// The base of a default law alone, for positions that leave single frequencies open.
struct LawFit {
  double base = 0.0, base_error = 0.0;
  double residual = 0.0;
  bool inverse = false;
};
inline constexpr std::pair<double, double> kAllBases = {2.3, 23.0};  // ln 10 to ln 1e10
[[nodiscard]] std::optional<LawFit> fit_base_alone(const Gains& gains, double amplitude,
                                                   std::pair<double, double> log_bases = kAllBases);

// Each row's position, whole and from 0 to 2^16, under a default law with a well-known base;
// `unit`: of the tensors' rounding.
struct FoundPositions {
  std::vector<double> position;
  double base = 0.0;
  bool inverse = false;
};
[[nodiscard]] std::optional<FoundPositions> find_positions(const Gains& gains, double unit);

// ---- families (diagnose_families.cpp, diagnose_ramps.cpp) -------------------------------------

struct Family {
  std::string type;
  std::optional<double> base, base_error;
  FoundScaling scaling;
  std::vector<double> frequencies;
  double misfit = 0.0;  // root mean square of (measured - law) / error
  bool fits = false;
  std::optional<double> effective_base;
  std::string rounded_to;  // the type whose rounding the frequencies show, if any
  std::vector<Reading> readings;
  std::vector<std::string> notes;
};
struct FamilyInput {
  const std::vector<double>& value;
  const std::vector<double>& error;
  std::int64_t width = 0;  // of the window
  std::int64_t head_dim = 0;
  double amplitude = 1.0;
  Pairing pairing = Pairing::half;

  [[nodiscard]] double pairs() const noexcept { return static_cast<double>(width / 2); }
};
// Tried from the simplest on; the first that fits is `front()`, the others follow by misfit.
[[nodiscard]] std::vector<Family> fit_families(const FamilyInput& input);

// Weighted least squares of a law with a few parameters (Levenberg and Marquardt).
struct LawModel {
  std::function<std::vector<double>(const std::vector<double>&)> frequencies;
};
struct Fitted {
  std::vector<double> parameters, errors;
  double misfit = 0.0;
};
[[nodiscard]] Fitted fit_law(const LawModel& law, std::vector<double> start,
                             const std::vector<double>& value, const std::vector<double>& error);
[[nodiscard]] double misfit_of(const std::vector<double>& law, const std::vector<double>& value,
                               const std::vector<double>& error);
// The roundest number within `width` of `value`, if finding one there is no accident.
[[nodiscard]] std::optional<double> round_number(double value, double width);
[[nodiscard]] std::optional<double> round_base(double value, double width);

[[nodiscard]] Family fit_llama3(const FamilyInput& input);
[[nodiscard]] Family fit_yarn(const FamilyInput& input);
[[nodiscard]] Family fit_ntk_by_parts(const FamilyInput& input);
[[nodiscard]] Family fit_mixed_ntk(const FamilyInput& input);
inline constexpr double kFamilyMisfit = 3.0;  // at most this many standard deviations

// ---- precision (diagnose_precision.cpp) -------------------------------------------------------

struct Explanation {
  Window window;
  std::vector<double> frequencies;
  std::vector<double> position;  // per vector
  double amplitude = 1.0;
  bool inverse = false;
};
struct PrecisionVerdict {
  std::string table, arithmetic;
  double residual = 0.0;        // of the way that fits best
  double exact_residual = 0.0;  // of exact tables
  std::string runner_up;
  double runner_up_residual = 0.0;
  bool decided = false;  // the others leave clearly more
};
[[nodiscard]] PrecisionVerdict find_precision(const Vectors& vectors,
                                              const Explanation& explanation);
// What one rounding to `precision` leaves, relative.
[[nodiscard]] double rounding_floor(core::DType precision) noexcept;

// ---- the whole (diagnose.cpp, diagnose_turns.cpp, diagnose_answer.cpp)

// Everything that is known so far.
struct Investigation {
  const DiagnoseInput& input;
  Diagnosis found = {};
  std::vector<double> given = {};   // positions; empty: none
  std::vector<double> listed = {};  // per row: as given, or counted from 0
  Vectors vectors = {};
  std::vector<LayoutScore> layouts = {};
  Window window = {};
  Axes axes = {};
  Gains gains = {};  // of forward turns: conjugated when the data were turned back
  FrequencyFit fit = {};
  double amplitude = 1.0;
  bool inverse = false;
  bool positions_known = false;
  bool same_everywhere = false;     // all tokens were turned alike; gains has one row
  bool contiguous_instead = false;  // the given positions do not fit, ascending ones do
  bool offset_open = false;
  std::string rounded_positions = {};  // the type that the positions were rounded to

  void undetermined(const char* field, std::string reason) {
    found.undetermined.push_back({field, std::move(reason)});
  }
  // Sets the answer to no rotation.
  void none(std::string reason);
  [[nodiscard]] FamilyInput family_input(const std::vector<double>& errors) const {
    return {fit.value, errors, window.width, vectors.dim, amplitude, window.pairing};
  }
};
// Gains of the window, with the positions given or counted from 0.
void measure(Investigation& state);
// Each pair mirrored at a line, which keeps lengths too: a sentence.
[[nodiscard]] std::optional<std::string> mirrored(const Investigation& state);
// Positions, frequencies and direction. False when the answer is complete without a law.
[[nodiscard]] bool solve_rotations(Investigation& state);
// The law, its precision and what else would explain the data.
void describe_answer(Investigation& state);
// Engines keep frequencies in float32: that much off, relative, is no other law.
inline constexpr double kFrequencyRounding = 1.2e-7;
// Measured errors with that rounding in them, and with what the tensors' own hides: turns by less
// than a unit of it vanish.
[[nodiscard]] std::vector<double> law_errors(const Investigation& state, const FrequencyFit& fit);
[[nodiscard]] bool ascend_by_one(const std::vector<double>& positions, std::int64_t first,
                                 std::int64_t count);
[[nodiscard]] std::string digits(double value, int count = 6);

// ---- no rotation (diagnose_none.cpp) ----------------------------------------------------------

// Why this is no rotation, in a sentence; what else it is where that can be told.
[[nodiscard]] std::optional<std::string> plain_reason(const Vectors& vectors,
                                                      const std::vector<std::uint8_t>& changed);
[[nodiscard]] std::string other_reason(const Vectors& vectors, double best_layout_residual);

}  // namespace phasor::porting::detective
