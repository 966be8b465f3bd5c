#include "phasor/encodings/rope.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "encodings/rope/rope_axes.hpp"
#include "encodings/rope/scalings.hpp"
#include "encodings/rope/xpos.hpp"

namespace phasor::encodings {
namespace {

void check_window(const RopeSpec& spec) {
  require_positive("head_dim", spec.head_dim);
  if (spec.rotary_offset < 0 || spec.rotary_offset >= spec.head_dim) {
    refuse(message("rope: rotary_offset must be from 0 to head_dim - 1 = ", spec.head_dim - 1,
                   ", got ", spec.rotary_offset));
  }
  require_positive("rotary_dim", spec.rotary_dim);
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
  return {formula_width(spec), spec.base, context};
}

[[nodiscard]] ScaledFrequencies scaled_frequencies(const RopeSpec& spec,
                                                   std::optional<std::int64_t> context) {
  validate(spec);
  if (context && *context < 0)
    refuse(message("rope: context must not be negative, got ", *context));
  const ScalingInput input = input_of(spec, context);
  return std::visit([&](const auto& scaling) { return scale(scaling, input); }, spec.scaling);
}

[[nodiscard]] core::Frequencies to_frequencies(ScaledFrequencies scaled,
                                               std::vector<std::uint8_t> rows) {
  // A base beyond float32 leaves no frequency to imitate: the exact ones, rounded, take their
  // place.
  const auto finite = [](float value) { return std::isfinite(value); };
  if (!std::all_of(scaled.float32_values.begin(), scaled.float32_values.end(), finite)) {
    scaled.float32_values.clear();
  }
  return core::Frequencies(std::move(scaled.values), scaled.amplitude, std::move(rows),
                           std::move(scaled.float32_values));
}

}  // namespace

std::string_view name_of(MropeAxes::Order order) noexcept {
  using Order = MropeAxes::Order;
  return order == Order::chunked       ? "chunked"
         : order == Order::interleaved ? "interleaved"
                                       : "alternating";
}

std::string_view name_of(AxialAxes::Kind kind) noexcept {
  using Kind = AxialAxes::Kind;
  return kind == Kind::concatenated  ? "concatenated"
         : kind == Kind::alternating ? "alternating"
                                     : "per_half_head";
}

void validate(const RopeSpec& spec) {
  check_window(spec);
  require_positive("base", spec.base);
  check_axes(spec);
  if (spec.xpos) check(*spec.xpos);
  const ScalingInput input = input_of(spec, std::nullopt);
  std::visit([&](const auto& scaling) { check(scaling, input); }, spec.scaling);
  // Its exponents span the head: a narrower window would be another encoding.
  if (std::holds_alternative<ProportionalScaling>(spec.scaling) &&
      spec.rotary_dim != spec.head_dim) {
    refuse(message("rope: proportional scaling needs rotary_dim = head_dim = ", spec.head_dim,
                   ", got ", spec.rotary_dim));
  }
}

core::Frequencies resolve_frequencies(const RopeSpec& spec, std::optional<std::int64_t> context) {
  ScaledFrequencies scaled = scaled_frequencies(spec, context);
  std::vector<std::uint8_t> rows;
  if (const auto* mrope = std::get_if<MropeAxes>(&spec.axes)) {
    rows = mrope_rows(*mrope, spec.rotary_dim / 2);
  } else if (const auto* axial = std::get_if<AxialAxes>(&spec.axes)) {
    scaled.values = over_both_axes(axial->kind, scaled.values);
    scaled.float32_values = over_both_axes(axial->kind, scaled.float32_values);
    rows.assign(scaled.values.size(), 0);
    std::fill(rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 2), rows.end(),
              std::uint8_t{1});
  }
  return to_frequencies(std::move(scaled), std::move(rows));
}

core::Frequencies axial_frequencies(const RopeSpec& spec) {
  if (!std::holds_alternative<AxialAxes>(spec.axes)) {
    refuse("rope: axial_frequencies needs a spec with axial axes, got one with other axes");
  }
  return to_frequencies(scaled_frequencies(spec, std::nullopt), {});
}

core::Rotary resolve(const RopeSpec& spec, std::optional<std::int64_t> context) {
  validate(spec);
  if (!spec.layout) {
    refuse("rope: layout must be given (interleaved, half or interleaved_to_half), got none");
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

}  // namespace phasor::encodings
