// How other engines read a config: each engine a named, versioned set of rules, each rule a
// departure from what the config means, with where it is known from.
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

// What a rule changes.
enum class Touches : std::uint8_t {
  everything,  // the config is read as another one, or not at all
  frequencies,
  amplitude,
  cached_keys,  // nothing in a fresh sequence, something once keys are stored
  rounding,     // the same rule in another arithmetic
};
[[nodiscard]] PHASOR_API std::string_view name_of(Touches touches) noexcept;

// How a rule is known.
enum class Evidence : std::uint8_t {
  reported,  // by users, measured
  read,      // in the engine's public source, not run
};
[[nodiscard]] PHASOR_API std::string_view name_of(Evidence evidence) noexcept;

struct DialectRule {
  std::string_view id;        // stable, for programs
  std::string_view sentence;  // what the engine does
  std::string_view source;    // public reports by number; empty: the engine's source alone
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

// How a config writes its rotation; some readers know one form only.
enum class ConfigForm : std::uint8_t {
  plain,   // a plain spec, or GGUF metadata
  legacy,  // rope_theta, rope_scaling
  flat,    // rope_parameters, one for all layers
  nested,  // rope_parameters, one per layer type
};

// A config, and what readers see that look at less of it.
struct ReadableConfig {
  config::ModelConfig meaning;
  ConfigForm form = ConfigForm::plain;
  // What is left for a reader that does not know rope_parameters; none for other forms, or when
  // `legacy_problem` says why even such a reader stops.
  std::optional<config::ModelConfig> legacy;
  std::string legacy_problem;
  std::string text;  // JSON; empty for GGUF
};
[[nodiscard]] PHASOR_API Result<ReadableConfig> parse_readable_config(
    std::string_view text, std::string_view name = "config");
// As config::read_config().
[[nodiscard]] PHASOR_API Result<ReadableConfig> read_readable_config(
    const std::filesystem::path& path);

// Where in a run the engines are compared.
struct RunState {
  std::int64_t context = 0;  // tokens so far: positions 0 .. context - 1
  // The length a server was started for (vLLM's --max-model-len, llama.cpp's -c). None: what the
  // config gives.
  std::optional<std::int64_t> max_length = std::nullopt;
  std::int64_t shifts = 0;  // how often the stored keys were shifted
};

// A rule that took hold on this config.
struct RuleInForce {
  DialectRule rule;
  std::string effect;   // with this config's numbers
  bool changes = true;  // false: harmless until keys are cached, or rounding alone
};

// One group of layers as one engine turns it.
struct EngineView {
  std::string dialect;
  std::string refusal;  // why the engine cannot read it; empty: it can, and the rest holds
  // Radians per position; a divisor that the engine applies to positions is inside.
  std::vector<double> frequencies;
  double position_divisor = 1.0;
  double amplitude = 1.0;      // the factor on cos and sin
  double softmax_scale = 0.0;  // 0: the config does not tell
  double key_gain = 1.0;       // the length of stored keys after state.shifts shifts
  double key_gain_per_shift = 1.0;
  // The largest turn, in radians, that a key stored before the frequencies changed is off by; 0:
  // they do not change as a sequence grows.
  double stale_key_angle = 0.0;
  // |angle in the engine's float32 - exact angle| of each pair at position context - 1, radians.
  std::vector<double> rounding;
  std::vector<RuleInForce> rules;
};

// throws   Error(invalid_argument): the group does not rotate, no such dialect, a context below 1
//          or from 2^40 on, a max_length below 1, negative shifts
[[nodiscard]] PHASOR_API EngineView view_of(std::string_view dialect, const ReadableConfig& config,
                                            std::size_t group, const RunState& state);

}  // namespace phasor::porting
