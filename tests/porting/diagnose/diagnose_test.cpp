#include "phasor/porting/diagnose.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/core/view.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/npy.hpp"
#include "porting/diagnose/diagnose_sample.hpp"
#include "support/cancellation.hpp"

namespace phasor::porting {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using encodings::RopeScaling;
using encodings::RopeSpec;

// ---- what is recovered

TEST(Diagnose, EveryLayoutWindowBaseOffsetAndDirection) {
  unsigned seed = 1;
  for (const char* layout : {"half", "interleaved", "interleaved_to_half", "half_to_interleaved"}) {
    for (const std::int64_t rotary_dim : {32, 16, 8}) {
      for (const std::int64_t first : {0, 4}) {
        for (const double base : {10000.0, 500000.0, 100.0}) {
          if (first + rotary_dim > 32) continue;
          Recipe recipe;
          recipe.head_dim = 32;
          recipe.rotary_dim = rotary_dim;
          recipe.first = first;
          recipe.layout = layout;
          recipe.base = base;
          recipe.inverse = seed % 2 == 0;
          recipe.offset = std::array<std::int64_t, 4>{0, 7, 300, 12345}[seed % 4];
          recipe.seed = ++seed;
          SCOPED_TRACE(std::string(layout) + " " + std::to_string(rotary_dim) + " from " +
                       std::to_string(first) + " base " + std::to_string(base) + " offset " +
                       std::to_string(recipe.offset));
          const Sample sample = make(recipe);
          const Diagnosis found = sample.diagnose();
          expect_rotation(found, recipe);
          EXPECT_EQ(found.offset, recipe.offset) << page(found);
          EXPECT_EQ(found.scaling->type, "default") << page(found);
          ASSERT_TRUE(found.base);
          EXPECT_NEAR(*found.base, base, 1e-3 * base);
          EXPECT_NEAR(*found.amplitude, 1.0, 1e-6);
          EXPECT_EQ(found.positions, "contiguous");
          ASSERT_TRUE(found.residual);
          EXPECT_LT(*found.residual, 1e-6);
          ASSERT_TRUE(found.runner_up);
          EXPECT_GT(found.runner_up->residual, 1e3 * *found.residual);
        }
      }
    }
  }
}

struct ScalingCase {
  const char* name;
  RopeScaling scaling;
  double base;
  std::int64_t head_dim;
  std::optional<std::int64_t> context;
  const char* type;
  double factor;
};

class DiagnoseScaling : public ::testing::TestWithParam<ScalingCase> {};

std::vector<double> growing(std::int64_t pairs, double first, double last, double power) {
  std::vector<double> list;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(pairs - 1);
    list.push_back(first + (last - first) * std::pow(part, power));
  }
  return list;
}

encodings::LongRopeScaling long_rope(std::int64_t pairs) {
  encodings::LongRopeScaling scaling;
  scaling.short_factor = growing(pairs, 1.0, 3.0, 1.4);
  scaling.long_factor = growing(pairs, 1.1, 50.0, 1.3);
  scaling.original_length = 4096;
  scaling.factor = 32.0;
  return scaling;
}

TEST_P(DiagnoseScaling, IsNamedWithItsFactorAtGivenAndUnknownPositions) {
  const ScalingCase& param = GetParam();
  for (const std::int64_t offset : {1000, 5000}) {
    Recipe recipe;
    recipe.head_dim = recipe.rotary_dim = param.head_dim;
    recipe.base = param.base;
    recipe.scaling = param.scaling;
    recipe.context = param.context;
    recipe.offset = offset;
    const Sample sample = make(recipe);
    for (const bool given : {true, false}) {
      SCOPED_TRACE(std::string(given ? "given" : "unknown") + " " + std::to_string(offset));
      const Diagnosis found =
          given ? sample.diagnose(range(offset, recipe.tokens)) : sample.diagnose();
      expect_rotation(found, recipe);
      EXPECT_EQ(found.offset, offset);
      ASSERT_TRUE(found.scaling);
      EXPECT_EQ(found.scaling->type, param.type) << page(found);
      EXPECT_NEAR(*found.amplitude, sample.amplitude, 1e-5 * sample.amplitude);
      expect_frequencies(found, sample, 1e-4);
      if (param.factor > 0.0) {
        EXPECT_NEAR(number_of(found, "factor"), param.factor, 0.01 * param.factor) << page(found);
        ASSERT_TRUE(found.base);
        EXPECT_NEAR(*found.base, param.base, 0.01 * param.base) << page(found);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, DiagnoseScaling,
    ::testing::Values(
        ScalingCase{"linear4", encodings::LinearScaling{4.0}, 10000.0, 64, {}, "linear", 4.0},
        ScalingCase{"linear8", encodings::LinearScaling{8.0}, 1e6, 128, {}, "linear", 8.0},
        ScalingCase{"linear2_5", encodings::LinearScaling{2.5}, 5e5, 32, {}, "linear", 2.5},
        ScalingCase{"ntk4", encodings::NtkScaling{4.0, {}}, 10000.0, 64, {}, "ntk", 4.0},
        ScalingCase{"mixed", encodings::NtkScaling{8.0, 0.625}, 10000.0, 64, {}, "ntk", 8.0},
        ScalingCase{"dynamic", encodings::DynamicScaling{2.0, {}, 512}, 10000.0, 64, 1536,
                    "dynamic", 0.0},
        ScalingCase{"yarn4", yarn(4.0, 32768), 1e6, 64, {}, "yarn", 4.0},
        ScalingCase{"yarn16", yarn(16.0, 4096), 10000.0, 128, {}, "yarn", 16.0},
        ScalingCase{"yarn40", yarn(40.0, 4096), 10000.0, 64, {}, "yarn", 40.0},
        ScalingCase{"yarn2_short", yarn(2.0, 2048), 10000.0, 32, {}, "yarn", 2.0},
        ScalingCase{"gpt_oss", yarn(32.0, 4096, false), 150000.0, 64, {}, "yarn", 32.0},
        ScalingCase{
            "llama3_8", encodings::Llama3Scaling{8.0, 1.0, 4.0, 8192}, 5e5, 64, {}, "llama3", 8.0},
        ScalingCase{"llama3_32",
                    encodings::Llama3Scaling{32.0, 1.0, 4.0, 8192},
                    5e5,
                    128,
                    {},
                    "llama3",
                    32.0},
        ScalingCase{"llama3_ends",
                    encodings::Llama3Scaling{16.0, 1.0, 8.0, 4096},
                    1e5,
                    128,
                    {},
                    "llama3",
                    16.0},
        ScalingCase{"by_parts",
                    encodings::NtkByPartsScaling{4.0, 2048},
                    10000.0,
                    128,
                    {},
                    "ntk_by_parts",
                    4.0},
        ScalingCase{"longrope_long", long_rope(24), 10000.0, 48, 9000, "longrope", 0.0},
        ScalingCase{"longrope_short", long_rope(32), 10000.0, 64, 4000, "longrope", 0.0}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Diagnose, DynamicIsTheSameMapAsAPlainLawOfAnotherBase) {
  Recipe recipe;
  recipe.scaling = encodings::DynamicScaling{2.0, {}, 512};
  recipe.context = 1536;
  recipe.offset = 1500;
  const Diagnosis found = make(recipe).diagnose();
  ASSERT_TRUE(found.effective_base);
  EXPECT_NEAR(*found.effective_base, 10000.0 * std::pow(5.0, 64.0 / 62.0), 1.0);
  EXPECT_EQ(found.base, 10000.0);
  EXPECT_NEAR(number_of(found, "alpha"), 5.0, 1e-6);
  ASSERT_FALSE(found.readings.empty());
  EXPECT_EQ(found.readings[0].scaling.type, "default");
}

TEST(Diagnose, ProportionalLeavesTheSlowPairsOfTheWholeHeadStill) {
  Recipe recipe;
  recipe.scaling = encodings::ProportionalScaling{0.25, 1.0};
  recipe.base = 1e6;
  recipe.offset = 40;
  const Diagnosis found = make(recipe).diagnose(range(40, recipe.tokens));
  expect_rotation(found, recipe);
  EXPECT_EQ(found.scaling->type, "proportional") << page(found);
  EXPECT_NEAR(number_of(found, "partial_rotary_factor"), 0.25, 1e-12);
  EXPECT_EQ(found.base, 1e6);
}

TEST(Diagnose, RandomPositionsWithWideGaps) {
  Recipe recipe;
  recipe.layout = "interleaved";
  recipe.head_dim = 32;
  recipe.rotary_dim = 16;
  std::mt19937 generator(5);
  std::vector<double> positions;
  for (int t = 0; t < 24; ++t) positions.push_back(static_cast<double>(generator() % 100000));
  recipe.positions = positions;
  const Diagnosis found =
      make(recipe).diagnose(array_of(io::NpyType::i64, {recipe.tokens}, positions));
  expect_rotation(found, recipe);
  EXPECT_EQ(found.base, 10000.0) << page(found);
  EXPECT_EQ(found.offset, std::nullopt);
  EXPECT_EQ(found.positions, "given");
}

TEST(Diagnose, MultiplesOfAHundredFollowFromOneLaw) {
  Recipe recipe;
  for (int t = 0; t < 24; ++t) recipe.positions.push_back(100.0 * t);
  const Diagnosis found =
      make(recipe).diagnose(array_of(io::NpyType::i64, {recipe.tokens}, recipe.positions));
  expect_rotation(found, recipe);
  EXPECT_EQ(found.base, 10000.0) << page(found);
  EXPECT_EQ(found.scaling->type, "default");
}

TEST(Diagnose, OurOwnEngineIsRecognised) {
  Recipe recipe;
  recipe.base = 500000.0;
  recipe.scaling = encodings::Llama3Scaling{8.0, 1.0, 4.0, 8192};
  recipe.heads = 2;
  recipe.tokens = 40;
  recipe.offset = 77;
  Sample sample = make(recipe);
  std::vector<float> x(sample.before.begin(), sample.before.end());
  const core::Rotary rotary = encodings::resolve(spec_of(recipe));
  const core::HeadsView view =
      core::heads_view(x.data(), 1, recipe.tokens, recipe.heads, recipe.head_dim);
  core::rotate(rotary, core::positions_from(77), view);
  sample.after.assign(x.begin(), x.end());
  const Diagnosis found = sample.diagnose();
  expect_rotation(found, recipe);
  EXPECT_EQ(found.scaling->type, "llama3");
  EXPECT_EQ(found.offset, 77);
  EXPECT_TRUE(sample.check(spec_of(recipe)).agrees);
}

RC_GTEST_PROP(DiagnoseLaw, PlainAndLinearRotationsAreRecovered, ()) {
  Recipe recipe;
  recipe.head_dim = 2 * *rc::gen::inRange<std::int64_t>(4, 65);
  recipe.rotary_dim = 2 * *rc::gen::inRange<std::int64_t>(4, recipe.head_dim / 2 + 1);
  recipe.layout = *rc::gen::element<std::string>("half", "interleaved", "interleaved_to_half");
  recipe.base = *rc::gen::element(1000.0, 10000.0, 150000.0, 500000.0, 1000000.0);
  recipe.offset = *rc::gen::inRange<std::int64_t>(0, 20000);
  recipe.inverse = *rc::gen::arbitrary<bool>();
  recipe.heads = *rc::gen::inRange<std::int64_t>(1, 5);
  recipe.tokens = *rc::gen::inRange<std::int64_t>(8, 40);
  recipe.seed = *rc::gen::inRange(1U, 1000U);
  const double factor = *rc::gen::element(1.0, 2.0, 4.0, 10.0);
  if (factor > 1.0) recipe.scaling = encodings::LinearScaling{factor};
  const bool given = *rc::gen::arbitrary<bool>();
  const Sample sample = make(recipe);
  const Diagnosis found =
      given ? sample.diagnose(range(recipe.offset, recipe.tokens)) : sample.diagnose();
  if (found.answer != Answer::rope || found.layout != recipe.layout ||
      found.rotary_dim != recipe.rotary_dim || found.inverse != recipe.inverse ||
      found.offset != recipe.offset || !found.base ||
      std::abs(*found.base / recipe.base - 1.0) > 1e-3 ||
      found.scaling->type != (factor > 1.0 ? "linear" : "default")) {
    RC_FAIL(page(found));
  }
}

// ---- precision

TEST(Diagnose, SixteenBitTensors) {
  for (const io::NpyType type : {io::NpyType::f16, io::NpyType::bf16}) {
    for (const char* layout : {"half", "interleaved"}) {
      for (const std::int64_t offset : {0, 300, 3000}) {
        SCOPED_TRACE(std::string(io::name_of(type)) + " " + layout + " " + std::to_string(offset));
        Recipe recipe;
        recipe.dtype = type;
        recipe.layout = layout;
        recipe.offset = offset;
        const Sample sample = make(recipe);
        for (const bool given : {true, false}) {
          const Diagnosis found =
              given ? sample.diagnose(range(offset, recipe.tokens)) : sample.diagnose();
          expect_rotation(found, recipe);
          EXPECT_EQ(found.base, 10000.0) << page(found);
          EXPECT_EQ(found.offset, offset) << page(found);
          EXPECT_EQ(found.tensor_dtype, io::name_of(type));
          EXPECT_EQ(found.table_dtype, "exact") << page(found);
          EXPECT_EQ(found.arithmetic, "float32");
        }
      }
    }
  }
}

// Rotations below the tensors' rounding vanish: slow pairs look unrotated, which is no difference.
TEST(Diagnose, SlowPairsOfSixteenBitTensorsAreNoDifference) {
  for (const io::NpyType type : {io::NpyType::f16, io::NpyType::bf16}) {
    Recipe recipe;
    recipe.dtype = type;
    recipe.batch = 2;
    recipe.head_dim = 32;
    recipe.rotary_dim = 24;
    recipe.base = 500000.0;
    recipe.offset = 7;
    const ConfigCheck check = make(recipe).check(spec_of(recipe));
    EXPECT_TRUE(check.agrees) << io::name_of(type) << ": " << check.text;
  }
}

TEST(Diagnose, BitsOfBfloat16InUint16) {
  Recipe recipe;
  recipe.dtype = io::NpyType::bf16;
  const Sample sample = make(recipe);
  io::NpyArray x = array_of(recipe.dtype, sample.shape, sample.before);
  io::NpyArray y = array_of(recipe.dtype, sample.shape, sample.after);
  x.type = y.type = io::NpyType::u16;
  const Diagnosis found = diagnose({&x, &y, nullptr, {}});
  expect_rotation(found, recipe);
  EXPECT_EQ(found.tensor_dtype, "bfloat16");
  EXPECT_TRUE(says(found.notes, "uint16"));
}

TEST(Diagnose, TablesRoundedToSixteenBits) {
  for (const auto& [type, name] : std::vector<std::pair<io::NpyType, std::string>>{
           {io::NpyType::bf16, "bfloat16"}, {io::NpyType::f16, "float16"}}) {
    for (const io::NpyType dtype : {io::NpyType::f32, io::NpyType::bf16}) {
      Recipe recipe;
      recipe.table = type;
      recipe.dtype = dtype;
      recipe.offset = 500;
      const Diagnosis found = make(recipe).diagnose(range(500, recipe.tokens));
      expect_rotation(found, recipe);
      EXPECT_EQ(found.base, 10000.0);
      // A float16 table is finer than what a bfloat16 tensor keeps, but still shows in ties.
      if (dtype == io::NpyType::f32 || type == io::NpyType::bf16) {
        EXPECT_EQ(found.table_dtype, name) << page(found);
      }
    }
  }
}

TEST(Diagnose, ArithmeticInBfloat16) {
  Recipe recipe;
  recipe.dtype = recipe.table = recipe.arithmetic = io::NpyType::bf16;
  recipe.offset = 100;
  const Diagnosis found = make(recipe).diagnose(range(100, recipe.tokens));
  expect_rotation(found, recipe);
  EXPECT_EQ(found.table_dtype, "bfloat16") << page(found);
  EXPECT_EQ(found.arithmetic, "bfloat16");
}

TEST(Diagnose, Float32AngleProductsFarOut) {
  Recipe recipe;
  recipe.offset = 100000;
  Sample sample = make(recipe);
  std::vector<float> x(sample.before.begin(), sample.before.end());
  const core::HeadsView view =
      core::heads_view(x.data(), 1, recipe.tokens, recipe.heads, recipe.head_dim);
  core::RotateOptions options;
  options.angles = core::AngleMode::float32;
  core::rotate(encodings::resolve(spec_of(recipe)), core::positions_from(recipe.offset), view,
               options);
  sample.after.assign(x.begin(), x.end());
  const Diagnosis found = sample.diagnose(range(recipe.offset, recipe.tokens));
  expect_rotation(found, recipe);
  EXPECT_EQ(found.base, 10000.0);
  EXPECT_EQ(found.table_dtype, "float32_angles") << page(found);
}

TEST(Diagnose, FrequenciesRoundedToBfloat16) {
  Recipe recipe;
  recipe.offset = 100;
  for (int i = 0; i < 32; ++i) {
    recipe.frequencies.push_back(round_to(io::NpyType::bf16, std::pow(10000.0, -i / 32.0)));
  }
  const Diagnosis found = make(recipe).diagnose(range(100, recipe.tokens));
  expect_rotation(found, recipe);
  EXPECT_EQ(found.base, 10000.0) << page(found);
  EXPECT_EQ(found.table_dtype, "bfloat16_frequencies");
}

// ---- amplitude

TEST(Diagnose, AmplitudeAppliedTwiceDroppedAndInverted) {
  const double usual = encodings::yarn_amplitude(4.0, 1.0);
  for (const auto& [amplitude, words] :
       std::vector<std::pair<double, std::string>>{{usual, "as in YaRN"},
                                                   {usual * usual, "applied twice"},
                                                   {1.0, "missing"},
                                                   {1.0 / usual, "inverse"}}) {
    Recipe recipe;
    recipe.base = 1e6;
    recipe.scaling = yarn(4.0, 32768);
    recipe.amplitude = amplitude;
    recipe.offset = 4000;
    const Diagnosis found = make(recipe).diagnose(range(4000, recipe.tokens));
    expect_rotation(found, recipe);
    EXPECT_NEAR(*found.amplitude, amplitude, 1e-5);
    EXPECT_TRUE(says(found.notes, words)) << page(found);
  }
}

// ---- positions that are not the given ones

TEST(Diagnose, PositionsOffByOne) {
  Recipe recipe;
  recipe.offset = 11;
  const Diagnosis found = make(recipe).diagnose(range(10, recipe.tokens));
  expect_rotation(found, recipe);
  EXPECT_EQ(found.positions, "found");
  EXPECT_EQ(found.offset, 11) << page(found);
  EXPECT_TRUE(says(found.notes, "1: off by one")) << page(found);
}

TEST(Diagnose, PositionsInBfloat16) {
  Recipe recipe;
  recipe.tokens = 64;
  std::vector<double> given;
  for (int t = 0; t < 64; ++t) {
    given.push_back(500.0 + t);
    recipe.positions.push_back(round_to(io::NpyType::bf16, given.back()));
  }
  const Diagnosis found = make(recipe).diagnose(array_of(io::NpyType::i64, {64}, given));
  expect_rotation(found, recipe);
  EXPECT_EQ(found.base, 10000.0) << page(found);
  EXPECT_EQ(found.table_dtype, "bfloat16_positions") << page(found);
  EXPECT_TRUE(says(found.notes, "bfloat16")) << page(found);
}

TEST(Diagnose, PositionsGivenButAllTheSame) {
  Recipe recipe;
  recipe.positions.assign(24, 7.0);
  const Diagnosis found = make(recipe).diagnose(range(0, recipe.tokens));
  expect_rotation(found, recipe);
  EXPECT_EQ(found.base, 10000.0) << page(found);
  EXPECT_TRUE(says(found.notes, "position 7")) << page(found);
}

TEST(Diagnose, PositionsIgnored) {
  Recipe recipe;
  const std::vector<double> packed = {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3,
                                      4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5};
  const Diagnosis found = make(recipe).diagnose(array_of(io::NpyType::i64, {24}, packed));
  expect_rotation(found, recipe);
  EXPECT_EQ(found.positions, "found");
  EXPECT_EQ(found.offset, 0) << page(found);
  EXPECT_TRUE(says(found.notes, "0, 1, ...")) << page(found);
}

TEST(Diagnose, PackedPositionsThatWereNotGiven) {
  Recipe recipe;
  recipe.positions = {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5};
  const Diagnosis found = make(recipe).diagnose();
  expect_rotation(found, recipe);
  EXPECT_EQ(found.positions, "found");
  EXPECT_EQ(found.found_positions, recipe.positions) << page(found);
}

TEST(Diagnose, CanBeCancelled) {
  const Sample sample = make({});
  std::int64_t cancelled = 0;
  for (std::int64_t look = 0;; look = 2 * look + 1) {
    const test::CancelledLook at(look);
    if (test::runs_to_its_end([&] { (void)sample.diagnose(); })) break;
    ++cancelled;
  }
  EXPECT_GT(cancelled, 5);
}

TEST(Diagnose, BatchRowsWithDifferentOffsets) {
  Recipe recipe;
  recipe.batch = 2;
  for (const int start : {5, 40}) {
    for (int t = 0; t < 24; ++t) recipe.positions.push_back(start + t);
  }
  const Sample sample = make(recipe);
  const Diagnosis unknown = sample.diagnose();
  expect_rotation(unknown, recipe);
  EXPECT_EQ(unknown.base, 10000.0) << page(unknown);
  EXPECT_EQ(unknown.offset, std::nullopt);
  EXPECT_TRUE(std::any_of(
      unknown.undetermined.begin(), unknown.undetermined.end(),
      [](const Undetermined& open) { return open.reason.find("5, 40") != std::string::npos; }))
      << page(unknown);
  const Diagnosis given = sample.diagnose(array_of(io::NpyType::i64, {2, 24}, recipe.positions));
  expect_rotation(given, recipe);
  EXPECT_EQ(given.positions, "given") << page(given);
}

}  // namespace
}  // namespace phasor::porting
