// The scalings of RoPE: each a small value that resolves to frequencies. f_i = base^(-2i/dim) are
// the unscaled frequencies, RoFormer (15). Each type's fields, ranges and defaults are described
// next to its formula, in src/encodings/rope/<type>_scaling.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "phasor/export.h"

namespace phasor::encodings {

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
// the original length; amplitude 1 + 0.1 ln factor.
struct YarnScaling {
  double factor = 1.0;  // for a null factor of a config: max/original
  std::int64_t original_length = 0;
  double beta_fast = 32.0, beta_slow = 1.0;
  bool truncate = true;
  std::optional<double> attention_factor;
  double mscale = 0.0, mscale_all_dim = 0.0;  // used when both are non-zero
  bool operator==(const YarnScaling&) const = default;
};

// 1 / (list_i base^(2i/dim)); the long list iff the context is longer than the original length.
struct LongRopeScaling {
  std::vector<double> short_factor, long_factor;  // dim/2 each
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

}  // namespace phasor::encodings
