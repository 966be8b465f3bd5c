// What each scaling's file provides to rope.cpp: its fields, the rules that its members must keep
// and its frequencies.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "encodings/arithmetic.hpp"
#include "phasor/core/error.hpp"
#include "phasor/encodings/internal/fields.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::encodings {

struct ScalingInput {
  std::int64_t width = 0;  // dim of the formulas: rotary_dim, or less when axes share it
  double base = 10000.0;
  std::int64_t head_dim = 0;
  std::optional<std::int64_t> context;
  std::span<const double> listed = {};  // of the spec, in place of base^(-2i/width); may be empty
};

// The f_i that a scaling starts from.
template <class T>
[[nodiscard]] std::vector<T> unscaled_frequencies(const ScalingInput& input) {
  if (input.listed.empty()) return plain_frequencies<T>(input.base, input.width, input.width / 2);
  std::vector<T> frequencies;
  for (const double frequency : input.listed) frequencies.push_back(element<T>(frequency));
  return frequencies;
}

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

// A type with its formula. The pointers take a RopeScaling that holds this type.
struct ScalingRule {
  ScalingType type;
  // precondition  the fields are within their ranges and `check` passed
  ScaledFrequencies (*scale)(const RopeScaling& scaling, const ScalingInput& input) = nullptr;
  // Rules that involve more than one member; throws Error(invalid_argument). May be null.
  void (*check)(const RopeScaling& scaling, const ScalingInput& input) = nullptr;
  // Whether the numbers change with the context. Null: never.
  bool (*reads_context)(const RopeScaling& scaling) = nullptr;
  // Whether `scale` starts from unscaled_frequencies() and reads the base nowhere else.
  bool takes_a_list = false;
};

// Whether a function was given, without a comparison: with -fsanitize=undefined GCC 12 does not take one of an
// inline function's address for constant.
template <auto kFunction>
inline constexpr bool kIsGiven =
    !std::is_same_v<std::integral_constant<decltype(kFunction), kFunction>,
                    std::integral_constant<decltype(kFunction), nullptr>>;

template <class Scaling, ScaledFrequencies (*Scale)(const Scaling&, const ScalingInput&),
          void (*Check)(const Scaling&, const ScalingInput&) = nullptr,
          bool (*ReadsContext)(const Scaling&) = nullptr>
[[nodiscard]] constexpr ScalingRule make_rule(std::string_view name, std::string_view meaning,
                                              std::span<const Field<RopeScaling>> fields) {
  ScalingRule rule;
  rule.type = {name, meaning, fields, [] { return RopeScaling(Scaling{}); }};
  rule.scale = [](const RopeScaling& scaling, const ScalingInput& input) {
    return Scale(std::get<Scaling>(scaling), input);
  };
  if constexpr (kIsGiven<Check>) {
    rule.check = [](const RopeScaling& scaling, const ScalingInput& input) {
      Check(std::get<Scaling>(scaling), input);
    };
  }
  if constexpr (kIsGiven<ReadsContext>) {
    rule.reads_context = [](const RopeScaling& scaling) {
      return ReadsContext(std::get<Scaling>(scaling));
    };
  }
  return rule;
}

[[nodiscard]] constexpr ScalingRule taking_a_list(ScalingRule rule) {
  rule.takes_a_list = true;
  return rule;
}

// One line for each alternative of RopeScaling.
[[nodiscard]] const ScalingRule& rule_of(std::type_identity<DefaultScaling>);
[[nodiscard]] const ScalingRule& rule_of(std::type_identity<LinearScaling>);
[[nodiscard]] const ScalingRule& rule_of(std::type_identity<NtkScaling>);
[[nodiscard]] const ScalingRule& rule_of(std::type_identity<DynamicScaling>);
[[nodiscard]] const ScalingRule& rule_of(std::type_identity<NtkByPartsScaling>);
[[nodiscard]] const ScalingRule& rule_of(std::type_identity<YarnScaling>);
[[nodiscard]] const ScalingRule& rule_of(std::type_identity<LongRopeScaling>);
[[nodiscard]] const ScalingRule& rule_of(std::type_identity<Llama3Scaling>);
[[nodiscard]] const ScalingRule& rule_of(std::type_identity<ProportionalScaling>);
[[nodiscard]] const ScalingRule& rule_of(std::type_identity<Telechat3YarnScaling>);

[[nodiscard]] const ScalingRule& rule_of(const RopeScaling& scaling) noexcept;

// throws   Error(invalid_argument) that names the owner ("yarn"; may be empty), the field and the
//          value when it is outside the range; a value that is not given passes
void check_range(std::string_view owner, std::string_view field, FieldRange range,
                 const FieldValue& value);

template <class Owner>
void check_ranges(std::string_view name, std::span<const Field<Owner>> fields, const Owner& owner) {
  for (const Field<Owner>& field : fields) {
    if (field.get != nullptr) check_range(name, field.name, field.range, field.get(owner));
  }
}

}  // namespace phasor::encodings
