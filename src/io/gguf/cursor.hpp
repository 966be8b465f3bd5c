// Reads a GGUF file value by value; every length is checked against the bytes left.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/byte_source.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/internal/file_text.hpp"

namespace phasor::io {

// Longest key or tensor name. The format's own limit for keys; ggml stops tensor names at 63 bytes,
// but programs built on it raise that.
inline constexpr std::size_t kMaxGgufName = 65535;

class GgufCursor {
 public:
  // `source` must outlive the cursor.
  explicit GgufCursor(const ByteSource& source) : source_(source) {}

  [[nodiscard]] std::size_t at() const noexcept { return at_; }
  [[nodiscard]] std::size_t left() const noexcept { return source_.size() - at_; }

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
    copy(std::as_writable_bytes(std::span(&number, 1)));
    return number;
  }

  // A 64-bit length and its bytes.
  [[nodiscard]] std::string text(std::string_view what) { return characters(length(what)); }

  // A key or tensor name: 1 to kMaxGgufName printable ASCII characters, valid in messages and JSON.
  [[nodiscard]] std::string name(std::string_view what) {
    const std::size_t start = at_;
    const std::size_t size = length(what);
    if (size < 1 || size > kMaxGgufName) {
      refuse(message(what, " at byte ", start, " must have 1 to ", kMaxGgufName, " bytes, got ",
                     size));
    }
    std::string taken = characters(size);
    for (const char character : taken) {
      if (character < ' ' || character > '~') {
        refuse(message(what, " at byte ", start, " must be printable ASCII, got byte ",
                       int{static_cast<unsigned char>(character)}));
      }
    }
    return taken;
  }

 private:
  // Bytes of the source that are read at once.
  static constexpr std::size_t kWindow = std::size_t{64} << 10;

  [[nodiscard]] std::size_t length(std::string_view what) {
    const auto size = take<std::uint64_t>(what);
    expect(size, 1, what);
    return static_cast<std::size_t>(size);
  }

  [[nodiscard]] std::string characters(std::size_t count) {
    std::string taken(count, '\0');
    copy(std::as_writable_bytes(std::span(taken)));
    return taken;
  }

  // precondition  expect() has found that the bytes are there
  void copy(std::span<std::byte> out) {
    while (!out.empty()) {
      if (at_ == window_at_ + window_.size()) {
        window_at_ = at_;
        window_.resize(std::min(kWindow, left()));
        source_.read(at_, window_);
      }
      const std::span<const std::byte> ready = std::span(window_).subspan(at_ - window_at_);
      const std::size_t count = std::min(out.size(), ready.size());
      std::copy_n(ready.begin(), count, out.begin());
      at_ += count;
      out = out.subspan(count);
    }
  }

  const ByteSource& source_;
  std::size_t at_ = 0, window_at_ = 0;
  std::vector<std::byte> window_;
};

}  // namespace phasor::io
