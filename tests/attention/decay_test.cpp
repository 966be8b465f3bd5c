#include "phasor/attention/decay.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <random>

#include "phasor/core/rotate.hpp"

namespace phasor::attention {
namespace {

std::vector<double> normals(std::size_t count, std::uint32_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& value : values) value = normal(random);
  return values;
}

// Another form of |S_j|^2: the double sum of cos((θ_a - θ_b) r) over a, b < j.
double mean_by_double_sum(const core::Frequencies& frequencies, double r) {
  const auto theta = frequencies.values();
  double mean = 0.0;
  for (std::size_t j = 1; j <= theta.size(); ++j) {
    double square = 0.0;
    for (std::size_t a = 0; a < j; ++a) {
      for (std::size_t b = 0; b < j; ++b) square += std::cos((theta[a] - theta[b]) * r);
    }
    mean += std::sqrt(std::fmax(square, 0.0));
  }
  return mean / static_cast<double>(theta.size());
}

TEST(Decay, MeanPartialSumsAgreeWithTheDoubleSum) {
  for (const std::int64_t dim : {2, 16, 64}) {
    const core::Frequencies frequencies = core::make_frequencies({dim, 10000.0});
    const std::vector<double> distances = {0.0, 1.0, 2.5, 17.0, 250.0, -17.0};
    const std::vector<double> means = mean_partial_sums(frequencies, distances);
    for (std::size_t i = 0; i < distances.size(); ++i) {
      EXPECT_NEAR(means[i], mean_by_double_sum(frequencies, distances[i]), 1e-6)
          << dim << " " << distances[i];
    }
    EXPECT_NEAR(means[0], (static_cast<double>(dim) / 2 + 1) / 2, 1e-12)
        << "at distance 0 every |S_j| is j";
  }
}

TEST(Decay, FallsWithTheDistance) {
  const core::Frequencies frequencies = core::make_frequencies({128, 10000.0});
  const std::vector<double> means =
      mean_partial_sums(frequencies, std::vector<double>{1.0, 16.0, 64.0, 250.0});
  EXPECT_GT(means[0], means[1]);
  EXPECT_GT(means[1], means[2]);
  EXPECT_GT(means[2], means[3]);
}

RC_GTEST_PROP(DecayLaws, NoScorePassesTheAbelBound, ()) {
  const std::int64_t dim = 2 * *rc::gen::inRange<std::int64_t>(1, 40);
  const core::Frequencies plain = core::make_frequencies({dim, *rc::gen::element(100.0, 10000.0)});
  const core::Frequencies frequencies({plain.values().begin(), plain.values().end()},
                                      *rc::gen::element(1.0, 1.3));
  const std::vector<double> q =
      normals(static_cast<std::size_t>(dim), *rc::gen::arbitrary<std::uint32_t>());
  const std::vector<double> k =
      normals(static_cast<std::size_t>(dim), *rc::gen::arbitrary<std::uint32_t>());
  const std::vector<double> distances = {
      0.0, 1.0, 5.0, 77.0, 1000.0, static_cast<double>(*rc::gen::inRange(0, 1 << 20))};
  const std::vector<double> scores = rotated_scores(frequencies, q, k, distances);
  const std::vector<double> bounds = abel_bounds(frequencies, q, k, distances);
  for (std::size_t i = 0; i < distances.size(); ++i)
    RC_ASSERT(std::fabs(scores[i]) <= bounds[i] * (1 + 1e-12));
}

RC_GTEST_PROP(DecayLaws, TheScoreIsTheInnerProductOfRotatedVectors, ()) {  // (35)
  const std::int64_t dim = 2 * *rc::gen::inRange<std::int64_t>(1, 40);
  const core::Frequencies plain = core::make_frequencies({dim, 10000.0});
  const core::Frequencies frequencies({plain.values().begin(), plain.values().end()},
                                      *rc::gen::element(1.0, 1.3));
  std::vector<double> q =
      normals(static_cast<std::size_t>(dim), *rc::gen::arbitrary<std::uint32_t>());
  std::vector<double> k =
      normals(static_cast<std::size_t>(dim), *rc::gen::arbitrary<std::uint32_t>());
  const std::int64_t m = *rc::gen::inRange<std::int64_t>(0, 5000),
                     n = *rc::gen::inRange<std::int64_t>(0, 5000);
  const std::vector<double> distance = {static_cast<double>(m - n)};
  const double score = rotated_scores(frequencies, q, k, distance)[0];
  const core::Rotary rotary{frequencies, core::PairLayout::interleaved, dim};
  core::rotate(rotary, core::positions_from(m), core::heads_view(q.data(), 1, 1, 1, dim));
  core::rotate(rotary, core::positions_from(n), core::heads_view(k.data(), 1, 1, 1, dim));
  double product = 0.0;
  for (std::size_t i = 0; i < q.size(); ++i) product += q[i] * k[i];
  RC_ASSERT(std::fabs(score - product) < 1e-10);
}

TEST(Decay, MeanRotatedScoreIsTheAverageOverSamples) {
  const core::Frequencies frequencies = core::make_frequencies({16, 100.0});
  const double mean = 0.5, deviation = 0.8;
  const std::vector<double> distances = {0.0, 3.0, 20.0};
  for (const QueryKey relation : {QueryKey::independent, QueryKey::equal}) {
    std::vector<double> sums(distances.size(), 0.0);
    const int samples = 20000;
    for (int s = 0; s < samples; ++s) {
      std::vector<double> q = normals(16, static_cast<std::uint32_t>(2 * s)),
                          k = normals(16, static_cast<std::uint32_t>(2 * s + 1));
      for (double& value : q) value = mean + deviation * value;
      for (double& value : k) value = mean + deviation * value;
      const std::vector<double> scores =
          rotated_scores(frequencies, q, relation == QueryKey::equal ? q : k, distances);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += scores[i] / samples;
    }
    const std::vector<double> expected =
        mean_rotated_scores(frequencies, mean, deviation * deviation, relation, distances);
    for (std::size_t i = 0; i < sums.size(); ++i)
      EXPECT_NEAR(sums[i], expected[i], 0.15) << distances[i];
  }
}

TEST(Decay, RefusesVectorsOfTheWrongLength) {
  const core::Frequencies frequencies({1.0, 0.5});
  const std::vector<double> three(3), four(4), distance = {1.0};
  EXPECT_THROW(static_cast<void>(abel_bounds(frequencies, three, four, distance)), Error);
  EXPECT_THROW(static_cast<void>(rotated_scores(frequencies, four, three, distance)), Error);
}

}  // namespace
}  // namespace phasor::attention
