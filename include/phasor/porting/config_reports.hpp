// What a config means, layer by layer (explain), how other engines read it (diff), and how to extend
// its context (plan).
#pragma once

#include <array>
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

// "rope", "xpos", the first of the group's other encodings, or "none".
[[nodiscard]] PHASOR_API std::string encoding_name(const config::LayerGroup& group);

// {"model_type", "layers": [{"layers", "layer_type", "encoding", "layout", "head_dim",
// "rotary_dim", "base", "scaling": {"type", ...}, "amplitude", "softmax_scale", "frequencies",
// "wavelengths", "turns", "window", "chunk", "query_scale": {"beta", "length", "offset"},
// "positions": [{"encoding", "acts_on", "parameters": {...}, "sources": {...}}], "sources": {...},
// ...}], "part", "other_positions", "warnings": [...], ...}
[[nodiscard]] PHASOR_API std::string explain_json(const Explanation& explanation);

// The parameters of a scaling as text: "yarn: factor 4, original_max_position_embeddings 32768,
// ..."; of a list the first and the last entry and the length.
[[nodiscard]] PHASOR_API std::string scaling_text(const encodings::RopeScaling& scaling);
using config::plain_spec_json;

// Where engines differ on one config: the first frequency that differs, the amplitude, the softmax
// scale, the angle at the context length, the effect on scores, and the rules that cause it.

// Largest relative difference of two equal values. The rules are evaluated in float64 with one
// rounding, so equal values differ by at most 1e-15.
inline constexpr double kSameRule = 1e-9;

// The context if neither the caller nor the config specifies one.
inline constexpr std::int64_t kAssumedContext = 4096;

struct DiffOptions {
  std::vector<std::string> between = {"hf", "vllm", "llama.cpp"};
  std::optional<std::int64_t> context = std::nullopt;  // none: max_position_embeddings
  std::optional<std::int64_t> max_length = std::nullopt;
  std::int64_t shifts = 0;
  std::string layer;  // an index or a layer type; empty: every group that rotates
};

// The frequencies of one pair in both engines.
struct FrequencyDifference {
  std::int64_t pair = 0;
  double first = 0.0, second = 0.0;
  double ratio = 1.0;  // second / first; infinite when only `first` is zero
};

struct DifferenceCause {
  std::string dialect;
  RuleInForce rule;
};

enum class ComparisonStatus : std::uint8_t {
  agree,  // up to the rounding of float32
  differ,
  unreadable,  // one or both cannot read the config
};

// Two engines compared. Ratios are second / first.
struct EngineComparison {
  std::string first, second;
  ComparisonStatus status = ComparisonStatus::agree;
  std::optional<FrequencyDifference> first_difference;
  std::optional<FrequencyDifference> largest_ratio;  // furthest from 1 in either direction
  double amplitude_ratio = 1.0;
  std::optional<double> softmax_ratio;  // none: the scale is unknown
  double key_gain_ratio = 1.0;          // of cached keys, after the shifts
  // max over pairs of (context - 1) |f_second - f_first|, radians.
  double angle_difference = 0.0;
  std::int64_t angle_pair = 0;
  // max over pairs of |rounding of one| + |rounding of the other|, radians.
  double rounding_difference = 0.0;
  // |score_second - score_first| <= bound * |score scale of first| |q| |k|, over the rotated
  // features, for distances up to context - 1. With
  //   δ_i = min((context - 1) |f_second,i - f_first,i|, π)
  //   ρ = ratio of amplitude^2 softmax_scale key_gain
  //   e_i = |1 - ρ exp(i δ_i)| = sqrt((1 - ρ)^2 + 4 ρ sin^2(δ_i / 2)); 2 sin(δ_i / 2) when ρ = 1
  // `score_bound_even` is the mean of e_i, for q and k spread evenly over the pairs. `score_bound`
  // is the largest e_i and holds for every q and k.
  double score_bound_even = 0.0;
  double score_bound = 0.0;
  std::vector<DifferenceCause> causes;
};

// Layers that rotate alike in every engine; groups that differ only in their window are one.
struct GroupDiff {
  std::string layer_type;  // "full_attention, sliding_attention" of two
  std::vector<std::int64_t> layers;
  std::string scaling;  // "yarn", ...
  std::int64_t head_dim = 0, rotary_dim = 0;
  std::optional<double> base;                 // none: a list of frequencies
  std::vector<EngineView> views;              // in the order of DiffOptions::between
  std::vector<EngineComparison> comparisons;  // every two of them
};

struct DiffReport {
  std::string model_type;
  ConfigForm form = ConfigForm::plain;
  std::int64_t context = 0;
  std::string context_source;  // "max_position_embeddings", ...
  std::optional<std::int64_t> max_length;
  std::int64_t shifts = 0;
  std::vector<Dialect> dialects;  // the compared ones
  std::vector<GroupDiff> groups;
  std::vector<std::string> layers_without_rotation;
  bool agree = true;  // every two engines on every group, up to the rounding of float32
};

// error    fewer than two engines, one named twice, an unknown one; a layer that does not exist or
//          does not rotate; no layer that rotates; as view_of()
// cost     one evaluation of the frequencies per engine and group
[[nodiscard]] PHASOR_API Result<DiffReport> diff(const ReadableConfig& config,
                                                 const DiffOptions& options);

[[nodiscard]] PHASOR_API std::string diff_json(const DiffReport& report);

// Two configs, each read as it means.

// A value that the two configs do not share: "base", "window", "key_heads", ...
struct ConfigFact {
  std::string name, first, second;
};

// Layers that have one encoding in each of the two configs.
struct ConfigGroupDiff {
  std::vector<std::int64_t> layers;  // empty: the configs do not say how many
  std::string first_type, second_type;
  std::vector<ConfigFact> facts;  // that differ
  // Of layers that rotate in both: first "A", second "B".
  std::optional<EngineComparison> rotation;
};

struct ConfigDiff {
  std::string first_type, second_type;  // model_type
  std::int64_t context = 0;
  std::vector<ConfigFact> facts;        // of the whole model, that differ
  std::vector<ConfigGroupDiff> groups;  // those that differ
  std::int64_t same_layers = 0;         // layers without any difference
  bool agree = true;
};

// error    options.context < 1 or >= 2^40; of the options only the context is read
[[nodiscard]] PHASOR_API Result<ConfigDiff> diff_configs(const ReadableConfig& first,
                                                         const ReadableConfig& second,
                                                         const DiffOptions& options);
[[nodiscard]] PHASOR_API std::string config_diff_json(const ConfigDiff& diff);
// dialects() as a JSON array.
[[nodiscard]] PHASOR_API std::string dialects_json();

// Compares ways to extend the context: what each scaling does to every frequency, which angles
// training never showed, and the config keys to paste.

// Pairs are grouped into bands by their full rotations within the trained length: at least 32, 8 to
// 32, 1 to 8, and less than one: training never showed all angles of those.
inline constexpr std::array<double, 3> kBandRotations = {32.0, 8.0, 1.0};
inline constexpr std::size_t kBands = kBandRotations.size() + 1;

struct PlanOptions {
  std::int64_t to = 0;  // the longer context
  // The length of training of the unscaled frequencies. None: the config's own, which for one that is
  // already extended is the length it was published for, at its scaled frequencies.
  std::optional<std::int64_t> trained = std::nullopt;
  std::string layer;  // an index or a layer type; empty: the only one, or full_attention
};

// One pair under one method. f: the frequency of training, f': the method's, L: trained length, N: to.
struct PlanPair {
  double wavelength = 0.0;         // 2 pi / f, positions; infinite for f = 0
  double rotations_trained = 0.0;  // L f / 2 pi
  double frequency = 0.0;          // f'
  double rotations_at_to = 0.0;    // N f' / 2 pi
  // f' / f: at 1 the angle between neighbours is that of training; below 1 it is smaller.
  double compression = 1.0;
  // Reaches angles that did not occur in training: L f < 2 pi and N f' > L f.
  bool out_of_distribution = false;
};

struct PlanBand {
  double from_rotations = 0.0;
  std::optional<double> to_rotations;  // none: no upper bound
  std::int64_t pairs = 0;
};

// A method in one band; zeros if the band has no pair.
struct BandEffect {
  std::int64_t out_of_distribution = 0;  // pairs
  double least_compression = 1.0, most_compression = 1.0;
  // The largest N f' / L f: above 1 the band reaches larger angles than in training.
  double furthest = 0.0;
};

// Keys to paste into a config, and keys to remove from it first.
struct PlanSnippet {
  std::string json;                 // an object, indented; empty if the method has no such form
  std::vector<std::string> remove;  // keys that contradict it
  std::string problem;  // why there is none, or why it was not checked; empty: merged into the
                        // config and parsed again, it gave these frequencies
};

// The flags that start an engine with a method.
struct EngineFlags {
  std::string flags;    // empty: there are none
  std::string problem;  // why
};

struct PlanMethod {
  // "none", "present", "linear", "ntk", "dynamic", "yarn", "llama3", "longrope". Of a config that is
  // already extended, the method that it has continues it, ntk changes its base, the others do not
  // apply.
  std::string name;
  std::string problem;  // why the method does not apply; empty: it applies
  encodings::RopeSpec rope;
  double amplitude = 1.0;
  std::vector<PlanPair> pairs;
  std::array<BandEffect, kBands> bands;
  std::int64_t out_of_distribution = 0;  // pairs
  std::array<std::string, 2> trade_off;
  std::string fine_tuning;
  std::string engines;
  PlanSnippet rope_parameters;  // the form of transformers 5
  PlanSnippet rope_scaling;     // the form of transformers 4
  EngineFlags llama_cpp, vllm, sglang;
};

struct Plan {
  std::string model_type;
  std::string layer_type;
  std::vector<std::int64_t> layers;
  std::optional<std::int64_t> window;  // sliding window of these layers
  std::int64_t trained = 0;
  std::string trained_source;
  std::int64_t to = 0;
  double factor = 1.0;  // to / trained
  // The config is already extended: its scaled frequencies are those of training.
  bool extended = false;
  std::int64_t head_dim = 0, rotary_dim = 0;
  double base = 0.0;
  std::array<PlanBand, kBands> bands;
  std::vector<PlanMethod> methods;
  std::string recommended;  // the name of a method; empty: none applies
  std::string reason;
};

// error    `to` not above the trained length, or >= 2^40; a trained length that is unknown or
//          below 2; a layer that does not exist or does not rotate; images and xPos, which no config
//          can extend
// cost     one evaluation of the frequencies per method, two parses of the config
[[nodiscard]] PHASOR_API Result<Plan> plan(const ReadableConfig& config,
                                           const PlanOptions& options);

[[nodiscard]] PHASOR_API std::string plan_json(const Plan& plan);

// The spec with its scaling replaced by a method ("none", "linear", "ntk", "dynamic", "yarn", "llama3",
// "longrope") that extends `trained` positions by `factor`. LongRoPE's lists are YaRN's factors, as in
// plan().
//
// throws   Error(invalid_argument | unsupported) for an unknown method, or one that does not apply
[[nodiscard]] PHASOR_API encodings::RopeSpec extended_spec(const encodings::RopeSpec& spec,
                                                           std::string_view method, double factor,
                                                           std::int64_t trained);
// One row per method and pair: method, pair, wavelength, turns_trained, frequency, turns_at_n, ood,
// compression.
[[nodiscard]] PHASOR_API std::string plan_csv(const Plan& plan);

}  // namespace phasor::porting
