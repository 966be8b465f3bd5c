// The names of an enumeration.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace phasor::core {

// Names in the order of the enumerators, which count from 0 to kLast:
//
//   constexpr EnumNames<Split::striped> kSplits("contiguous", "zigzag", "striped");
template <auto kLast>
class EnumNames {
 public:
  using Enum = decltype(kLast);

  template <class... Names>
  explicit constexpr EnumNames(Names... names) : names_{names...} {
    static_assert(sizeof...(Names) == kCount, "one name for each enumerator");
  }

  // "unknown" for a number that is no enumerator.
  [[nodiscard]] constexpr std::string_view operator[](Enum value) const noexcept {
    const auto index = static_cast<std::size_t>(value);
    return index < kCount ? names_[index] : "unknown";
  }
  [[nodiscard]] constexpr std::optional<Enum> find(std::string_view name) const noexcept {
    for (std::size_t index = 0; index < kCount; ++index) {
      if (names_[index] == name) return static_cast<Enum>(index);
    }
    return std::nullopt;
  }
  [[nodiscard]] constexpr std::span<const std::string_view> all() const noexcept { return names_; }

 private:
  static constexpr std::size_t kCount = static_cast<std::size_t>(kLast) + 1;
  std::array<std::string_view, kCount> names_;
};

}  // namespace phasor::core
