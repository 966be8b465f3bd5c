// What a RoPE spec consists of, as data: the name, type, range, default and meaning of each member.
// JSON, config.json, the C struct and Python read these tables, so that a new scaling or member is
// described once, next to its formula.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "phasor/encodings/rope.hpp"

namespace phasor::encodings {

// The value of a member. monostate: not given. A word is one of the field's choices.
using FieldValue =
    std::variant<std::monostate, bool, std::int64_t, double, std::string_view, std::vector<double>>;

enum class FieldType : std::uint8_t {
  flag,
  integer,
  number,
  word,     // one of `choices`
  numbers,  // a list, rotary_dim / 2 entries
  object,   // has members of its own; get and set are null
};

// Holds for each entry of a list.
enum class FieldRange : std::uint8_t {
  any,
  finite,
  positive,      // above 0 and finite
  not_negative,  // integers
  share,         // above 0 and at most 1
  weight,        // from 0 to 1
};

// What it means when a description does not give the field.
enum class WhenMissing : std::uint8_t {
  error,             // required
  use_default,       // the default applies; it need not be written
  state_default,     // the default applies; it is always written
  not_used,          // optional: the formula does not need it
  trained_length,    // max_position_embeddings
  length_ratio,      // max_position_embeddings / original_length
  null_means_ratio,  // the key is required, and null means the same ratio
  rest_of_head,      // head_dim - rotary_offset
};

enum class FieldPlace : std::uint8_t {
  inside,   // a key of the object itself
  outside,  // a key of the object around it (max_position_embeddings of dynamic scaling)
};

template <class Owner>
struct Field {
  std::string_view name;  // of the C++ member and of the member of phasor_rope_spec
  std::string_view key;   // in JSON, config.json and Python
  FieldType type = FieldType::number;
  FieldRange range = FieldRange::any;
  WhenMissing missing = WhenMissing::use_default;
  std::string_view meaning;  // one sentence
  FieldValue (*get)(const Owner& owner) = nullptr;
  // `value` has the alternative of `type`.
  void (*set)(Owner& owner, const FieldValue& value) = nullptr;
  std::span<const std::string_view> choices = {};
  std::string_view unless = {};  // not required when the field of this name is given
  FieldPlace place = FieldPlace::inside;
};

struct ScalingType {
  std::string_view name;                       // the rope_type of a config
  std::string_view meaning;                    // the formula
  std::span<const Field<RopeScaling>> fields;  // in the order in which JSON has them
  RopeScaling (*make)() = nullptr;             // every member at its default
};

// In the order of RopeScaling's alternatives, which is that of phasor_scaling.
[[nodiscard]] std::span<const ScalingType* const> scaling_types();
[[nodiscard]] const ScalingType& type_of(const RopeScaling& scaling) noexcept;
// nullptr when no type has this name.
[[nodiscard]] const ScalingType* find_scaling_type(std::string_view name) noexcept;

// Every key of a plain spec and every keyword of Python's RopeSpec, in that order.
[[nodiscard]] std::span<const Field<RopeSpec>> spec_fields() noexcept;
[[nodiscard]] std::span<const Field<Xpos>> xpos_fields() noexcept;

// head_dim if none is given: that of the list of frequencies, 0 without one.
[[nodiscard]] std::int64_t width_of_list(const RopeSpec& spec) noexcept;
// rotary_dim if none is given: head_dim - rotary_offset.
//
// throws   Error(invalid_argument) when that does not fit an integer
[[nodiscard]] std::int64_t rest_of_head(const RopeSpec& spec);

// The names of the enumerators, by value.
[[nodiscard]] std::span<const std::string_view> names_of_mrope_orders() noexcept;
[[nodiscard]] std::span<const std::string_view> names_of_axial_kinds() noexcept;
[[nodiscard]] std::span<const std::string_view> names_of_xpos_centres() noexcept;

// The index of a word among its choices; none when it is not one of them.
[[nodiscard]] std::optional<std::size_t> choice_of(std::span<const std::string_view> choices,
                                                   std::string_view word) noexcept;

// ---- Making fields from members

namespace detail {

template <auto Member>
struct MemberTraits;
template <class OwnerOf, class TypeOf, TypeOf OwnerOf::*Member>
struct MemberTraits<Member> {
  using Owner = OwnerOf;
  using Type = TypeOf;
};

template <class T>
struct ValueTraits {
  using Stored = T;
};
template <class T>
struct ValueTraits<std::optional<T>> {
  using Stored = T;
};

template <class T>
[[nodiscard]] constexpr FieldType type_of_member() {
  using Stored = typename ValueTraits<T>::Stored;
  if constexpr (std::is_same_v<Stored, bool>) return FieldType::flag;
  if constexpr (std::is_same_v<Stored, std::int64_t>) return FieldType::integer;
  if constexpr (std::is_same_v<Stored, std::vector<double>>) return FieldType::numbers;
  return FieldType::number;
}

template <class T>
[[nodiscard]] FieldValue value_of(const T& member) {
  return member;
}
template <class T>
[[nodiscard]] FieldValue value_of(const std::optional<T>& member) {
  return member ? FieldValue(*member) : FieldValue();
}

}  // namespace detail

template <auto Member>
[[nodiscard]] constexpr auto member_field(std::string_view name, FieldRange range,
                                          WhenMissing missing, std::string_view meaning) {
  using Traits = detail::MemberTraits<Member>;
  using Owner = typename Traits::Owner;
  using Stored = typename detail::ValueTraits<typename Traits::Type>::Stored;
  return Field<Owner>{
      name,
      name,
      detail::type_of_member<typename Traits::Type>(),
      range,
      missing,
      meaning,
      [](const Owner& owner) { return detail::value_of(owner.*Member); },
      [](Owner& owner, const FieldValue& value) { owner.*Member = std::get<Stored>(value); }};
}

// The same for a member of one alternative of RopeScaling.
template <auto Member>
[[nodiscard]] constexpr Field<RopeScaling> scaling_field(std::string_view name, FieldRange range,
                                                         WhenMissing missing,
                                                         std::string_view meaning) {
  using Traits = detail::MemberTraits<Member>;
  using Scaling = typename Traits::Owner;
  using Stored = typename detail::ValueTraits<typename Traits::Type>::Stored;
  return {name,
          name,
          detail::type_of_member<typename Traits::Type>(),
          range,
          missing,
          meaning,
          [](const RopeScaling& scaling) {
            return detail::value_of(std::get<Scaling>(scaling).*Member);
          },
          [](RopeScaling& scaling, const FieldValue& value) {
            std::get<Scaling>(scaling).*Member = std::get<Stored>(value);
          }};
}

// The length of training, under the key that configs have for it.
template <auto Member>
[[nodiscard]] constexpr Field<RopeScaling> original_length_field(
    WhenMissing missing = WhenMissing::trained_length) {
  Field<RopeScaling> field =
      scaling_field<Member>("original_length", FieldRange::positive, missing,
                            "The context length that the model was trained at, in tokens.");
  field.key = "original_max_position_embeddings";
  return field;
}

}  // namespace phasor::encodings
