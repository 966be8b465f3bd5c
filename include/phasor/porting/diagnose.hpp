// The detective: from tensors before and after somebody's rotation, what turned them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "phasor/encodings/rope.hpp"
#include "phasor/export.h"
#include "phasor/io/npy.hpp"

namespace phasor::porting {

// A rotation leaves at most this part of the tensor's energy (root mean square, relative)
// unexplained: all arithmetic in bfloat16 leaves 0.006, a wrong layout 0.3.
inline constexpr double kRotatedResidual = 0.05;
// Offsets are searched from -kLowestOffset to kHighestOffset when no positions are given, or those
// given do not fit.
inline constexpr std::int64_t kLowestOffset = 2048;
inline constexpr std::int64_t kHighestOffset = std::int64_t{1} << 20;

struct DiagnoseInput {
  // The same shape: [tokens, head_dim], [tokens, heads, head_dim] or [batch, tokens, heads,
  // head_dim], the leading axes in any order. f64, f32, f16, bf16; u16 counts as bits of bf16.
  const io::NpyArray* before = nullptr;
  const io::NpyArray* after = nullptr;
  // [tokens] or [batch, tokens], integers or floats; none: contiguous and ascending from an
  // unknown offset.
  const io::NpyArray* positions = nullptr;
  // A name per axis, of batch, tokens (or seq), heads (or head), dim; empty: found from the data.
  std::vector<std::string> axes = {};
};

// A scaling with the names that configs use for its parameters.
struct FoundScaling {
  std::string type;  // name_of(RopeScaling), or "unknown" when no law fits
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<double> factors;  // longrope and unknown: base^(-2i/dim) / f_i
};

// Another description of the same map: the data cannot tell them apart.
struct Reading {
  std::string text;
  std::optional<double> base;
  FoundScaling scaling;
};

// The best of the explanations that were not chosen.
struct RunnerUp {
  std::string what;
  std::string layout;
  std::string scaling;
  double residual = 0.0;
};

// A field the data do not determine, and why.
struct Undetermined {
  std::string field;
  std::string reason;
};

enum class Answer : std::uint8_t { rope, none };

struct Diagnosis {
  Answer answer = Answer::none;
  std::string reason;  // of none: why it is no rotation

  // "half", "interleaved", "interleaved_to_half", "half_to_interleaved"
  std::optional<std::string> layout;
  std::int64_t head_dim = 0;
  std::optional<std::int64_t> rotary_dim;
  std::int64_t rotary_offset = 0;
  std::optional<double> base;
  std::optional<FoundScaling> scaling;
  std::optional<double> effective_base;  // where the frequencies are a pure power law
  std::optional<bool> inverse;
  std::optional<double> amplitude;  // the length of the turned pairs over that before
  // "given"; "contiguous"; "found": neither fits, `found_positions` do
  std::string positions;
  // The position of the first token where positions ascend by one.
  std::optional<std::int64_t> offset;
  std::vector<double> found_positions;
  // "exact", "float32_angles", "bfloat16", "float16", "bfloat16_positions"
  std::optional<std::string> table_dtype;
  std::string tensor_dtype;               // NumPy's name
  std::optional<std::string> arithmetic;  // of 16-bit tensors: "float32", "bfloat16", "float16"
  // Radians per position, one per pair: of the law that fits, or as measured.
  std::vector<double> frequencies;
  std::vector<double> measured_frequencies;
  // One standard deviation of the measured ones, with what rounding of tensors and tables hides.
  std::vector<double> frequency_errors;

  // Root mean square of (after - explanation) over that of after.
  std::optional<double> residual;
  double rounding_floor = 0.0;  // what rounding to the tensors' own precision leaves
  std::optional<RunnerUp> runner_up;
  std::vector<Reading> readings;
  std::vector<Undetermined> undetermined;
  std::vector<std::string> notes;
  std::vector<std::string> axes;  // the name of each axis, as found or given
};

// Finds layout, rotary_dim, frequencies, scaling family, positions, direction, amplitude and the
// precision of the table.
//
// throws   Error(shape_mismatch | invalid_argument | unsupported): shapes that disagree, an odd
//          head_dim, nothing to look at, types that are no floats, positions or axes that do not
//          fit
// cost     a few passes over the tensors; a search of at most 2^20 offsets
[[nodiscard]] PHASOR_API Diagnosis diagnose(const DiagnoseInput& input);

// Where what was found is not what a config asks for.
struct ConfigDifference {
  std::string field;  // "layout", "rotary_dim", "base", "frequencies", "amplitude", ...
  std::string asked, found;
  std::string text;  // one sentence
};

// Empty when the data were turned as `spec` asks. Fields that the data do not determine are not
// compared. `context` as for encodings::resolve_frequencies().
//
// throws   Error as resolve_frequencies(); Error(unsupported) for specs of several position rows
[[nodiscard]] PHASOR_API std::vector<ConfigDifference> compare_with_config(
    const Diagnosis& found, const encodings::RopeSpec& spec,
    std::optional<std::int64_t> context = std::nullopt);

// The context to compare at where nobody names one: the last position + 1 where the spec's numbers
// depend on it and the positions ascend by one, else none. `shape` is that of the tensors.
[[nodiscard]] PHASOR_API std::optional<std::int64_t> context_of_tokens(
    const Diagnosis& found, const encodings::RopeSpec& spec, std::span<const std::int64_t> shape);

// One JSON object. Fields that the data do not determine are null and named under "undetermined".
[[nodiscard]] PHASOR_API std::string diagnose_json(
    const Diagnosis& found, const std::vector<ConfigDifference>* differences = nullptr);

}  // namespace phasor::porting
