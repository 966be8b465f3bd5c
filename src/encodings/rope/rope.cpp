#include "phasor/encodings/rope.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "encodings/rope/rope_axes.hpp"
#include "encodings/rope/scalings.hpp"
#include "encodings/rope/xpos.hpp"
#include "phasor/core/internal/enum_names.hpp"
#include "phasor/core/rotate.hpp"

namespace phasor::encodings {
namespace {

constexpr core::EnumNames<MropeAxes::Order::alternating> kMropeOrders("chunked", "interleaved",
                                                                      "alternating");
constexpr core::EnumNames<AxialAxes::Kind::per_half_head> kAxialKinds("concatenated", "alternating",
                                                                      "per_half_head");

// precondition  the fields are within their ranges
void check_window(const RopeSpec& spec) {
  if (spec.rotary_offset < 0 || spec.rotary_offset >= spec.head_dim) {
    refuse(message("rope: rotary_offset must be from 0 to head_dim - 1 = ", spec.head_dim - 1,
                   ", got ", spec.rotary_offset));
  }
  if (spec.rotary_dim % 2 != 0)
    refuse(message("rope: rotary_dim must be even, got ", spec.rotary_dim));
  const std::int64_t room = spec.head_dim - spec.rotary_offset;
  if (spec.rotary_dim > room) {
    refuse(message("rope: rotary_dim must be at most head_dim",
                   spec.rotary_offset == 0 ? "" : " - rotary_offset", " = ", room, ", got ",
                   spec.rotary_dim));
  }
  if (spec.rotary_dim > core::kMaxRotaryDim) {
    refuse(message("rope: rotary_dim must be at most ", core::kMaxRotaryDim, ", got ",
                   spec.rotary_dim));
  }
}

[[nodiscard]] ScalingInput input_of(const RopeSpec& spec, std::optional<std::int64_t> context) {
  return {formula_width(spec), spec.base, spec.head_dim, context, spec.frequencies};
}

void check_length(std::string_view name, const std::vector<double>& list, const RopeSpec& spec) {
  const auto pairs = static_cast<std::size_t>(spec.rotary_dim / 2);
  if (list.empty() || list.size() == pairs) return;
  refuse(message("rope: ", name, " must have rotary_dim / 2 = ", pairs, " entries, got ",
                 list.size()));
}

// precondition  the fields are within their ranges
void check_lists(const RopeSpec& spec) {
  check_length("frequencies", spec.frequencies, spec);
  check_length("frequency_factors", spec.frequency_factors, spec);
  if (spec.frequencies.empty()) return;
  if (spec.base != RopeSpec{}.base) {
    refuse(message("rope: base cannot be combined with frequencies, which replace it, got ",
                   spec.base));
  }
  if (!rule_of(spec.scaling).takes_a_list) {
    refuse(message("rope: ", name_of(spec.scaling),
                   " scaling cannot be combined with frequencies: it depends on the base"));
  }
}

[[nodiscard]] ScaledFrequencies scaled_frequencies(const RopeSpec& spec,
                                                   std::optional<std::int64_t> context) {
  validate(spec);
  if (context && *context < 0)
    refuse(message("rope: context must not be negative, got ", *context));
  const ScalingInput input = input_of(spec, context);
  return rule_of(spec.scaling).scale(spec.scaling, input);
}

// Each frequency by its factor, in both arithmetics.
void divide(ScaledFrequencies& scaled, const std::vector<double>& factors) {
  for (std::size_t i = 0; i < factors.size(); ++i) {
    scaled.values[i] /= factors[i];
    scaled.float32_values[i] /= static_cast<float>(factors[i]);
  }
}

[[nodiscard]] core::Frequencies to_frequencies(ScaledFrequencies scaled, const RopeSpec& spec,
                                               std::vector<std::uint8_t> rows) {
  // A base beyond float32 gives frequencies that are not finite: use the exact ones, rounded.
  const auto finite = [](float value) { return std::isfinite(value); };
  if (!std::all_of(scaled.float32_values.begin(), scaled.float32_values.end(), finite)) {
    scaled.float32_values.clear();
  }
  const int axes = rows.empty() ? 1 : axis_count(spec.axes);
  return core::Frequencies(std::move(scaled.values), spec.amplitude * scaled.amplitude,
                           std::move(rows), std::move(scaled.float32_values), axes);
}

}  // namespace

std::span<const std::string_view> names_of_mrope_orders() noexcept { return kMropeOrders.all(); }

std::span<const std::string_view> names_of_axial_kinds() noexcept { return kAxialKinds.all(); }

std::string_view name_of(MropeAxes::Order order) noexcept { return kMropeOrders[order]; }

std::string_view name_of(AxialAxes::Kind kind) noexcept { return kAxialKinds[kind]; }

std::optional<double> base_of(const RopeSpec& spec) noexcept {
  return spec.frequencies.empty() ? std::optional(spec.base) : std::nullopt;
}

void validate(const RopeSpec& spec) {
  check_ranges<RopeSpec>("", spec_fields(), spec);
  check_window(spec);
  check_lists(spec);
  check_axes(spec);
  if (spec.xpos) check(*spec.xpos);
  const ScalingRule& rule = rule_of(spec.scaling);
  check_ranges<RopeScaling>(rule.type.name, rule.type.fields, spec.scaling);
  if (rule.check != nullptr) rule.check(spec.scaling, input_of(spec, std::nullopt));
}

core::Frequencies resolve_frequencies(const RopeSpec& spec, std::optional<std::int64_t> context) {
  ScaledFrequencies scaled = scaled_frequencies(spec, context);
  std::vector<std::uint8_t> rows;
  if (const auto* mrope = std::get_if<MropeAxes>(&spec.axes)) {
    rows = mrope_rows(*mrope, spec.rotary_dim / 2);
  } else if (const auto* axial = std::get_if<AxialAxes>(&spec.axes)) {
    if (spec.frequencies.empty()) {
      scaled.values = over_both_axes(axial->kind, scaled.values);
      scaled.float32_values = over_both_axes(axial->kind, scaled.float32_values);
    }
    rows.assign(scaled.values.size(), 0);
    std::fill(rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 2), rows.end(),
              std::uint8_t{1});
  }
  divide(scaled, spec.frequency_factors);
  return to_frequencies(std::move(scaled), spec, std::move(rows));
}

core::Frequencies axial_frequencies(const RopeSpec& spec, std::optional<std::int64_t> context) {
  if (!std::holds_alternative<AxialAxes>(spec.axes)) {
    refuse(message("rope: axial_frequencies needs a spec with axial axes, got ",
                   std::holds_alternative<MropeAxes>(spec.axes) ? "mrope" : "one axis"));
  }
  const AxialAxes::Kind kind = std::get<AxialAxes>(spec.axes).kind;
  const bool listed = !spec.frequencies.empty() || !spec.frequency_factors.empty();
  if (listed || kind == AxialAxes::Kind::alternating) return resolve_frequencies(spec, context);
  return to_frequencies(scaled_frequencies(spec, context), spec, {});
}

core::Rotary resolve(const RopeSpec& spec, std::optional<std::int64_t> context) {
  validate(spec);
  if (!spec.layout) {
    refuse("rope: layout is missing: interleaved, half or interleaved_to_half");
  }
  const auto* axial = std::get_if<AxialAxes>(&spec.axes);
  const bool halves = axial != nullptr && axial->kind == AxialAxes::Kind::per_half_head;
  core::Rotary rotary{resolve_frequencies(spec, context),
                      *spec.layout,
                      spec.head_dim,
                      spec.rotary_offset,
                      halves ? 2 : 1,
                      std::nullopt};
  if (spec.xpos) rotary.growth = growth_of(*spec.xpos, spec.rotary_dim, context);
  core::validate(rotary);
  return rotary;
}

bool depends_on_context(const RopeSpec& spec) noexcept {
  return depends_on_context(spec.scaling) ||
         (spec.xpos && spec.xpos->policy != Xpos::Centre::fixed);
}

std::optional<std::int64_t> context_for(const RopeSpec& spec, std::optional<std::int64_t> given,
                                        std::optional<double> largest_position) noexcept {
  if (given || !depends_on_context(spec)) return given;
  if (!largest_position || !(*largest_position <= core::kMaxPosition)) return std::nullopt;
  return static_cast<std::int64_t>(std::max(1.0, std::floor(*largest_position) + 1.0));
}

}  // namespace phasor::encodings
