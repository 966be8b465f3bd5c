// Numbers for the tests of layers and products.
#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace phasor::models::testing {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline std::vector<float> normal_numbers(std::size_t count, std::uint32_t seed, float mean = 0.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(mean);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

}  // namespace phasor::models::testing
