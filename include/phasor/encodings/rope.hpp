// Rotary position embedding as a value, and its resolution to frequencies.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "phasor/core/rotary.hpp"
#include "phasor/encodings/rope_scaling.hpp"
#include "phasor/export.h"

namespace phasor::encodings {

// Which position row each frequency reads.
struct OneAxis {  // row 0
  bool operator==(const OneAxis&) const = default;
};
// M-RoPE: rows temporal, height, width. The sections add up to rotary_dim / 2.
struct MropeAxes {
  enum class Order : std::uint8_t {
    chunked,      // t...t h...h w...w in frequency order (Qwen2-VL)
    interleaved,  // thwthw... while h and w last, then t (Qwen3-VL)
    alternating,  // hwhw... then t...t (ERNIE 4.5 VL)
  };
  std::vector<std::int64_t> sections;
  Order order = Order::chunked;
  bool operator==(const MropeAxes&) const = default;
};
// Images: rows height, width. The scaling must be default.
struct AxialAxes {
  enum class Kind : std::uint8_t {
    concatenated,   // [h | w], dim/4 frequencies of width dim/2 each, one layout (Qwen2-VL)
    alternating,    // h takes every even frequency of width dim, w every odd one (Pixtral)
    per_half_head,  // each half of the head has its own row and layout (Gemma 4, ChatGLM v1)
  };
  Kind kind = Kind::concatenated;
  bool operator==(const AxialAxes&) const = default;
};
using RopeAxes = std::variant<OneAxis, MropeAxes, AxialAxes>;
// The names in a plain spec.
[[nodiscard]] PHASOR_API std::string_view name_of(MropeAxes::Order order) noexcept;
[[nodiscard]] PHASOR_API std::string_view name_of(AxialAxes::Kind kind) noexcept;

// xPos: zeta_i = (2i/dim + gamma) / (1 + gamma); queries times zeta_i^p, keys times zeta_i^-p,
// p = (position - centre) / scale_base.
struct Xpos {
  enum class Centre : std::uint8_t {
    fixed,         // `centre`: cached keys stay valid
    middle_floor,  // floor(context / 2)
    middle_ceil,   // ceil(context / 2), as torchscale
  };
  double scale_base = 512.0;
  double gamma = 0.4;
  Centre policy = Centre::fixed;
  double centre = 0.0;
  bool operator==(const Xpos&) const = default;
};

struct RopeSpec {
  std::int64_t head_dim = 0;
  std::int64_t rotary_dim = 0;  // features that are rotated; even, at most head_dim - rotary_offset
  std::int64_t rotary_offset = 0;
  double base = 10000.0;
  std::optional<core::PairLayout> layout = std::nullopt;  // none: not known yet
  RopeScaling scaling = DefaultScaling{};
  RopeAxes axes = OneAxis{};
  std::optional<Xpos> xpos = std::nullopt;
  bool operator==(const RopeSpec&) const = default;
};

// throws   Error(invalid_argument) naming the member that does not fit: odd or too large dims, a
//          base, factor or length that is not positive, lists or sections of the wrong length,
//          members that cannot be combined
PHASOR_API void validate(const RopeSpec& spec);

// Frequencies, amplitude and axes at a context length (see context_for). Without one, dynamic and
// longrope resolve as for a sequence within the original length.
//
// throws   as validate(); Error(invalid_argument) for a negative context
[[nodiscard]] PHASOR_API core::Frequencies resolve_frequencies(
    const RopeSpec& spec, std::optional<std::int64_t> context = std::nullopt);
// The one list that both axes of an image share: rotary_dim / 4 values that each axis reads in
// full, or, for AxialAxes::Kind::alternating, rotary_dim / 2 values of which height reads the even
// and width the odd ones.
//
// throws   as validate(); Error(invalid_argument) when spec.axes are not AxialAxes
[[nodiscard]] PHASOR_API core::Frequencies axial_frequencies(const RopeSpec& spec);
// As resolve_frequencies(), with layout, window, blocks and growth.
//
// throws   also Error(invalid_argument) when the layout is not known, or xPos's centre depends on
//          the context and none is given
[[nodiscard]] PHASOR_API core::Rotary resolve(const RopeSpec& spec,
                                              std::optional<std::int64_t> context = std::nullopt);
// Whether resolve() gives other numbers at other lengths.
[[nodiscard]] PHASOR_API bool depends_on_context(const RopeSpec& spec) noexcept;

// The context length to resolve a spec at. Every entry point (C++, C, Python, command line) uses
// this rule:
//   given                                        that length
//   the numbers do not depend on the context     none
//   positions are known                          the largest one + 1, rounded down, at least 1
//   no positions, or beyond kMaxPosition         none
// Attention without position ids has key tokens at 0, 1, ...: the largest position is the last key's.
[[nodiscard]] PHASOR_API std::optional<std::int64_t> context_for(
    const RopeSpec& spec, std::optional<std::int64_t> given,
    std::optional<double> largest_position) noexcept;

}  // namespace phasor::encodings
