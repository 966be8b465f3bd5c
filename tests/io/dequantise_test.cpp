// Blocks of GGUF's quantised types against another implementation's values and against a plain
// formula, and what to_floats() takes and refuses.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "phasor/core/view.hpp"
#include "phasor/io/npy.hpp"
#include "phasor/io/tensors.hpp"
#include "support/errors.hpp"

namespace phasor::io {
namespace {

constexpr std::array kQuantised = {TensorType::q4_0, TensorType::q4_1, TensorType::q5_0,
                                   TensorType::q5_1, TensorType::q8_0, TensorType::q4_k,
                                   TensorType::q5_k, TensorType::q6_k, TensorType::iq4_nl};

std::vector<float> floats_of(TensorType type, std::span<const std::byte> bytes) {
  const auto blocks = static_cast<std::int64_t>(bytes.size() / block_bytes(type));
  const Tensor tensor{"t", type, {blocks * block_elements(type)}, bytes};
  std::vector<float> values(static_cast<std::size_t>(tensor.size()));
  to_floats(tensor, 0, values);
  return values;
}

class Quantised : public ::testing::TestWithParam<TensorType> {};

TEST_P(Quantised, CarriesTheBitsOfTheGgufPackage) {
  const std::string stem = std::string(PHASOR_IO_DATA_DIR) + "/" + std::string(name_of(GetParam()));
  const NpyArray blocks = read_npy(stem + ".blocks.npy").value_or_throw();
  const NpyArray expected = read_npy(stem + ".values.npy").value_or_throw();
  ASSERT_EQ(expected.type, NpyType::f32);
  const std::vector<float> values = floats_of(GetParam(), blocks.bytes);
  ASSERT_EQ(static_cast<std::int64_t>(values.size()), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(values[i]),
              std::bit_cast<std::uint32_t>(expected.as<float>()[i]))
        << name_of(GetParam()) << " element " << i << ": " << values[i];
  }
}

// Bits [at, at + count) of a block, the lowest first.
int bits(std::span<const std::byte> block, std::size_t at, std::size_t count) {
  int value = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const int byte = std::to_integer<int>(block[(at + i) / 8]);
    value |= ((byte >> ((at + i) % 8)) & 1) << i;
  }
  return value;
}
double half(std::span<const std::byte> block, std::size_t at) {
  return core::to_float(core::Half{static_cast<std::uint16_t>(bits(block, 8 * at, 16))});
}
int signed_byte(std::span<const std::byte> block, std::size_t at) {
  const int byte = bits(block, 8 * at, 8);
  return byte < 128 ? byte : byte - 256;
}

struct Scales {
  double step, lowest;
};

// Eight pairs (scale, minimum) of six bits: the first four are stored whole, the rest in two parts.
Scales k_scales(std::span<const std::byte> block, std::size_t group) {
  const std::size_t packed = 8 * 4;
  const auto six = [&](std::size_t which, std::size_t low_nibble) {
    if (group < 4) return bits(block, packed + 8 * (which + group), 6);
    const std::size_t other = group - 4;
    return bits(block, packed + 8 * (8 + other) + low_nibble, 4) +
           16 * bits(block, packed + 8 * (which + other) + 6, 2);
  };
  return {half(block, 0) * six(0, 0), half(block, 2) * six(4, 4)};
}

// Element i of a block, in double and by bit positions.
double plain(TensorType type, std::span<const std::byte> block, std::size_t i) {
  const std::size_t nibble = 8 * (i % 16) + 4 * (i / 16);  // in 16 bytes
  const auto k_nibble = [&](std::size_t start) {           // in 128 bytes, pairs of groups of 32
    return 8 * (start + 32 * (i / 64) + i % 32) + 4 * (i / 32 % 2);
  };
  switch (type) {
    case TensorType::q4_0:
      return half(block, 0) * (bits(block, 8 * 2 + nibble, 4) - 8);
    case TensorType::iq4_nl: {
      // The steps between neighbouring values, from the lowest on.
      constexpr int kSteps[16] = {-127, 23, 21, 18, 16, 14, 13, 12, 11, 12, 12, 13, 15, 16, 20, 24};
      const int code = bits(block, 8 * 2 + nibble, 4);
      int value = 0;
      for (int step = 0; step <= code; ++step) value += kSteps[step];
      return half(block, 0) * value;
    }
    case TensorType::q4_1:
      return half(block, 0) * bits(block, 8 * 4 + nibble, 4) + half(block, 2);
    case TensorType::q5_0:
      return half(block, 0) *
             (bits(block, 8 * 6 + nibble, 4) + 16 * bits(block, 8 * 2 + i, 1) - 16);
    case TensorType::q5_1:
      return half(block, 0) * (bits(block, 8 * 8 + nibble, 4) + 16 * bits(block, 8 * 4 + i, 1)) +
             half(block, 2);
    case TensorType::q8_0:
      return half(block, 0) * signed_byte(block, 2 + i);
    case TensorType::q4_k: {
      const Scales scales = k_scales(block, i / 32);
      return scales.step * bits(block, k_nibble(16), 4) - scales.lowest;
    }
    case TensorType::q5_k: {
      const Scales scales = k_scales(block, i / 32);
      const int fifth = bits(block, 8 * (16 + i % 32) + i / 32, 1);
      return scales.step * (bits(block, k_nibble(48), 4) + 16 * fifth) - scales.lowest;
    }
    default: {  // q6_k
      const std::size_t low = 8 * (64 * (i / 128) + i % 64) + 4 * (i / 64 % 2);
      const std::size_t high = 8 * (128 + 32 * (i / 128) + i % 32) + 2 * (i / 32 % 4);
      const int level = bits(block, low, 4) + 16 * bits(block, high, 2) - 32;
      return half(block, 208) * signed_byte(block, 192 + i / 16) * level;
    }
  }
}

RC_GTEST_PROP(QuantisedLaws, AgreeWithAPlainFormulaInDouble, ()) {
  const TensorType type = *rc::gen::elementOf(kQuantised);
  std::vector<std::byte> block(block_bytes(type));
  for (std::byte& byte : block) byte = static_cast<std::byte>(*rc::gen::inRange<int>(0, 256));
  const bool two = type == TensorType::q4_1 || type == TensorType::q5_1 ||
                   type == TensorType::q4_k || type == TensorType::q5_k;
  const std::size_t first = type == TensorType::q6_k ? 208 : 0;
  // Scales below 2: infinite and NaN ones have no formula.
  block[first + 1] &= std::byte{0xbf};
  if (two) block[3] &= std::byte{0xbf};
  const std::vector<float> values = floats_of(type, block);
  RC_ASSERT(static_cast<std::int64_t>(values.size()) == block_elements(type));
  // At most three roundings of terms up to 128 * 32 scales, or 63 minima.
  const double largest =
      4096.0 * std::abs(half(block, first)) + (two ? 63.0 * std::abs(half(block, 2)) : 0.0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double exact = plain(type, block, i);
    RC_ASSERT(std::abs(static_cast<double>(values[i]) - exact) <= largest * 3.0 * 0x1p-24);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Quantised, ::testing::ValuesIn(kQuantised),
                         [](const auto& info) { return std::string(name_of(info.param)); });

template <class T>
std::vector<float> widened(TensorType type, const std::vector<T>& stored) {
  return floats_of(type, std::as_bytes(std::span(stored)));
}

TEST(ToFloats, WidensEveryPlainType) {
  using Floats = std::vector<float>;
  EXPECT_EQ(widened<double>(TensorType::f64, {0.1, -2.0}), (Floats{0.1F, -2.0F}));
  EXPECT_EQ(widened<float>(TensorType::f32, {0.1F}), (Floats{0.1F}));
  EXPECT_EQ(widened<std::uint16_t>(TensorType::f16, {0x3c00, 0xc000}), (Floats{1.0F, -2.0F}));
  EXPECT_EQ(widened<std::uint16_t>(TensorType::bf16, {0x3f80, 0xc040}), (Floats{1.0F, -3.0F}));
  EXPECT_EQ(widened<std::int64_t>(TensorType::i64, {-5, 16777217}), (Floats{-5.0F, 16777216.0F}));
  EXPECT_EQ(widened<std::int32_t>(TensorType::i32, {-5}), (Floats{-5.0F}));
  EXPECT_EQ(widened<std::int16_t>(TensorType::i16, {-5}), (Floats{-5.0F}));
  EXPECT_EQ(widened<std::int8_t>(TensorType::i8, {-5}), (Floats{-5.0F}));
  EXPECT_EQ(widened<std::uint64_t>(TensorType::u64, {~std::uint64_t{0}}), (Floats{0x1p64F}));
  EXPECT_EQ(widened<std::uint32_t>(TensorType::u32, {~std::uint32_t{0}}), (Floats{0x1p32F}));
  EXPECT_EQ(widened<std::uint16_t>(TensorType::u16, {65535}), (Floats{65535.0F}));
  EXPECT_EQ(widened<std::uint8_t>(TensorType::u8, {255}), (Floats{255.0F}));
  EXPECT_EQ(widened<std::uint8_t>(TensorType::boolean, {0, 1, 7}), (Floats{0.0F, 1.0F, 1.0F}));
}

TEST(ToFloats, ReadsAPartFromItsFirstBlock) {
  const NpyArray blocks =
      read_npy(std::string(PHASOR_IO_DATA_DIR) + "/q5_1.blocks.npy").value_or_throw();
  const std::vector<float> all = floats_of(TensorType::q5_1, blocks.bytes);
  const Tensor tensor{"t", TensorType::q5_1, {6, 32}, blocks.bytes};
  std::vector<float> part(64);
  to_floats(tensor, 96, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 96));
}

// Also checks that `out` is unchanged.
void expect_floats_error(ErrorCode code, std::initializer_list<std::string_view> values,
                         const Tensor& tensor, std::int64_t first, std::size_t count) {
  std::vector<float> out(count, 7.0F);
  tests::expect_error(code, values, [&] { to_floats(tensor, first, out); });
  EXPECT_EQ(out, std::vector<float>(count, 7.0F));
}

TEST(ToFloats, RefusesRangesThatExceedTheTensorOrSplitABlock) {
  const std::vector<std::byte> bytes(4 * 18);
  const Tensor tensor{"w", TensorType::q4_0, {4, 32}, bytes};
  expect_floats_error(ErrorCode::out_of_range, {"'w'", "128", " 32 ", "-32"}, tensor, -32, 32);
  expect_floats_error(ErrorCode::out_of_range, {"'w'", " 32 ", "element 128"}, tensor, 128, 32);
  expect_floats_error(ErrorCode::invalid_argument, {"q4_0", "16 and 32"}, tensor, 16, 32);
  expect_floats_error(ErrorCode::invalid_argument, {"q4_0", "32 and 31"}, tensor, 32, 31);
}

TEST(ToFloats, RefusesEightBitFloats) {
  const std::vector<std::byte> bytes(4);
  for (const auto type : {TensorType::f8_e4m3, TensorType::f8_e5m2}) {
    expect_floats_error(ErrorCode::unsupported, {"'w'", name_of(type)}, {"w", type, {4}, bytes}, 0,
                        4);
  }
}

TEST(ToFloats, TakesAScalarAndNothing) {
  const float stored = 2.5F;
  const Tensor scalar{"s", TensorType::f32, {}, std::as_bytes(std::span(&stored, 1))};
  EXPECT_EQ(scalar.size(), 1);
  float out = 0.0F;
  to_floats(scalar, 0, {&out, 1});
  EXPECT_EQ(out, 2.5F);
  EXPECT_NO_THROW(to_floats(scalar, 1, {}));
}

}  // namespace
}  // namespace phasor::io
