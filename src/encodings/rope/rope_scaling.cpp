#include "phasor/encodings/rope.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "encodings/rope/scalings.hpp"

namespace phasor::encodings {
namespace {

constexpr std::size_t kTypes = std::variant_size_v<RopeScaling>;

template <std::size_t... Index>
[[nodiscard]] std::array<const ScalingRule*, kTypes> rules_in_order(
    std::index_sequence<Index...> /*all*/) {
  return {&rule_of(std::type_identity<std::variant_alternative_t<Index, RopeScaling>>{})...};
}

[[nodiscard]] const std::array<const ScalingRule*, kTypes>& all_rules() {
  static const auto kRules = rules_in_order(std::make_index_sequence<kTypes>{});
  return kRules;
}

// What a value outside the range should be; empty when it is inside.
[[nodiscard]] std::string_view fault_of(FieldRange range, double value) {
  switch (range) {
    case FieldRange::any:
      return "";
    case FieldRange::not_negative:
      return value >= 0.0 ? "" : "not be negative";
    case FieldRange::finite:
      return std::isfinite(value) ? "" : "be finite";
    case FieldRange::positive:
      return std::isfinite(value) && value > 0.0 ? "" : "be positive and finite";
    case FieldRange::share:
      return value > 0.0 && value <= 1.0 ? "" : "be above 0 and at most 1";
    case FieldRange::weight:
      break;
  }
  return value >= 0.0 && value <= 1.0 ? "" : "be from 0 to 1";
}

[[nodiscard]] std::string_view fault_of(FieldRange range, std::int64_t value) {
  if (range == FieldRange::positive) return value > 0 ? "" : "be positive";
  return fault_of(range, static_cast<double>(value));
}

}  // namespace

const ScalingRule& rule_of(const RopeScaling& scaling) noexcept {
  return *all_rules()[scaling.index()];
}

std::span<const ScalingType* const> scaling_types() {
  static const auto kScalingTypes = [] {
    std::array<const ScalingType*, kTypes> types{};
    std::transform(all_rules().begin(), all_rules().end(), types.begin(),
                   [](const ScalingRule* rule) { return &rule->type; });
    return types;
  }();
  return kScalingTypes;
}

const ScalingType& type_of(const RopeScaling& scaling) noexcept { return rule_of(scaling).type; }

const ScalingType* find_scaling_type(std::string_view name) noexcept {
  const auto found = std::find_if(all_rules().begin(), all_rules().end(),
                                  [&](const ScalingRule* rule) { return rule->type.name == name; });
  return found == all_rules().end() ? nullptr : &(*found)->type;
}

std::string_view name_of(const RopeScaling& scaling) noexcept { return type_of(scaling).name; }

bool depends_on_context(const RopeScaling& scaling) noexcept {
  const ScalingRule& rule = rule_of(scaling);
  return rule.reads_context != nullptr && rule.reads_context(scaling);
}

std::optional<std::int64_t> original_length(const RopeScaling& scaling) noexcept {
  for (const Field<RopeScaling>& field : type_of(scaling).fields) {
    if (field.name != "original_length") continue;
    const FieldValue value = field.get(scaling);
    const auto* const length = std::get_if<std::int64_t>(&value);
    if (length != nullptr && *length > 0) return *length;
  }
  return std::nullopt;
}

void check_range(std::string_view owner, std::string_view field, FieldRange range,
                 const FieldValue& value) {
  const auto check_one = [&](auto number, const auto&... index) {
    const std::string_view fault = fault_of(range, number);
    if (fault.empty()) return;
    refuse(message("rope: ", owner, owner.empty() ? "" : " ", field, index..., " must ", fault,
                   ", got ", number));
  };
  if (const auto* number = std::get_if<double>(&value)) check_one(*number);
  if (const auto* integer = std::get_if<std::int64_t>(&value)) check_one(*integer);
  if (const auto* list = std::get_if<std::vector<double>>(&value)) {
    for (std::size_t i = 0; i < list->size(); ++i) check_one((*list)[i], "[", i, "]");
  }
}

}  // namespace phasor::encodings
