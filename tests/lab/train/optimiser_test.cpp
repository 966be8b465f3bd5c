#include "phasor/lab/internal/optimiser.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "phasor/lab/internal/random.hpp"
#include "support/errors.hpp"

namespace phasor::lab {
namespace {

using phasor::tests::expect_error;

std::vector<float> normal_numbers(std::size_t count, std::uint64_t seed) {
  Random random(seed, Stream::sampling);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = static_cast<float>(random.normal());
  return numbers;
}

std::vector<Parameter> two_parameters(std::size_t first, std::size_t second) {
  return {{"matrix", {static_cast<std::int64_t>(first)}, 0, first, Parameter::Decay::decays},
          {"bias", {static_cast<std::int64_t>(second)}, first, second, Parameter::Decay::exempt}};
}

TEST(LearningRate, rises_then_follows_its_shape) {
  Schedule schedule{ScheduleShape::cosine, 2.0, 10, 110, 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 10), 2.0);
  EXPECT_NEAR(learning_rate(schedule, 60), 1.1, 1e-12);  // half-way: the mean of peak and floor
  EXPECT_NEAR(learning_rate(schedule, 110), 0.2, 1e-12);
  schedule.shape = ScheduleShape::inverse_square_root;
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 40), 1.0);
  schedule.shape = ScheduleShape::constant;
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 110), 2.0);
  schedule.warmup = 0;
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1), 2.0);
}

TEST(GlobalNorm, has_the_same_bits_on_any_number_of_threads) {
  const std::vector<float> numbers = normal_numbers(100003, 1);
  long double sum = 0.0L;
  for (const float number : numbers) sum += static_cast<long double>(number) * number;
  const double one = global_norm(numbers, 1);
  EXPECT_NEAR(one, static_cast<double>(std::sqrt(sum)), 1e-9 * one);
  for (const int threads : {0, 2, 3, 7}) EXPECT_EQ(global_norm(numbers, threads), one) << threads;
  EXPECT_EQ(global_norm({}, 2), 0.0);
}

TEST(GlobalNorm, shows_a_number_that_is_not_finite) {
  std::vector<float> numbers = normal_numbers(40000, 2);
  numbers[39999] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(global_norm(numbers, 2)));
  numbers[39999] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(global_norm(numbers, 2)));
}

// The published algorithm in double, with the corrections applied to the moments.
TEST(AdamW, follows_the_published_steps) {
  const AdamWSettings settings{0.9, 0.95, 1e-6, 0.1};
  const std::size_t matrix = 20000, bias = 5, all = matrix + bias;
  std::vector<float> parameters = normal_numbers(all, 3);
  std::vector<double> expected(parameters.begin(), parameters.end());
  std::vector<double> m(all), v(all);
  AdamW optimiser(settings, two_parameters(matrix, bias));
  for (int t = 1; t <= 4; ++t) {
    const std::vector<float> gradients = normal_numbers(all, 10 + static_cast<std::uint64_t>(t));
    const double rate = 0.01 * t, factor = 0.5;
    optimiser.step(parameters, gradients, rate, factor, 2);
    for (std::size_t i = 0; i < all; ++i) {
      const double g = gradients[i] * factor;
      m[i] = settings.beta1 * m[i] + (1.0 - settings.beta1) * g;
      v[i] = settings.beta2 * v[i] + (1.0 - settings.beta2) * g * g;
      const double corrected_m = m[i] / (1.0 - std::pow(settings.beta1, t));
      const double corrected_v = v[i] / (1.0 - std::pow(settings.beta2, t));
      const double decay = i < matrix ? settings.weight_decay : 0.0;
      expected[i] -=
          rate * (corrected_m / (std::sqrt(corrected_v) + settings.epsilon) + decay * expected[i]);
    }
  }
  EXPECT_EQ(optimiser.steps(), 4);
  for (std::size_t i = 0; i < all; ++i) ASSERT_NEAR(parameters[i], expected[i], 2e-6) << i;
}

TEST(AdamW, has_the_same_bits_on_any_number_of_threads_and_after_a_restore) {
  const std::size_t matrix = 50001, bias = 17, all = matrix + bias;
  const std::vector<Parameter> layout = two_parameters(matrix, bias);
  const auto run = [&](int threads, int restored_after) {
    AdamW optimiser({}, layout);
    std::vector<float> parameters = normal_numbers(all, 4);
    for (int t = 0; t < 3; ++t) {
      optimiser.step(parameters, normal_numbers(all, 20 + static_cast<std::uint64_t>(t)), 1e-2, 1.0,
                     threads);
      if (t + 1 == restored_after) {
        AdamW next({}, layout);
        next.restore(optimiser.steps(), optimiser.first_moments(), optimiser.second_moments());
        optimiser = std::move(next);
      }
    }
    return parameters;
  };
  const std::vector<float> one = run(1, 0);
  EXPECT_EQ(run(2, 0), one);
  EXPECT_EQ(run(5, 0), one);
  EXPECT_EQ(run(1, 1), one);
  EXPECT_EQ(run(3, 2), one);
}

TEST(AdamW, refuses_settings_and_sizes_that_do_not_fit) {
  const std::vector<Parameter> layout = two_parameters(4, 2);
  const auto refused = [&](const AdamWSettings& settings, std::string_view value) {
    expect_error(ErrorCode::invalid_argument, {value}, [&] { return AdamW(settings, layout); });
  };
  refused({1.0, 0.9, 1e-8, 0.0}, "beta1");
  refused({0.9, -0.1, 1e-8, 0.0}, "beta2");
  refused({0.9, 0.9, 0.0, 0.0}, "epsilon");
  refused({0.9, 0.9, 1e-8, -1.0}, "weight_decay");
  AdamW optimiser({}, layout);
  std::vector<float> five(5), six(6);
  expect_error(ErrorCode::shape_mismatch, {"6", "5"},
               [&] { return optimiser.step(five, six, 1.0, 1.0, 1), 0; });
  expect_error(ErrorCode::shape_mismatch, {"6", "5"},
               [&] { return optimiser.restore(1, five, six), 0; });
}

}  // namespace
}  // namespace phasor::lab
