#include "phasor/config/internal/spec_json.hpp"

#include <variant>

#include "phasor/config/config.hpp"
#include "phasor/core/internal/message_text.hpp"

namespace phasor::config {
namespace {

using encodings::Field;
using encodings::FieldPlace;
using encodings::FieldType;
using encodings::FieldValue;
using encodings::RopeSpec;
using encodings::WhenMissing;

template <class T>
[[nodiscard]] FieldValue given(std::optional<T> value) {
  return value ? FieldValue(*std::move(value)) : FieldValue();
}

// precondition  the value is given
[[nodiscard]] Json json_of(const FieldValue& value) {
  return std::visit(
      []<class T>(const T& held) -> Json {
        if constexpr (std::is_same_v<T, std::monostate>) {
          return nullptr;
        } else {
          return held;
        }
      },
      value);
}

[[nodiscard]] bool is_written(WhenMissing missing, const FieldValue& value,
                              const FieldValue& standard, DefaultKeys defaults) {
  if (std::holds_alternative<std::monostate>(value)) return false;
  if (missing == WhenMissing::not_used) return value != standard;
  if (missing == WhenMissing::use_default)
    return defaults == DefaultKeys::write || value != standard;
  return true;
}

[[nodiscard]] Json scaling_json(const RopeSpec& spec) {
  if (std::holds_alternative<encodings::DefaultScaling>(spec.scaling)) return nullptr;
  Json to = {{"type", encodings::name_of(spec.scaling)}};
  write_scaling_keys(spec.scaling, DefaultKeys::leave_out, to);
  return to;
}

[[nodiscard]] Json mrope_json(const RopeSpec& spec) {
  const auto* const mrope = std::get_if<encodings::MropeAxes>(&spec.axes);
  if (mrope == nullptr) return nullptr;
  return {{"sections", mrope->sections}, {"order", encodings::name_of(mrope->order)}};
}

[[nodiscard]] Json xpos_json(const RopeSpec& spec) {
  if (!spec.xpos) return nullptr;
  Json to = Json::object();
  for (const Field<encodings::Xpos>& field : encodings::xpos_fields())
    to[field.key] = json_of(field.get(*spec.xpos));
  if (spec.xpos->policy != encodings::Xpos::Centre::fixed) {
    to["centre"] = encodings::names_of_xpos_centres()[static_cast<std::size_t>(spec.xpos->policy)];
  }
  return to;
}

[[nodiscard]] Json object_json(std::string_view key, const RopeSpec& spec) {
  if (key == "scaling") return scaling_json(spec);
  return key == "mrope" ? mrope_json(spec) : xpos_json(spec);
}

}  // namespace

FieldValue read_value(const ObjectReader& reader, std::string_view key, FieldType type,
                      std::span<const std::string_view> choices) {
  switch (type) {
    case FieldType::flag:
      return given(reader.flag(key));
    case FieldType::integer:
      return given(reader.integer(key));
    case FieldType::number:
      return given(reader.number(key));
    case FieldType::numbers:
      return given(reader.numbers(key));
    case FieldType::object:
      return {};
    case FieldType::word:
      break;
  }
  const std::optional<std::string> word = reader.text(key);
  if (!word) return {};
  const std::optional<std::size_t> choice = encodings::choice_of(choices, *word);
  if (!choice)
    reader.refuse(key, message("must be ", core::list_text(choices), ", got \"", *word, "\"",
                               core::did_you_mean(*word, choices)));
  return choices[*choice];
}

void refuse_unknown_key(const ObjectReader& reader, std::span<const std::string_view> known) {
  const std::vector<std::string> rest = reader.keys_not_understood();
  if (rest.empty()) return;
  std::string hint = core::did_you_mean(rest.front(), known);
  if (hint.empty()) hint = message("; known keys: ", core::list_text(known));
  reader.refuse(rest.front(), message("unknown key \"", rest.front(), "\"", hint));
}

void write_scaling_keys(const encodings::RopeScaling& scaling, DefaultKeys defaults, Json& to) {
  const encodings::ScalingType& type = encodings::type_of(scaling);
  const encodings::RopeScaling standard = type.make();
  for (const Field<encodings::RopeScaling>& field : type.fields) {
    if (field.place == FieldPlace::outside && defaults == DefaultKeys::leave_out) continue;
    const FieldValue value = field.get(scaling);
    if (is_written(field.missing, value, field.get(standard), defaults))
      to[field.key] = json_of(value);
  }
}

std::string plain_spec_json(const RopeSpec& spec) {
  RopeSpec standard;
  standard.rotary_dim = spec.head_dim - spec.rotary_offset;
  Json to = Json::object();
  for (const Field<RopeSpec>& field : encodings::spec_fields()) {
    if (field.type == FieldType::object) {
      Json object = object_json(field.key, spec);
      if (!object.is_null()) to[field.key] = std::move(object);
      continue;
    }
    const FieldValue value = field.get(spec);
    // What is left out is read as this again.
    const WhenMissing missing =
        field.missing == WhenMissing::rest_of_head ? WhenMissing::use_default : field.missing;
    if (is_written(missing, value, field.get(standard), DefaultKeys::leave_out))
      to[field.key] = json_of(value);
  }
  return to.dump();
}

}  // namespace phasor::config
