#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <string>

#include "attention/cache/kv_cache_support.hpp"
#include "phasor/attention/kv_cache.hpp"

namespace phasor::attention::tests {
namespace {

// What must be refused: the error's code, its words, and the call.
struct CacheRefusal {
  const char* name;
  ErrorCode code;
  std::vector<std::string> words;
  std::function<void(KVCache&)> call;
};

TEST(KVCacheRefusals, LeaveTheCacheAsItWas) {
  const Rotary plain = rotaries(kDim)[0].rotary;
  CacheTensor k = random_keys(3), v = random_values(3);
  CacheTensor many_k = random_keys(20), many_v = random_values(20);
  CacheTensor half_k = random_keys(3, DType::f16), half_v = random_values(3, DType::f16);
  CacheTensor narrow = CacheTensor::random(DType::f32, kBatch, 3, kHeads, 8, 1);
  CacheTensor other_heads = CacheTensor::random(DType::f32, kBatch, 3, 2, kDim, 1);
  const std::vector<double> nan = {1.0, NAN, 3.0}, far = {1.0, 2.0, 1e17}, two = {1.0, 2.0};
  const std::vector<std::int64_t> unlike = {1, 2, 3, 1, 2, 4};
  const std::vector<double> axes3 = spread_positions(3, 3);
  const auto append_at = [&](const Positions& positions) {
    return [&, positions](KVCache& cache) { cache.append(k.view(), v.view(), positions); };
  };
  ConstHeadsView null_k = k.view();
  null_k.data = nullptr;
  ConstHeadsView negative = k.view();
  negative.tokens = -1;
  Rotary wide{frequencies(64), PairLayout::half, 64};
  Rotary outside{frequencies(kDim), PairLayout::half, kDim, 4};

  const std::vector<CacheRefusal> refusals = {
      {"full",
       ErrorCode::out_of_range,
       {"24", "20", "6"},
       [&](KVCache& cache) { cache.append(many_k.view(), many_v.view()); }},
      {"k dtype",
       ErrorCode::shape_mismatch,
       {"f32", "f16"},
       [&](KVCache& cache) { cache.append(half_k.view(), v.view()); }},
      {"v dtype",
       ErrorCode::shape_mismatch,
       {"v ", "f32", "f16"},
       [&](KVCache& cache) { cache.append(k.view(), half_v.view()); }},
      {"k width",
       ErrorCode::shape_mismatch,
       {"[2, 3, 3, 32]", "[2, 3, 3, 8]"},
       [&](KVCache& cache) { cache.append(narrow.view(), v.view()); }},
      {"v width",
       ErrorCode::shape_mismatch,
       {"[2, 3, 3, 20]", "[2, 3, 3, 32]"},
       [&](KVCache& cache) { cache.append(k.view(), k.view()); }},
      {"heads",
       ErrorCode::shape_mismatch,
       {"[2, 3, 2, 32]"},
       [&](KVCache& cache) { cache.append(other_heads.view(), v.view()); }},
      {"tokens",
       ErrorCode::shape_mismatch,
       {"[2, 3, 3, 20]", "[2, 2, 3, 20]"},
       [&](KVCache& cache) { cache.append(k.view(), v.tokens(0, 2)); }},
      {"negative tokens",
       ErrorCode::shape_mismatch,
       {"-1"},
       [&](KVCache& cache) { cache.append(negative, negative); }},
      {"null",
       ErrorCode::invalid_argument,
       {"null"},
       [&](KVCache& cache) { cache.append(null_k, v.view()); }},
      {"threads",
       ErrorCode::invalid_argument,
       {"threads", "-2"},
       [&](KVCache& cache) { cache.append(k.view(), v.view(), std::nullopt, -2); }},
      {"NaN",
       ErrorCode::invalid_argument,
       {"finite", "nan"},
       append_at(core::positions_per_token(nan))},
      {"far", ErrorCode::out_of_range, {"2^53"}, append_at(core::positions_per_token(far))},
      {"far offset",
       ErrorCode::out_of_range,
       {"2^53"},
       append_at(core::positions_from(std::int64_t{1} << 62))},
      {"few",
       ErrorCode::shape_mismatch,
       {"[2]", "tokens 3"},
       append_at(core::positions_per_token(two))},
      {"axes", ErrorCode::shape_mismatch, {"3 axes", "1"}, append_at(rows(axes3, 3))},
      {"rows differ",
       ErrorCode::unsupported,
       {"batch row", "3 and 4"},
       append_at(core::positions_per_row(unlike.data(), 1, kBatch, 3))},
      {"truncate up", ErrorCode::out_of_range, {"6", "7"}, [](KVCache& c) { c.truncate(7); }},
      {"truncate below", ErrorCode::out_of_range, {"-1"}, [](KVCache& c) { c.truncate(-1); }},
      {"evict beyond", ErrorCode::out_of_range, {"[3, 8)"}, [](KVCache& c) { c.evict(3, 8); }},
      {"evict before", ErrorCode::out_of_range, {"[-1, 2)"}, [](KVCache& c) { c.evict(-1, 2); }},
      {"evict back", ErrorCode::out_of_range, {"[3, 2)"}, [](KVCache& c) { c.evict(3, 2); }},
      {"shift beyond", ErrorCode::out_of_range, {"[0, 7)"}, [](KVCache& c) { c.shift(0, 7, 1); }},
      {"shift by zero beyond",
       ErrorCode::out_of_range,
       {"[0, 7)"},
       [](KVCache& c) { c.shift(0, 7, 0); }},
      {"shift far",
       ErrorCode::out_of_range,
       {"2^53"},
       [](KVCache& c) { c.shift(2, 5, std::int64_t{1} << 53); }},
      {"shift farthest",
       ErrorCode::out_of_range,
       {"2^53"},
       [](KVCache& c) { c.shift(2, 5, INT64_MIN); }},
      {"rerotate wide",
       ErrorCode::shape_mismatch,
       {"32", "64"},
       [&](KVCache& c) { c.rerotate(wide); }},
      {"rerotate outside",
       ErrorCode::shape_mismatch,
       {"offset 4"},
       [&](KVCache& c) { c.rerotate(outside); }},
      {"rerotate few",
       ErrorCode::shape_mismatch,
       {"[2]", "tokens 6"},
       [&](KVCache& c) { c.rerotate(plain, core::positions_per_token(two)); }},
      {"rerotate far",
       ErrorCode::out_of_range,
       {"2^53"},
       [&](KVCache& c) { c.rerotate(plain, core::positions_from(INT64_MAX - 10)); }},
  };
  for (const CacheMode mode : {CacheMode::compact, CacheMode::drift_free}) {
    KVCache cache(spec_of(plain, mode));
    CacheTensor six_k = random_keys(6), six_v = random_values(6);
    cache.append(six_k.view(), six_v.view());
    const Snapshot before = snapshot_of(cache);
    for (const CacheRefusal& refusal : refusals) {
      SCOPED_TRACE(refusal.name);
      try {
        refusal.call(cache);
        ADD_FAILURE() << "was not refused";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), refusal.code) << error.what();
        for (const std::string& word : refusal.words)
          EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
      }
      EXPECT_EQ(snapshot_of(cache), before);
    }
    // Still usable, raw keys included.
    cache.append(k.view(), v.view());
    cache.shift(0, 6, 11);
    std::vector<double> moved = cache.positions();
    moved.resize(6);
    cache.truncate(6);
    EXPECT_LE(worst_error(values_of(cache.keys()), fresh_keys(six_k.view(), plain, moved), plain),
              bound_of(DType::f32, mode == CacheMode::compact ? 1 : 0));
  }
}

TEST(KVCacheRefusals, PositionsThatAnotherSchemeCannotRead) {
  const Rotary axes = rotaries(kDim)[6].rotary, plain = rotaries(kDim)[0].rotary;
  KVCache cache(spec_of(axes));
  CacheTensor k = random_keys(3), v = random_values(3);
  const std::vector<double> positions = spread_positions(3, 3);
  cache.append(k.view(), v.view(), rows(positions, 3));
  const Snapshot before = snapshot_of(cache);
  EXPECT_THROW(cache.rerotate(plain), Error);
  EXPECT_EQ(snapshot_of(cache), before);
  cache.rerotate(plain, core::positions_from(0));
  EXPECT_LE(worst_error(values_of(cache.keys()), fresh_keys(k.view(), plain, {0, 1, 2}), plain),
            bound_of(DType::f32, 1));
}

TEST(KVCacheRefusals, SpecsThatCannotBe) {
  const auto code_of = [](const CacheSpec& spec) {
    try {
      const KVCache cache(spec);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::internal;
  };
  const CacheSpec good = spec_of(rotaries(kDim)[0].rotary);
  for (std::int64_t CacheSpec::*member :
       {&CacheSpec::batch, &CacheSpec::key_heads, &CacheSpec::head_dim, &CacheSpec::value_dim,
        &CacheSpec::capacity}) {
    for (const std::int64_t size : {0, -3}) {
      CacheSpec bad = good;
      bad.*member = size;
      EXPECT_EQ(code_of(bad), ErrorCode::invalid_argument);
    }
  }
  CacheSpec bad = good;
  bad.dtype = DType::f64;
  EXPECT_EQ(code_of(bad), ErrorCode::unsupported);
  bad = good;
  bad.head_dim = 64;
  EXPECT_EQ(code_of(bad), ErrorCode::shape_mismatch);
  bad = good;
  bad.batch = bad.key_heads = bad.capacity = std::int64_t{1} << 40;
  EXPECT_THROW(KVCache{bad}, std::bad_alloc);
}

}  // namespace
}  // namespace phasor::attention::tests
