// Shared by all fuzz targets: the input as bytes, and checks of results and messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "phasor/core/error.hpp"

namespace phasor::fuzz {

// Larger inputs only slow down the search.
inline constexpr std::size_t kMaxInput = std::size_t{1} << 20;
// Limit of a message, for any input.
inline constexpr std::size_t kMaxMessage = 2000;

inline std::span<const std::byte> bytes_of(const std::uint8_t* data, std::size_t size) {
  return std::as_bytes(std::span(data, size));
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// libFuzzer records the abort as a crash and keeps the input.
inline void require(bool holds) {
  if (!holds) std::abort();
}

inline volatile std::byte sink{};

// Reads both ends, so that AddressSanitizer sees a part beyond its memory.
inline void require_inside(std::span<const std::byte> part, std::span<const std::byte> whole) {
  if (part.empty()) return;
  require(part.data() >= whole.data() && &part.back() <= &whole.back());
  sink = part.front() ^ part.back();
}

inline void require_one_line(const Error& error) {
  const std::string_view text = error.what();
  require(!text.empty() && text.size() <= kMaxMessage);
  for (const char c : text) require(static_cast<unsigned char>(c) >= 0x20);
}

// Calls `act`; it may throw an Error with a message of one line, and nothing else.
template <class Act>
void allow_refusal(Act act) {
  try {
    act();
  } catch (const Error& error) {
    require(error.code() != ErrorCode::internal);
    require_one_line(error);
  }
}

}  // namespace phasor::fuzz
