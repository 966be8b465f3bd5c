#include "phasor/io/internal/finite.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace phasor::io {
namespace {

struct Place {
  TensorType type;
  std::size_t offset, size;  // in a block, of a number or scale
};
// The scale, and the minimum of the types that have one.
constexpr Place kPlaces[] = {
    {TensorType::f64, 0, 8},    {TensorType::f32, 0, 4},   {TensorType::f16, 0, 2},
    {TensorType::bf16, 0, 2},   {TensorType::q4_0, 0, 2},  {TensorType::q4_1, 0, 2},
    {TensorType::q4_1, 2, 2},   {TensorType::q5_0, 0, 2},  {TensorType::q5_1, 0, 2},
    {TensorType::q5_1, 2, 2},   {TensorType::q8_0, 0, 2},  {TensorType::q4_k, 0, 2},
    {TensorType::q4_k, 2, 2},   {TensorType::q5_k, 0, 2},  {TensorType::q5_k, 2, 2},
    {TensorType::q6_k, 208, 2}, {TensorType::iq4_nl, 0, 2}};

// Bits of a number of the type: infinity, -infinity, NaN.
std::vector<std::uint64_t> not_finite(const Place& place) {
  if (place.type == TensorType::f64)
    return {0x7ff0000000000000U, 0xfff0000000000000U, 0x7ff8000000000001U, 0x47f0000000000000U};
  if (place.type == TensorType::f32) return {0x7f800000U, 0xff800000U, 0x7f800001U};
  if (place.type == TensorType::bf16) return {0x7f80U, 0xff80U, 0x7f81U};
  return {0x7c00U, 0xfc00U, 0x7c01U, 0xffffU};
}
std::uint64_t largest(const Place& place) {
  if (place.type == TensorType::f64) return 0xc7efffffe0000000U;  // -FLT_MAX
  if (place.type == TensorType::f32) return 0xff7fffffU;
  return place.type == TensorType::bf16 ? 0xff7fU : 0xfbffU;
}

TEST(FindNonFinite, FindsEveryNumberAndScale) {
  for (const Place& place : kPlaces) {
    const std::size_t bytes = block_bytes(place.type);
    for (const std::size_t count : {1U, 7U, 100U}) {
      std::vector<std::byte> blocks(count * bytes, std::byte{0x3b});
      EXPECT_FALSE(find_non_finite(place.type, blocks));
      for (std::size_t at = 0; at < count; ++at) {
        std::byte* const number = blocks.data() + at * bytes + place.offset;
        const std::vector<std::byte> before(number, number + place.size);
        for (const std::uint64_t bits : not_finite(place)) {
          std::memcpy(number, &bits, place.size);
          const auto found = find_non_finite(place.type, blocks);
          ASSERT_TRUE(found) << name_of(place.type) << " " << at;
          EXPECT_EQ(found->block, at);
          EXPECT_FALSE(std::isfinite(found->value));
        }
        const std::uint64_t most = largest(place);
        std::memcpy(number, &most, place.size);
        EXPECT_FALSE(find_non_finite(place.type, blocks)) << name_of(place.type);
        std::memcpy(number, before.data(), place.size);
      }
    }
  }
}

TEST(FindNonFinite, FindsTheFirst) {
  std::vector<std::byte> blocks(10 * block_bytes(TensorType::q4_1), std::byte{1});
  const std::uint16_t infinity = 0x7c00, minus = 0xfc00;
  std::memcpy(blocks.data() + 6 * 20, &infinity, 2);
  std::memcpy(blocks.data() + 4 * 20 + 2, &minus, 2);
  const auto found = find_non_finite(TensorType::q4_1, blocks);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->block, 4U);
  EXPECT_EQ(found->value, -std::numeric_limits<float>::infinity());
}

TEST(FindNonFinite, CodesAndIntegersAreFinite) {
  for (const TensorType type : {TensorType::i64, TensorType::u8, TensorType::boolean}) {
    EXPECT_FALSE(find_non_finite(type, std::vector<std::byte>(64, std::byte{0xff})));
  }
  for (const Place& place : kPlaces) {
    if (block_elements(place.type) == 1) continue;
    std::vector<std::byte> block(block_bytes(place.type), std::byte{0xff});
    for (const Place& scale : kPlaces) {
      if (scale.type == place.type) std::memset(block.data() + scale.offset, 0, scale.size);
    }
    EXPECT_FALSE(find_non_finite(place.type, block)) << name_of(place.type);
  }
}

}  // namespace
}  // namespace phasor::io
