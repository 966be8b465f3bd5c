#include "phasor/models/generate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/numbers.hpp"
#include "phasor/core/error.hpp"
#include "support/errors.hpp"

namespace phasor::models {
namespace {

using testing::kInfinity;
using testing::kNan;

// Logits whose softmax is `probabilities`.
std::vector<float> logits_for(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

std::map<std::int64_t, int> draws(const SamplerOptions& options, const std::vector<float>& logits,
                                  int count, const std::vector<std::int64_t>& seen = {}) {
  Sampler sampler(options);
  std::map<std::int64_t, int> counts;
  for (int i = 0; i < count; ++i) ++counts[sampler.next(logits, seen)];
  return counts;
}

std::set<std::int64_t> drawn(const SamplerOptions& options, const std::vector<float>& logits,
                             const std::vector<std::int64_t>& seen = {}) {
  std::set<std::int64_t> ids;
  for (const auto& [id, count] : draws(options, logits, 2000, seen)) ids.insert(id);
  return ids;
}

// Six standard deviations of a binomial count: a right sampler fails once in 10^8 seeds, and the
// seed is fixed.
void expect_distribution(const std::map<std::int64_t, int>& counts,
                         const std::vector<double>& probabilities, int count) {
  for (std::size_t id = 0; id < probabilities.size(); ++id) {
    const double p = probabilities[id];
    const auto found = counts.find(static_cast<std::int64_t>(id));
    const double got = found == counts.end() ? 0.0 : found->second;
    EXPECT_NEAR(got, count * p, 6.0 * std::sqrt(count * p * (1.0 - p)) + 1e-9) << "token " << id;
  }
}

using IdSet = std::set<std::int64_t>;

TEST(Sampler, GreedyTakesTheFirstOfTheLargest) {
  Sampler sampler({});
  EXPECT_EQ(sampler.next(std::vector<float>{0.5F, 2.0F, -1.0F, 2.0F}, {}), 1);
  EXPECT_EQ(sampler.next(std::vector<float>{-3.0F}, {}), 0);
}

TEST(Sampler, NanAndMinusInfinityAreNeverChosen) {
  const std::vector<float> logits = {kNan, -kInfinity, 1.0F, kNan, 0.0F};
  EXPECT_EQ(Sampler({}).next(logits, {}), 2);
  EXPECT_EQ(drawn({.temperature = 5.0}, logits), (IdSet{2, 4}));
  EXPECT_EQ(drawn({.temperature = 5.0, .top_k = 4}, logits), (IdSet{2, 4}));
  // A penalty must not change a NaN into a number.
  EXPECT_EQ(drawn({.temperature = 5.0, .repetition_penalty = 2.0}, logits, {0, 1}), (IdSet{2, 4}));
}

TEST(Sampler, InfiniteLogitsShareAllProbability) {
  const std::vector<float> logits = {1.0F, kInfinity, 3.0F, kInfinity};
  EXPECT_EQ(Sampler({}).next(logits, {}), 1);
  EXPECT_EQ(drawn({.temperature = 1.0}, logits), (IdSet{1, 3}));
}

TEST(Sampler, DrawsFollowTheSoftmax) {
  const std::vector<double> p = {0.5, 0.05, 0.2, 0.0625, 0.1875};
  constexpr int kCount = 40000;
  expect_distribution(draws({.temperature = 1.0, .seed = 7}, logits_for(p), kCount), p, kCount);
  // Temperature 2 takes the square root of every probability.
  std::vector<double> flat;
  double sum = 0.0;
  for (const double value : p) sum += std::sqrt(value);
  for (const double value : p) flat.push_back(std::sqrt(value) / sum);
  expect_distribution(draws({.temperature = 2.0, .seed = 7}, logits_for(p), kCount), flat, kCount);
}

TEST(Sampler, TopKKeepsExactlyKAndTheirRatios) {
  const std::vector<double> p = {0.1, 0.4, 0.1, 0.3, 0.1};
  constexpr int kCount = 20000;
  const SamplerOptions two{.temperature = 1.0, .top_k = 2, .seed = 3};
  expect_distribution(draws(two, logits_for(p), kCount), {0, 4.0 / 7, 0, 3.0 / 7, 0}, kCount);
  // Of equals, the first.
  EXPECT_EQ(drawn({.temperature = 1.0, .top_k = 3}, logits_for(p)), (IdSet{0, 1, 3}));
  EXPECT_EQ(drawn({.temperature = 1.0, .top_k = 99}, logits_for(p)), (IdSet{0, 1, 2, 3, 4}));
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesIt) {
  const std::vector<float> logits = logits_for({0.1, 0.45, 0.05, 0.3, 0.1});
  EXPECT_EQ(drawn({.temperature = 1.0, .top_p = 0.01}, logits), (IdSet{1}));
  EXPECT_EQ(drawn({.temperature = 1.0, .top_p = 0.44}, logits), (IdSet{1}));
  EXPECT_EQ(drawn({.temperature = 1.0, .top_p = 0.46}, logits), (IdSet{1, 3}));
  EXPECT_EQ(drawn({.temperature = 1.0, .top_p = 0.80}, logits), (IdSet{0, 1, 3}));
  EXPECT_EQ(drawn({.temperature = 1.0, .top_p = 0.90}, logits), (IdSet{0, 1, 3, 4}));
  // After top-k the rest counts as the whole: 0.45 and 0.3 of 0.75.
  EXPECT_EQ(drawn({.temperature = 1.0, .top_k = 2, .top_p = 0.59}, logits), (IdSet{1}));
  EXPECT_EQ(drawn({.temperature = 1.0, .top_k = 2, .top_p = 0.61}, logits), (IdSet{1, 3}));
}

TEST(Sampler, TopPOverMoreTokensThanOnePartialSort) {
  // 1000 equal tokens: the first 700 reach 0.7 (the sort goes on in steps of 64, 256, 1024).
  const std::vector<float> logits(1000, 1.25F);
  Sampler sampler({.temperature = 1.0, .top_p = 0.6995, .seed = 5});
  std::set<std::int64_t> ids;
  for (int i = 0; i < 20000; ++i) ids.insert(sampler.next(logits, {}));
  EXPECT_EQ(ids.size(), 700u);
  EXPECT_EQ(*ids.rbegin(), 699);
}

TEST(Sampler, MinPComparesWithTheLargest) {
  const std::vector<float> logits = logits_for({0.5, 0.26, 0.2, 0.04});
  EXPECT_EQ(drawn({.temperature = 1.0, .min_p = 0.39}, logits), (IdSet{0, 1, 2}));
  EXPECT_EQ(drawn({.temperature = 1.0, .min_p = 0.41}, logits), (IdSet{0, 1}));
  EXPECT_EQ(drawn({.temperature = 1.0, .min_p = 0.99}, logits), (IdSet{0}));
  // After the temperature: at 0.5 the ratios are squared, 0.26 / 0.5 becomes 0.27.
  EXPECT_EQ(drawn({.temperature = 0.5, .min_p = 0.3}, logits), (IdSet{0}));
}

TEST(Sampler, RepetitionPenaltyDividesPositiveAndMultipliesNegativeLogits) {
  SamplerOptions options{.repetition_penalty = 2.0};
  EXPECT_EQ(Sampler(options).next(std::vector<float>{3.0F, 2.0F}, {}), 0);
  EXPECT_EQ(Sampler(options).next(std::vector<float>{3.0F, 2.0F}, std::vector<std::int64_t>{0}), 1);
  EXPECT_EQ(Sampler(options).next(std::vector<float>{-1.0F, -1.5F}, std::vector<std::int64_t>{0}),
            1);
  // A token counts once, however often it was seen; ids of another vocabulary do not matter.
  EXPECT_EQ(Sampler(options).next(std::vector<float>{3.0F, 1.0F},
                                  std::vector<std::int64_t>{0, 0, 0, -1, 77}),
            0);
  options.repetition_window = 2;
  EXPECT_EQ(Sampler(options).next(std::vector<float>{3.0F, 2.0F, 0.0F},
                                  std::vector<std::int64_t>{0, 2, 2}),
            0);
  options.repetition_window = 0;  // all
  EXPECT_EQ(Sampler(options).next(std::vector<float>{3.0F, 2.0F, 0.0F},
                                  std::vector<std::int64_t>{0, 2, 2}),
            1);
}

TEST(Sampler, TheSameSeedGivesTheSameTokens) {
  std::vector<float> logits;
  for (int i = 0; i < 5000; ++i) logits.push_back(std::sin(static_cast<float>(i)) * 3.0F);
  const auto tokens = [&](std::uint64_t seed) {
    Sampler sampler({.temperature = 1.0, .top_p = 0.95, .seed = seed});
    std::vector<std::int64_t> ids;
    for (int i = 0; i < 50; ++i) ids.push_back(sampler.next(logits, {}));
    return ids;
  };
  EXPECT_EQ(tokens(11), tokens(11));
  EXPECT_NE(tokens(11), tokens(12));
  // The draw itself, so that no standard library can move it: mt19937_64(0) gives
  // 2947667278772165694 first, u = 0.1598 of the way.
  Sampler sampler({.temperature = 1.0});
  EXPECT_EQ(sampler.next(logits_for({0.15, 0.02, 0.83}), {}), 1);
}

TEST(Sampler, RefusesWhatMakesNoSense) {
  const auto refused = [](const SamplerOptions& options, std::string_view option) {
    tests::expect_error(ErrorCode::invalid_argument, {option}, [&] { return Sampler(options); });
  };
  refused({.temperature = -0.1}, "temperature");
  refused({.temperature = std::nan("")}, "temperature");
  refused({.top_k = -1}, "top_k");
  refused({.top_p = 0.0}, "top_p");
  refused({.top_p = 1.1}, "top_p");
  refused({.min_p = 1.0}, "min_p");
  refused({.repetition_penalty = 0.0}, "repetition_penalty");
  refused({.repetition_window = -1}, "repetition_window");
  EXPECT_THROW((void)Sampler({}).next({}, {}), Error);
  EXPECT_THROW((void)Sampler({}).next(std::vector<float>{kNan, kNan}, {}), Error);
  EXPECT_THROW((void)Sampler({.temperature = 1.0}).next(std::vector<float>{kNan, -kInfinity}, {}),
               Error);
}

}  // namespace
}  // namespace phasor::models
