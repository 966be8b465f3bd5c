// Random numbers that are functions of (seed, stream, counter): a run that is resumed, or computed by
// other threads, draws the same ones without a state to keep.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace phasor::lab {

// Streams of one seed: numbers for different uses never coincide.
enum class Stream : std::uint32_t {
  initial_weights,
  dropout,
  batches,
  masking,
  splits,
  sampling,
};

// A bijective mix of 64 bits (the finaliser of SplitMix64).
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

class Random {
 public:
  // `index` separates generators of one stream: the step of a batch, the number of a layer.
  constexpr Random(std::uint64_t seed, Stream stream, std::uint64_t index = 0) noexcept
      : key_(mix(mix(seed + 0x9e3779b97f4a7c15ULL * (static_cast<std::uint64_t>(stream) + 1)) +
                 index)) {}

  [[nodiscard]] constexpr std::uint64_t key() const noexcept { return key_; }
  // The number at a place, whatever was drawn before.
  [[nodiscard]] constexpr std::uint64_t at(std::uint64_t counter) const noexcept {
    return mix(key_ + 0x9e3779b97f4a7c15ULL * (counter + 1));
  }
  constexpr std::uint64_t next() noexcept { return at(counter_++); }
  // In [0, 1), 53 bits.
  constexpr double uniform() noexcept { return static_cast<double>(next() >> 11) * 0x1p-53; }
  // In [0, count), without bias that matters: count is far below 2^32.
  //
  // precondition  0 < count < 2^32
  constexpr std::int64_t below(std::int64_t count) noexcept {
    return static_cast<std::int64_t>(((next() >> 32) * static_cast<std::uint64_t>(count)) >> 32);
  }
  // Standard normal (Box-Muller); two numbers are drawn for each.
  double normal() noexcept {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

}  // namespace phasor::lab
