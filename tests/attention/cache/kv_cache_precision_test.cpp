// Keys of sixteen bits are rounded once on their way into a cache, and once more by a move.
#include <gtest/gtest.h>

#include <string>

#include "attention/cache/kv_cache_support.hpp"

namespace phasor::attention::tests {
namespace {

// As a key of the type, by the definition.
double rounded(double value, DType dtype) {
  std::uint16_t bits = 0;
  HeadsView one = core::heads_view(static_cast<float*>(nullptr), 1, 1, 1, 1);
  one.dtype = dtype;
  one.data = &bits;
  core::set_element(one, 0, value);
  return core::element_of(one, 0);
}

// One unit in the last place at a magnitude.
double unit_at(double magnitude, DType dtype) {
  const double least = dtype == DType::f16 ? 0x1p-14 : 0x1p-126;  // normal
  return std::ldexp(epsilon_of(dtype), std::ilogb(std::max(magnitude, least)));
}

struct Alike {
  std::int64_t same = 0, all = 0;
  double worst_units = 0.0;  // of a key above kCacheKeyFloor of its pair
};
void compare(const std::vector<double>& keys, const std::vector<double>& exact,
             const Rotary& rotary, DType dtype, Alike& alike) {
  for (std::size_t head = 0; head < keys.size();
       head += static_cast<std::size_t>(rotary.head_dim)) {
    for (std::int64_t i = 0; i < rotary.frequencies.pairs(); ++i) {
      const auto [a, b] = pair_of(rotary, i);
      const double x = exact[head + static_cast<std::size_t>(a)];
      const double y = exact[head + static_cast<std::size_t>(b)];
      const double length = std::hypot(x, y);
      for (const std::int64_t at : {a, b}) {
        const double key = keys[head + static_cast<std::size_t>(at)];
        const double once = rounded(exact[head + static_cast<std::size_t>(at)], dtype);
        ++alike.all;
        alike.same += key == once ? 1 : 0;
        const double floor = std::max(std::abs(once), kCacheKeyFloor * length);
        alike.worst_units =
            std::max(alike.worst_units, std::abs(key - once) / unit_at(floor, dtype));
      }
    }
  }
}

TEST(KVCachePrecision, AKeyIsRoundedOnce) {
  constexpr std::int64_t kTokens = 90;
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const DType input : {DType::f32, dtype}) {
      for (const CacheMode mode : {CacheMode::compact, CacheMode::drift_free}) {
        for (const NamedRotary& named : rotaries(64)) {
          SCOPED_TRACE(std::string(named.name) + " " + std::string(core::name_of(input)) + " to " +
                       std::string(core::name_of(dtype)));
          KVCache cache({2, 3, 64, 20, kTokens, dtype, named.rotary, mode});
          CacheTensor k = CacheTensor::random(input, 2, kTokens, 3, 64, 11);
          CacheTensor v = CacheTensor::random(input, 2, kTokens, 3, 20, 12);
          // One token, a few and many, as decoding and prompts bring them.
          cache.append(k.tokens(0, 1), v.tokens(0, 1));
          cache.append(k.tokens(1, 7), v.tokens(1, 7));
          cache.append(k.tokens(8, kTokens - 8), v.tokens(8, kTokens - 8));
          Alike alike;
          compare(values_of(cache.keys()), fresh_keys(k.view(), named.rotary, cache.positions()),
                  named.rotary, dtype, alike);
          EXPECT_LE(alike.worst_units, 1.0);
          EXPECT_GE(static_cast<double>(alike.same),
                    kCacheKeysAlike * static_cast<double>(alike.all));
          std::vector<double> values = values_of(v.view());
          for (double& value : values) value = rounded(value, dtype);
          EXPECT_EQ(values_of(cache.values()), values);
        }
      }
    }
  }
}

// The bounds above notice a rounding before the rotation.
TEST(KVCachePrecision, ARoundingTooManyWouldShow) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Rotary rotary = rotaries(kDim)[0].rotary;
    KVCache cache(spec_of(rotary, CacheMode::compact, dtype));
    CacheTensor exact = random_keys(kCapacity), rounded_before = random_keys(kCapacity, dtype);
    CacheTensor v = random_values(kCapacity);
    cache.append(rounded_before.view(), v.view());
    Alike alike;
    compare(values_of(cache.keys()), fresh_keys(exact.view(), rotary, cache.positions()), rotary,
            dtype, alike);
    EXPECT_GT(alike.worst_units, 1.0);
    EXPECT_LT(static_cast<double>(alike.same), 0.8 * static_cast<double>(alike.all));
  }
}

// Without a rotary a key is rounded as it is.
TEST(KVCachePrecision, WithoutARotaryNothingButTheTypeChanges) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    KVCache cache(spec_of(std::nullopt, CacheMode::compact, dtype));
    CacheTensor k = random_keys(5), v = random_values(5);
    cache.append(k.view(), v.view());
    std::vector<double> keys = values_of(k.view());
    for (double& key : keys) key = rounded(key, dtype);
    EXPECT_EQ(values_of(cache.keys()), keys);
  }
}

// A move rounds once more: of what a compact cache holds, or of the raw keys.
TEST(KVCachePrecision, AMoveRoundsOnceMore) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const NamedRotary& named : rotaries(kDim)) {
      SCOPED_TRACE(std::string(named.name) + " " + std::string(core::name_of(dtype)));
      KVCache cache(spec_of(named.rotary, CacheMode::drift_free, dtype));
      CacheTensor k = random_keys(12), v = random_values(12);
      cache.append(k.view(), v.view());
      cache.shift(0, 12, 5);
      CacheTensor raw = random_keys(12, dtype);  // the same numbers, rounded
      Alike alike;
      compare(values_of(cache.keys()), fresh_keys(raw.view(), named.rotary, cache.positions()),
              named.rotary, dtype, alike);
      EXPECT_LE(alike.worst_units, 1.0);
      // Features outside the window are rounded too, which worst_error would count.
      if (named.rotary.rotary_dim() != kDim) continue;
      const double storage = epsilon_of(dtype) / 2;
      EXPECT_LE(worst_error(values_of(cache.keys()),
                            fresh_keys(k.view(), named.rotary, cache.positions()), named.rotary),
                kCacheMoveError * epsilon_of(DType::f32) + 2 * storage);
    }
  }
}

}  // namespace
}  // namespace phasor::attention::tests
