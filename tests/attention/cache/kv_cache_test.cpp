#include "phasor/attention/kv_cache.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "attention/cache/kv_cache_support.hpp"

namespace phasor::attention::tests {
namespace {

struct Choice {
  CacheMode mode;
  DType dtype;
};
const Choice kChoices[] = {{CacheMode::compact, DType::f32},  {CacheMode::drift_free, DType::f32},
                           {CacheMode::compact, DType::f16},  {CacheMode::drift_free, DType::f16},
                           {CacheMode::compact, DType::bf16}, {CacheMode::drift_free, DType::bf16}};

std::string text_of(const NamedRotary& named, const Choice& choice) {
  return std::string(named.name) + " " + std::string(core::name_of(choice.dtype)) +
         (choice.mode == CacheMode::compact ? " compact" : " drift_free");
}

TEST(KVCache, KeepsKeysRotatedAndValuesAsTheyCame) {
  for (const NamedRotary& named : rotaries(kDim)) {
    for (const Choice& choice : kChoices) {
      SCOPED_TRACE(text_of(named, choice));
      CacheTensor k = random_keys(11, choice.dtype), v = random_values(11, choice.dtype);
      KVCache cache(spec_of(named.rotary, choice.mode, choice.dtype));
      const int axes = named.rotary.frequencies.axis_count();
      const std::vector<double> first = spread_positions(axes, 4);
      cache.append(k.tokens(0, 4), v.tokens(0, 4), rows(first, 4));
      cache.append(k.tokens(4, 1), v.tokens(4, 1));
      cache.append(k.tokens(5, 6), v.tokens(5, 6));
      ASSERT_EQ(cache.tokens(), 11);

      const double last = *std::max_element(first.begin(), first.end());
      std::vector<double> positions;
      for (int axis = 0; axis < axes; ++axis) {
        for (std::int64_t t = 0; t < 11; ++t) {
          positions.push_back(t < 4 ? first[static_cast<std::size_t>(axis * 4 + t)]
                                    : last + static_cast<double>(t - 3));
        }
      }
      // The fourth token's axes end at 19, 66, 113: the next position follows the largest of them.
      EXPECT_EQ(positions[4], axes == 3 ? 114.0 : 20.0);
      EXPECT_EQ(cache.positions(), positions);
      EXPECT_EQ(cache.next_position(), static_cast<std::int64_t>(positions.back()) + 1);
      EXPECT_LE(worst_error(values_of(cache.keys()), fresh_keys(k.view(), named.rotary, positions),
                            named.rotary),
                bound_of(choice.dtype, 0));
      EXPECT_EQ(values_of(cache.values()), values_of(v.view()));
    }
  }
}

TEST(KVCache, WithoutARotaryKeepsBoth) {
  KVCache cache(spec_of(std::nullopt));
  CacheTensor k = random_keys(5), v = random_values(5);
  cache.append(k.view(), v.view(), core::positions_from(7));
  EXPECT_EQ(values_of(cache.keys()), values_of(k.view()));
  EXPECT_EQ(cache.positions(), (std::vector<double>{7, 8, 9, 10, 11}));
  cache.shift(1, 3, 100);
  EXPECT_EQ(values_of(cache.keys()), values_of(k.view()));
  EXPECT_EQ(cache.positions(), (std::vector<double>{7, 108, 109, 10, 11}));
}

TEST(KVCache, LaysHeadsBeforeTokensFromAnyStrides) {
  const Rotary rotary = rotaries(kDim)[0].rotary;
  KVCache cache(spec_of(rotary));
  CacheTensor k = random_keys(6), v = random_values(6);
  // Tokens last to first, heads last to first.
  const auto reversed = [](HeadsView view) {
    const std::int64_t last =
        (view.tokens - 1) * view.token_stride + (view.heads - 1) * view.head_stride;
    view.data = static_cast<std::byte*>(view.data) +
                last * static_cast<std::int64_t>(core::size_of(view.dtype));
    view.token_stride = -view.token_stride;
    view.head_stride = -view.head_stride;
    return view;
  };
  cache.append(reversed(k.view()), reversed(v.view()));
  EXPECT_LE(worst_error(values_of(cache.keys()),
                        fresh_keys(reversed(k.view()), rotary, cache.positions()), rotary),
            bound_of(DType::f32, 0));
  EXPECT_EQ(values_of(cache.values()), values_of(reversed(v.view())));
  for (const ConstHeadsView& view : {cache.keys(), cache.values()}) {
    EXPECT_EQ(view.token_stride, view.head_dim);
    EXPECT_EQ(view.head_stride, kCapacity * view.head_dim);
    EXPECT_EQ(view.batch_stride, kHeads * kCapacity * view.head_dim);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data) % 64, 0U);
  }
}

TEST(KVCache, DoesNotMoveItsMemory) {
  KVCache cache(spec_of(rotaries(kDim)[0].rotary));
  const void* keys = cache.keys().data;
  for (std::int64_t t = 0; t < kCapacity; ++t) {
    CacheTensor k = random_keys(1), v = random_values(1);
    cache.append(k.view(), v.view());
  }
  EXPECT_EQ(cache.tokens(), kCapacity);
  EXPECT_EQ(cache.keys().data, keys);
}

TEST(KVCache, LargeCachesKeepEveryToken) {
  // 16 MiB of keys: large enough for threads and streaming stores.
  const Rotary rotary{frequencies(128), PairLayout::half, 128};
  CacheSpec spec{1, 8, 128, 128, 4096, DType::f32, rotary, CacheMode::compact};
  KVCache cache(spec);
  CacheTensor k = CacheTensor::random(DType::f32, 1, 4096, 8, 128, 9);
  cache.append(k.view(), k.view());
  EXPECT_LE(
      worst_error(values_of(cache.keys()), fresh_keys(k.view(), rotary, cache.positions()), rotary),
      bound_of(DType::f32, 0));
  EXPECT_EQ(values_of(cache.values()), values_of(k.view()));
}

TEST(KVCache, TruncatedTokensMakeRoom) {
  KVCache cache(spec_of(rotaries(kDim)[0].rotary));
  CacheTensor k = random_keys(kCapacity), v = random_values(kCapacity);
  cache.append(k.view(), v.view());
  cache.truncate(5);
  EXPECT_EQ(cache.tokens(), 5);
  EXPECT_EQ(cache.next_position(), 5);
  cache.append(k.tokens(5, 3), v.tokens(5, 3));
  EXPECT_LE(worst_error(values_of(cache.keys()),
                        fresh_keys(k.tokens(0, 8), cache.spec().rotary, cache.positions()),
                        *cache.spec().rotary),
            bound_of(DType::f32, 0));
  cache.truncate(0);
  EXPECT_EQ(cache.next_position(), 0);
  EXPECT_TRUE(cache.positions().empty());
}

TEST(KVCache, EvictionClosesTheGapAndLeavesPositions) {
  for (const Choice& choice : kChoices) {
    KVCache cache(spec_of(rotaries(kDim)[6].rotary, choice.mode, choice.dtype));
    CacheTensor k = random_keys(10, choice.dtype), v = random_values(10, choice.dtype);
    cache.append(k.view(), v.view());
    KVCache expected(spec_of(rotaries(kDim)[6].rotary, choice.mode, choice.dtype));
    expected.append(k.tokens(0, 2), v.tokens(0, 2));
    expected.append(k.tokens(7, 3), v.tokens(7, 3), core::positions_from(7));
    cache.evict(2, 7);
    EXPECT_EQ(values_of(cache.keys()), values_of(expected.keys()));
    EXPECT_EQ(values_of(cache.values()), values_of(expected.values()));
    EXPECT_EQ(cache.positions(), expected.positions());
    // The raw keys of a drift-free cache moved along.
    cache.shift(2, 5, -5);
    expected.shift(2, 5, -5);
    EXPECT_EQ(values_of(cache.keys()), values_of(expected.keys()));
    cache.evict(3, 5);
    EXPECT_EQ(cache.tokens(), 3);
    cache.evict(1, 1);
    EXPECT_EQ(cache.tokens(), 3);
    cache.evict(0, 3);
    EXPECT_EQ(cache.tokens(), 0);
  }
}

TEST(KVCache, ShiftRotatesItsTokensAloneAndTheAmplitudeStays) {
  for (const NamedRotary& named : rotaries(kDim)) {
    for (const Choice& choice : kChoices) {
      SCOPED_TRACE(text_of(named, choice));
      KVCache cache(spec_of(named.rotary, choice.mode, choice.dtype));
      CacheTensor k = random_keys(9, choice.dtype), v = random_values(9, choice.dtype);
      const std::vector<double> positions =
          spread_positions(named.rotary.frequencies.axis_count(), 9);
      cache.append(k.view(), v.view(), rows(positions, 9));
      const std::vector<double> before = values_of(cache.keys());
      cache.shift(2, 7, -1000);
      cache.shift(2, 7, 300);
      cache.shift(2, 7, 3);

      std::vector<double> moved = positions;
      for (std::size_t i = 0; i < moved.size(); ++i) {
        if (i % 9 >= 2 && i % 9 < 7) moved[i] -= 697;
      }
      EXPECT_EQ(cache.positions(), moved);
      const std::vector<double> after = values_of(cache.keys());
      EXPECT_LE(worst_error(after, fresh_keys(k.view(), named.rotary, moved), named.rotary),
                bound_of(choice.dtype, choice.mode == CacheMode::compact ? 3 : 0));
      EXPECT_EQ(values_of(cache.values()), values_of(v.view()));
      for (std::size_t i = 0; i < after.size(); ++i) {
        const std::size_t token = i / (kHeads * kDim) % 9;
        const bool stayed = token < 2 || token >= 7;
        ASSERT_TRUE(!stayed || after[i] == before[i]) << token;
      }
    }
  }
}

TEST(KVCache, AShiftByZeroTouchesNothing) {
  KVCache cache(spec_of(rotaries(kDim)[0].rotary));
  CacheTensor k = random_keys(4), v = random_values(4);
  cache.append(k.view(), v.view());
  const Snapshot before = snapshot_of(cache);
  cache.shift(0, 4, 0);
  cache.shift(2, 2, 77);
  EXPECT_EQ(snapshot_of(cache), before);
}

TEST(KVCache, RerotatesFromAnySchemeToAnyOther) {
  std::vector<NamedRotary> schemes = rotaries(kDim);
  for (const NamedRotary& from : schemes) {
    for (const NamedRotary& to : schemes) {
      for (const Choice& choice : kChoices) {
        SCOPED_TRACE(std::string(from.name) + " to " + text_of(to, choice));
        KVCache cache(spec_of(from.rotary, choice.mode, choice.dtype));
        CacheTensor k = random_keys(6, choice.dtype), v = random_values(6, choice.dtype);
        cache.append(k.view(), v.view(),
                     core::positions_from(40));  // text positions: the same on every axis
        std::vector<double> positions = cache.positions();
        const bool is_compact = choice.mode == CacheMode::compact;

        cache.rerotate(to.rotary);
        const int axes = to.rotary.frequencies.axis_count();
        positions.resize(6);
        for (std::size_t i = 6; i < static_cast<std::size_t>(6 * axes); ++i)
          positions.push_back(positions[i - 6]);
        EXPECT_EQ(cache.positions(), positions);
        // A rounding of the old pair may fall on features that only one of the new window rotates.
        if (is_compact && &from != &to) {
          const std::vector<double> got = values_of(cache.keys()),
                                    want = fresh_keys(k.view(), to.rotary, positions);
          for (std::size_t i = 0; i < got.size(); ++i)
            ASSERT_NEAR(got[i], want[i], 8 * bound_of(choice.dtype, 1));
        } else {
          EXPECT_LE(worst_error(values_of(cache.keys()), fresh_keys(k.view(), to.rotary, positions),
                                to.rotary),
                    bound_of(choice.dtype, 0));
        }

        const std::vector<double> elsewhere = spread_positions(axes, 6);
        cache.rerotate(to.rotary, rows(elsewhere, 6));
        EXPECT_EQ(cache.positions(), elsewhere);
        EXPECT_EQ(cache.spec().rotary->frequencies.values().data(),
                  to.rotary.frequencies.values().data());
        const std::vector<double> got = values_of(cache.keys()),
                                  want = fresh_keys(k.view(), to.rotary, elsewhere);
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], want[i], 8 * bound_of(choice.dtype, is_compact ? 2 : 0));
        EXPECT_EQ(values_of(cache.values()), values_of(v.view()));
      }
    }
  }
}

TEST(KVCache, RerotateToWhatItIsTouchesNothing) {
  const Rotary rotary = rotaries(kDim)[4].rotary;
  KVCache cache(spec_of(rotary));
  CacheTensor k = random_keys(6), v = random_values(6);
  cache.append(k.view(), v.view(), core::positions_from(1000));
  const Snapshot before = snapshot_of(cache);
  cache.rerotate(rotary);
  cache.rerotate(rotary, core::positions_from(1000));
  EXPECT_EQ(snapshot_of(cache), before);
}

TEST(KVCache, AYarnAmplitudeIsInTheKeysOnce) {
  const Rotary yarn = rotaries(kDim)[4].rotary;  // amplitude 1.25
  KVCache cache(spec_of(yarn));
  CacheTensor k = random_keys(6), v = random_values(6);
  cache.append(k.view(), v.view());
  for (int i = 0; i < 8; ++i) cache.shift(0, 6, 5);
  cache.rerotate(yarn, core::positions_from(3));
  const std::vector<double> raw = values_of(k.view()), keys = values_of(cache.keys());
  double raw_square = 0.0, square = 0.0;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    raw_square += raw[i] * raw[i];
    square += keys[i] * keys[i];
  }
  EXPECT_NEAR(std::sqrt(square / raw_square), 1.25, 1e-5);
}

TEST(KVCache, ARotarylessCacheCanBeRotated) {
  for (const CacheMode mode : {CacheMode::compact, CacheMode::drift_free}) {
    for (const NamedRotary& named : rotaries(kDim)) {
      KVCache cache(spec_of(std::nullopt, mode));
      CacheTensor k = random_keys(6), v = random_values(6);
      cache.append(k.view(), v.view());
      cache.rerotate(named.rotary);
      EXPECT_LE(worst_error(values_of(cache.keys()),
                            fresh_keys(k.view(), named.rotary, cache.positions()), named.rotary),
                bound_of(DType::f32, 0))
          << named.name;
    }
  }
}

TEST(KVCache, AnEmptyCacheTakesAnotherRotary) {
  KVCache cache(spec_of(rotaries(kDim)[0].rotary));
  const Rotary axes = rotaries(kDim)[6].rotary;
  cache.rerotate(axes);
  CacheTensor k = random_keys(3), v = random_values(3);
  cache.append(k.view(), v.view());
  EXPECT_LE(
      worst_error(values_of(cache.keys()), fresh_keys(k.view(), axes, cache.positions()), axes),
      bound_of(DType::f32, 0));
}

TEST(KVCache, AForkIsACacheOfItsOwn) {
  for (const Choice& choice : kChoices) {
    KVCache cache(spec_of(rotaries(kDim)[0].rotary, choice.mode, choice.dtype));
    CacheTensor k = random_keys(8, choice.dtype), v = random_values(8, choice.dtype);
    cache.append(k.tokens(0, 5), v.tokens(0, 5));
    KVCache fork = cache.fork();
    EXPECT_EQ(snapshot_of(fork), snapshot_of(cache));
    EXPECT_EQ(fork.spec().capacity, kCapacity);
    const Snapshot before = snapshot_of(cache);
    fork.shift(0, 5, 9);  // of a drift-free fork: from its own raw keys
    fork.append(k.tokens(5, 3), v.tokens(5, 3));
    fork.evict(0, 1);
    EXPECT_EQ(snapshot_of(cache), before);
    KVCache expected(spec_of(rotaries(kDim)[0].rotary, choice.mode, choice.dtype));
    expected.append(k.tokens(0, 5), v.tokens(0, 5));
    expected.shift(0, 5, 9);
    expected.append(k.tokens(5, 3), v.tokens(5, 3));
    expected.evict(0, 1);
    EXPECT_EQ(values_of(fork.keys()), values_of(expected.keys()));
    EXPECT_EQ(values_of(fork.values()), values_of(expected.values()));
  }
}

TEST(KVCache, BatchRowsMayBeGivenOneByOneWhenPositionsAreEqual) {
  const Rotary rotary = rotaries(kDim)[0].rotary;
  KVCache cache(spec_of(rotary));
  CacheTensor k = random_keys(3), v = random_values(3);
  const std::vector<std::int64_t> alike = {4, 5, 9, 4, 5, 9};
  cache.append(k.view(), v.view(), core::positions_per_row(alike.data(), 1, kBatch, 3));
  EXPECT_EQ(cache.positions(), (std::vector<double>{4, 5, 9}));
  const std::vector<double> between = {10.5, 11.25, 13.75};
  cache.append(k.view(), v.view(), core::positions_per_token(between));
  EXPECT_EQ(cache.next_position(), 14);
}

// A cache compared with a plain model of one: a list of raw tokens and their positions.
struct Model {
  std::vector<std::int64_t> tokens;  // which of the source's tokens
  std::vector<double> positions;
  std::int64_t moves = 0;
};

RC_GTEST_PROP(KVCacheLaws, AnyHistoryLeavesFreshlyRotatedKeys, ()) {
  const NamedRotary named = *rc::gen::elementOf(
      std::vector<NamedRotary>{rotaries(kDim)[0], rotaries(kDim)[1], rotaries(kDim)[4]});
  const CacheMode mode = *rc::gen::element(CacheMode::compact, CacheMode::drift_free);
  KVCache cache(spec_of(named.rotary, mode));
  CacheTensor k = random_keys(64), v = random_values(64);
  Model model;
  std::int64_t used = 0;
  const auto pick = [](std::int64_t low, std::int64_t high) {
    return *rc::gen::inRange<std::int64_t>(low, high + 1);
  };
  const std::int64_t steps = pick(1, 20);
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto size = static_cast<std::int64_t>(model.tokens.size());
    const std::int64_t first = pick(0, size), last = pick(first, size);
    switch (pick(0, 4)) {
      case 0:
      case 1: {
        const std::int64_t count = std::min({pick(0, 5), kCapacity - size, 64 - used});
        const std::int64_t at = cache.next_position();
        cache.append(k.tokens(used, count), v.tokens(used, count));
        for (std::int64_t i = 0; i < count; ++i) {
          model.tokens.push_back(used++);
          model.positions.push_back(static_cast<double>(at + i));
        }
        break;
      }
      case 2:
        cache.evict(first, last);
        model.tokens.erase(model.tokens.begin() + first, model.tokens.begin() + last);
        model.positions.erase(model.positions.begin() + first, model.positions.begin() + last);
        break;
      case 3: {
        const std::int64_t delta = pick(-50, 50);
        cache.shift(first, last, delta);
        for (std::int64_t i = first; i < last; ++i)
          model.positions[static_cast<std::size_t>(i)] += static_cast<double>(delta);
        ++model.moves;
        break;
      }
      default:
        cache.truncate(last);
        model.tokens.resize(static_cast<std::size_t>(last));
        model.positions.resize(static_cast<std::size_t>(last));
        break;
    }
  }
  const auto size = static_cast<std::int64_t>(model.tokens.size());
  RC_ASSERT(cache.tokens() == size);
  RC_ASSERT(cache.positions() == model.positions);
  CacheTensor raw(DType::f32, kBatch, size, kHeads, kDim);
  for (std::int64_t b = 0; b < kBatch; ++b) {
    for (std::int64_t t = 0; t < size; ++t) {
      for (std::int64_t i = 0; i < kHeads * kDim; ++i) {
        const std::int64_t source =
            (b * 64 + model.tokens[static_cast<std::size_t>(t)]) * kHeads * kDim + i;
        core::set_element(raw.view(), (b * size + t) * kHeads * kDim + i,
                          core::element_of(k.view(), source));
      }
    }
  }
  RC_ASSERT(worst_error(values_of(cache.keys()),
                        fresh_keys(raw.view(), named.rotary, model.positions), named.rotary) <=
            bound_of(DType::f32, mode == CacheMode::compact ? model.moves : 0));
}

}  // namespace
}  // namespace phasor::attention::tests
