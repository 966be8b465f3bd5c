#include "phasor/porting/diagnose.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/core/rotate.hpp"

namespace phasor::porting {
namespace {

using encodings::RopeSpec;

// Another engine's table: what its arithmetic makes of a position and a pair.
struct Foreign {
  std::vector<double> cos, sin, positions;
  core::DType stored = core::DType::f32;

  [[nodiscard]] ForeignTable view() const {
    return {cos, sin, positions, static_cast<std::int64_t>(positions.size()), stored};
  }
};

using AngleOf = std::function<double(double position, std::size_t pair)>;

Foreign make_table(std::int64_t first, std::int64_t count, std::size_t pairs, const AngleOf& angle,
                   double amplitude = 1.0) {
  Foreign table;
  for (std::int64_t position = first; position < first + count; ++position) {
    table.positions.push_back(static_cast<double>(position));
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const double at = angle(static_cast<double>(position), pair);
      table.cos.push_back(static_cast<float>(std::cos(at) * amplitude));
      table.sin.push_back(static_cast<float>(std::sin(at) * amplitude));
    }
  }
  return table;
}

RopeSpec spec_of(std::int64_t dim, double base) {
  RopeSpec spec;
  spec.head_dim = spec.rotary_dim = dim;
  spec.base = base;
  spec.layout = core::PairLayout::half;
  return spec;
}

float float32_frequency(std::int64_t dim, double base, std::size_t pair) {
  return 1.0F / std::pow(static_cast<float>(base),
                         2.0F * static_cast<float>(pair) / static_cast<float>(dim));
}

std::string cause_name(const Audit& result) { return result.cause ? result.cause->name : "none"; }

TEST(Audit, NamesFrequencyFactorsThatWereIgnored) {
  RopeSpec spec = spec_of(8, 10000.0);
  spec.frequency_factors = {1.0, 1.5, 2.0, 4.0};
  const core::Frequencies plain = encodings::resolve_frequencies(spec_of(8, 10000.0));
  const Foreign ignoring = make_table(0, 200, 4, [&](double position, std::size_t pair) {
    return position * plain.values()[pair];
  });
  EXPECT_EQ(cause_name(audit(spec, ignoring.view(), {})), "frequency_factors_ignored");
}

TEST(Audit, ListOfFrequenciesHasNoBaseToMistake) {
  RopeSpec spec = spec_of(8, 10000.0);
  spec.frequencies = {1.0, 0.7, 0.3, 0.05};
  spec.amplitude = 1.25;
  const Foreign exact = make_table(
      0, 200, 4,
      [&](double position, std::size_t pair) { return position * spec.frequencies[pair]; }, 1.25);
  EXPECT_FALSE(audit(spec, exact.view(), {}).first_row_past.has_value());
  const Foreign dropped = make_table(0, 200, 4, [&](double position, std::size_t pair) {
    return position * spec.frequencies[pair];
  });
  EXPECT_EQ(cause_name(audit(spec, dropped.view(), {})), "amplitude_dropped");
}

// The engines' float32 angles at position 131071: 4.2e-3 rad with a float32 product, 1.3e-2 with
// repeated multiplication.
TEST(Audit, Float32ProductAtLongPositionsIsNamed) {
  const Foreign table = make_table(131072 - 512, 512, 64, [](double position, std::size_t pair) {
    return static_cast<double>(static_cast<float>(position) * float32_frequency(128, 1e4, pair));
  });
  const Audit result = audit(spec_of(128, 1e4), table.view());
  EXPECT_EQ(cause_name(result), "float32_product");
  EXPECT_GT(result.angle.error, 3e-3);
  EXPECT_LT(result.angle.error, 8e-3);
  EXPECT_EQ(result.first_row_past, 0);
  ASSERT_TRUE(result.runner_up.has_value());
  EXPECT_GT(result.runner_up->residual, 3.0 * result.cause->residual);
}

TEST(Audit, RepeatedMultiplicationOverPairsIsNamed) {
  const float step = std::pow(10000.0F, -2.0F / 128.0F);
  const Foreign table = make_table(131072 - 512, 512, 64, [&](double position, std::size_t pair) {
    auto angle = static_cast<float>(position);
    for (std::size_t before = 0; before < pair; ++before) angle *= step;
    return static_cast<double>(angle);
  });
  const Audit result = audit(spec_of(128, 1e4), table.view());
  EXPECT_EQ(cause_name(result), "repeated_multiplication");
  EXPECT_GT(result.angle.error, 5e-3);
}

TEST(Audit, Float32FrequenciesAreDistinguishedFromAFloat32Product) {
  const Foreign table = make_table(131072 - 512, 512, 64, [](double position, std::size_t pair) {
    return position * static_cast<double>(float32_frequency(128, 1e4, pair));
  });
  EXPECT_EQ(cause_name(audit(spec_of(128, 1e4), table.view())), "float32_frequencies");
}

TEST(Audit, ExactFrequenciesRoundedToFloat32DifferFromFloat32Ones) {
  const auto rounded = [](std::size_t pair) {
    return static_cast<float>(std::pow(1e4, -2.0 * static_cast<double>(pair) / 128.0));
  };
  const Foreign product = make_table(131072 - 512, 512, 64, [&](double position, std::size_t pair) {
    return static_cast<double>(static_cast<float>(position) * rounded(pair));
  });
  EXPECT_EQ(cause_name(audit(spec_of(128, 1e4), product.view())), "rounded_product");
  const Foreign wide = make_table(131072 - 512, 512, 64, [&](double position, std::size_t pair) {
    return position * static_cast<double>(rounded(pair));
  });
  EXPECT_EQ(cause_name(audit(spec_of(128, 1e4), wide.view())), "rounded_frequencies");
}

TEST(Audit, RowsMadeFromTheRowBeforeAreNamed) {
  const RopeSpec spec = spec_of(64, 1e4);
  const auto exact = encodings::resolve_frequencies(spec);
  std::vector<float> cos(32, 1.0F), sin(32, 0.0F);
  Foreign table;
  for (int position = 0; position < 3000; ++position) {
    table.positions.push_back(position);
    for (std::size_t pair = 0; pair < 32; ++pair) {
      table.cos.push_back(cos[pair]);
      table.sin.push_back(sin[pair]);
      const auto step_cos = static_cast<float>(std::cos(exact.values()[pair]));
      const auto step_sin = static_cast<float>(std::sin(exact.values()[pair]));
      const float rotated = cos[pair] * step_cos - sin[pair] * step_sin;
      sin[pair] = sin[pair] * step_cos + cos[pair] * step_sin;
      cos[pair] = rotated;
    }
  }
  EXPECT_EQ(cause_name(audit(spec, table.view())), "repeated_turning");
}

TEST(Audit, SummedAnglesAreNamed) {
  std::vector<float> angles(32, 0.0F);
  const Foreign table = make_table(0, 4096, 32, [&](double, std::size_t pair) {
    const float angle = angles[pair];
    angles[pair] += float32_frequency(64, 1e4, pair);
    return static_cast<double>(angle);
  });
  EXPECT_EQ(cause_name(audit(spec_of(64, 1e4), table.view())), "repeated_addition");
}

double as_bfloat16(double value) {
  return core::to_float(core::to_bfloat16(static_cast<float>(value)));
}

// candle #3520: positions above 256 are not integers of bfloat16 any more.
TEST(Audit, Candle3520_Bfloat16PositionsAreNamed) {
  const Foreign table = make_table(0, 1024, 32, [](double position, std::size_t pair) {
    return as_bfloat16(position) * static_cast<double>(float32_frequency(64, 1e4, pair));
  });
  const Audit result = audit(spec_of(64, 1e4), table.view());
  EXPECT_EQ(cause_name(result), "bfloat16_positions");
  EXPECT_EQ(result.first_row_past, 257);
}

// transformers #29285: under bf16 autocast the angle itself is rounded to bfloat16.
TEST(Audit, Transformers29285_Bfloat16AnglesAreNamed) {
  const Foreign table = make_table(0, 1024, 32, [](double position, std::size_t pair) {
    return as_bfloat16(static_cast<float>(position) * float32_frequency(64, 1e4, pair));
  });
  EXPECT_EQ(cause_name(audit(spec_of(64, 1e4), table.view())), "bfloat16_angles");
}

// gpt-neox #1003: tables computed in float16 are wrong by 0.78.
TEST(Audit, GptNeox1003_Float16ThroughoutIsNamed) {
  const auto half = [](double value) {
    return static_cast<double>(core::to_float(core::to_half(static_cast<float>(value))));
  };
  const Foreign table = make_table(0, 2048, 32, [&](double position, std::size_t pair) {
    return half(half(position) * half(static_cast<double>(float32_frequency(64, 1e4, pair))));
  });
  const Audit result = audit(spec_of(64, 1e4), table.view());
  EXPECT_EQ(cause_name(result), "float16_throughout");
  EXPECT_GT(result.angle.error, 0.7);
}

// mlx-lm #1076: half-precision rotation past 262144.
TEST(Audit, MlxLm1076_Bfloat16RotationPast262144IsNamed) {
  const Foreign table = make_table(262144, 256, 32, [](double position, std::size_t pair) {
    return as_bfloat16(as_bfloat16(position) *
                       as_bfloat16(static_cast<double>(float32_frequency(64, 1e6, pair))));
  });
  EXPECT_EQ(cause_name(audit(spec_of(64, 1e6), table.view())), "bfloat16_throughout");
}

TEST(Audit, TableRoundedToBfloat16IsNamedAndGoodForItsOwnType) {
  const RopeSpec spec = spec_of(64, 1e4);
  const auto exact = encodings::resolve_frequencies(spec);
  Foreign table = make_table(500, 64, 32, [&](double position, std::size_t pair) {
    return position * exact.values()[pair];
  });
  for (double& value : table.cos) value = as_bfloat16(value);
  for (double& value : table.sin) value = as_bfloat16(value);
  EXPECT_EQ(cause_name(audit(spec, table.view())), "bfloat16_table");
  table.stored = core::DType::bf16;
  const Audit stored = audit(spec, table.view());
  EXPECT_TRUE(stored.as_good_as_its_type);
  EXPECT_FALSE(stored.cause.has_value());
}

// vLLM #48621, #48351: YaRN's amplitude left out made two engines disagree by 1.4159 (factor 64).
TEST(Audit, Vllm48621_DroppedAmplitudeIsNamed) {
  RopeSpec spec = spec_of(64, 1e4);
  encodings::YarnScaling yarn;
  yarn.factor = 64.0;
  yarn.original_length = 4096;
  spec.scaling = yarn;
  const auto exact = encodings::resolve_frequencies(spec);
  EXPECT_NEAR(exact.amplitude(), 1.4159, 5e-5);
  const Foreign table = make_table(0, 512, 32, [&](double position, std::size_t pair) {
    return position * exact.values()[pair];
  });
  const Audit result = audit(spec, table.view());
  EXPECT_EQ(cause_name(result), "amplitude_dropped");
  EXPECT_NEAR(result.amplitude.error, 1.0 - 1.0 / 1.4159, 1e-4);
}

// MarinFold #184, DeepSpeed #8345: the new form of a config read as base 10000.
TEST(Audit, MarinFold184_BaseReadAs10000IsNamed) {
  const Foreign table = make_table(0, 512, 32, [&](double position, std::size_t pair) {
    return static_cast<double>(static_cast<float>(position) * float32_frequency(64, 1e4, pair));
  });
  const Audit result = audit(spec_of(64, 5e5), table.view());
  ASSERT_TRUE(result.cause.has_value());
  EXPECT_EQ(result.cause->name, "base");
  EXPECT_NE(result.cause->text.find("10000"), std::string::npos) << result.cause->text;
}

// mlx-vlm #1709: the linear factor of Gemma 3's global layers left out.
TEST(Audit, MlxVlm1709_DroppedScalingIsNamed) {
  RopeSpec spec = spec_of(64, 1e6);
  spec.scaling = encodings::LinearScaling{8.0};
  const Foreign table = make_table(0, 512, 32, [&](double position, std::size_t pair) {
    return static_cast<double>(static_cast<float>(position) * float32_frequency(64, 1e6, pair));
  });
  EXPECT_EQ(cause_name(audit(spec, table.view())), "scaling_ignored");
}

TEST(Audit, ExactTableIsAsGoodAsItsType) {
  const RopeSpec spec = spec_of(64, 1e4);
  const auto exact = encodings::resolve_frequencies(spec);
  std::vector<float> cos(32), sin(32);
  Foreign table;
  for (int position = 100000; position < 100064; ++position) {
    const double at = position;
    core::cos_sin(exact, std::span(&at, 1), std::span(cos), std::span(sin));
    table.positions.push_back(at);
    table.cos.insert(table.cos.end(), cos.begin(), cos.end());
    table.sin.insert(table.sin.end(), sin.begin(), sin.end());
  }
  const Audit result = audit(spec, table.view());
  EXPECT_TRUE(result.as_good_as_its_type);
  EXPECT_LE(result.ulp.error, core::kCosSinErrorUlp);
  EXPECT_FALSE(result.cause || result.first_row_past);
}

TEST(Audit, NoiseThatNothingExplainsHasNoCause) {
  unsigned state = 1;
  const Foreign table = make_table(0, 64, 16, [&](double, std::size_t) {
    state = state * 1664525U + 1013904223U;
    return static_cast<double>(state >> 8) * 1e-6;
  });
  const Audit result = audit(spec_of(32, 1e4), table.view());
  EXPECT_FALSE(result.cause.has_value());
  EXPECT_EQ(result.first_row_past, 0);
}

TEST(Audit, NotANumberCountsAsInfinitelyWrong) {
  Foreign table = make_table(0, 4, 4, [](double, std::size_t) { return 0.0; });
  table.cos[5] = std::nan("");
  const Audit result = audit(spec_of(8, 1e4), table.view());
  EXPECT_TRUE(std::isinf(result.angle.error));
  EXPECT_EQ(result.angle.row, 1);
  EXPECT_EQ(result.angle.pair, 1);
}

TEST(Audit, ShapesThatDisagreeAreRefused) {
  Foreign table = make_table(0, 4, 4, [](double, std::size_t) { return 0.0; });
  table.sin.pop_back();
  EXPECT_THROW((void)audit(spec_of(8, 1e4), table.view()), Error);
  table = make_table(0, 4, 4, [](double, std::size_t) { return 0.0; });
  table.positions.pop_back();
  ForeignTable view = table.view();
  view.rows = 4;
  EXPECT_THROW((void)audit(spec_of(8, 1e4), view), Error);
}

TEST(Audit, NoRowsIsNoError) {
  const Audit result = audit(spec_of(8, 1e4), {});
  EXPECT_EQ(result.entries, 0);
  EXPECT_TRUE(result.as_good_as_its_type);
}

}  // namespace
}  // namespace phasor::porting
