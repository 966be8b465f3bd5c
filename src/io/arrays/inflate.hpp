// Deflated bytes and check sums of zip members: through zlib, or, in a build without it, check sums
// alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace phasor::io {

// One deflated stream, without zlib's header.
class Inflater {
 public:
  enum class State : std::uint8_t { more, ended, damaged };
  struct Step {
    std::size_t read = 0, written = 0;
    State state = State::more;
  };

  Inflater() = default;
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  virtual ~Inflater() = default;

  // Inflates from `in` until it is used up or `into` is full.
  //
  // throws   std::bad_alloc
  [[nodiscard]] virtual Step run(std::span<const std::byte> in, std::span<std::byte> into) = 0;
};

[[nodiscard]] bool can_inflate() noexcept;
// throws   std::bad_alloc
// precondition  can_inflate()
[[nodiscard]] std::unique_ptr<Inflater> make_inflater();

// The CRC-32 of zip of all bytes so far; `before` is the sum of the earlier ones, 0 at the start.
[[nodiscard]] std::uint32_t check_sum(std::uint32_t before,
                                      std::span<const std::byte> bytes) noexcept;

}  // namespace phasor::io
