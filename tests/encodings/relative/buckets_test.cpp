// Buckets that grow by a power: exact at every edge.
#include <gtest/gtest.h>
#include <mpfr.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "encodings/relative/log_ratio.hpp"
#include "phasor/encodings/encoding.hpp"
#include "support/errors.hpp"
#include "support/golden_array.hpp"
#include "support/truth.hpp"

namespace phasor::encodings {
namespace {

using tests::golden_array;
using tests::Real;

// n ln(a/e) / ln(b/e) in 300 bits. No two powers compared here are within 2^-100 of each other
// unless they are equal, so a quotient that near to a whole number is one.
LogRatio by_logarithms(double a, double b, double e, double n) {
  Real numerator = Real(a) / Real(e), denominator = Real(b) / Real(e);
  mpfr_log(numerator.get(), numerator.get(), MPFR_RNDN);
  mpfr_log(denominator.get(), denominator.get(), MPFR_RNDN);
  const Real quotient = Real(n) * numerator / denominator;
  Real nearest;
  mpfr_rint(nearest.get(), quotient.get(), MPFR_RNDN);
  const double off = (quotient - nearest).rounded();
  const auto whole = static_cast<std::int64_t>(nearest.rounded());
  if (std::fabs(off) < std::ldexp(1.0, -100)) return {whole, true};
  return {off > 0 ? whole : whole - 1, false};
}

// The formula of the T5 code, word for word.
std::int64_t t5_by_definition(std::int64_t relative, std::int64_t buckets,
                              std::int64_t max_distance, BucketRange range) {
  std::int64_t offset = 0, distance = 0;
  if (range == BucketRange::bidirectional) {
    buckets /= 2;
    if (relative > 0) offset = buckets;
    distance = std::abs(relative);
  } else {
    distance = -std::min<std::int64_t>(relative, 0);
  }
  const std::int64_t exact = buckets / 2;
  if (distance < exact) return offset + distance;
  const std::int64_t large =
      exact + by_logarithms(static_cast<double>(distance), static_cast<double>(max_distance),
                            static_cast<double>(exact), static_cast<double>(buckets - exact))
                  .floor;
  return offset + std::min(large, buckets - 1);
}

std::int64_t deberta_by_definition(std::int64_t distance, std::int64_t buckets,
                                   std::int64_t max_position) {
  const std::int64_t middle = buckets / 2;
  const std::int64_t magnitude =
      distance < middle && distance > -middle ? middle - 1 : std::abs(distance);
  if (magnitude <= middle) return distance;
  const LogRatio ratio =
      by_logarithms(static_cast<double>(magnitude), static_cast<double>(max_position - 1),
                    static_cast<double>(middle), static_cast<double>(middle - 1));
  const std::int64_t bucket = ratio.floor + (ratio.whole ? 0 : 1) + middle;
  return distance > 0 ? bucket : -bucket;
}

TEST(Buckets, T5EqualsTheGoldenArrays) {
  struct Case {
    const char* folder;
    std::int64_t buckets, max_distance;
  };
  for (const auto& [folder, buckets, max_distance] :
       {Case{"t5_bucket_32_128", 32, 128}, Case{"t5_bucket_64_256", 64, 256}}) {
    const std::string path = std::string("encodings/") + folder + "/";
    const auto relative = golden_array<std::int64_t>(path + "relative_position.npy");
    const auto both = golden_array<std::int64_t>(path + "bucket_bidirectional.npy");
    const auto past = golden_array<std::int64_t>(path + "bucket_causal.npy");
    ASSERT_EQ(relative.size(), both.size());
    ASSERT_EQ(relative.size(), past.size());
    ASSERT_FALSE(relative.empty());
    for (std::size_t i = 0; i < relative.size(); ++i) {
      EXPECT_EQ(t5_bucket(relative[i], buckets, max_distance, BucketRange::bidirectional), both[i])
          << folder << " at " << relative[i];
      EXPECT_EQ(t5_bucket(relative[i], buckets, max_distance, BucketRange::past_only), past[i])
          << folder << " at " << relative[i];
    }
  }
}

TEST(Buckets, DebertaEqualsTheGoldenArray) {
  const std::string path = "encodings/deberta_v2_log_bucket_256_512/";
  const auto relative = golden_array<std::int64_t>(path + "relative_position.npy");
  const auto bucket = golden_array<std::int64_t>(path + "bucket.npy");
  ASSERT_EQ(relative.size(), bucket.size());
  ASSERT_FALSE(relative.empty());
  for (std::size_t i = 0; i < relative.size(); ++i) {
    EXPECT_EQ(deberta_log_bucket(relative[i], 256, 512), bucket[i]) << relative[i];
  }
}

TEST(Buckets, T5IsTheFormulaAtManySettings) {
  for (const BucketRange range : {BucketRange::past_only, BucketRange::bidirectional}) {
    for (const std::int64_t buckets : {4, 5, 7, 8, 12, 16, 33, 64, 256}) {
      for (const std::int64_t max_distance : {70, 97, 128, 243, 256, 1000}) {
        const std::int64_t exact = buckets / (range == BucketRange::bidirectional ? 4 : 2);
        if (max_distance <= exact) continue;
        for (std::int64_t r = -max_distance - 3; r <= max_distance + 3; ++r) {
          ASSERT_EQ(t5_bucket(r, buckets, max_distance, range),
                    t5_by_definition(r, buckets, max_distance, range))
              << "relative " << r << " buckets " << buckets << " max_distance " << max_distance;
        }
      }
    }
  }
}

TEST(Buckets, DebertaIsTheFormulaAtManySettings) {
  for (const std::int64_t buckets : {4, 6, 8, 32, 64, 256}) {
    for (const std::int64_t max_position : {130, 257, 512, 1000}) {
      for (std::int64_t d = -2 * max_position; d <= 2 * max_position; ++d) {
        ASSERT_EQ(deberta_log_bucket(d, buckets, max_position),
                  deberta_by_definition(d, buckets, max_position))
            << "distance " << d << " buckets " << buckets << " max_position " << max_position;
      }
    }
  }
}

// Where both ratios are powers of one number the quotient is a whole one, and a logarithm rounded
// down would lose a bucket.
TEST(Buckets, EdgesThatAreWholePowersBelongToTheirBucket) {
  for (std::int64_t k = 0; k <= 30; ++k) {
    const LogRatio ratio = log_ratio(std::uint64_t{5} << k, std::uint64_t{5} << 30, 5, 90);
    EXPECT_EQ(ratio.floor, 3 * k);
    EXPECT_TRUE(ratio.whole);
  }
  std::uint64_t power = 7;
  for (std::int64_t k = 0; k <= 30; ++k, power *= 3) {
    const LogRatio at = log_ratio(power, 7 * 729, 7, 12);
    EXPECT_EQ(at.floor, 2 * k);
    EXPECT_TRUE(at.whole);
    const LogRatio above = log_ratio(power + 1, 7 * 729, 7, 12);
    EXPECT_FALSE(above.whole);
    if (k == 0) continue;
    const LogRatio below = log_ratio(power - 1, 7 * 729, 7, 12);
    EXPECT_EQ(below.floor, 2 * k - 1);
    EXPECT_FALSE(below.whole);
  }
}

// Neighbours of 2^60 e are one double: only the powers tell them apart.
TEST(Buckets, NeighboursBeyondDoublePrecisionAreDistinguished) {
  const std::uint64_t e = 3, big = e << 60;
  EXPECT_EQ(log_ratio(big, big, e, 4).floor, 4);
  EXPECT_TRUE(log_ratio(big, big, e, 4).whole);
  EXPECT_EQ(log_ratio(big - 1, big, e, 4).floor, 3);
  EXPECT_EQ(log_ratio(big + 1, big, e, 4).floor, 4);
  EXPECT_FALSE(log_ratio(big + 1, big, e, 4).whole);
}

TEST(Buckets, TheFarthestDistancesHaveBuckets) {
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(t5_bucket(kLeast, 32, 128, BucketRange::bidirectional), 15);
  EXPECT_EQ(t5_bucket(kMost, 32, 128, BucketRange::bidirectional), 31);
  EXPECT_EQ(t5_bucket(kLeast, 32, 128, BucketRange::past_only), 31);
  EXPECT_EQ(t5_bucket(kMost, 32, 128, BucketRange::past_only), 0);
  EXPECT_EQ(deberta_log_bucket(kLeast, 256, 512), deberta_by_definition(-kMost, 256, 512));
  EXPECT_GT(deberta_log_bucket(kMost, 256, 512), 256);
}

TEST(Buckets, SettingsWithoutBucketsAreRefused) {
  const auto t5 = [](std::int64_t buckets, std::int64_t max_distance, BucketRange range) {
    return [=] { return t5_bucket(1, buckets, max_distance, range); };
  };
  constexpr ErrorCode kCode = ErrorCode::invalid_argument;
  tests::expect_error(kCode, {"buckets", "2", "1"}, t5(1, 128, BucketRange::past_only));
  tests::expect_error(kCode, {"buckets", "4", "3"}, t5(3, 128, BucketRange::bidirectional));
  tests::expect_error(kCode, {"max_distance", "16"}, t5(32, 16, BucketRange::past_only));
  const auto deberta = [](std::int64_t buckets, std::int64_t max_position) {
    return [=] { return deberta_log_bucket(1, buckets, max_position); };
  };
  tests::expect_error(kCode, {"buckets", "4", "7"}, deberta(7, 512));
  tests::expect_error(kCode, {"buckets", "4", "2"}, deberta(2, 512));
  tests::expect_error(kCode, {"max_position", "129"}, deberta(256, 129));
}

}  // namespace
}  // namespace phasor::encodings
