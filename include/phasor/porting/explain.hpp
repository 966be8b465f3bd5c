// The position encoding of every layer of a model: its numbers, and the config key that each number
// came from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/config/config.hpp"
#include "phasor/export.h"

namespace phasor::porting {

// How other engines read a config. Each engine is a named, versioned list of rules; each rule is a
// deviation from what the config means, with its source.

// What a rule changes.
enum class Touches : std::uint8_t {
  everything,  // the config is read as another one, or not at all
  frequencies,
  amplitude,
  cached_keys,  // only sequences with cached keys
  rounding,     // the same values in another arithmetic
};
[[nodiscard]] PHASOR_API std::string_view name_of(Touches touches) noexcept;

// How a rule became known.
enum class Evidence : std::uint8_t {
  reported,  // measured by users
  read,      // in the engine's public source, not run
};
[[nodiscard]] PHASOR_API std::string_view name_of(Evidence evidence) noexcept;

struct DialectRule {
  std::string_view id;        // stable, for programs
  std::string_view sentence;  // what the engine does
  std::string_view source;    // public reports by number; empty: only the engine's source
  Evidence evidence = Evidence::read;
  Touches touches = Touches::everything;
};

struct Dialect {
  std::string_view name;     // "hf", "vllm", "llama.cpp", ...
  std::string_view engine;   // "Hugging Face transformers"
  std::string_view version;  // of the sources that the rules describe
  std::vector<DialectRule> rules;
};
// Every rule set, in the order of `phasor diff --list`.
[[nodiscard]] PHASOR_API std::span<const Dialect> dialects();

// How a config specifies its rotation; some readers support one form only.
enum class ConfigForm : std::uint8_t {
  plain,   // a plain spec, or GGUF metadata
  legacy,  // rope_theta, rope_scaling
  flat,    // rope_parameters, one for all layers
  nested,  // rope_parameters, one per layer type
};

// A config, and what a reader sees that does not know rope_parameters.
struct ReadableConfig {
  config::ModelConfig meaning;
  ConfigForm form = ConfigForm::plain;
  // The config without rope_parameters; none for other forms, or when such a reader fails for the
  // reason in `legacy_problem`.
  std::optional<config::ModelConfig> legacy;
  std::string legacy_problem;
  std::string text;  // JSON; empty for GGUF
};
[[nodiscard]] PHASOR_API Result<ReadableConfig> parse_readable_config(
    std::string_view text, std::string_view name = "config");
// As config::read_config().
[[nodiscard]] PHASOR_API Result<ReadableConfig> read_readable_config(
    const std::filesystem::path& path);

// The point of a run at which the engines are compared.
struct RunState {
  std::int64_t context = 0;  // tokens so far: positions 0 .. context - 1
  // The length a server was started with (vLLM's --max-model-len, llama.cpp's -c). None: the
  // config's.
  std::optional<std::int64_t> max_length = std::nullopt;
  std::int64_t shifts = 0;  // how often the cached keys were shifted
};

// A rule that applies to this config.
struct RuleInForce {
  DialectRule rule;
  std::string effect;   // with this config's numbers
  bool changes = true;  // false: no effect before keys are cached, or only rounding
};

// One group of layers as one engine rotates it.
struct EngineView {
  std::string dialect;
  std::string refusal;  // why the engine cannot read the config; empty: it can
  // Radians per position, already divided by position_divisor.
  std::vector<double> frequencies;
  double position_divisor = 1.0;
  double amplitude = 1.0;      // the factor on cos and sin
  double softmax_scale = 0.0;  // 0: unknown
  double key_gain = 1.0;       // factor on the length of cached keys after state.shifts shifts
  double key_gain_per_shift = 1.0;
  // The largest angle error, in radians, of a key cached before the frequencies changed; 0: they do
  // not change as a sequence grows.
  double stale_key_angle = 0.0;
  // |angle in the engine's arithmetic - exact angle| of each pair at position context - 1, radians.
  std::vector<double> rounding;
  std::vector<RuleInForce> rules;
};

// throws   Error(invalid_argument): the group does not rotate, the dialect is unknown, context < 1
//          or >= 2^40, max_length < 1, shifts < 0
[[nodiscard]] PHASOR_API EngineView view_of(std::string_view dialect, const ReadableConfig& config,
                                            std::size_t group, const RunState& state);

// One pair of a layer that rotates.
struct PairRotations {
  double frequency = 0.0;   // radians per position
  double wavelength = 0.0;  // 2 pi / frequency, positions; infinite for a frequency of 0
  // Full rotations within the trained length; none when that is unknown.
  std::optional<double> rotations;
};

// Layers that share an encoding.
struct LayerExplanation {
  config::LayerGroup group;
  double amplitude = 1.0;
  // At the requested context, in the order of the pairs; images: those of axial_frequencies().
  std::vector<PairRotations> pairs;
  // The length that the frequencies were trained at: the scaling's original length, else
  // max_position_embeddings.
  std::optional<std::int64_t> trained_length;
};

struct Explanation {
  config::ModelConfig config;
  std::optional<std::int64_t> context;  // as requested
  std::vector<LayerExplanation> layers;
  // Most important first: a context beyond the trained one, what engines read differently, keys
  // without effect.
  std::vector<std::string> warnings;
};

// error    as view_of() and resolve_frequencies()
[[nodiscard]] PHASOR_API Result<Explanation> explain(
    const ReadableConfig& config, std::optional<std::int64_t> context = std::nullopt);

// {"model_type", "layers": [{"layers", "layer_type", "encoding", "layout", "head_dim",
// "rotary_dim", "base", "scaling": {"type", ...}, "amplitude", "softmax_scale", "frequencies",
// "wavelengths", "turns", "window", "query_scale": {"beta", "length", "offset"}, "sources": {...},
// ...}], "part", "other_positions", "warnings": [...], ...}
[[nodiscard]] PHASOR_API std::string explain_json(const Explanation& explanation);

// The parameters of a scaling as text: "yarn: factor 4, original_max_position_embeddings 32768,
// ..."; of a list the first and the last entry and the length.
[[nodiscard]] PHASOR_API std::string scaling_text(const encodings::RopeScaling& scaling);
using config::plain_spec_json;

}  // namespace phasor::porting
