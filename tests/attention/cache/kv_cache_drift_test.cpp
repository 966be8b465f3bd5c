// Ten thousand moves: what a compact cache may lose, and that a drift-free one loses nothing.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "attention/cache/kv_cache_support.hpp"
#include "phasor/attention/kv_cache.hpp"

namespace phasor::attention::tests {
namespace {

constexpr int kMoves = 10000;
constexpr std::int64_t kDriftTokens = 16, kWidth = 64;

struct History {
  const char* name;
  std::function<std::int64_t(int)> delta;  // of move i
};
std::vector<History> histories() {
  return {{"back and forth", [](int i) { return i % 2 == 0 ? 1 : -1; }},
          {"one back, always", [](int) { return -1; }},
          {"far and wide", [](int i) { return (i * 7919) % 4001 - 2000; }}};
}

CacheSpec drift_spec(CacheMode mode, DType dtype) {
  return {
      1,   2, kWidth, 4, kDriftTokens, dtype, Rotary{frequencies(kWidth), PairLayout::half, kWidth},
      mode};
}

// The error against keys rotated once, after each of `stops` moves.
std::vector<double> errors_after(const CacheSpec& spec, const History& history,
                                 const std::vector<int>& stops) {
  KVCache cache(spec);
  CacheTensor k = CacheTensor::random(spec.dtype, 1, kDriftTokens, spec.key_heads, kWidth, 11);
  CacheTensor v =
      CacheTensor::random(spec.dtype, 1, kDriftTokens, spec.key_heads, spec.value_dim, 12);
  cache.append(k.view(), v.view());
  std::vector<double> errors;
  int done = 0;
  for (const int stop : stops) {
    for (; done < stop; ++done) cache.shift(0, kDriftTokens, history.delta(done), 1);
    errors.push_back(worst_error(values_of(cache.keys()),
                                 fresh_keys(k.view(), spec.rotary, cache.positions()),
                                 *spec.rotary));
  }
  return errors;
}

// Kept in the report of --gtest_output=xml:FILE; docs/cache.md prints them.
void record(const History& history, CacheMode mode, DType dtype, int moves, double error) {
  std::string name = message(history.name, " ", core::name_of(dtype),
                             mode == CacheMode::compact ? " compact " : " drift_free ", moves);
  for (char& letter : name) {
    if (letter == ' ' || letter == ',') letter = '_';
  }
  ::testing::Test::RecordProperty(name, message(error));
}

TEST(KVCacheDrift, CompactStaysWithinItsBound) {
  const std::vector<int> stops = {1, 10, 100, 1000, kMoves};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const History& history : histories()) {
      const std::vector<double> errors =
          errors_after(drift_spec(CacheMode::compact, dtype), history, stops);
      for (std::size_t i = 0; i < stops.size(); ++i) {
        record(history, CacheMode::compact, dtype, stops[i], errors[i]);
        EXPECT_LE(errors[i], bound_of(dtype, stops[i]))
            << history.name << " " << core::name_of(dtype) << " " << stops[i];
      }
    }
  }
}

// What docs/cache.md prints: a fixed delta rounds its cos and sin in the same way each time, so that errors
// add up; with varying deltas they are a random walk.
TEST(KVCacheDrift, CompactErrorsAddUpOnlyWhenEveryMoveIsTheSame) {
  const std::vector<int> stops = {100, kMoves};
  for (const History& history : histories()) {
    const std::vector<double> errors =
        errors_after(drift_spec(CacheMode::compact, DType::f32), history, stops);
    const double growth = errors[1] / errors[0];  // of 100 times the moves
    if (std::string(history.name) == "far and wide") {
      EXPECT_LT(growth, 25.0) << history.name;
      EXPECT_LT(errors[1], 3e-5) << history.name;
    } else {
      EXPECT_GT(growth, 50.0) << history.name;
      EXPECT_LT(errors[1], 8e-4) << history.name;
    }
  }
}

TEST(KVCacheDrift, DriftFreeStaysWithinOneRotation) {
  const std::vector<int> stops = {1, 100, kMoves};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const History& history : histories()) {
      const std::vector<double> errors =
          errors_after(drift_spec(CacheMode::drift_free, dtype), history, stops);
      for (std::size_t i = 0; i < stops.size(); ++i) {
        record(history, CacheMode::drift_free, dtype, stops[i], errors[i]);
        EXPECT_LE(errors[i], bound_of(dtype, 0)) << history.name << " " << core::name_of(dtype);
      }
    }
  }
}

// Why 16-bit caches that shift should be drift_free: a step below half a unit in the last place is
// rounded away, and a slow pair never changes.
TEST(KVCacheDrift, SixteenBitCompactLosesSlowPairs) {
  const History one_back = histories()[1];
  EXPECT_GT(errors_after(drift_spec(CacheMode::compact, DType::bf16), one_back, {1000})[0], 0.5);
  EXPECT_LT(errors_after(drift_spec(CacheMode::drift_free, DType::bf16), one_back, {1000})[0],
            0.005);
}

// The shift of a full context: the oldest tokens after the first few are dropped, the rest move
// up.
void run_context_shifts(CacheMode mode) {
  constexpr std::int64_t kSlots = 40, kSinks = 4, kStep = 3;
  const Rotary rotary{frequencies(kWidth, 10000.0, 1.2), PairLayout::half, kWidth};
  KVCache cache({1, 1, kWidth, 4, kSlots, DType::f32, rotary, mode});
  CacheTensor source = CacheTensor::random(DType::f32, 1, 3 * kSlots, 1, kWidth, 5);
  CacheTensor v = CacheTensor::random(DType::f32, 1, 3 * kSlots, 1, 4, 6);
  std::vector<std::int64_t> held;  // the source's token in each slot
  std::int64_t next = 0;
  const auto append = [&](std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i, next = (next + 1) % (3 * kSlots)) {
      cache.append(source.tokens(next, 1), v.tokens(next, 1));
      held.push_back(next);
    }
  };
  append(kSlots);
  for (int i = 0; i < kMoves; ++i) {
    cache.evict(kSinks, kSinks + kStep);
    cache.shift(kSinks, cache.tokens(), -kStep, 1);
    held.erase(held.begin() + kSinks, held.begin() + kSinks + kStep);
    append(kStep);
  }
  std::vector<double> contiguous;
  for (std::int64_t t = 0; t < kSlots; ++t) contiguous.push_back(static_cast<double>(t));
  EXPECT_EQ(cache.positions(), contiguous);
  EXPECT_EQ(cache.next_position(), kSlots);
  CacheTensor raw(DType::f32, 1, kSlots, 1, kWidth);
  for (std::int64_t t = 0; t < kSlots; ++t) {
    for (std::int64_t d = 0; d < kWidth; ++d) {
      core::set_element(
          raw.view(), t * kWidth + d,
          core::element_of(source.view(), held[static_cast<std::size_t>(t)] * kWidth + d));
    }
  }
  // A token goes through this many shifts before it is evicted.
  const std::int64_t most = (kSlots - kSinks) / kStep;
  EXPECT_LE(
      worst_error(values_of(cache.keys()), fresh_keys(raw.view(), rotary, contiguous), rotary),
      bound_of(DType::f32, mode == CacheMode::compact ? most : 0));
}

// llama.cpp #4097: repeated shifts degrade to nonsense.
TEST(KVCacheDrift, LlamaCpp4097_TenThousandContextShiftsCompact) {
  run_context_shifts(CacheMode::compact);
}
TEST(KVCacheDrift, LlamaCpp4097_TenThousandContextShiftsDriftFree) {
  run_context_shifts(CacheMode::drift_free);
}

}  // namespace
}  // namespace phasor::attention::tests
