// Where engines part on one config: the first frequency that differs, the amplitude, the softmax
// scale, the angle at the context length, what that does to scores, and which rule is the cause.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "phasor/export.h"
#include "phasor/porting/dialects.hpp"

namespace phasor::porting {

// Two numbers further apart than this, relatively, come from different rules: the rules are
// evaluated in float64 with one rounding, so equal ones differ by 1e-15 at most.
inline constexpr double kSameRule = 1e-9;

// A context that neither the caller nor the config gives.
inline constexpr std::int64_t kAssumedContext = 4096;

struct DiffOptions {
  std::vector<std::string> between = {"hf", "vllm", "llama.cpp"};
  std::optional<std::int64_t> context = std::nullopt;  // none: max_position_embeddings
  std::optional<std::int64_t> max_length = std::nullopt;
  std::int64_t shifts = 0;
  std::string layer;  // an index or a layer type; empty: every group that rotates
};

// A pair of frequencies, `second` over `first`.
struct FrequencyPart {
  std::int64_t pair = 0;
  double first = 0.0, second = 0.0;
  double ratio = 1.0;  // infinite when `first` alone is zero
};

struct CauseOfPart {
  std::string dialect;
  RuleInForce rule;
};

enum class PartStatus : std::uint8_t {
  agree,  // up to the rounding of float32
  differ,
  unreadable,  // by one or both
};

// How the second engine of a pair stands to the first. Ratios are second over first.
struct EnginePart {
  std::string first, second;
  PartStatus status = PartStatus::agree;
  std::optional<FrequencyPart> first_difference;
  std::optional<FrequencyPart> largest_ratio;  // furthest from 1, either way
  double amplitude_ratio = 1.0;
  std::optional<double> softmax_ratio;  // none: the config does not tell the scale
  double key_gain_ratio = 1.0;          // of stored keys, after the shifts
  // max over pairs of (context - 1) |f_second - f_first|, radians.
  double angle_difference = 0.0;
  std::int64_t angle_pair = 0;
  // max over pairs of |rounding of one| + |rounding of the other|, radians.
  double rounding_difference = 0.0;
  // |score_second - score_first| <= bound * |score scale of first| |q| |k|, over the features that
  // turn, for a distance of at most context - 1. With
  //   δ_i = min((context - 1) |f_second,i - f_first,i|, π)
  //   ρ = ratio of amplitude^2 softmax_scale key_gain
  //   e_i = |1 - ρ exp(i δ_i)| = sqrt((1 - ρ)^2 + 4 ρ sin^2(δ_i / 2)); 2 sin(δ_i / 2) when ρ = 1
  // `score_bound_even` is the mean of e_i: q and k spread evenly over the pairs. `score_bound` is
  // the largest e_i, and with it holds for every q and k.
  double score_bound_even = 0.0;
  double score_bound = 0.0;
  std::vector<CauseOfPart> causes;
};

struct GroupDiff {
  std::string layer_type;
  std::vector<std::int64_t> layers;
  std::string scaling;  // "yarn", ...
  std::int64_t head_dim = 0, rotary_dim = 0;
  double base = 0.0;
  std::vector<EngineView> views;  // in the order of DiffOptions::between
  std::vector<EnginePart> parts;  // every two of them
};

struct DiffReport {
  std::string model_type;
  ConfigForm form = ConfigForm::plain;
  std::int64_t context = 0;
  std::string context_source;  // "--context", "max_position_embeddings", ...
  std::optional<std::int64_t> max_length;
  std::int64_t shifts = 0;
  std::vector<Dialect> dialects;  // those compared
  std::vector<GroupDiff> groups;
  std::vector<std::string> layers_without_rotation;
  bool agree = true;  // every two engines on every group, up to the rounding of float32
};

// refuses  fewer than two engines, one named twice, an unknown one; a layer that is not there or
//          does not rotate; no layer that rotates; what view_of() refuses
// cost     one evaluation of the frequencies per engine and group
[[nodiscard]] PHASOR_API Result<DiffReport> diff(const ReadableConfig& config,
                                                 const DiffOptions& options);

[[nodiscard]] PHASOR_API std::string diff_json(const DiffReport& report);
// Every rule set, for programs.
[[nodiscard]] PHASOR_API std::string dialects_json();

}  // namespace phasor::porting
