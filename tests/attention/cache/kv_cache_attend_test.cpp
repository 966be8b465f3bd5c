// Attention over the cache against attention over keys rotated once.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "attention/cache/kv_cache_support.hpp"
#include "attention/reference/attend_reference.hpp"
#include "phasor/attention/kv_cache.hpp"
#include "support/errors.hpp"

namespace phasor::attention::tests {
namespace {

constexpr std::int64_t kQueryHeads = 6;  // two share a key head

encodings::ScoreTerms terms_of(const std::optional<Rotary>& rotary) {
  encodings::ScoreTerms terms;
  terms.rotation = rotary;
  terms.scale = 1.0 / std::sqrt(static_cast<double>(kDim));
  return terms;
}
CacheTensor random_queries(std::int64_t tokens, std::uint32_t seed = 8) {
  return CacheTensor::random(DType::f32, kBatch, tokens, kQueryHeads, kDim, seed);
}
CacheTensor output(std::int64_t tokens) {
  return CacheTensor(DType::f32, kBatch, tokens, kQueryHeads, kValueDim);
}
void expect_all_near(const std::vector<double>& got, const std::vector<double>& want,
                     double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance) << i;
}

// Every rotation, and none.
std::vector<std::pair<std::string, std::optional<Rotary>>> schemes() {
  std::vector<std::pair<std::string, std::optional<Rotary>>> all = {{"none", std::nullopt}};
  for (const NamedRotary& named : rotaries(kDim)) all.emplace_back(named.name, named.rotary);
  return all;
}

TEST(KVCacheAttend, StreamingIsBatch) {
  constexpr std::int64_t kTokens = 17, kPrefill = 6;
  for (const auto& [name, rotary] : schemes()) {
    SCOPED_TRACE(name);
    const encodings::ScoreTerms terms = terms_of(rotary);
    CacheTensor q = random_queries(kTokens), k = random_keys(kTokens), v = random_values(kTokens);
    CacheTensor out = output(kTokens);
    KVCache cache(spec_of(rotary));
    const auto step = [&](std::int64_t first, std::int64_t count) {
      cache.append(k.tokens(first, count), v.tokens(first, count));
      cache.attend(terms, q.tokens(first, count), out.tokens(first, count),
                   {.causality = Causality::bottom_right});
    };
    step(0, kPrefill);
    for (std::int64_t t = kPrefill; t < kTokens; ++t) step(t, 1);
    const ReferenceResult batch = attend_reference(terms, q.view(), k.view(), v.view(),
                                                   {.causality = Causality::bottom_right});
    expect_all_near(values_of(out.view()), batch.out, 1e-5);
  }
}

TEST(KVCacheAttend, AfterEvictionAndShiftIsAttentionOverKeysRotatedAfresh) {
  for (const auto& [name, rotary] : schemes()) {
    for (const CacheMode mode : {CacheMode::compact, CacheMode::drift_free}) {
      SCOPED_TRACE(name);
      const encodings::ScoreTerms terms = terms_of(rotary);
      CacheTensor q = random_queries(3), k = random_keys(20), v = random_values(20);
      KVCache cache(spec_of(rotary, mode));
      cache.append(k.view(), v.view());
      // Tokens 0..3 and 12..19 stay, at positions 0..11.
      cache.evict(4, 12);
      cache.shift(4, 12, -8);
      CacheTensor out = output(3);
      cache.attend(terms, q.view(), out.view(), {.causality = Causality::bottom_right});

      KVCache fresh(spec_of(std::nullopt));  // gathers the raw rows
      fresh.append(k.tokens(0, 4), v.tokens(0, 4));
      fresh.append(k.tokens(12, 8), v.tokens(12, 8));
      const ReferenceResult want = attend_reference(terms, q.view(), fresh.keys(), fresh.values(),
                                                    {.causality = Causality::bottom_right});
      expect_all_near(values_of(out.view()), want.out, 1e-5);
    }
  }
}

TEST(KVCacheAttend, QueriesHaveThePositionsOfTheirKeys) {
  for (const auto& [name, rotary] : schemes()) {
    if (!rotary) continue;
    SCOPED_TRACE(name);
    const encodings::ScoreTerms terms = terms_of(rotary);
    const int axes = rotary->frequencies.axis_count();
    CacheTensor q = random_queries(4), k = random_keys(9), v = random_values(9);
    KVCache cache(spec_of(rotary));
    const std::vector<double> positions = spread_positions(axes, 9);
    cache.append(k.view(), v.view(), rows(positions, 9));
    CacheTensor out = output(4);
    cache.attend(terms, q.view(), out.view());

    std::vector<double> last;
    for (int axis = 0; axis < axes; ++axis) {
      for (std::size_t t = 5; t < 9; ++t)
        last.push_back(positions[static_cast<std::size_t>(axis) * 9 + t]);
    }
    const ReferenceResult want =
        attend_reference(terms, q.view(), k.view(), v.view(),
                         {.query_positions = rows(last, 4), .key_positions = rows(positions, 9)});
    expect_all_near(values_of(out.view()), want.out, 1e-5);

    // At given positions.
    const std::vector<double> elsewhere = spread_positions(axes, 4);
    cache.attend(terms, q.view(), out.view(), {.query_positions = rows(elsewhere, 4)});
    const ReferenceResult there = attend_reference(
        terms, q.view(), k.view(), v.view(),
        {.query_positions = rows(elsewhere, 4), .key_positions = rows(positions, 9)});
    expect_all_near(values_of(out.view()), there.out, 1e-5);
  }
}

// A slope, a row for each of nine distances and values of their own: all that reads a distance.
encodings::ScoreTerms distance_terms(const std::optional<Rotary>& rotary,
                                     const std::vector<float>& numbers) {
  encodings::ScoreTerms terms = terms_of(rotary);
  terms.slopes = {0.5, 0.25, 0.125, 1.0, 0.75, 0.0625};
  const encodings::RelativeMap map{-4, {8, 7, 6, 5, 4, 3, 2, 1, 0}};
  terms.query_rows = {encodings::shared_rows<const float>(numbers.data(), 9, kDim), map};
  terms.value_rows = {encodings::shared_rows<const float>(numbers.data(), 9, kValueDim), map};
  terms.bias = {encodings::shared_rows<const float>(numbers.data() + 3, 9, 1), map};
  return terms;
}

// Gaps that eviction leaves count, and tokens appended at positions of their own are there.
TEST(KVCacheAttend, DistancesAreThoseOfThePositions) {
  std::vector<float> numbers(9 * kDim);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<float>(i * 7919 % 101) / 50.0F - 1.0F;
  for (const std::optional<Rotary>& rotary :
       {std::optional<Rotary>(), std::optional(rotaries(kDim)[0].rotary)}) {
    for (const std::int64_t queries : {1, 3, 6}) {
      encodings::ScoreTerms terms = distance_terms(rotary, numbers);
      CacheTensor q = random_queries(queries), k = random_keys(20), v = random_values(20);
      KVCache cache(spec_of(rotary));
      cache.append(k.view(), v.view());
      cache.evict(4, 12);
      CacheTensor more_k = random_keys(4, DType::f32, 31),
                  more_v = random_values(4, DType::f32, 32);
      const std::vector<double> at = {7, 40, 41, 5};
      cache.append(more_k.view(), more_v.view(), rows(at, 4));

      KVCache raw(spec_of(std::nullopt));
      raw.append(k.tokens(0, 4), v.tokens(0, 4));
      raw.append(k.tokens(12, 8), v.tokens(12, 8));
      raw.append(more_k.view(), more_v.view());
      const auto expect_cache = [&](const char* what) {
        const std::vector<double> keys_at = cache.positions();
        const std::vector<double> queries_at(keys_at.end() - queries, keys_at.end());
        CacheTensor out = output(queries);
        cache.attend(terms, q.view(), out.view(), {.causality = Causality::bottom_right});
        const ReferenceResult want = attend_reference(
            terms, q.view(), raw.keys(), raw.values(),
            {.causality = Causality::bottom_right,
             .query_positions = rows(queries_at, queries),
             .key_positions = rows(keys_at, static_cast<std::int64_t>(keys_at.size()))});
        SCOPED_TRACE(what);
        expect_all_near(values_of(out.view()), want.out, 1e-5);
      };
      expect_cache("with gaps");
      cache.shift(4, 12, -8);
      expect_cache("shifted");
      const encodings::AttentionShape shape = cache.attention_shape(q.view());
      EXPECT_EQ(shape.distances,
                (encodings::Distances{queries == 6 ? 5 - 41 : 5 - 41, queries == 1 ? 5 : 41}));
      terms.query_rows.reset();
      terms.value_rows.reset();
      expect_cache("few queries");  // without tiles
    }
  }
}

TEST(KVCacheAttend, RefusesDistancesBetweenPositionsOfSeveralAxes) {
  const Rotary three = rotaries(kDim)[6].rotary;
  KVCache cache(spec_of(three));
  CacheTensor q = random_queries(1), k = random_keys(3), v = random_values(3), out = output(1);
  cache.append(k.view(), v.view());
  encodings::ScoreTerms terms = terms_of(three);
  cache.attend(terms, q.view(), out.view());
  terms.slopes = {1, 1, 1, 1, 1, 1};
  phasor::tests::expect_error(ErrorCode::unsupported, {"3"},
                              [&] { cache.attend(terms, q.view(), out.view()); });
}

TEST(KVCacheAttend, MoreQueriesThanTokensAndNone) {
  const Rotary rotary = rotaries(kDim)[0].rotary;
  const encodings::ScoreTerms terms = terms_of(rotary);
  CacheTensor q = random_queries(5), k = random_keys(2), v = random_values(2);
  KVCache cache(spec_of(rotary));
  CacheTensor out = output(5);
  cache.attend(terms, q.view(), out.view(), {.causality = Causality::bottom_right});
  for (const double value : values_of(out.view())) ASSERT_EQ(value, 0.0);
  cache.append(k.view(), v.view());
  cache.attend(terms, q.view(), out.view(), {.causality = Causality::bottom_right});
  const ReferenceResult want =
      attend_reference(terms, q.view(), k.view(), v.view(), {.causality = Causality::bottom_right});
  expect_all_near(values_of(out.view()), want.out, 1e-5);
}

TEST(KVCacheAttend, SixteenBitCachesServeFloatQueries) {
  const Rotary rotary = rotaries(kDim)[0].rotary;
  const encodings::ScoreTerms terms = terms_of(rotary);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    CacheTensor q = random_queries(1), k = random_keys(20, dtype), v = random_values(20, dtype);
    KVCache cache(spec_of(rotary, CacheMode::compact, dtype));
    cache.append(k.view(), v.view());
    CacheTensor out = output(1);
    cache.attend(terms, q.view(), out.view());
    const ReferenceResult want = attend_reference(terms, q.view(), k.view(), v.view());
    expect_all_near(values_of(out.view()), want.out, 4 * epsilon_of(dtype));
  }
}

// Rows that layers share give the bits of rows computed for each: two layers per rotary, rotaries that
// alternate, steps of several tokens and of one, positions that go on and that are given.
TEST(KVCacheAttend, SharedRowsGiveTheSameBits) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const DType given : {DType::f32, dtype}) {
      StepRotations rotations;
      AttentionWorkspace workspace;
      std::vector<KVCache> shared, alone;
      std::vector<Rotary> of_layer;
      for (int copy = 0; copy < 2; ++copy) {
        for (const auto& named : rotaries(kDim)) {
          CacheSpec spec = spec_of(named.rotary);
          spec.dtype = dtype;
          shared.emplace_back(spec);
          alone.emplace_back(spec);
          of_layer.push_back(named.rotary);
        }
      }
      std::uint64_t seed = 1;
      for (const std::int64_t count : {5, 1, 1, 3}) {
        for (std::size_t layer = 0; layer < of_layer.size(); ++layer) {
          CacheTensor k = random_keys(count, given), v = random_values(count, given);
          CacheTensor q = CacheTensor::random(DType::f32, kBatch, count, kQueryHeads, kDim, ++seed);
          const std::optional<Positions> at =
              count == 3 ? std::optional(core::positions_from(1000)) : std::nullopt;
          CacheTensor got = output(count), expected = output(count);
          shared[layer].append(k.view(), v.view(), at, 1, &rotations);
          alone[layer].append(k.view(), v.view(), at, 1);
          shared[layer].attend(terms_of(of_layer[layer]), q.view(), got.view(),
                               {.workspace = &workspace, .rotations = &rotations});
          alone[layer].attend(terms_of(of_layer[layer]), q.view(), expected.view());
          EXPECT_EQ(values_of(shared[layer].keys()), values_of(alone[layer].keys())) << layer;
          EXPECT_EQ(values_of(got.view()), values_of(expected.view())) << layer;
        }
      }
    }
  }
}

TEST(KVCacheAttend, RefusesTermsThatAreNotTheCaches) {
  const Rotary plain = rotaries(kDim)[0].rotary;
  CacheTensor q = random_queries(1), k = random_keys(3), v = random_values(3);
  CacheTensor out = output(1);
  core::set_element(out.view(), 0, 42.0);
  const auto refuses = [&](const KVCache& cache, const std::optional<Rotary>& rotation,
                           const std::string& word, const AttentionOptions& options = {}) {
    try {
      cache.attend(terms_of(rotation), q.view(), out.view(), options);
      ADD_FAILURE() << "was not refused: " << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
    EXPECT_EQ(core::element_of(out.view(), 0), 42.0);
  };
  KVCache cache(spec_of(plain));
  cache.append(k.view(), v.view());
  refuses(cache, std::nullopt, "no rotation");
  refuses(cache, rotaries(kDim)[1].rotary, "layout half, got interleaved");
  refuses(cache, rotaries(kDim)[3].rotary, "frequency 1 of ");
  refuses(cache, rotaries(kDim)[4].rotary, "amplitude 1, got 1.25");
  refuses(cache, rotaries(kDim)[5].rotary, "rotary_dim 32, got 16");
  refuses(cache, rotaries(kDim)[6].rotary, "axis");
  refuses(cache, rotaries(kDim)[7].rotary, "blocks 1, got 2");
  Rotary growing = plain;
  growing.growth = rotaries(kDim)[8].rotary.growth;
  refuses(cache, growing, "growth");
  refuses(cache, plain, "key_positions", {.key_positions = core::positions_from(0)});
  refuses(cache, plain, "exact", {.angles = core::AngleMode::float32});

  // The same frequencies and axes, and one more row of positions.
  const Rotary three = rotaries(kDim)[6].rotary;
  const core::Frequencies& of = three.frequencies;
  Rotary four = three;
  four.frequencies =
      core::Frequencies({of.values().begin(), of.values().end()}, of.amplitude(),
                        {of.axes().begin(), of.axes().end()}, {}, of.axis_count() + 1);
  KVCache of_three(spec_of(three));
  of_three.append(k.view(), v.view());
  refuses(of_three, four, "rows of positions 3, got 4");

  // A cache used after its spec changed.
  cache.rerotate(rotaries(kDim)[3].rotary);
  refuses(cache, plain, "frequency 1 of ");
  cache.attend(terms_of(rotaries(kDim)[3].rotary), q.view(), out.view());
  core::set_element(out.view(), 0, 42.0);

  KVCache bare(spec_of(std::nullopt));
  bare.append(k.view(), v.view());
  refuses(bare, plain, "no rotary");

  // The same numbers in other memory are the same rotary.
  KVCache again(spec_of(plain));
  again.append(k.view(), v.view());
  again.attend(terms_of(rotaries(kDim)[0].rotary), q.view(), out.view());
  EXPECT_NE(core::element_of(out.view(), 0), 42.0);
}

}  // namespace
}  // namespace phasor::attention::tests
