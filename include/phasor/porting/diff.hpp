// Where engines differ on one config: the first frequency that differs, the amplitude, the softmax
// scale, the angle at the context length, the effect on scores, and the rules that cause it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "phasor/export.h"
#include "phasor/porting/explain.hpp"

namespace phasor::porting {

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

struct GroupDiff {
  std::string layer_type;
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
// dialects() as a JSON array.
[[nodiscard]] PHASOR_API std::string dialects_json();

}  // namespace phasor::porting
