// Rotary position embedding: the frequencies, the rotation of a head as a value, the exact cos and sin
// of its angles, and the call that rotates queries and keys.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "phasor/core/cpu.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/positions.hpp"
#include "phasor/core/view.hpp"
#include "phasor/export.h"

namespace phasor::core {

// The frequencies of a rotation. Every RoPE type is resolved to these numbers; tables and kernels do
// not depend on the type.

// cos/sin rows and heads are processed in buffers of fixed size, so that a call never allocates.
inline constexpr std::int64_t kMaxRotaryDim = 2048;
// Positions may have several axes (M-RoPE: temporal, height, width); a frequency reads one of them.
inline constexpr int kMaxAxes = 8;

// θ_i in radians per position, in float64; the factor on cos and sin; the position axis that each
// θ_i reads.
//
// An immutable value: copies share their numbers.
//
// throws   Error(invalid_argument) if there is no value, more than kMaxRotaryDim / 2, one that is
//          not finite, an amplitude that is not finite and positive, axes that do not fit, or fewer
//          rows of positions than the axes read
class PHASOR_API Frequencies {
 public:
  // axis_count: the rows of positions of a token, some of which no frequency may read; 0: as many
  // as the axes read.
  explicit Frequencies(std::vector<double> values, double amplitude = 1.0,
                       std::vector<std::uint8_t> axes = {}, std::vector<float> float32_values = {},
                       int axis_count = 0);

  [[nodiscard]] std::span<const double> values() const noexcept { return data_->values; }
  [[nodiscard]] double amplitude() const noexcept { return data_->amplitude; }
  // One entry per frequency, or empty if there is one axis.
  [[nodiscard]] std::span<const std::uint8_t> axes() const noexcept { return data_->axes; }
  // Rows of positions of a token; at least one more than the largest of axes().
  [[nodiscard]] int axis_count() const noexcept { return data_->axis_count; }
  [[nodiscard]] std::int64_t pairs() const noexcept {
    return static_cast<std::int64_t>(data_->values.size());
  }
  [[nodiscard]] double largest() const noexcept { return data_->largest; }  // max |θ_i|
  // The same frequencies as an engine that works in float32 throughout computes them; used by every
  // AngleMode but exact.
  [[nodiscard]] std::span<const float> float32_values() const noexcept {
    return data_->float32_values;
  }
  [[nodiscard]] bool same_values(const Frequencies& other) const noexcept;

 private:
  struct Data {
    std::vector<double> values;
    double amplitude;
    std::vector<std::uint8_t> axes;
    std::vector<float> float32_values;
    int axis_count = 1;
    double largest = 0.0;
  };
  std::shared_ptr<const Data> data_;
};

struct FrequencySpec {
  std::int64_t rotary_dim = 0;
  double base = 10000.0;
};

// RoFormer (15): θ_i = base^(-2i/rotary_dim), i = 0 .. rotary_dim/2 - 1, each correctly rounded to
// float64 (computed to about 100 bits).
//
// throws   Error(invalid_argument): rotary_dim odd, not positive or above kMaxRotaryDim; base not
//          positive
[[nodiscard]] PHASOR_API Frequencies make_frequencies(const FrequencySpec& spec);

// Which two of the R rotated features make pair i.
enum class PairLayout : std::uint8_t {
  interleaved,          // reads and writes (2i, 2i+1)          R = 8: [a b a b a b a b]
  half,                 // reads and writes (i, i + R/2)        R = 8: [a a a a b b b b]
  interleaved_to_half,  // reads (2i, 2i+1), writes (i, i + R/2): DeepSeek V3
};
[[nodiscard]] PHASOR_API std::string_view name_of(PairLayout layout) noexcept;
[[nodiscard]] PHASOR_API std::optional<PairLayout> pair_layout_of(std::string_view name) noexcept;

// xPos (position axis 0): pair i of a query at position m grows by e^{rates[i] (m - centre)}, a
// key's shrinks by it.
struct Growth {
  std::vector<double> rates;  // natural logarithm per position, one per pair
  double centre = 0.0;        // the position where the factor is one
};

struct PHASOR_API Rotary {
  Frequencies frequencies;
  PairLayout layout;  // no default: a wrong guess here is silent
  std::int64_t head_dim = 0;
  // Features [offset, offset + 2 * pairs) are rotated; the rest are unchanged.
  std::int64_t offset = 0;
  // The rotated features are split into this many equal blocks, each paired by the layout: 1, or 2
  // if each half of the head has its own position axis (Gemma 4 vision, ChatGLM v1).
  std::int64_t blocks = 1;
  std::optional<Growth> growth = std::nullopt;

  [[nodiscard]] std::int64_t rotary_dim() const noexcept { return 2 * frequencies.pairs(); }
};

// throws   Error(invalid_argument | shape_mismatch) naming the member that does not fit
PHASOR_API void validate(const Rotary& rotary);

// Exact cos and sin of position x frequency.
//
// The angle is the exact product of two doubles, kept as high + low (one FMA), reduced by pi/2 kept
// in three parts, and evaluated by a polynomial in double; the result is rounded once. A float32
// angle near 100000 rad is off by up to 0.004 rad before cos is even called.

enum class AngleMode : std::uint8_t {
  exact,
  // float32 frequency, product, cos and sin, as other engines compute them. Bit-identical to them in
  // f16 and bf16; in float32 their cos and sin are not always correctly rounded and may differ by
  // one unit in the last place.
  float32,
  // As float32, with one more rounding: what a model loses if that number is kept in 16 bits.
  bfloat16_frequencies,  // of each frequency
  bfloat16,              // of each angle
  float16,               // of each angle, which must be below kMaxAngle16
};
[[nodiscard]] PHASOR_API std::string_view name_of(AngleMode mode) noexcept;
[[nodiscard]] PHASOR_API std::optional<AngleMode> angle_mode_of(std::string_view name) noexcept;

// |float32 result - truth| in units in the last place of the float32 result, truth being
// cos or sin of the exact product: for every integer |position| <= kExactPosition, near-zero
// results included.
inline constexpr double kCosSinErrorUlp = 0.502;
inline constexpr std::int64_t kExactPosition = std::int64_t{1} << 40;
// The same for float64 results.
inline constexpr double kCosSinErrorUlp64 = 1.0;
// Positions of this magnitude or more are an error. Between the two, and for positions that are not
// integers, the same bound holds against the exact product of the float64 position while |angle| <= kMaxAngle.
inline constexpr double kMaxPosition = 9007199254740992.0;  // 2^53: every integer below is a double
inline constexpr double kMaxAngle = 281474976710656.0;      // 2^48 rad; larger angles are an error
// AngleMode::float16: the same for angles that would be rounded to infinity.
inline constexpr double kMaxAngle16 = 65504.0;
// |float32 result - truth of the mathematically exact frequency|, absolute, |position| <= 2^24.
inline constexpr double kCosSinErrorExactFrequency = 1e-7;

// cos and sin of one token's angles, times the amplitude.
//
// inputs   positions: one per axis of `frequencies`
// shape    cos, sin [pairs]
// throws   Error(shape_mismatch | out_of_range | invalid_argument), before anything is written
PHASOR_API void cos_sin(const Frequencies& frequencies, std::span<const double> positions,
                        std::span<float> cos, std::span<float> sin,
                        AngleMode mode = AngleMode::exact,
                        InstructionSet isa = InstructionSet::best);
PHASOR_API void cos_sin(const Frequencies& frequencies, std::span<const double> positions,
                        std::span<double> cos, std::span<double> sin,
                        InstructionSet isa = InstructionSet::best);

// cos and sin of a range of positions, computed once.

struct PositionRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Immutable after it is built and cheap to copy (copies share the rows), so threads can share one.
// grown() builds another table: rows in both ranges are copied, not recomputed.
class PHASOR_API CosSinTable {
 public:
  // throws   Error(invalid_argument | out_of_range); std::bad_alloc when the rows do not fit
  [[nodiscard]] static CosSinTable build(const Frequencies& frequencies, PositionRange range,
                                         AngleMode mode = AngleMode::exact, int threads = 0,
                                         InstructionSet isa = InstructionSet::best);
  [[nodiscard]] CosSinTable grown(PositionRange range, int threads = 0) const;

  // From rows that the caller already has, as the ONNX operator gives them: row r is for position
  // first + r.
  //
  // shape    cos, sin [rows, pairs]
  [[nodiscard]] static CosSinTable from_rows(std::span<const float> cos, std::span<const float> sin,
                                             std::int64_t pairs, std::int64_t first = 0);

  [[nodiscard]] PositionRange range() const noexcept { return range_; }
  [[nodiscard]] std::int64_t pairs() const noexcept { return pairs_; }
  // Whether the rows were built from these frequencies. For from_rows() only the number of pairs
  // is compared.
  [[nodiscard]] bool serves(const Frequencies& frequencies, AngleMode mode) const noexcept;
  // The factor inside the rows.
  [[nodiscard]] double amplitude() const noexcept { return amplitude_; }
  // precondition  position inside range()
  [[nodiscard]] std::span<const float> cos(std::int64_t position) const noexcept;
  [[nodiscard]] std::span<const float> sin(std::int64_t position) const noexcept;

 private:
  CosSinTable() = default;
  std::shared_ptr<const float[]> rows_;  // [count][cos: pairs | sin: pairs]
  PositionRange range_;
  std::int64_t pairs_ = 0;
  double amplitude_ = 1.0;
  std::optional<Frequencies> frequencies_;  // none for from_rows
  AngleMode mode_ = AngleMode::exact;
};

// The rotation of queries and keys by the angles of their positions.

enum class Direction : std::uint8_t {
  forward,    // a R_m x
  transpose,  // a R_m^T x: the backward pass
  inverse,    // (1/a) R_m^T x: undoes forward for every amplitude a
};
enum class Role : std::uint8_t { query, key };  // they differ under xPos only

struct RotateOptions {
  Direction direction = Direction::forward;
  AngleMode angles = AngleMode::exact;
  // Rows are read from the table if there is one, else computed per token. A table must be built
  // from the same frequencies.
  const CosSinTable* table = nullptr;
  // 0: as many as the machine has if the work is large enough to gain; n: at most n, the calling
  // thread included.
  int threads = 0;
  InstructionSet isa = InstructionSet::best;
};

// One tensor to rotate: in place when in and out are the same view.
struct Rotation {
  ConstHeadsView in;
  HeadsView out;
  Role role = Role::query;
};

// RoFormer (34)   y[a] = x[a] cos(mθ) - x[b] sin(mθ)
//                 y[b] = x[b] cos(mθ) + x[a] sin(mθ)      (a, b) = pair i in rotary.layout
//
// Rotates queries, keys, or both in one call (grouped heads: each tensor has its own head count);
// each token's row of cos and sin is computed once.
//
// shape    every view [batch, tokens, heads, rotary.head_dim]; batch and tokens agree between tensors
// touches  features [offset, offset + rotary_dim) of each head; in place, the rest is unchanged,
//          out of place it is copied
// error    |y - exact| <= kRotateErrorF32 * epsilon(f32) * (length of the exact output pair), f32
//          storage; f16 and bf16: the same, then one rounding to nearest even; f64: kRotateErrorF64
//          * epsilon(f64)
// throws   Error(invalid_argument | shape_mismatch | out_of_range | unsupported), before an output
//          is written; views that overlap without being the same view are an error
// cost     one read and one write; no allocation; no thread for work below kThreadBytes per thread
PHASOR_API void rotate(const Rotary& rotary, const Positions& positions,
                       std::span<const Rotation> rotations, const RotateOptions& options = {});
// In place.
PHASOR_API void rotate(const Rotary& rotary, const Positions& positions, HeadsView x,
                       const RotateOptions& options = {});
PHASOR_API void rotate(const Rotary& rotary, const Positions& positions, ConstHeadsView in,
                       HeadsView out, const RotateOptions& options = {});
// cos and sin that the caller has computed: element (batch b, token t, pair i) is at cos +
// b*batch_stride + t*token_stride + i*pair_stride, counted in elements. Stride 0: one row for all.
struct CosSinRows {
  const void* cos = nullptr;
  const void* sin = nullptr;
  DType dtype =
      DType::f32;  // f16 and bf16 are widened; f64 is rounded once unless the data are f64
  std::int64_t pairs = 0;
  std::int64_t batch_stride = 0, token_stride = 0, pair_stride = 1;
};
// As rotate(), with the caller's cos and sin: for code that keeps its own tables. Rotates features
// [offset, offset + 2 pairs) of each head. Direction::inverse is not supported: the amplitude of the
// rows is unknown.
//
// options  table and angles are not read
PHASOR_API void rotate_by(const CosSinRows& rows, PairLayout layout, std::int64_t offset,
                          std::span<const Rotation> rotations, const RotateOptions& options = {});
// q and k in place.
PHASOR_API void rotate_qk(const Rotary& rotary, const Positions& positions, HeadsView q,
                          HeadsView k, const RotateOptions& options = {});

// Table entry, product and sum each round by at most epsilon/2 of the pair's length
// (Cauchy-Schwarz): 1.5; the rest covers a table entry scaled by 1/a^2 for Direction::inverse.
inline constexpr double kRotateErrorF32 = 2.0;
inline constexpr double kRotateErrorF64 = 3.0;
inline constexpr std::int64_t kThreadBytes = std::int64_t{256} * 1024;

}  // namespace phasor::core
