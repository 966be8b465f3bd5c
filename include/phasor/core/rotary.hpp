// A resolved rotation: the numbers that every RoPE specification is reduced to before kernels run.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "phasor/core/frequencies.hpp"
#include "phasor/export.h"

namespace phasor::core {

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
