// Caches whose first token is not at position 0, and caches with rounded angles: against keys and
// queries that are rotated one by one.
#include <gtest/gtest.h>

#include <string>

#include "attention/cache/kv_cache_support.hpp"
#include "attention/reference/attend_reference.hpp"
#include "phasor/attention/kv_cache.hpp"
#include "support/errors.hpp"

namespace phasor::attention::tests {
namespace {

using core::AngleMode;

constexpr AngleMode kModes[] = {AngleMode::exact, AngleMode::float32,
                                AngleMode::bfloat16_frequencies, AngleMode::bfloat16,
                                AngleMode::float16};
constexpr std::int64_t kAngleTokens = 11, kAngleHeads = 6;

CacheSpec angles_spec(const Rotary& rotary, std::int64_t first, AngleMode angles) {
  CacheSpec spec = spec_of(rotary);
  spec.first_position = first;
  spec.angles = angles;
  return spec;
}

// Every pair of every head, by the row of its token.
CacheTensor rotated_plainly(CacheTensor from, const Rotary& rotary, std::int64_t first,
                            AngleMode angles) {
  const HeadsView x = from.view();
  const auto pairs = static_cast<std::size_t>(rotary.frequencies.pairs());
  std::vector<float> cos(pairs), sin(pairs);
  for (std::int64_t t = 0; t < x.tokens; ++t) {
    const auto position = static_cast<double>(first + t);
    core::cos_sin(rotary.frequencies, {&position, 1}, cos, sin, angles);
    for (std::int64_t b = 0; b < x.batch; ++b) {
      for (std::int64_t h = 0; h < x.heads; ++h) {
        const std::int64_t head = b * x.batch_stride + t * x.token_stride + h * x.head_stride;
        for (std::size_t i = 0; i < pairs; ++i) {
          const auto [at_a, at_b] = pair_of(rotary, static_cast<std::int64_t>(i));
          const double a = core::element_of(x, head + at_a), c = core::element_of(x, head + at_b);
          core::set_element(x, head + at_a, a * cos[i] - c * sin[i]);
          core::set_element(x, head + at_b, c * cos[i] + a * sin[i]);
        }
      }
    }
  }
  return from;
}

TEST(KVCacheAngles, EachKindAndFirstPositionIsItsPlainRotation) {
  for (const std::size_t named : {std::size_t{0}, std::size_t{1}, std::size_t{4}}) {
    const Rotary rotary = rotaries(kDim)[named].rotary;
    for (const AngleMode angles : kModes) {
      for (const std::int64_t first : {0, 10'007, 50'000}) {
        SCOPED_TRACE(rotaries(kDim)[named].name + std::string(" ") +
                     std::string(core::name_of(angles)) + " " + std::to_string(first));
        CacheTensor q = CacheTensor::random(DType::f32, kBatch, kAngleTokens, kAngleHeads, kDim, 5);
        CacheTensor k = random_keys(kAngleTokens), v = random_values(kAngleTokens);
        CacheTensor out(DType::f32, kBatch, kAngleTokens, kAngleHeads, kValueDim);
        encodings::ScoreTerms terms;
        terms.rotation = rotary;
        terms.scale = 0.2;
        KVCache cache(angles_spec(rotary, first, angles));
        StepRotations rows;
        EXPECT_EQ(cache.next_position(), first);
        const auto step = [&](std::int64_t begin, std::int64_t count) {
          cache.append(k.tokens(begin, count), v.tokens(begin, count), std::nullopt, 0, &rows);
          AttentionOptions options;
          options.causality = Causality::bottom_right;
          options.angles = angles;
          options.rotations = &rows;
          cache.attend(terms, q.tokens(begin, count), out.tokens(begin, count), options);
        };
        step(0, 6);
        for (std::int64_t t = 6; t < kAngleTokens; ++t) step(t, 1);
        EXPECT_EQ(cache.next_position(), first + kAngleTokens);

        CacheTensor rotated_q = rotated_plainly(std::move(q), rotary, first, angles);
        CacheTensor rotated_k = rotated_plainly(std::move(k), rotary, first, angles);
        terms.rotation.reset();
        const ReferenceResult plain =
            attend_reference(terms, rotated_q.view(), rotated_k.view(), v.view(),
                             {.causality = Causality::bottom_right});
        const std::vector<double> got = values_of(out.view());
        ASSERT_EQ(got.size(), plain.out.size());
        for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], plain.out[i], 1e-5) << i;
        cache.truncate(0);
        EXPECT_EQ(cache.next_position(), first);
      }
    }
  }
}

TEST(KVCacheAngles, SixteenBitKeysAreRoundedOnce) {
  const Rotary rotary = rotaries(kDim)[0].rotary;
  CacheTensor k = random_keys(kAngleTokens), v = random_values(kAngleTokens);
  CacheSpec spec = angles_spec(rotary, 1000, AngleMode::bfloat16);
  spec.dtype = DType::f16;
  KVCache cache(spec);
  cache.append(k.view(), v.view());
  const std::vector<double> fresh =
      values_of(rotated_plainly(std::move(k), rotary, 1000, AngleMode::bfloat16).view());
  EXPECT_LE(worst_error(values_of(cache.keys()), fresh, rotary), bound_of(DType::f16, 0));
}

TEST(KVCacheAngles, RefusesWhatItsAnglesCannotDo) {
  const Rotary rotary = rotaries(kDim)[0].rotary;
  CacheTensor k = random_keys(4), v = random_values(4);
  KVCache cache(angles_spec(rotary, 9, AngleMode::float32));
  cache.append(k.view(), v.view());
  const std::vector<double> before = values_of(cache.keys());
  const auto refused = [&](ErrorCode code, std::string_view value, const auto& call) {
    phasor::tests::expect_error(code, {value}, [&] {
      call();
      return 0;
    });
  };
  refused(ErrorCode::unsupported, "float32", [&] { cache.shift(0, 4, 1); });
  refused(ErrorCode::unsupported, "float32", [&] { cache.rerotate(rotary); });
  EXPECT_EQ(values_of(cache.keys()), before);
  // The last position of the capacity counts.
  refused(ErrorCode::out_of_range, "65504",
          [&] { KVCache(angles_spec(rotary, 65'504, AngleMode::float16)); });
  refused(ErrorCode::out_of_range, "2^5",
          [&] { KVCache(angles_spec(rotary, std::int64_t{1} << 53, AngleMode::exact)); });
}

}  // namespace
}  // namespace phasor::attention::tests
