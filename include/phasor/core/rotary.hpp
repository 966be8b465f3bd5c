// A resolved rotation: the numbers that every RoPE specification is reduced to before kernels run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
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
  // The same frequencies as an engine that works in float32 throughout computes them; used by
  // AngleMode::float32 only.
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

}  // namespace phasor::core
