// The seam between the scalings and rope.cpp: each scaling checks its own members and gives its own
// frequencies.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "encodings/arithmetic.hpp"
#include "phasor/encodings/rope_scaling.hpp"

namespace phasor::encodings {

struct ScalingInput {
  std::int64_t width = 0;  // dim of the formulas: rotary_dim, or less when axes share it
  double base = 10000.0;
  std::optional<std::int64_t> context;
};

struct ScaledFrequencies {
  std::vector<double> values;
  std::vector<float> float32_values;
  double amplitude = 1.0;
};

// Evaluates formula(type tag) in both arithmetics.
template <class Formula>
[[nodiscard]] ScaledFrequencies in_both_arithmetics(const Formula& formula,
                                                    double amplitude = 1.0) {
  ScaledFrequencies scaled;
  for (const DoubleDouble& value : formula(std::type_identity<DoubleDouble>{})) {
    scaled.values.push_back(static_cast<double>(value));
  }
  scaled.float32_values = formula(std::type_identity<float>{});
  scaled.amplitude = amplitude;
  return scaled;
}

// throw Error(invalid_argument) in the message grammar, `what` naming the member.
void require_finite(std::string_view what, double value);
void require_positive(std::string_view what, double value);
void require_positive(std::string_view what, std::int64_t value);

void check(const DefaultScaling& scaling, const ScalingInput& input);
void check(const LinearScaling& scaling, const ScalingInput& input);
void check(const NtkScaling& scaling, const ScalingInput& input);
void check(const DynamicScaling& scaling, const ScalingInput& input);
void check(const NtkByPartsScaling& scaling, const ScalingInput& input);
void check(const YarnScaling& scaling, const ScalingInput& input);
void check(const LongRopeScaling& scaling, const ScalingInput& input);
void check(const Llama3Scaling& scaling, const ScalingInput& input);
void check(const ProportionalScaling& scaling, const ScalingInput& input);

// precondition  check(scaling, input) passed
[[nodiscard]] ScaledFrequencies scale(const DefaultScaling& scaling, const ScalingInput& input);
[[nodiscard]] ScaledFrequencies scale(const LinearScaling& scaling, const ScalingInput& input);
[[nodiscard]] ScaledFrequencies scale(const NtkScaling& scaling, const ScalingInput& input);
[[nodiscard]] ScaledFrequencies scale(const DynamicScaling& scaling, const ScalingInput& input);
[[nodiscard]] ScaledFrequencies scale(const NtkByPartsScaling& scaling, const ScalingInput& input);
[[nodiscard]] ScaledFrequencies scale(const YarnScaling& scaling, const ScalingInput& input);
[[nodiscard]] ScaledFrequencies scale(const LongRopeScaling& scaling, const ScalingInput& input);
[[nodiscard]] ScaledFrequencies scale(const Llama3Scaling& scaling, const ScalingInput& input);
[[nodiscard]] ScaledFrequencies scale(const ProportionalScaling& scaling,
                                      const ScalingInput& input);

}  // namespace phasor::encodings
