// GGUF files for tests: valid by default, invalid if a test sets a wrong number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace phasor::io::testing {

// Numbers of the format.
enum class GgufType : std::uint32_t {
  u8 = 0,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64
};

template <class T>
void append(std::string& out, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  out.append(raw, sizeof(T));
}

inline void append_text(std::string& out, std::string_view text) {
  append<std::uint64_t>(out, text.size());
  out.append(text);
}

template <class T>
constexpr GgufType type_of() {
  if constexpr (std::is_same_v<T, std::uint8_t>) return GgufType::u8;
  if constexpr (std::is_same_v<T, std::int8_t>) return GgufType::i8;
  if constexpr (std::is_same_v<T, std::uint16_t>) return GgufType::u16;
  if constexpr (std::is_same_v<T, std::int16_t>) return GgufType::i16;
  if constexpr (std::is_same_v<T, std::uint32_t>) return GgufType::u32;
  if constexpr (std::is_same_v<T, std::int32_t>) return GgufType::i32;
  if constexpr (std::is_same_v<T, float>) return GgufType::f32;
  if constexpr (std::is_same_v<T, bool>) return GgufType::boolean;
  if constexpr (std::is_same_v<T, std::uint64_t>) return GgufType::u64;
  if constexpr (std::is_same_v<T, std::int64_t>) return GgufType::i64;
  return GgufType::f64;
}

class GgufWriter {
 public:
  // Of the header, in place of what is there.
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::optional<std::uint64_t> tensor_count, pair_count;
  std::size_t alignment = 32;

  // A value as its bytes in the file.
  GgufWriter& raw(std::string_view key, GgufType type, std::string_view bytes) {
    append_text(pairs_, key);
    append(pairs_, static_cast<std::uint32_t>(type));
    pairs_.append(bytes);
    ++pairs_written_;
    return *this;
  }
  template <class T>
  GgufWriter& number(std::string_view key, T value) {
    std::string bytes;
    append(bytes, value);
    return raw(key, type_of<T>(), bytes);
  }
  GgufWriter& text(std::string_view key, std::string_view value) {
    std::string bytes;
    append_text(bytes, value);
    return raw(key, GgufType::string, bytes);
  }
  template <class T>
  GgufWriter& numbers(std::string_view key, const std::vector<T>& values) {
    std::string bytes = array_head(type_of<T>(), values.size());
    for (const T value : values) append(bytes, value);
    return raw(key, GgufType::array, bytes);
  }
  GgufWriter& texts(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = array_head(GgufType::string, values.size());
    for (const std::string& value : values) append_text(bytes, value);
    return raw(key, GgufType::array, bytes);
  }
  [[nodiscard]] static std::string array_head(GgufType type, std::uint64_t count) {
    std::string bytes;
    append(bytes, static_cast<std::uint32_t>(type));
    append(bytes, count);
    return bytes;
  }

  // `type` is ggml's number; `extents` are in the file's order, innermost first. The bytes go after
  // those of the earlier tensors, unless `offset` is given.
  GgufWriter& tensor(std::string_view name, std::uint32_t type,
                     const std::vector<std::uint64_t>& extents, std::string_view bytes,
                     std::optional<std::uint64_t> offset = std::nullopt) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    append_text(entries_, name);
    append(entries_, static_cast<std::uint32_t>(extents.size()));
    for (const std::uint64_t extent : extents) append(entries_, extent);
    append(entries_, type);
    append<std::uint64_t>(entries_, offset.value_or(data_.size()));
    data_.append(bytes);
    ++tensors_written_;
    return *this;
  }
  GgufWriter& floats(std::string_view name, const std::vector<float>& values) {
    std::string bytes;
    for (const float value : values) append(bytes, value);
    return tensor(name, 0, {values.size()}, bytes);
  }

  [[nodiscard]] std::string bytes() const {
    std::string out = magic;
    append(out, version);
    append(out, tensor_count.value_or(tensors_written_));
    append(out, pair_count.value_or(pairs_written_));
    out += pairs_ + entries_;
    if (tensors_written_ != 0) out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data_;
  }

 private:
  std::string pairs_, entries_, data_;
  std::uint64_t pairs_written_ = 0, tensors_written_ = 0;
};

}  // namespace phasor::io::testing
