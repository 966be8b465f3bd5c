// The flags that choose a config, or a rotation without one, a layer and a context length, and the
// positions a verb works at.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.hpp"
#include "phasor/config/config.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/encodings/rope.hpp"
#include "rope_flags.hpp"

namespace phasor::tools {

struct SpecOptions {
  std::string config = {};  // as config_source.hpp describes; empty: the rotation of the flags
  RopeFlags rope = {};
  std::string layer = {};  // an index or a layer type; empty: the only one
  std::optional<std::int64_t> context = std::nullopt;
};
// --config, --layer, --context and those of add_rope_flags()
void add_spec_options(Verb& verb, SpecOptions& options);

// Whether --config or flags of a rotation are given; the verb may work without.
[[nodiscard]] inline bool has_spec(const SpecOptions& options) {
  return !options.config.empty() || options.rope.given();
}
// Keys of another scaling than the config's are named on stderr, and so are the numbers that flags
// replace.
//
// throws   Error: neither --config nor --head-dim; the config is refused, the layer does not exist or
//          does not rotate; flags that do not fit it
[[nodiscard]] encodings::RopeSpec read_spec(const SpecOptions& options);
// The same with the config that it came from: stdin can be read once.
struct ModelSpec {
  encodings::RopeSpec spec;
  config::ModelConfig model;
};
[[nodiscard]] ModelSpec read_model_spec(const SpecOptions& options);

// --angles exact|float32, as text until parsed
void add_angles_option(Verb& verb, std::string& angles);
[[nodiscard]] core::AngleMode parse_angles(std::string_view name);

// A range "A:B" (A, A + 1, ..., B - 1) or an array of integers or floats, as read_array() reads it.
//
// throws   Error: not a range, not a readable array, not numbers, or not finite
[[nodiscard]] core::Positions parse_positions(const std::string& text);

// The positions for a tensor of `tokens` tokens; batch: none when the tensor has no batch axis.
//
// throws   Error(shape_mismatch) with the given shape and those that would fit
[[nodiscard]] core::Positions fit_positions(const encodings::RopeSpec& spec,
                                            const core::Positions& positions,
                                            std::optional<std::int64_t> batch, std::int64_t tokens);

// The context length to resolve at: the flag, or, if the frequencies depend on it, the largest
// position + 1, which is then printed on stderr.
[[nodiscard]] std::optional<std::int64_t> context_for(const encodings::RopeSpec& spec,
                                                      const SpecOptions& options,
                                                      const core::Positions& positions,
                                                      std::string_view verb);

}  // namespace phasor::tools
