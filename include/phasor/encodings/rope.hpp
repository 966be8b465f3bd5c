// Rotary position embedding as a value, and its resolution to frequencies.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "phasor/core/rotate.hpp"
#include "phasor/export.h"

namespace phasor::encodings {

// The scalings of RoPE: each a small value that resolves to frequencies. f_i = base^(-2i/dim) are
// the unscaled frequencies, RoFormer (15). Each type's fields, ranges and defaults are described
// next to its formula, in src/encodings/rope/<type>_scaling.cpp.

// f_i
struct DefaultScaling {
  bool operator==(const DefaultScaling&) const = default;
};

// f_i / factor: the same as dividing positions by `factor`.
struct LinearScaling {
  double factor = 1.0;
  bool operator==(const LinearScaling&) const = default;
};

// f_i of base * factor, divided by factor^(2/dim);
// with mixed_b b: f_i / exp(a (i+1)^b), a = ln factor / (dim/2)^b.
struct NtkScaling {
  double factor = 1.0;
  std::optional<double> mixed_b;
  bool operator==(const NtkScaling&) const = default;
};

// base' = base * (factor L/max - (factor - 1))^(dim/(dim-2)), L = max(context, max);
// with alpha: base' = base * alpha^(dim/(dim-2)) at every length.
struct DynamicScaling {
  double factor = 1.0;
  std::optional<double> alpha;
  std::int64_t original_length = 0;  // max; not needed with alpha
  bool operator==(const DynamicScaling&) const = default;
};

// YaRN's predecessor: linear blended into NTK over the rotations beta_0 .. beta_1 that a frequency
// makes within the original length, then that into f_i over gamma_0 .. gamma_1.
struct NtkByPartsScaling {
  double factor = 1.0;
  std::int64_t original_length = 0;
  double beta_0 = 1.25, beta_1 = 0.75;
  double gamma_0 = 16.0, gamma_1 = 2.0;
  double ntk_factor = 1.0, extrapolation_factor = 1.0;
  bool operator==(const NtkByPartsScaling&) const = default;
};

// f_i / factor blended into f_i over the pairs that make beta_fast .. beta_slow rotations within
// the original length, f_i with the weight extrapolation_factor at most; amplitude 1 + 0.1 ln
// factor, or 1 with an extrapolation_factor of 0, which is f_i / factor on every pair.
struct YarnScaling {
  double factor = 1.0;  // for a null factor of a config: max/original
  std::int64_t original_length = 0;
  double beta_fast = 32.0, beta_slow = 1.0;
  bool truncate = true;
  std::optional<double> attention_factor = std::nullopt;
  double mscale = 0.0, mscale_all_dim = 0.0;  // used when both are non-zero
  double extrapolation_factor = 1.0;          // ggml's ext_factor, from 0 to 1
  bool operator==(const YarnScaling&) const = default;
};

// 1 / (list_i base^(2i/dim)); the long list iff the context is longer than the original length.
struct LongRopeScaling {
  std::vector<double> short_factor, long_factor;  // dim/2 each; images: of one axis
  std::int64_t original_length = 0;
  double factor = 1.0;  // of the amplitude sqrt(1 + ln factor / ln original_length)
  std::optional<double> attention_factor;
  std::optional<double> short_mscale, long_mscale;  // amplitude per list (Phi-3.5-MoE)
  bool operator==(const LongRopeScaling&) const = default;
};

// By wavelength w = 2 pi / f: w < original/high: f; w > original/low: f/factor; between: blended.
// With low == high there is no range between: w <= original/high keeps f.
struct Llama3Scaling {
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;
  std::int64_t original_length = 0;
  bool operator==(const Llama3Scaling&) const = default;
};

// base^(-2i/head_dim) / factor for i < int(proportion * head_dim // 2), then zeros:
// head_dim/2 frequencies.
struct ProportionalScaling {
  double proportion = 1.0;
  double factor = 1.0;
  bool operator==(const ProportionalScaling&) const = default;
};

// YaRN's frequencies with amplitude 1 + 0.07 ln factor, or 1 when factor <= 1 (TeleChat3).
struct Telechat3YarnScaling {
  double factor = 1.0;
  std::int64_t original_length = 0;
  double beta_fast = 32.0, beta_slow = 1.0;
  bool truncate = true;
  bool operator==(const Telechat3YarnScaling&) const = default;
};

using RopeScaling = std::variant<DefaultScaling, LinearScaling, NtkScaling, DynamicScaling,
                                 NtkByPartsScaling, YarnScaling, LongRopeScaling, Llama3Scaling,
                                 ProportionalScaling, Telechat3YarnScaling>;

// The rope_type of a config: "default", "linear", "ntk", "dynamic", "ntk_by_parts", "yarn",
// "longrope", "llama3", "proportional", "telechat3-yarn".
[[nodiscard]] PHASOR_API std::string_view name_of(const RopeScaling& scaling) noexcept;
// Whether the frequencies or the amplitude change with the context length.
[[nodiscard]] PHASOR_API bool depends_on_context(const RopeScaling& scaling) noexcept;
// The trained length that the formula reads; none when it reads none.
[[nodiscard]] PHASOR_API std::optional<std::int64_t> original_length(
    const RopeScaling& scaling) noexcept;
// YaRN's g(mscale) = 0.1 mscale ln(factor) + 1, or 1 when factor <= 1. Models with latent attention
// multiply the softmax scale by its square.
[[nodiscard]] PHASOR_API double yarn_amplitude(double factor, double mscale) noexcept;

// Which position row each frequency reads.
struct OneAxis {  // row 0
  bool operator==(const OneAxis&) const = default;
};
// M-RoPE: one section for each row of positions, temporal, height, width and perhaps a fourth, which
// ggml calls e (XD-RoPE: text, width, height, time). A section is the number of frequencies that
// read its row, which may be 0. They add up to rotary_dim / 2.
struct MropeAxes {
  enum class Order : std::uint8_t {
    chunked,      // t...t h...h w...w e...e in frequency order (Qwen2-VL, Hunyuan VL)
    interleaved,  // thwthw... while they last, then t (Qwen3-VL), or e if there are four sections
    alternating,  // hwhw... then t...t, three sections (ERNIE 4.5 VL)
  };
  std::vector<std::int64_t> sections;
  Order order = Order::chunked;
  bool operator==(const MropeAxes&) const = default;
};
// Images: rows height, width. The scaling applies to the list that both axes share; it cannot be
// proportional.
struct AxialAxes {
  enum class Kind : std::uint8_t {
    concatenated,   // [h | w], dim/4 frequencies of width dim/2 each, one layout (Qwen2-VL; ggml's
                    // vision mode)
    alternating,    // h takes every even frequency of width dim, w every odd one (Pixtral)
    per_half_head,  // each half of the head has its own row and layout (Gemma 4, ChatGLM v1)
  };
  Kind kind = Kind::concatenated;
  bool operator==(const AxialAxes&) const = default;
};
using RopeAxes = std::variant<OneAxis, MropeAxes, AxialAxes>;
// The rows of positions of a token: 1, one for each section of M-RoPE, 2 for images.
[[nodiscard]] PHASOR_API int axis_count(const RopeAxes& axes) noexcept;
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
  // In place of base^(-2i/rotary_dim), in radians per position: rotary_dim / 2 values in the order
  // of the pairs; for images those that read the height first. `base` must keep its default.
  std::vector<double> frequencies = {};
  // Divide the scaled frequencies, in the same order (ggml's freq_factors).
  std::vector<double> frequency_factors = {};
  double amplitude = 1.0;  // times the scaling's own
  bool operator==(const RopeSpec&) const = default;
};

// The base of the frequencies; none when a list replaces it.
[[nodiscard]] PHASOR_API std::optional<double> base_of(const RopeSpec& spec) noexcept;

// throws   Error(invalid_argument) naming the member that does not fit: odd or too large dims, a
//          base, factor, amplitude or length that is not positive, lists or sections of the wrong
//          length, members that cannot be combined. A list of frequencies goes with default and
//          linear scaling; the other formulas depend on the base.
PHASOR_API void validate(const RopeSpec& spec);

// Frequencies, amplitude and axes at a context length (see context_for). Without one, dynamic and
// longrope resolve as for a sequence within the original length.
//
// throws   as validate(); Error(invalid_argument) for a negative context
[[nodiscard]] PHASOR_API core::Frequencies resolve_frequencies(
    const RopeSpec& spec, std::optional<std::int64_t> context = std::nullopt);
// The list of an image model's rotary module, in the order of the pairs that rotate: the rotary_dim / 4
// values that both axes read, or, for AxialAxes::Kind::alternating, rotary_dim / 2 values, those of
// height and then those of width. With spec.frequencies or frequency_factors the axes need not share
// any: resolve_frequencies().
//
// throws   as resolve_frequencies(); Error(invalid_argument) when spec.axes are not AxialAxes
[[nodiscard]] PHASOR_API core::Frequencies axial_frequencies(
    const RopeSpec& spec, std::optional<std::int64_t> context = std::nullopt);
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

// Queries that grow with their position, so that long contexts keep sharp scores: some models multiply
// each query by a factor after, or instead of, its rotation.
//
//   factor(position) = 1 + beta ln(1 + floor((position + offset) / length))
//
// Ministral 3 and Mistral 4: llama_4_scaling_beta, original_max_position_embeddings, offset 0, on layers
// that rotate. Llama 4: attn_scale, floor_scale, offset 1, on layers that do not.
struct QueryScale {
  double beta = 0.0;
  std::int64_t length = 0;
  std::int64_t offset = 0;
  bool operator==(const QueryScale&) const = default;
};

// throws   Error(invalid_argument) for a beta that is not finite or negative, a length below 1, a
//          negative offset
PHASOR_API void validate(const QueryScale& scale);

// factor(position).
//
// precondition  a valid scale; position >= 0
[[nodiscard]] PHASOR_API double query_scale_at(const QueryScale& scale, double position) noexcept;

// The factor of each position's query, in double.
//
// throws   as validate(); Error(out_of_range) for a position that is negative or not finite
[[nodiscard]] PHASOR_API std::vector<double> query_scales(const QueryScale& scale,
                                                          std::span<const double> positions);

}  // namespace phasor::encodings
