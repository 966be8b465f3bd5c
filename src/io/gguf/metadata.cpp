#include "io/gguf/metadata.hpp"

#include <array>
#include <type_traits>
#include <utility>
#include <vector>

namespace phasor::io {
namespace {

// The numbers that the format gives its value types.
enum class ValueType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
constexpr std::uint32_t kLastType = 12;

// Fewest bytes of a value of each type in the file; a string has at least its length field.
constexpr std::array<std::size_t, kLastType + 1> kLeastBytes = {1, 1, 2,  2, 4, 4, 4,
                                                                1, 8, 12, 8, 8, 8};

// Name length, one character, a type and a value.
constexpr std::size_t kLeastPair = 8 + 1 + 4 + 1;

// Elements of all arrays together, a hundred times the largest vocabulary. Without a limit, a file of
// one-byte elements would need eight times its size in memory.
constexpr std::uint64_t kMaxArrayElements = std::uint64_t{1} << 25;

class MetadataReader {
 public:
  explicit MetadataReader(GgufCursor& cursor) : cursor_(cursor) {}

  void read_pair(GgufMetadata& metadata) {
    key_ = cursor_.name("key");
    value_name_ = "value of " + key_name();
    const ValueType type = take_type();
    GgufValue value = type == ValueType::array ? array() : scalar(type);
    if (!metadata.emplace(key_, std::move(value)).second)
      refuse(message(key_name(), " appears twice"));
  }

 private:
  [[nodiscard]] std::string key_name() const { return "key " + quoted_name(key_); }

  [[nodiscard]] ValueType take_type() {
    const auto type = cursor_.take<std::uint32_t>(value_name_);
    if (type > kLastType) {
      refuse(message(key_name(), ": value type must be from 0 to ", kLastType, ", got ", type));
    }
    return static_cast<ValueType>(type);
  }

  [[nodiscard]] bool boolean() {
    const auto byte = cursor_.take<std::uint8_t>(value_name_);
    if (byte > 1) refuse(message(key_name(), ": a bool must be 0 or 1, got ", int{byte}));
    return byte == 1;
  }

  template <class Stored, class Kept>
  [[nodiscard]] Kept one() {
    if constexpr (std::is_same_v<Kept, bool>) {
      return boolean();
    } else if constexpr (std::is_same_v<Kept, std::string>) {
      return cursor_.text(value_name_);
    } else {
      return static_cast<Kept>(cursor_.take<Stored>(value_name_));
    }
  }

  // Calls visit with the type in the file and the type that is kept.
  template <class Visit>
  [[nodiscard]] GgufValue with_types(ValueType type, Visit visit) {
    switch (type) {
      case ValueType::u8:
        return visit(std::uint8_t{}, std::uint64_t{});
      case ValueType::i8:
        return visit(std::int8_t{}, std::int64_t{});
      case ValueType::u16:
        return visit(std::uint16_t{}, std::uint64_t{});
      case ValueType::i16:
        return visit(std::int16_t{}, std::int64_t{});
      case ValueType::u32:
        return visit(std::uint32_t{}, std::uint64_t{});
      case ValueType::i32:
        return visit(std::int32_t{}, std::int64_t{});
      case ValueType::f32:
        return visit(float{}, double{});
      case ValueType::boolean:
        return visit(std::uint8_t{}, bool{});
      case ValueType::string:
        return visit(char{}, std::string{});
      case ValueType::u64:
        return visit(std::uint64_t{}, std::uint64_t{});
      case ValueType::i64:
        return visit(std::int64_t{}, std::int64_t{});
      case ValueType::f64:
        return visit(double{}, double{});
      case ValueType::array:
        break;
    }
    refuse(message(key_name(), ": arrays of arrays are not supported"));
  }

  [[nodiscard]] GgufValue scalar(ValueType type) {
    return with_types(type, [this](auto stored, auto kept) {
      return GgufValue(one<decltype(stored), decltype(kept)>());
    });
  }

  [[nodiscard]] GgufValue array() {
    const ValueType type = take_type();
    const auto count = cursor_.take<std::uint64_t>(value_name_);
    cursor_.expect(count, kLeastBytes[static_cast<std::size_t>(type)], "array of " + key_name());
    if (count > kMaxArrayElements - elements_) {
      refuse(message("arrays must have at most ", kMaxArrayElements, " elements in all, got ",
                     count, " in ", key_name(), " and ", elements_, " before it"));
    }
    elements_ += count;
    return with_types(type, [this, count](auto stored, auto kept) {
      std::vector<decltype(kept)> values;
      values.reserve(static_cast<std::size_t>(count));
      for (std::uint64_t i = 0; i < count; ++i)
        values.push_back(one<decltype(stored), decltype(kept)>());
      return GgufValue(std::move(values));
    });
  }

  GgufCursor& cursor_;
  std::string key_, value_name_;  // for messages; made once for all elements of an array
  std::uint64_t elements_ = 0;
};

}  // namespace

GgufMetadata read_gguf_metadata(GgufCursor& cursor, std::uint64_t count) {
  cursor.expect(count, kLeastPair, "metadata");
  GgufMetadata metadata;
  MetadataReader reader(cursor);
  for (std::uint64_t i = 0; i < count; ++i) reader.read_pair(metadata);
  return metadata;
}

}  // namespace phasor::io
