// AngleMode::float32 reproduces the engines that the golden cases were taken from.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "phasor/core/rotate.hpp"
#include "support/errors.hpp"

namespace phasor::core {
namespace {

// The data of a golden .npy file: everything after the header line.
std::vector<std::byte> golden(const std::string& group_and_case, const std::string& name) {
  const std::filesystem::path path =
      std::filesystem::path(PHASOR_GOLDEN_DIR) / group_and_case / (name + ".npy");
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  EXPECT_GT(bytes.size(), 10U) << path;
  if (bytes.size() <= 10) return {};
  const auto header = static_cast<std::size_t>(static_cast<unsigned char>(bytes[8])) +
                      256 * static_cast<std::size_t>(static_cast<unsigned char>(bytes[9]));
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data()) + 10 + header;
  return {data, reinterpret_cast<const std::byte*>(bytes.data()) + bytes.size()};
}
template <class T>
std::vector<T> golden_as(const std::string& group_and_case, const std::string& name) {
  const std::vector<std::byte> bytes = golden(group_and_case, name);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

struct EngineCase {
  const char* name;
  const char* output;
  DType dtype;
  PairLayout layout;
  std::int64_t batch, heads, tokens, dim;
  // The share of elements that are equal bit for bit. Sixteen-bit cases are equal throughout; in
  // float32 the engine's own cos and sin are not always correctly rounded, and a last place of
  // theirs shows.
  double equal;
};
// The largest difference of the others: a last place of cos or sin times values up to 4.
constexpr double kLastPlace = 5e-7;

class Float32Engine : public testing::TestWithParam<EngineCase> {};

TEST_P(Float32Engine, RepeatsTheEnginesRounding) {
  const EngineCase& c = GetParam();
  const std::string folder = std::string("rope_apply/") + c.name;
  const auto float_frequencies = golden_as<float>(folder, "inv_freq");
  const auto positions = golden_as<std::int64_t>(folder, "position_ids");
  const Rotary rotary{
      Frequencies(std::vector<double>(float_frequencies.begin(), float_frequencies.end()), 1.0, {},
                  float_frequencies),
      c.layout, c.dim};
  std::vector<std::byte> q = golden(folder, "q");
  std::vector<std::byte> expected = golden(folder, c.output);
  const auto view_of = [&c](std::vector<std::byte>& bytes) {
    HeadsView view =
        heads_first_view(reinterpret_cast<float*>(bytes.data()), c.batch, c.heads, c.tokens, c.dim);
    view.dtype = c.dtype;
    return view;
  };
  rotate(rotary, positions_per_row(positions.data(), 1, c.batch, c.tokens), view_of(q),
         {.angles = AngleMode::float32});
  const auto count = c.batch * c.heads * c.tokens * c.dim;
  ASSERT_EQ(q.size(), expected.size());
  ASSERT_EQ(q.size(), static_cast<std::size_t>(count) * size_of(c.dtype));
  std::int64_t same = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double got = element_of(view_of(q), i), wanted = element_of(view_of(expected), i);
    same += got == wanted ? 1 : 0;
    EXPECT_NEAR(got, wanted, kLastPlace) << i;
  }
  const double share = static_cast<double>(same) / static_cast<double>(count);
  EXPECT_GE(share, c.equal);
  RecordProperty("share_equal", std::to_string(share));
}

INSTANTIATE_TEST_SUITE_P(
    Golden, Float32Engine,
    testing::Values(
        EngineCase{"half_llama_contiguous", "q_out", DType::f32, PairLayout::half, 2, 4, 8, 64,
                   0.9},
        EngineCase{"half_llama_random_ids", "q_out", DType::f32, PairLayout::half, 2, 3, 9, 64,
                   0.9},
        EngineCase{"half_llama_left_padded", "q_out", DType::f32, PairLayout::half, 2, 4, 10, 64,
                   0.9},
        EngineCase{"half_d6_tail", "q_out", DType::f32, PairLayout::half, 1, 2, 5, 6, 0.9},
        EngineCase{"interleaved_cohere", "q_out", DType::f32, PairLayout::interleaved, 2, 4, 8, 64,
                   0.9},
        EngineCase{"accuracy_theta10000_d128", "hf_float32", DType::f32, PairLayout::half, 1, 2, 10,
                   128, 0.9},
        EngineCase{"accuracy_theta500000_d64", "hf_float32", DType::f32, PairLayout::half, 1, 2, 8,
                   64, 0.9},
        EngineCase{"half_llama_f16", "q_out", DType::f16, PairLayout::half, 1, 4, 8, 64, 1.0},
        EngineCase{"half_llama_bf16", "q_out", DType::bf16, PairLayout::half, 1, 4, 8, 64, 1.0},
        EngineCase{"interleaved_cohere_bf16", "q_out", DType::bf16, PairLayout::interleaved, 1, 4,
                   8, 64, 1.0}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Float32Angles, AreOffByAHundredthOfARadianFarOut) {
  // Why the exact mode exists: the same call, position 131071.
  const Frequencies frequencies = make_frequencies({128, 10000.0});
  const double position = 131071.0;
  std::vector<float> cos(64), sin(64);
  std::vector<double> exact_cos(64), exact_sin(64);
  cos_sin(frequencies, {&position, 1}, cos, sin, AngleMode::float32);
  cos_sin(frequencies, {&position, 1}, exact_cos, exact_sin);
  double worst = 0.0;
  for (std::size_t i = 0; i < 64; ++i) worst = std::fmax(worst, std::fabs(cos[i] - exact_cos[i]));
  EXPECT_GT(worst, 1e-3);
  EXPECT_LT(worst, 1e-2);
}

// A float32 with its last bits removed, ties to even: arithmetic on numbers, not on their bits.
float to_digits(float value, int digits) {
  if (value == 0.0F) return value;
  int exponent = 0;
  const double fraction = std::frexp(static_cast<double>(value), &exponent);
  return static_cast<float>(
      std::ldexp(std::nearbyint(std::ldexp(fraction, digits)), exponent - digits));
}

TEST(RoundedAngles, AreThoseOfAPlainRounding) {
  constexpr int kBFloat16 = 8, kFloat16 = 11;  // significant bits
  const Frequencies frequencies = make_frequencies({64, 10000.0});
  std::vector<float> cos(32), sin(32);
  for (const double position : {0.0, 1.0, 77.0, 4095.0, 10007.0, 65503.0}) {
    for (const AngleMode mode :
         {AngleMode::bfloat16_frequencies, AngleMode::bfloat16, AngleMode::float16}) {
      cos_sin(frequencies, {&position, 1}, cos, sin, mode);
      for (std::size_t i = 0; i < 32; ++i) {
        auto frequency = static_cast<float>(frequencies.values()[i]);
        if (mode == AngleMode::bfloat16_frequencies) frequency = to_digits(frequency, kBFloat16);
        float angle = static_cast<float>(position) * frequency;
        if (mode == AngleMode::bfloat16) angle = to_digits(angle, kBFloat16);
        if (mode == AngleMode::float16 && angle >= 0x1p-14F) angle = to_digits(angle, kFloat16);
        // Subnormal halves are not needed here: no angle but 0 is below 2^-14.
        EXPECT_EQ(cos[i], static_cast<float>(std::cos(static_cast<double>(angle))))
            << name_of(mode) << " " << position << " " << i;
        EXPECT_EQ(sin[i], static_cast<float>(std::sin(static_cast<double>(angle))))
            << name_of(mode) << " " << position << " " << i;
      }
      const CosSinTable table =
          CosSinTable::build(frequencies, {static_cast<std::int64_t>(position), 1}, mode);
      EXPECT_TRUE(std::equal(cos.begin(), cos.end(),
                             table.cos(static_cast<std::int64_t>(position)).begin()));
      EXPECT_TRUE(table.serves(frequencies, mode));
      EXPECT_FALSE(table.serves(frequencies, AngleMode::exact));
    }
  }
}

TEST(RoundedAngles, Float16EndsWhereItOverflows) {
  const Frequencies frequencies = make_frequencies({64, 10000.0});
  const double position = 65505.0;
  std::vector<float> cos(32), sin(32);
  tests::expect_error(ErrorCode::out_of_range, {"65504", "65505"}, [&] {
    cos_sin(frequencies, {&position, 1}, cos, sin, AngleMode::float16);
    return 0;
  });
  tests::expect_error(ErrorCode::out_of_range, {"65504"}, [&] {
    return CosSinTable::build(frequencies, {65000, 1000}, AngleMode::float16);
  });
  cos_sin(frequencies, {&position, 1}, cos, sin, AngleMode::bfloat16);
}

TEST(RoundedAngles, Names) {
  for (const char* name : {"exact", "float32", "bfloat16_frequencies", "bfloat16", "float16"}) {
    ASSERT_TRUE(angle_mode_of(name)) << name;
    EXPECT_EQ(name_of(*angle_mode_of(name)), name);
  }
  EXPECT_FALSE(angle_mode_of("float64"));
}

}  // namespace
}  // namespace phasor::core
