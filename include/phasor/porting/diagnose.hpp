// What another implementation does, from its numbers: the rotation between two tensors, the layout of
// trained weights, the errors of a cos/sin table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/core/view.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/export.h"
#include "phasor/io/npy.hpp"

namespace phasor::porting {

// Finds the rotation that an implementation applied, from tensors before and after it.

// Largest relative residual (root mean square) that still counts as a rotation. All arithmetic in
// bfloat16 leaves 0.006, a wrong layout 0.3.
inline constexpr double kRotatedResidual = 0.05;
// Offsets are searched from -kLowestOffset to kHighestOffset when no positions are given, or when
// the given ones do not fit.
inline constexpr std::int64_t kLowestOffset = 2048;
inline constexpr std::int64_t kHighestOffset = std::int64_t{1} << 20;
// With a config, offsets are searched up to here.
inline constexpr std::int64_t kFarthestOffset = std::int64_t{1} << 22;

struct DiagnoseInput {
  // The same shape: [tokens, head_dim], [tokens, heads, head_dim] or [batch, tokens, heads,
  // head_dim], the leading axes in any order. f64, f32, f16, bf16; u16 is read as the bits of bf16.
  const io::NpyArray* before = nullptr;
  const io::NpyArray* after = nullptr;
  // [tokens] or [batch, tokens], integers or floats; null: contiguous from an unknown offset.
  const io::NpyArray* positions = nullptr;
  // The name of each axis: batch, tokens (or seq), heads (or head), dim; empty: found from the data.
  std::vector<std::string> axes = {};
  // Called now and then with the share of the call that is done, from 0 to 1, in the calling thread;
  // what it throws ends the call.
  std::function<void(double share)> progress = {};
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

// Applies a config to `before` and compares the result with `after`.

// The bound of |after - config| for one feature of a pair (a, b) with the factors c and s:
//   kRotationRoundings u (|a c| + |b s|) + kCosSinFloat32 |(a, b)| + kFloat32Angle |angle| |(a, b)|
// u is the rounding of the tensors' type: 2^-8 for bfloat16, 2^-11 for float16, 2^-24 otherwise.
//
// Input, table entry, product and sum rounded to the tensors' type.
inline constexpr double kRotationRoundings = 4.0;
// cos and sin of fast float32 libraries, absolute.
inline constexpr double kCosSinFloat32 = 0x1p-22;
// Float32 frequencies and angles of ordinary engines: six roundings, relative to the angle. A frequency
// that float32 holds exactly has none.
inline constexpr double kFloat32Angle = 6.0 * 0x1p-24;

// A field in which the rotation differs from the config.
struct ConfigDifference {
  std::string field;  // "layout", "rotary_dim", "base", "frequencies", "amplitude", ...
  std::string asked, found;
  std::string text;  // one sentence
};

struct CheckOptions {
  // As for encodings::resolve_frequencies(); none: the largest position + 1.
  std::optional<std::int64_t> context = std::nullopt;
  // Of the model: they tell heads from tokens.
  std::optional<std::int64_t> heads = std::nullopt, key_heads = std::nullopt;
  // Queries and keys differ under xPos only; none: either is accepted.
  std::optional<core::Role> role = std::nullopt;
};

// A mistake that explains the data.
struct FoundCause {
  std::string id;    // "cos_and_sin_swapped", ...: stable, for programs; audit has the same
  std::string text;  // one sentence
  double residual = 0.0;
  std::vector<ConfigDifference> fields;  // the parameters that differ, if any
};

struct ConfigCheck {
  bool agrees = false;
  std::string text;  // the verdict, one sentence
  // The cause of the difference; none when it is not known.
  std::optional<FoundCause> cause;
  std::vector<FoundCause> alternatives;  // the data cannot tell them from the cause
  std::vector<ConfigDifference> differences;

  std::string layout;
  std::vector<std::string> axes;  // names, dim last
  std::string positions;          // "given" or "contiguous"
  std::optional<std::int64_t> offset;
  std::optional<std::int64_t> context;  // that the frequencies were resolved at
  core::Role role = core::Role::query;
  std::string angles;     // "exact", or "float32" when the data show it
  double residual = 0.0;  // root mean square of (after - explanation) divided by that of after
  std::vector<std::string> notes;
};

// Whether `after` is what `spec` makes of `before`, within the bound above on every feature; if not,
// which mistake it is. Positions that are not given ascend by one from any offset, the same for every
// batch row.
//
// shape    positions also [axes, tokens] or [axes, batch, tokens], for specs with several rows of
//          positions (M-RoPE, images)
// throws   Error as diagnose() and resolve_frequencies()
// cost     each known mistake is applied to a sample of the vectors, those that fit to all
[[nodiscard]] PHASOR_API ConfigCheck check_config(const DiagnoseInput& input,
                                                  const encodings::RopeSpec& spec,
                                                  const CheckOptions& options = {});

// Both: the rotation in the data, and whether it is the config's. If it is, `found` has the config's
// numbers also where the data alone do not determine them.
struct ConfigDiagnosis {
  Diagnosis found;
  ConfigCheck check;
};
[[nodiscard]] PHASOR_API ConfigDiagnosis diagnose(const DiagnoseInput& input,
                                                  const encodings::RopeSpec& spec,
                                                  const CheckOptions& options = {});

// One JSON object. Fields that the data do not determine are null and listed in "undetermined". With a
// check also "verdict" ("as_config" or "differs"), "cause", "alternatives", "agrees_with_config" and
// "differences".
[[nodiscard]] PHASOR_API std::string diagnose_json(const Diagnosis& found,
                                                   const ConfigCheck* check = nullptr);

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
  double below_best = 0.0;

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

  // Whether an engine that follows the config would rotate other pairs than these weights have: false
  // if undecided.
  [[nodiscard]] bool disagrees() const noexcept {
    if (!tells) return false;
    const OrderCandidate& best = candidates.front();
    return !best.consistent() || (config_layout && *config_layout != best.queries);
  }
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

// The errors of another engine's cos/sin table, and their most likely cause.

// A table computed by another implementation.
//
// shape    cos, sin [rows, pairs], widened to double; positions [rows, axes], one per position row
//          that the frequencies read
struct ForeignTable {
  std::span<const double> cos, sin;
  std::span<const double> positions;
  std::int64_t rows = 0;
  core::DType stored = core::DType::f32;  // the type the numbers were stored in
  std::string_view form = "pairs";        // how they were stored, for audit_json()
  std::int64_t differing_copies = 0;      // of values that the form stores twice, for audit_json()
};

struct AuditOptions {
  std::optional<std::int64_t> context = std::nullopt;
  // Radians, and relative amplitude.
  double threshold = 1e-3;
  std::function<void(double share)> progress = {};  // as DiagnoseInput
};

struct WorstEntry {
  double error = 0.0;
  std::int64_t row = 0, pair = 0;
};

// The errors of one row.
struct RowErrors {
  double max_angle = 0.0, mean_angle = 0.0;  // radians
  double max_amplitude = 0.0;                // relative
  double max_ulp = 0.0;
};

// A way to compute the table that produces these errors.
struct Cause {
  std::string name;  // "float32_product", "bfloat16_positions", ...: stable, for programs
  std::string text;  // the same in words
  // Root mean square distance between the table's (cos, sin) and those that this cause predicts,
  // divided by the amplitude.
  double residual = 0.0;
};

struct Audit {
  // The exact frequencies that the table was compared with.
  core::Frequencies frequencies = core::Frequencies({1.0});
  WorstEntry angle;      // radians
  WorstEntry amplitude;  // relative
  WorstEntry ulp;        // of float32, or of a 16-bit `stored`
  double mean_angle = 0.0, mean_ulp = 0.0;
  std::int64_t entries = 0;
  std::optional<std::int64_t> first_row_past;  // the threshold
  std::vector<RowErrors> by_row;
  std::vector<WorstEntry> by_pair;  // angle
  double error = 0.0;               // root mean square distance to the exact (cos, sin)
  // None when the table is as good as its type can store, or when no known cause explains the
  // errors.
  std::optional<Cause> cause;
  std::optional<Cause> runner_up;  // the next best that predicts other numbers
  // The table holds the exact values rounded to `stored`, within a unit in the last place.
  bool as_good_as_its_type = false;
};

// throws   Error(shape_mismatch) when the sizes of cos, sin or positions do not match rows and pairs;
//          Error as resolve_frequencies()
// cost     one exact cos and sin per entry; causes are tried on at most a few hundred rows
[[nodiscard]] PHASOR_API Audit audit(const encodings::RopeSpec& spec, const ForeignTable& table,
                                     const AuditOptions& options = {});

// The pairs with the largest angle errors, at most five, the worst first; none without an error.
[[nodiscard]] PHASOR_API std::vector<WorstEntry> worst_pairs(const Audit& findings);
// 2 pi / frequency of a pair, in positions; infinite for a frequency of 0.
[[nodiscard]] PHASOR_API double wavelength_of(const Audit& findings, std::int64_t pair);
// NumPy's name of the type whose units in the last place are counted.
[[nodiscard]] PHASOR_API std::string_view unit_name(core::DType stored) noexcept;
// One JSON object; `table` and `options` are those of the audit. An error that is not finite is
// null.
[[nodiscard]] PHASOR_API std::string audit_json(const Audit& findings, const ForeignTable& table,
                                                const AuditOptions& options);

}  // namespace phasor::porting
