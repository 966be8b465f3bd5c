// What every fuzz target shares: the input as bytes, and what an answer may look like.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "phasor/core/error.hpp"

namespace phasor::fuzz {

// Larger inputs only make the search slow; what they could add, a test can build.
inline constexpr std::size_t kMaxInput = std::size_t{1} << 20;
// A message is one line that somebody reads, whatever the input holds.
inline constexpr std::size_t kMaxMessage = 2000;

inline std::span<const std::byte> bytes_of(const std::uint8_t* data, std::size_t size) {
  return std::as_bytes(std::span(data, size));
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// libFuzzer takes the trap for a crash and keeps the input.
inline void require(bool holds) {
  if (!holds) std::abort();
}

inline volatile std::byte sink{};

// Reads both ends, so that AddressSanitizer sees a part that leaves its memory.
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

// Calls `act`; a refusal must read well, and nothing else may be thrown.
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
