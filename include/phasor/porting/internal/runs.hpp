// Two engines' dumps of one forward pass, compared tensor by tensor: where they part first, and why.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/encodings/rope.hpp"
#include "phasor/io/npy.hpp"
#include "phasor/porting/diagnose.hpp"

namespace phasor::porting {

// A difference is the root mean square of b - a, divided by that of the larger of the two. Two engines
// that do the same differ by the rounding of their types, u = 2^-24, 2^-11 or 2^-8 (float32, float16,
// bfloat16; fractions that all fit a shorter type count as that type). Sums of thousands of float32 add
// up, 16-bit tensors are rounded once or twice from float32.
inline constexpr double kRunRoundingsWide = 64.0;  // times u: float32 and float64
inline constexpr double kRunRoundingsShort = 4.0;  // times u: float16 and bfloat16
// Rounding grows from tensor to tensor: by at most this factor over the largest difference before it,
inline constexpr double kRunGrowth = 4.0;
// and in all to at most this many times the tolerance.
inline constexpr double kRunGrowthInAll = 16.0;

// A tensor of a run. It is read when it is compared.
struct RunTensor {
  std::string name;
  std::function<io::NpyArray()> read;
};

// Names in the order of execution as the file has them (.npz and .pt keep it), or sorted names.
enum class RunOrder : std::uint8_t { as_listed, by_name };

struct RunsInput {
  std::vector<RunTensor> a, b;
  RunOrder order = RunOrder::by_name;
  // The rotation that a layer should have; none where it is unknown, or where layers do not rotate.
  // `layer` is the first number of a tensor's name.
  std::function<std::optional<encodings::RopeSpec>(std::optional<std::int64_t> layer)> spec = {};
  CheckOptions check = {};  // context and heads of the model
  // Called before each pair of tensors is read and compared.
  std::function<void(std::size_t done, std::size_t all)> progress = {};
};

// How one tensor is made from the other.
enum class RunRelation : std::uint8_t {
  equal,       // within the tolerance
  shape,       // the shapes differ, and not by the order of axes
  not_finite,  // NaN or infinity in one where the other is finite
  transposed,  // the axes are in another order
  permuted,    // the features of the last axis are in another order
  scaled,      // by one factor
  shifted,     // tokens are at another place
  part,        // some indices of an axis alone
  other,
};
[[nodiscard]] std::string_view name_of(RunRelation relation) noexcept;

struct RunDifference {
  RunRelation relation = RunRelation::equal;
  double difference = 0.0;  // infinite for `shape` and `not_finite`
  double tolerance = 0.0;
  std::string_view precision;  // whose rounding the tolerance is: "float32", ...; "" for integers
  std::string text;            // the relation in words, with its numbers; empty for equal
};

// Compares two tensors. Types may differ: the tolerance is that of the shorter one.
//
// cost     a few passes; features are matched by sorting one row
[[nodiscard]] RunDifference compare_run_tensors(const io::NpyArray& a, const io::NpyArray& b);

// What a run did between q (or k) before and after the rotation.
struct RunRotation {
  Diagnosis found;
  std::optional<ConfigCheck> check;  // with a config
  std::string text;                  // one line
};

struct RunPart {
  std::string name;        // of a
  std::string other_name;  // of b
  RunDifference difference;
};

struct RunsReport {
  std::vector<RunPart> parts;  // every pair that was compared, in the order of layers
  std::vector<std::string> only_a, only_b;
  std::optional<std::size_t> first;  // of parts: where the runs part; none: they agree
  // When the first difference is a q or k after its rotation, and what was rotated is equal in both.
  std::optional<RunRotation> rotation_a, rotation_b;
  std::string rotated_from;  // the tensor before the rotation
  std::string rotations;     // in what the two rotations differ: "base 10000 and 500000"
  // How both rotate alike, and not as the config says; empty: they do not.
  std::string both_differ;
  // After the first difference: tensors that differ, and the first that differs by far more than what
  // is before it. None: the differences follow from the first one.
  std::size_t later = 0, later_differing = 0;
  std::optional<std::size_t> next_jump;
};

// Matches by name, or by normalised names: case, separators, leading "model." and "transformer.", words
// for layers (h, block, blk) and for q and k do not count. Compares in the order of layers.
//
// throws   Error(invalid_argument): no name is in both; Error of a tensor's read()
[[nodiscard]] RunsReport compare_runs(const RunsInput& input);

// One JSON object.
[[nodiscard]] std::string runs_json(const RunsReport& report);

}  // namespace phasor::porting
