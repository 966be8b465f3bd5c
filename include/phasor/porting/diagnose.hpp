// Finds the rotation that an implementation applied, from tensors before and after it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/core/rotary.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/export.h"
#include "phasor/io/npy.hpp"

namespace phasor::porting {

// Largest relative residual (root mean square) that still counts as a rotation. All arithmetic in
// bfloat16 leaves 0.006, a wrong layout 0.3.
inline constexpr double kRotatedResidual = 0.05;
// Offsets are searched from -kLowestOffset to kHighestOffset when no positions are given, or when
// the given ones do not fit.
inline constexpr std::int64_t kLowestOffset = 2048;
inline constexpr std::int64_t kHighestOffset = std::int64_t{1} << 20;

struct DiagnoseInput {
  // The same shape: [tokens, head_dim], [tokens, heads, head_dim] or [batch, tokens, heads,
  // head_dim], the leading axes in any order. f64, f32, f16, bf16; u16 is read as the bits of bf16.
  const io::NpyArray* before = nullptr;
  const io::NpyArray* after = nullptr;
  // [tokens] or [batch, tokens], integers or floats; null: contiguous from an unknown offset.
  const io::NpyArray* positions = nullptr;
  // The name of each axis: batch, tokens (or seq), heads (or head), dim; empty: found from the data.
  std::vector<std::string> axes = {};
};

// A scaling, its parameters named by their config keys.
struct FoundScaling {
  std::string type;  // name_of(RopeScaling), or "unknown" when no known formula fits
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<double> factors;  // longrope and unknown: base^(-2i/dim) / f_i
};

// Another description of the same rotation, which the data cannot distinguish from it.
struct Reading {
  std::string text;
  std::optional<double> base;
  FoundScaling scaling;
};

// The best of the explanations that were rejected.
struct RunnerUp {
  std::string what;
  std::string layout;
  std::string scaling;
  double residual = 0.0;
};

// A field that the data do not determine, and why.
struct Undetermined {
  std::string field;
  std::string reason;
};

enum class Answer : std::uint8_t { rope, none };

struct Diagnosis {
  Answer answer = Answer::none;
  std::string reason;  // for none: why it is not a rotation

  // "half", "interleaved", "interleaved_to_half", "half_to_interleaved"
  std::optional<std::string> layout;
  std::int64_t head_dim = 0;
  std::optional<std::int64_t> rotary_dim;
  std::int64_t rotary_offset = 0;
  std::optional<double> base;
  std::optional<FoundScaling> scaling;
  std::optional<double> effective_base;  // if the frequencies are a pure power law
  std::optional<bool> inverse;
  std::optional<double> amplitude;  // length of the rotated pairs / length before
  // "given"; "contiguous"; "found": neither fits, see `found_positions`
  std::string positions;
  // The position of the first token, if positions increase by one.
  std::optional<std::int64_t> offset;
  std::vector<double> found_positions;
  // "exact", "float32_angles", "bfloat16", "float16", "bfloat16_positions"
  std::optional<std::string> table_dtype;
  std::string tensor_dtype;               // NumPy's name
  std::optional<std::string> arithmetic;  // for 16-bit tensors: "float32", "bfloat16", "float16"
  // Radians per position, one per pair: of the formula that fits, or as measured.
  std::vector<double> frequencies;
  std::vector<double> measured_frequencies;
  // One standard deviation of measured_frequencies, including the rounding of tensors and tables.
  std::vector<double> frequency_errors;

  // Root mean square of (after - explanation) divided by that of after.
  std::optional<double> residual;
  double rounding_floor = 0.0;  // residual of one rounding to the tensors' precision
  std::optional<RunnerUp> runner_up;
  std::vector<Reading> readings;
  std::vector<Undetermined> undetermined;
  std::vector<std::string> notes;
  std::vector<std::string> axes;  // the name of each axis, as found or given
};

// Finds layout, rotary_dim, frequencies, scaling type, positions, direction, amplitude and the
// precision of the cos/sin table.
//
// throws   Error(shape_mismatch | invalid_argument | unsupported): shapes that differ, an odd
//          head_dim, empty tensors, types that are not floats, positions or axes that do not match
// cost     a few passes over the tensors; a search of at most 2^20 offsets
[[nodiscard]] PHASOR_API Diagnosis diagnose(const DiagnoseInput& input);

// A field in which the rotation differs from the config.
struct ConfigDifference {
  std::string field;  // "layout", "rotary_dim", "base", "frequencies", "amplitude", ...
  std::string asked, found;
  std::string text;  // one sentence
};

// Empty when the data were rotated as `spec` specifies. Fields that the data do not determine are
// not compared. `context` as for encodings::resolve_frequencies().
//
// throws   Error as resolve_frequencies(); Error(unsupported) for specs with several position rows
[[nodiscard]] PHASOR_API std::vector<ConfigDifference> compare_with_config(
    const Diagnosis& found, const encodings::RopeSpec& spec,
    std::optional<std::int64_t> context = std::nullopt);

// The default context to compare at: the last position + 1 if the spec's frequencies depend on the
// context and the positions increase by one, else none. `shape` is that of the tensors.
[[nodiscard]] PHASOR_API std::optional<std::int64_t> context_of_tokens(
    const Diagnosis& found, const encodings::RopeSpec& spec, std::span<const std::int64_t> shape);

// One JSON object. Fields that the data do not determine are null and listed in "undetermined".
[[nodiscard]] PHASOR_API std::string diagnose_json(
    const Diagnosis& found, const std::vector<ConfigDifference>* differences = nullptr);

// Infers the pair layout of q and k projections from the weights alone.

// A possible order of the weights. Besides the two correct layouts: q and k in different layouts,
// and k permuted from the other layout with a wrong number of heads.
struct PHASOR_API OrderCandidate {
  core::PairLayout queries = core::PairLayout::half, keys = core::PairLayout::half;
  std::optional<std::int64_t> permuted_as_heads;  // of k: the wrong number of heads
  std::string text;                               // description

  // Pair (a, b) of q and k enters the scores only as (qa ka + qb kb) cos + (qa kb - qb ka) sin. So
  // training gives the cross products qa.kb and qb.ka of the weights opposite signs, and leaves two
  // rows that are not a pair uncorrelated:
  //
  //   antisymmetry   mean over pairs of -2 (qa.kb)(qb.ka) / |block|^2,   block = [qa qb]^T [ka kb]
  //   determinant    mean over pairs of 2 det(block) / |block|^2
  //
  // both in [-1, 1] and about 0 for untrained weights. The antisymmetry decides; the determinant is
  // also large for neighbouring pairs of low frequency, which hardly rotate.
  double antisymmetry = 0.0, determinant = 0.0;
  // Standard errors by which the best candidate's antisymmetry exceeds this one's; 0 for the best.
  double behind = 0.0;

  [[nodiscard]] bool consistent() const noexcept {
    return queries == keys && !permuted_as_heads.has_value();
  }
};

struct WeightOrder {
  std::vector<OrderCandidate> candidates;  // best first
  bool tells = false;                      // false: undecided, candidates[0] is only a hint
  // 1 - the probability that untrained weights put one candidate this far ahead.
  double confidence = 0.0;
  std::string reason;                             // for the answer, or why it is undecided
  std::optional<core::PairLayout> config_layout;  // what the config or the metadata says
  std::vector<std::int64_t> layers;               // used
  std::int64_t heads = 0, key_heads = 0;
  std::int64_t samples = 0;  // key heads with their query heads
};

// WeightOrder::tells requires at least this confidence and this antisymmetry.
inline constexpr double kOrderConfidence = 0.999;
inline constexpr double kOrderEffect = 0.02;

// `path` is a GGUF file, or a folder with config.json and safetensors files.
//
// Undecided for untrained weights, for fewer than four key heads, and for candidates that do not
// differ (rotary_dim 2).
//
// error    as read_config() and the readers; a checkpoint without q and k projections
// cost     at most about 3e9 products: of many layers some are used
[[nodiscard]] PHASOR_API Result<WeightOrder> infer_weight_order(const std::filesystem::path& path);

[[nodiscard]] PHASOR_API std::string weight_order_json(const WeightOrder& order);

}  // namespace phasor::porting
