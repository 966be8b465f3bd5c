// XXH64 of bytes that arrive in pieces: tells files apart by their content, at the speed of memory. Not
// for secrets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace phasor::io {

struct InputFile;

class ContentHash {
 public:
  ContentHash() noexcept;
  void add(std::span<const std::byte> bytes) noexcept;
  void add(std::string_view text) noexcept {
    add(std::as_bytes(std::span(text.data(), text.size())));
  }
  // The whole file, from its first byte on.
  //
  // throws   Error(io | cancelled)
  void add_file(const InputFile& file);

  [[nodiscard]] std::uint64_t value() const noexcept;
  // "xxh64:0123456789abcdef": never read as a number.
  [[nodiscard]] std::string text() const;

 private:
  static constexpr std::size_t kStripe = 32;
  void take_stripe(const std::byte* bytes) noexcept;

  std::array<std::uint64_t, 4> lanes_;
  std::array<std::byte, kStripe> rest_ = {};
  std::uint64_t size_ = 0;  // rest_ holds size_ % kStripe bytes
};

}  // namespace phasor::io
