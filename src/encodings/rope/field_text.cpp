#include "phasor/encodings/internal/field_text.hpp"

#include <sstream>

#include "phasor/core/error.hpp"

namespace phasor::encodings {
namespace {

[[nodiscard]] std::string default_text(const FieldValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return message(*integer);
  if (const auto* number = std::get_if<double>(&value)) {
    std::ostringstream text;
    text << *number;
    return text.str();
  }
  return "none";
}

[[nodiscard]] std::string missing_text(WhenMissing missing, const FieldValue& standard) {
  switch (missing) {
    case WhenMissing::error:
      return "required";
    case WhenMissing::use_default:
    case WhenMissing::state_default:
      return default_text(standard);
    case WhenMissing::not_used:
      return "not used";
    case WhenMissing::trained_length:
      return "`max_position_embeddings`";
    case WhenMissing::length_ratio:
      return "`max_position_embeddings` / original length";
    case WhenMissing::null_means_ratio:
      return "required; null: `max_position_embeddings` / original length";
    case WhenMissing::rest_of_head:
      break;
  }
  return "`head_dim` - `rotary_offset`";
}

}  // namespace

template <class Owner>
std::string type_text(const Field<Owner>& field) {
  static constexpr std::string_view kTypes[] = {"true or false", "integer", "number", "",
                                                "list",          "object"};
  static constexpr std::string_view kRanges[] = {"",     "finite",    "> 0",
                                                 ">= 0", "> 0, <= 1", "0 to 1"};
  std::string text(kTypes[static_cast<std::size_t>(field.type)]);
  for (const std::string_view choice : field.choices)
    text += message(text.empty() ? "" : ", ", "`", choice, "`");
  const std::string_view range = kRanges[static_cast<std::size_t>(field.range)];
  return range.empty() ? text : message(text, ", ", range);
}

template <class Owner>
std::string missing_text(const Field<Owner>& field, const Owner& standard) {
  const FieldValue value = field.get == nullptr ? FieldValue() : field.get(standard);
  std::string text = field.place == FieldPlace::outside ? "`original_max_position_embeddings`"
                                                        : missing_text(field.missing, value);
  if (!field.unless.empty()) text += message("; not needed with `", field.unless, "`");
  return text;
}

template std::string type_text(const Field<RopeSpec>& field);
template std::string type_text(const Field<Xpos>& field);
template std::string type_text(const Field<RopeScaling>& field);
template std::string missing_text(const Field<RopeSpec>& field, const RopeSpec& standard);
template std::string missing_text(const Field<Xpos>& field, const Xpos& standard);
template std::string missing_text(const Field<RopeScaling>& field, const RopeScaling& standard);

}  // namespace phasor::encodings
