// A RoPE spec to and from JSON, field by field, as encodings/internal/fields.hpp describes it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/config/internal/json_reader.hpp"
#include "phasor/encodings/internal/fields.hpp"

namespace phasor::config {

// The value under a key; not given: absent or null.
//
// throws   Error(invalid_argument) naming the key when the value has another type or is not one of
//          the choices
[[nodiscard]] encodings::FieldValue read_value(const ObjectReader& reader, std::string_view key,
                                               encodings::FieldType type,
                                               std::span<const std::string_view> choices = {});
template <class Owner>
[[nodiscard]] encodings::FieldValue read_value(const ObjectReader& reader,
                                               const encodings::Field<Owner>& field) {
  return read_value(reader, field.key, field.type, field.choices);
}

template <class Owner>
[[nodiscard]] std::vector<std::string_view> keys_of(
    std::span<const encodings::Field<Owner>> fields) {
  std::vector<std::string_view> keys;
  for (const encodings::Field<Owner>& field : fields) {
    if (field.place == encodings::FieldPlace::inside) keys.push_back(field.key);
  }
  return keys;
}

// Refuses the first key that was not read, with the closest of `known` or all of them.
void refuse_unknown_key(const ObjectReader& reader, std::span<const std::string_view> known);

enum class DefaultKeys : std::uint8_t {
  leave_out,  // only what a config must contain
  write,      // every parameter that the formula reads
};

// Adds the keys of the scaling to an object; the caller writes the type's name.
void write_scaling_keys(const encodings::RopeScaling& scaling, DefaultKeys defaults, io::Json& to);

}  // namespace phasor::config
