// Without zlib (PHASOR_ZLIB=OFF): archives of stored members alone, with their check sums.
#include <array>

#include "io/arrays/inflate.hpp"

namespace phasor::io {
namespace {

constexpr std::array<std::uint32_t, 256> kSums = [] {
  constexpr std::uint32_t kPolynomial = 0xedb88320;
  std::array<std::uint32_t, 256> sums{};
  for (std::uint32_t byte = 0; byte < sums.size(); ++byte) {
    std::uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum & 1) != 0 ? sum >> 1 ^ kPolynomial : sum >> 1;
    sums[byte] = sum;
  }
  return sums;
}();

}  // namespace

bool can_inflate() noexcept { return false; }

std::unique_ptr<Inflater> make_inflater() { return nullptr; }

std::uint32_t check_sum(std::uint32_t before, std::span<const std::byte> bytes) noexcept {
  std::uint32_t sum = ~before;
  for (const std::byte byte : bytes)
    sum = sum >> 8 ^ kSums[(sum ^ static_cast<std::uint32_t>(byte)) & 0xff];
  return ~sum;
}

}  // namespace phasor::io
