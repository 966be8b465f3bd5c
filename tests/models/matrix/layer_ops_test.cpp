#include "phasor/models/internal/layer_ops.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "models/numbers.hpp"
#include "support/errors.hpp"

namespace phasor::models {
namespace {

using testing::kInfinity;
using testing::kNan;
using testing::normal_numbers;

// The definitions, in double; erfc where 1 + erf would cancel.
double value_of(Activation f, double x) {
  switch (f) {
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu:
      return x * std::erfc(-x / std::numbers::sqrt2) / 2;
    case Activation::gelu_tanh: {
      const double inner = x + 0.044715 * x * x * x;
      return x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * inner)) / 2;
    }
    case Activation::relu:
      return x < 0 ? 0 : x;
  }
  return 0;
}

class LayerOps : public ::testing::TestWithParam<core::InstructionSet> {};

TEST_P(LayerOps, ActivationsAgreeWithDouble) {
  std::vector<float> x = {0.0F, -0.0F, 1e-30F, -1e-30F, 88.0F, -88.0F, 3e38F, -3e38F};
  for (int i = -40000; i <= 40000; ++i) x.push_back(static_cast<float>(i) / 2000.0F);
  std::vector<float> up = normal_numbers(x.size(), 1);
  for (const Activation f :
       {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu}) {
    std::vector<float> plain = x, gated = x;
    activate(f, plain, GetParam());
    activate_gate(f, gated, up.data(), GetParam());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto at = static_cast<double>(x[i]);
      const double want = value_of(f, at);
      const double bound =
          kActivationError * std::abs(want) + kActivationTail * std::min(1.0, std::abs(at)) + 1e-44;
      ASSERT_LE(std::abs(static_cast<double>(plain[i]) - want), bound)
          << "function " << static_cast<int>(f) << " of " << x[i];
      ASSERT_EQ(gated[i], plain[i] * up[i]) << i;
    }
  }
}

TEST_P(LayerOps, ActivationsHaveTheLimitsOfTheirFunctions) {
  for (const Activation f :
       {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu}) {
    std::vector<float> x = {kInfinity, -kInfinity, kNan};
    activate(f, x, GetParam());
    EXPECT_EQ(x[0], kInfinity);
    EXPECT_EQ(x[1], 0.0F) << static_cast<int>(f);
    EXPECT_TRUE(std::isnan(x[2]));
  }
}

// f' by a central difference of the definition.
TEST_P(LayerOps, SlopesOfActivationsAgreeWithDifferences) {
  std::vector<float> x = {0.0F, 30.0F, -30.0F, 1e-3F};
  for (int i = -601; i <= 601; ++i) x.push_back(static_cast<float>(i) / 61.0F);
  const std::vector<float> up = normal_numbers(x.size(), 5), d_out = normal_numbers(x.size(), 6);
  for (const Activation f :
       {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu}) {
    std::vector<float> d_x(x.size()), d_gate(x.size()), d_up(x.size());
    activate_backward(f, x, d_out.data(), d_x.data(), GetParam());
    activate_gate_backward(f, x, up.data(), d_out.data(), d_gate.data(), d_up.data(), GetParam());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto at = static_cast<double>(x[i]), d = static_cast<double>(d_out[i]);
      if (f == Activation::relu && at == 0.0) continue;  // no derivative
      const double slope = (value_of(f, at + 1e-5) - value_of(f, at - 1e-5)) / 2e-5;
      ASSERT_NEAR(static_cast<double>(d_x[i]), d * slope, 2e-6 * std::abs(d)) << x[i];
      ASSERT_NEAR(static_cast<double>(d_gate[i]), d * slope * static_cast<double>(up[i]),
                  4e-6 * std::abs(d * static_cast<double>(up[i])));
      ASSERT_NEAR(static_cast<double>(d_up[i]), d * value_of(f, at), 2e-6 * std::abs(d * at));
    }
  }
}

// Norms and cross entropy in double, whose differences are the gradients.
double norm_sum(bool centred, const std::vector<double>& x, const std::vector<float>& weight,
                const std::vector<float>& bias, const std::vector<float>& d_out) {
  double mean = 0, square = 0, sum = 0;
  const auto count = static_cast<double>(x.size());
  for (const double value : x) mean += centred ? value / count : 0.0;
  for (const double value : x) square += (value - mean) * (value - mean) / count;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double normal = (x[i] - mean) / std::sqrt(square + 1e-5);
    sum += static_cast<double>(d_out[i]) * (normal * static_cast<double>(weight[i]) +
                                            (centred ? static_cast<double>(bias[i]) : 0.0));
  }
  return sum;
}

TEST_P(LayerOps, GradientsOfNormsAgreeWithDifferences) {
  for (const std::size_t width : {1U, 5U, 16U, 37U}) {
    const std::vector<float> x = normal_numbers(width, 2), weight = normal_numbers(width, 3),
                             bias = normal_numbers(width, 4), d_out = normal_numbers(width, 5),
                             plus = normal_numbers(width, 6);
    for (const bool centred : {false, true}) {
      std::vector<float> d_x(width), d_weight(width, 1.0F), d_bias(width, 1.0F);
      const auto size = static_cast<std::int64_t>(width);
      const Rows rows{1, size, size};
      if (centred) {
        layer_norm_backward(rows, x.data(), weight.data(), 1e-5, d_out.data(), plus.data(),
                            d_x.data(), d_weight.data(), d_bias.data(), GetParam());
      } else {
        rms_norm_backward(rows, x.data(), weight.data(), 1e-5, d_out.data(), plus.data(),
                          d_x.data(), d_weight.data(), GetParam());
      }
      const std::vector<double> wide(x.begin(), x.end());
      for (std::size_t i = 0; i < width; ++i) {
        std::vector<double> more = wide, less = wide;
        more[i] += 1e-6;
        less[i] -= 1e-6;
        const double slope = (norm_sum(centred, more, weight, bias, d_out) -
                              norm_sum(centred, less, weight, bias, d_out)) /
                             2e-6;
        EXPECT_NEAR(static_cast<double>(d_x[i] - plus[i]), slope, 2e-5) << width << ' ' << i;
        std::vector<float> heavier = weight;
        heavier[i] += 1.0F;
        EXPECT_NEAR(static_cast<double>(d_weight[i]) - 1.0,
                    norm_sum(centred, wide, heavier, bias, d_out) -
                        norm_sum(centred, wide, weight, bias, d_out),
                    2e-5);
        if (centred) {
          EXPECT_FLOAT_EQ(d_bias[i], 1.0F + d_out[i]);
        }
      }
    }
  }
}

TEST_P(LayerOps, CrossEntropyAndItsGradient) {
  const std::vector<float> x = normal_numbers(37, 8, 3.0F);
  for (const double smoothing : {0.0, 0.1}) {
    const auto loss = [&](std::vector<double> z) {
      double highest = -1e300, sum = 0, mean = 0;
      for (const double value : z) highest = std::max(highest, value);
      for (const double value : z) sum += std::exp(value - highest);
      for (const double value : z) mean += value / static_cast<double>(z.size());
      const double normaliser = highest + std::log(sum);
      return (1 - smoothing) * (normaliser - z[5]) + smoothing * (normaliser - mean);
    };
    std::vector<float> gradient = x;
    const CrossEntropy got = cross_entropy(gradient, 5, smoothing, 0.5, GetParam());
    const std::vector<double> wide(x.begin(), x.end());
    EXPECT_NEAR(got.smoothed, loss(wide), 1e-6);
    EXPECT_EQ(x[static_cast<std::size_t>(got.largest)], *std::max_element(x.begin(), x.end()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      std::vector<double> more = wide, less = wide;
      more[i] += 1e-5;
      less[i] -= 1e-5;
      EXPECT_NEAR(static_cast<double>(gradient[i]), 0.5 * (loss(more) - loss(less)) / 2e-5, 1e-6);
    }
  }
}

TEST_P(LayerOps, DropoutIsTheSameInPieces) {
  const std::vector<float> x(1000, 2.0F), plus = normal_numbers(1000, 3);
  std::vector<float> whole(x.size()), pieces(x.size());
  const Dropout dropout{0.25, 77};
  drop(dropout, x, 0, plus.data(), whole.data(), GetParam());
  for (std::size_t first = 0; first < x.size(); first += 125) {
    drop(dropout, std::span(x).subspan(first, 125), static_cast<std::int64_t>(first),
         plus.data() + first, pieces.data() + first, GetParam());
  }
  EXPECT_EQ(whole, pieces);
  int dropped = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool zero = whole[i] == plus[i];
    dropped += zero ? 1 : 0;
    EXPECT_FLOAT_EQ(whole[i], zero ? plus[i] : plus[i] + 2.0F * static_cast<float>(1 / 0.75));
  }
  EXPECT_NEAR(dropped, 250, 60);
}

TEST_P(LayerOps, NormsAgreeWithDouble) {
  for (const std::int64_t width : {1, 7, 16, 100, 576}) {
    const std::int64_t tokens = 3, stride = width + 5;
    // A mean far from zero: in float the variance would be noise.
    const std::vector<float> x =
        normal_numbers(static_cast<std::size_t>(tokens * stride), 2, 1000.0F);
    const std::vector<float> weight = normal_numbers(static_cast<std::size_t>(width), 3),
                             bias = normal_numbers(static_cast<std::size_t>(width), 4);
    std::vector<float> rms = x, layer = x, unbiased(x.size());
    const Rows rows{tokens, width, stride};
    rms_norm(rows, rms.data(), weight.data(), 1.0F, 1e-5, rms.data(), GetParam());
    layer_norm(rows, layer.data(), weight.data(), bias.data(), 1e-5, layer.data(), GetParam());
    layer_norm(rows, x.data(), weight.data(), nullptr, 1e-5, unbiased.data(), GetParam());
    for (std::int64_t t = 0; t < tokens; ++t) {
      const float* const row = x.data() + t * stride;
      double sum = 0, squares = 0, spread = 0;
      for (std::int64_t c = 0; c < width; ++c) {
        sum += static_cast<double>(row[c]);
        squares += std::pow(static_cast<double>(row[c]), 2);
      }
      const double n = static_cast<double>(width), mean = sum / n;
      for (std::int64_t c = 0; c < width; ++c) spread += std::pow(row[c] - mean, 2);
      for (std::int64_t c = 0; c < width; ++c) {
        const auto w = static_cast<std::size_t>(c), at = static_cast<std::size_t>(t * stride + c);
        const double root = row[c] / std::sqrt(squares / n + 1e-5) * (1 + weight[w]);
        const double normal = (row[c] - mean) / std::sqrt(spread / n + 1e-5) * weight[w];
        EXPECT_NEAR(rms[at], root, 3e-7 * std::abs(root) + 1e-7);
        EXPECT_NEAR(layer[at], normal + bias[w], 3e-7 * (std::abs(normal) + std::abs(bias[w])));
        EXPECT_NEAR(unbiased[at], normal, 3e-7 * std::abs(normal) + 1e-9);
      }
      for (std::int64_t c = width; c < stride; ++c) {  // between the rows
        EXPECT_EQ(rms[static_cast<std::size_t>(t * stride + c)], row[c]);
        EXPECT_EQ(layer[static_cast<std::size_t>(t * stride + c)], row[c]);
      }
    }
  }
}

TEST_P(LayerOps, AddsEveryElement) {
  for (const std::size_t count : {0U, 1U, 15U, 16U, 37U}) {
    std::vector<float> x = normal_numbers(count, 5);
    const std::vector<float> y = normal_numbers(count, 6), before = x;
    add_to(x, y.data(), GetParam());
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(x[i], before[i] + y[i]);
  }
}

TEST_P(LayerOps, FindsEveryNumberThatIsNotFinite) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (const std::size_t count : {1U, 2U, 15U, 16U, 17U, 31U, 32U, 33U, 70U}) {
    std::vector<float> x(count, -kLargest);
    require_finite({2, 5}, x, 7, GetParam());
    for (std::size_t i = 0; i < count; ++i) {
      for (const float value : {kInfinity, -kInfinity, kNan}) {
        x[i] = value;
        tests::expect_error(ErrorCode::out_of_range,
                            {"layer 2 of 5", message("row ", i / 7, ", column ", i % 7)}, [&] {
                              require_finite({2, 5}, x, 7, GetParam());
                              return 0;
                            });
      }
      x[i] = kLargest;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, LayerOps,
                         ::testing::ValuesIn(core::available_instruction_sets()));

TEST(LogSumExp, AgreesWithDouble) {
  for (const std::size_t count : {1U, 15U, 16U, 1000U, 49152U}) {
    for (const float mean : {0.0F, -3000.0F, 3000.0F}) {
      const std::vector<float> x = normal_numbers(count, 7, mean);
      double sum = 0;
      for (const float value : x) sum += std::exp(static_cast<double>(value) - mean);
      EXPECT_NEAR(log_sum_exp(x), std::log(sum) + mean, 2e-7) << count << " " << mean;
    }
  }
}

TEST(LogSumExp, TakesWhatIsNotFinite) {
  EXPECT_EQ(log_sum_exp({}), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(log_sum_exp(std::vector<float>{-kInfinity, -kInfinity}), -kInfinity);
  EXPECT_EQ(log_sum_exp(std::vector<float>{1.0F, kInfinity}), kInfinity);
  EXPECT_DOUBLE_EQ(log_sum_exp(std::vector<float>{2.0F, -kInfinity}), 2.0);
  EXPECT_TRUE(std::isnan(log_sum_exp(std::vector<float>{1.0F, kNan, 2.0F})));
}

}  // namespace
}  // namespace phasor::models
