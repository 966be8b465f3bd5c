// Reads a GGUF file value by value; every length is checked against the bytes left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "phasor/core/error.hpp"
#include "phasor/io/internal/file_text.hpp"

namespace phasor::io {

// Longest key or tensor name. The format's own limit for keys; ggml stops tensor names at 63 bytes,
// but programs built on it raise that.
inline constexpr std::size_t kMaxGgufName = 65535;

class GgufCursor {
 public:
  explicit GgufCursor(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}

  [[nodiscard]] std::size_t at() const noexcept { return at_; }
  [[nodiscard]] std::size_t left() const noexcept { return bytes_.size() - at_; }

  // Checks that `count` items of at least `each` bytes are left, before memory is reserved.
  void expect(std::uint64_t count, std::size_t each, std::string_view what) const {
    if (count > left() / each) {
      refuse(message(kTruncated, what, " needs ", count,
                     each == 1 ? std::string() : message(" x ", each), " bytes at byte ", at_, ", ",
                     left(), " are left"));
    }
  }

  template <class Number>
  [[nodiscard]] Number take(std::string_view what) {
    expect(sizeof(Number), 1, what);
    Number number;
    std::memcpy(&number, bytes_.data() + at_, sizeof(Number));
    at_ += sizeof(Number);
    return number;
  }

  // A 64-bit length and its bytes, viewed in place.
  [[nodiscard]] std::string_view text(std::string_view what) {
    const auto length = take<std::uint64_t>(what);
    expect(length, 1, what);
    const std::string_view taken(reinterpret_cast<const char*>(bytes_.data() + at_),
                                 static_cast<std::size_t>(length));
    at_ += taken.size();
    return taken;
  }

  // A key or tensor name: 1 to kMaxGgufName printable ASCII characters, valid in messages and JSON.
  [[nodiscard]] std::string_view name(std::string_view what) {
    const std::size_t start = at_;
    const std::string_view taken = text(what);
    if (taken.empty() || taken.size() > kMaxGgufName) {
      refuse(message(what, " at byte ", start, " must have 1 to ", kMaxGgufName, " bytes, got ",
                     taken.size()));
    }
    for (const char character : taken) {
      if (character < ' ' || character > '~') {
        refuse(message(what, " at byte ", start, " must be printable ASCII, got byte ",
                       int{static_cast<unsigned char>(character)}));
      }
    }
    return taken;
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

}  // namespace phasor::io
