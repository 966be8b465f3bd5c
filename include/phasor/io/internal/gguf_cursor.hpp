// Bytes of a GGUF file taken one after the other, each length checked before it is believed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "phasor/core/error.hpp"

namespace phasor::io {

// Longest key or tensor name. The format's own limit for keys; ggml stops tensor names at 63 bytes,
// but programs built on it raise that.
inline constexpr std::size_t kMaxGgufName = 65535;

[[noreturn]] inline void refuse_gguf(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, what);
}

// A name as a one-line message shows it: cut when long.
[[nodiscard]] inline std::string brief(std::string_view name) {
  constexpr std::size_t kShown = 80;
  return name.size() <= kShown ? std::string(name) : std::string(name.substr(0, kShown)) + "...";
}

class GgufCursor {
 public:
  explicit GgufCursor(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}

  [[nodiscard]] std::size_t at() const noexcept { return at_; }
  [[nodiscard]] std::size_t left() const noexcept { return bytes_.size() - at_; }

  // `count` items of at least `each` bytes must still fit: asked before anything is reserved.
  void expect(std::uint64_t count, std::size_t each, std::string_view what) const {
    if (count > left() / each) {
      refuse_gguf(message(what, " must fit the ", left(), " bytes left at byte ", at_, ", got ",
                          count, each == 1 ? " bytes" : " items"));
    }
  }

  template <class Number>
  [[nodiscard]] Number take(std::string_view what) {
    if (left() < sizeof(Number)) {
      refuse_gguf(message(what, " must have ", sizeof(Number), " bytes at byte ", at_,
                          ", got the end of the file after ", left()));
    }
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

  // A key or tensor name: from 1 to kMaxGgufName printable ASCII characters, so that it can stand
  // in messages and in JSON as it is.
  [[nodiscard]] std::string_view name(std::string_view what) {
    const std::size_t start = at_;
    const std::string_view taken = text(what);
    if (taken.empty() || taken.size() > kMaxGgufName) {
      refuse_gguf(message(what, " at byte ", start, " must have from 1 to ", kMaxGgufName,
                          " bytes, got ", taken.size()));
    }
    for (const char character : taken) {
      if (character < ' ' || character > '~') {
        refuse_gguf(message(what, " at byte ", start, " must be printable ASCII, got byte ",
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
