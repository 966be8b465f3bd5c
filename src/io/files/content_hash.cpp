#include "phasor/io/internal/content_hash.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "phasor/core/cancellation.hpp"
#include "phasor/io/internal/posix_file.hpp"

namespace phasor::io {
namespace {

constexpr std::uint64_t kHash1 = 0x9E3779B185EBCA87, kHash2 = 0xC2B2AE3D27D4EB4F,
                        kHash3 = 0x165667B19E3779F9, kHash4 = 0x85EBCA77C2B2AE63,
                        kHash5 = 0x27D4EB2F165667C5;

// Little-endian, as the file formats are.
template <class T>
[[nodiscard]] std::uint64_t number_at(const std::byte* bytes) noexcept {
  T number = 0;
  std::memcpy(&number, bytes, sizeof(T));
  static_assert(std::endian::native == std::endian::little);
  return number;
}

[[nodiscard]] std::uint64_t hash_round(std::uint64_t lane, std::uint64_t input) noexcept {
  return std::rotl(lane + input * kHash2, 31) * kHash1;
}

}  // namespace

ContentHash::ContentHash() noexcept : lanes_{kHash1 + kHash2, kHash2, 0, 0 - kHash1} {}

void ContentHash::take_stripe(const std::byte* bytes) noexcept {
  for (std::size_t i = 0; i < lanes_.size(); ++i)
    lanes_[i] = hash_round(lanes_[i], number_at<std::uint64_t>(bytes + 8 * i));
}

void ContentHash::add(std::span<const std::byte> bytes) noexcept {
  const std::size_t held = size_ % kStripe;
  size_ += bytes.size();
  if (held > 0) {
    const std::size_t taken = std::min(kStripe - held, bytes.size());
    std::copy_n(bytes.data(), taken, rest_.data() + held);
    bytes = bytes.subspan(taken);
    if (held + taken < kStripe) return;
    take_stripe(rest_.data());
  }
  for (; bytes.size() >= kStripe; bytes = bytes.subspan(kStripe)) take_stripe(bytes.data());
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
}

void ContentHash::add_file(const InputFile& file) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  std::vector<std::byte> piece(std::min(kPiece, file.size));
  for (std::size_t at = 0; at < file.size; at += kPiece) {
    core::throw_if_cancelled();
    const std::span<std::byte> into = std::span(piece).first(std::min(kPiece, file.size - at));
    (void)read_at(file, at, into).value_or_throw();
    add(into);
  }
}

std::uint64_t ContentHash::value() const noexcept {
  std::uint64_t hash = kHash5;
  if (size_ >= kStripe) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
           std::rotl(lanes_[3], 18);
    for (const std::uint64_t lane : lanes_) hash = (hash ^ hash_round(0, lane)) * kHash1 + kHash4;
  }
  hash += size_;
  const std::byte* at = rest_.data();
  std::size_t left = size_ % kStripe;
  for (; left >= 8; left -= 8, at += 8)
    hash = std::rotl(hash ^ hash_round(0, number_at<std::uint64_t>(at)), 27) * kHash1 + kHash4;
  for (; left >= 4; left -= 4, at += 4)
    hash = std::rotl(hash ^ (number_at<std::uint32_t>(at) * kHash1), 23) * kHash2 + kHash3;
  for (; left > 0; --left, ++at)
    hash = std::rotl(hash ^ (number_at<std::uint8_t>(at) * kHash5), 11) * kHash1;
  hash = (hash ^ (hash >> 33)) * kHash2;
  hash = (hash ^ (hash >> 29)) * kHash3;
  return hash ^ (hash >> 32);
}

std::string ContentHash::text() const {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "xxh64:";
  for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[(value() >> shift) & 15];
  return text;
}

}  // namespace phasor::io
