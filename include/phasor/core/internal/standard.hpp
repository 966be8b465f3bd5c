// Functions of the standard library that the one of Emscripten does not have.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace phasor::core {

// std::bit_cast: the value of type To with the bits of `from`.
template <class To, class From>
requires(sizeof(To) == sizeof(From) && std::is_trivially_copyable_v<To> &&
         std::is_trivially_copyable_v<From>) [[nodiscard]] To bit_cast(const From& from) noexcept {
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

// std::ranges::equal
template <class A, class B>
[[nodiscard]] bool equal(const A& a, const B& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace phasor::core
