// The steps of diagnose(), from raw vectors to a formula of frequencies.
#pragma once

#include <complex>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "phasor/core/view.hpp"
#include "phasor/porting/diagnose.hpp"
#include "porting/number_text.hpp"
#include "porting/rounding.hpp"

namespace phasor::porting::diagnosis {

using Complex = std::complex<double>;

// ---- vectors (vectors.cpp) --------------------------------------------------------------------

// Both tensors as doubles, as a list of vectors of head_dim features.
struct Vectors {
  std::vector<double> before, after;
  std::vector<std::int64_t> shape;  // of the leading axes
  std::int64_t count = 0, dim = 0;
  core::DType stored = core::DType::f32;     // of `after`
  core::DType precision = core::DType::f32;  // the narrowest type that holds every value of it
  std::vector<std::uint8_t> usable;          // 0: not finite before the rotation, ignored
  double unit = 0x1p-24;  // of one rounding of the engine: of `precision`, at least float32's
};
[[nodiscard]] Vectors read_vectors(const DiagnoseInput& input, std::vector<std::string>& notes);
// The largest relative error of one rounding: 2^-24 for f32.
[[nodiscard]] double unit_of(core::DType type) noexcept;
// A sentence if no vector is usable.
[[nodiscard]] std::optional<std::string> not_finite(const Vectors& vectors);
// Marks vectors with a value that is not finite as not usable, with a note that says which tokens.
void leave_out_not_finite(Vectors& vectors, std::vector<std::string>& notes);
// Per feature: whether `after` differs from `before` by more than one rounding.
[[nodiscard]] std::vector<std::uint8_t> changed_features(const Vectors& vectors);

// ---- layouts (layout.cpp) ---------------------------------------------------------------------

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
  // Relative root mean square of what no rotation of these pairs explains: the lengths of all pairs
  // must change by one factor, features outside must not change.
  double residual = 0.0;
};
// Every window that covers what changed, best first.
[[nodiscard]] std::vector<LayoutScore> rank_layouts(const Vectors& vectors,
                                                    const std::vector<std::uint8_t>& changed);

// ---- gains (gains.cpp) ------------------------------------------------------------------------

struct Axes {
  std::vector<std::string> names;  // per leading axis: batch, tokens, heads
  std::int64_t tokens = 1, batch = 1;
  std::vector<std::int64_t> token_of, batch_of;  // per vector
};
// The names of the leading axes, in one spelling; `rank` counts dim too.
//
// throws   Error(invalid_argument) when they are not batch, tokens, heads and dim
[[nodiscard]] std::vector<std::string> named_axes(const std::vector<std::string>& given,
                                                  std::size_t rank);
// For each leading axis: 1 when all vectors along it are rotated by the same angles.
[[nodiscard]] std::vector<double> coherence_by_axis(const Vectors& vectors, const Window& window);
// throws   Error(shape_mismatch) when no axis matches the positions or the names
[[nodiscard]] Axes find_axes(const Vectors& vectors, const Window& window,
                             const DiagnoseInput& input, std::vector<std::string>& notes);

// The complex factor on each pair, averaged over the vectors that share a position.
struct Gains {
  std::int64_t rows = 0, pairs = 0, sequences = 1;
  std::vector<Complex> gain;           // [rows, pairs]
  std::vector<double> weight;          // [rows, pairs]: sum of |before|^2
  std::vector<double> position;        // [rows]
  std::vector<std::int64_t> sequence;  // [rows]: rows of one sequence share an offset
  double residual = 0.0;               // of the best gains, relative

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
// The largest |position|.
[[nodiscard]] double farthest_position(const Gains& gains);

// ---- frequencies (frequencies.cpp, positions.cpp) ---------------------------------------------

struct FrequencyFit {
  std::vector<double> value, error;     // radians per position; error: one standard deviation
  std::vector<std::uint8_t> ambiguous;  // other values fit too: the positions have no small gaps
  std::vector<Complex> phase;           // [sequences, pairs]: the gain at position 0
  double residual = 0.0;                // root mean square over rows and pairs, relative
  std::vector<double> pair_residual;
};
// Fits each pair's frequency separately, with a free phase per sequence.
[[nodiscard]] FrequencyFit fit_frequencies(const Gains& gains);
// The same with the phases known to be 0 at position 0.
void anchor_frequencies(const Gains& gains, FrequencyFit& fit);

struct ShiftSearch {
  std::optional<double> shift;  // to add to the listed positions
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
// The best amplitude for these frequencies.
[[nodiscard]] double fit_amplitude(const Gains& gains, const std::vector<double>& frequencies);

// The base of unscaled frequencies, for positions that do not determine single frequencies.
struct LawFit {
  double base = 0.0, base_error = 0.0;
  double residual = 0.0;
  bool inverse = false;
};
inline constexpr std::pair<double, double> kAllBases = {2.3, 23.0};  // ln 10 to ln 1e10
[[nodiscard]] std::optional<LawFit> fit_base_alone(const Gains& gains, double amplitude,
                                                   std::pair<double, double> log_bases = kAllBases);

// Each row's integer position from 0 to 2^16, for unscaled frequencies with a well-known base;
// `unit`: of the tensors' rounding.
struct FoundPositions {
  std::vector<double> position;
  double base = 0.0;
  bool inverse = false;
};
struct PositionSearch {
  std::optional<FoundPositions> found;
  bool complete = true;  // false: not every row was searched for
};
[[nodiscard]] PositionSearch find_positions(const Gains& gains, double unit);
// RoFormer (15): base^(-i / pairs).
[[nodiscard]] std::vector<double> default_law(double base, std::int64_t pairs);

// ---- families (families.cpp, ramps.cpp) -------------------------------------------------------

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
// The simplest that fits is `front()`; the others follow in order of misfit.
[[nodiscard]] std::vector<Family> fit_families(const FamilyInput& input);

// Weighted least squares for a formula with a few parameters (Levenberg-Marquardt).
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
// The number with the fewest digits within `width` of `value`, unless it may be a coincidence.
[[nodiscard]] std::optional<double> round_number(double value, double width);
[[nodiscard]] std::optional<double> round_base(double value, double width);

[[nodiscard]] Family fit_llama3(const FamilyInput& input);
[[nodiscard]] Family fit_yarn(const FamilyInput& input);
[[nodiscard]] Family fit_ntk_by_parts(const FamilyInput& input);
[[nodiscard]] Family fit_mixed_ntk(const FamilyInput& input);
inline constexpr double kFamilyMisfit = 3.0;  // at most this many standard deviations
// The family with its misfit against the measured frequencies.
[[nodiscard]] Family finish(Family family, const FamilyInput& input);

// ---- precision (precision.cpp) ----------------------------------------------------------------

struct RotationModel {
  Window window;
  std::vector<double> frequencies;
  std::vector<double> position;  // per vector
  double amplitude = 1.0;
  bool inverse = false;
};
struct PrecisionVerdict {
  std::string table, arithmetic;
  double residual = 0.0;        // of the arithmetic that fits best
  double exact_residual = 0.0;  // of exact tables
  std::string runner_up;
  double runner_up_residual = 0.0;
  bool decided = false;  // the residuals of the others are clearly larger
};
[[nodiscard]] PrecisionVerdict find_precision(const Vectors& vectors, const RotationModel& model);
// Relative root mean square of one rounding to `precision`.
[[nodiscard]] double rounding_floor(core::DType precision) noexcept;

// ---- the whole (diagnose.cpp, rotations.cpp, answer.cpp) ---------------------------------------

// What is known so far.
struct Investigation {
  const DiagnoseInput& input;
  Diagnosis found = {};
  std::vector<double> given = {};   // positions; empty: none
  std::vector<double> listed = {};  // per row: as given, or counted from 0
  Vectors vectors = {};
  std::vector<LayoutScore> layouts = {};
  Window window = {};
  Axes axes = {};
  Gains gains = {};  // of a forward rotation: conjugated when the data were rotated backwards
  FrequencyFit fit = {};
  double amplitude = 1.0;
  bool inverse = false;
  bool positions_known = false;
  bool same_everywhere = false;     // all tokens have the same angles; gains has one row
  bool contiguous_instead = false;  // the given positions do not fit, contiguous ones do
  bool offset_open = false;
  std::string rounded_positions = {};  // type the positions were rounded to

  void undetermined(const char* field, std::string reason) {
    found.undetermined.push_back({field, std::move(reason)});
  }
  // Sets the answer to none.
  void none(std::string reason);
  [[nodiscard]] FamilyInput family_input(const std::vector<double>& errors) const {
    return {fit.value, errors, window.width, vectors.dim, amplitude, window.pairing};
  }
};
// Measures the gains of the window, with the given positions or 0, 1, ...
void measure(Investigation& state);
// A sentence if each pair is reflected, which keeps lengths too.
[[nodiscard]] std::optional<std::string> mirrored(const Investigation& state);
// Positions, frequencies and direction. False when no formula of frequencies is needed.
[[nodiscard]] bool solve_rotations(Investigation& state);
// The formula of the frequencies, the precision and other explanations of the data.
void describe_answer(Investigation& state);
// Relative rounding of the float32 frequencies of engines.
inline constexpr double kFrequencyRounding = 1.2e-7;
// Measured errors, including that rounding and the tensors' own, below which rotations vanish.
[[nodiscard]] std::vector<double> law_errors(const Investigation& state, const FrequencyFit& fit);
[[nodiscard]] bool ascend_by_one(const std::vector<double>& positions, std::int64_t first,
                                 std::int64_t count);

// ---- no rotation (none.cpp) -------------------------------------------------------------------

// A sentence: why this is not a rotation, and what it is if that is known.
[[nodiscard]] std::optional<std::string> plain_reason(const Vectors& vectors,
                                                      const std::vector<std::uint8_t>& changed);
[[nodiscard]] std::string other_reason(const Vectors& vectors, double best_layout_residual);

}  // namespace phasor::porting::diagnosis
