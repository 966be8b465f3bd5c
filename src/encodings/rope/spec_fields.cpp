// The members of a RopeSpec as data.
#include <algorithm>
#include <array>

#include "phasor/core/error.hpp"
#include "phasor/encodings/internal/fields.hpp"

namespace phasor::encodings {
namespace {

using SpecField = Field<RopeSpec>;

constexpr std::array<std::string_view, 3> kLayouts = {"interleaved", "half", "interleaved_to_half"};

constexpr SpecField layout_field() {
  SpecField field{"layout",
                  "layout",
                  FieldType::word,
                  FieldRange::any,
                  WhenMissing::not_used,
                  "Which two features make a pair; needed to rotate."};
  field.choices = kLayouts;
  field.get = [](const RopeSpec& spec) {
    return spec.layout ? FieldValue(core::name_of(*spec.layout)) : FieldValue();
  };
  field.set = [](RopeSpec& spec, const FieldValue& value) {
    spec.layout = core::pair_layout_of(std::get<std::string_view>(value));
  };
  return field;
}

constexpr SpecField head_dim_field() {
  auto field = member_field<&RopeSpec::head_dim>("head_dim", FieldRange::positive,
                                                 WhenMissing::error, "Features of one head.");
  field.unless = "frequencies";
  return field;
}

// A list of frequencies replaces it.
constexpr SpecField base_field() {
  auto field =
      member_field<&RopeSpec::base>("base", FieldRange::positive, WhenMissing::state_default,
                                    "f_i = base^(-2i/rotary_dim); rope_theta in a config.json.");
  field.get = [](const RopeSpec& spec) {
    const std::optional<double> base = base_of(spec);
    return base ? FieldValue(*base) : FieldValue();
  };
  return field;
}

// Read by the scalings that measure a sequence against it, and written for those alone.
constexpr SpecField length_field() {
  SpecField field{
      "max_position_embeddings", "max_position_embeddings",
      FieldType::integer,        FieldRange::any,
      WhenMissing::not_used,     "The context length that the model was trained at, in tokens."};
  field.get = [](const RopeSpec& spec) {
    for (const Field<RopeScaling>& of_scaling : type_of(spec.scaling).fields) {
      if (of_scaling.place == FieldPlace::outside) return of_scaling.get(spec.scaling);
    }
    return FieldValue();
  };
  return field;
}

[[nodiscard]] SpecField axial_field() {
  SpecField field{"axial",
                  "axial",
                  FieldType::word,
                  FieldRange::any,
                  WhenMissing::not_used,
                  "Two rows of positions, height and width, and how the frequencies share them."};
  field.choices = names_of_axial_kinds();
  field.get = [](const RopeSpec& spec) {
    const auto* const axial = std::get_if<AxialAxes>(&spec.axes);
    return axial == nullptr ? FieldValue() : FieldValue(name_of(axial->kind));
  };
  field.set = [](RopeSpec& spec, const FieldValue& value) {
    const auto kind = choice_of(names_of_axial_kinds(), std::get<std::string_view>(value));
    spec.axes = AxialAxes{static_cast<AxialAxes::Kind>(*kind)};
  };
  return field;
}

constexpr SpecField object_field(std::string_view name, std::string_view meaning) {
  return {name, name, FieldType::object, FieldRange::any, WhenMissing::not_used, meaning};
}

}  // namespace

std::span<const SpecField> spec_fields() noexcept {
  static const std::array kFields = {
      head_dim_field(),
      base_field(),
      layout_field(),
      member_field<&RopeSpec::rotary_dim>("rotary_dim", FieldRange::positive,
                                          WhenMissing::rest_of_head,
                                          "Features that are rotated; even."),
      member_field<&RopeSpec::rotary_offset>("rotary_offset", FieldRange::not_negative,
                                             WhenMissing::use_default,
                                             "The first feature that is rotated."),
      length_field(),
      object_field("scaling", "{type, ...}: how the frequencies change for longer contexts."),
      object_field("mrope", "{sections, order}: a row of positions for each of 3 or 4 sections."),
      axial_field(),
      object_field("xpos", "{scale_base, gamma, centre}: scores that fade with distance."),
      member_field<&RopeSpec::frequencies>(
          "frequencies", FieldRange::finite, WhenMissing::not_used,
          "Replace f_i, in radians per position, one for each pair; scaling: default or linear."),
      member_field<&RopeSpec::frequency_factors>(
          "frequency_factors", FieldRange::positive, WhenMissing::not_used,
          "Divide the scaled frequencies, one for each pair; freq_factors in ggml."),
      member_field<&RopeSpec::amplitude>(
          "amplitude", FieldRange::positive, WhenMissing::use_default,
          "Multiplies cos and sin, and the scaling's own amplitude."),
  };
  return kFields;
}

std::int64_t width_of_list(const RopeSpec& spec) noexcept {
  return 2 * static_cast<std::int64_t>(spec.frequencies.size());
}

std::int64_t rest_of_head(const RopeSpec& spec) {
  std::int64_t rest = 0;
  if (__builtin_sub_overflow(spec.head_dim, spec.rotary_offset, &rest))
    refuse(message("rope: rotary_offset must be within head_dim, got ", spec.rotary_offset));
  return rest;
}

std::optional<std::size_t> choice_of(std::span<const std::string_view> choices,
                                     std::string_view word) noexcept {
  const auto found = std::find(choices.begin(), choices.end(), word);
  if (found == choices.end()) return std::nullopt;
  return static_cast<std::size_t>(found - choices.begin());
}

}  // namespace phasor::encodings
