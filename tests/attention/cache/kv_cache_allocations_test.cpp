// What a cache is after a call that ran out of memory or was cancelled: as it was before. And calls that must not
// allocate at all. A program of its own, since it counts and refuses every allocation of the process.
#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <string>

#include "attention/cache/kv_cache_support.hpp"
#include "phasor/attention/linear.hpp"
#include "support/allocations.hpp"
#include "support/cancellation.hpp"

namespace phasor::attention::tests {
namespace {

using phasor::test::allocation_count;
using phasor::test::fail_each_allocation;

struct Kind {
  NamedRotary named;
  CacheMode mode;
  DType dtype;
};
std::vector<Kind> kinds() {
  std::vector<Kind> all;
  for (const NamedRotary& named : rotaries(kDim)) {
    for (const CacheMode mode : {CacheMode::compact, CacheMode::drift_free}) {
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
        all.push_back({named, mode, dtype});
    }
  }
  return all;
}
std::string text_of(const Kind& kind) {
  return std::string(kind.named.name) + " " + std::string(core::name_of(kind.dtype)) +
         (kind.mode == CacheMode::compact ? " compact" : " drift_free");
}

KVCache filled(const Kind& kind, CacheTensor& k, CacheTensor& v) {
  KVCache cache(spec_of(kind.named.rotary, kind.mode, kind.dtype));
  cache.append(k.tokens(0, 9), v.tokens(0, 9), std::nullopt, 1);
  return cache;
}

// Disturbs `call` on one cache, once at each place, then lets it succeed; a twin that was not
// disturbed must agree before and after. Returns the places.
template <class Disturb>
std::int64_t disturb_each(const Kind& kind, const std::function<void(KVCache&)>& call,
                          const Disturb& disturb) {
  CacheTensor k = random_keys(12), v = random_values(12);
  KVCache cache = filled(kind, k, v), twin = filled(kind, k, v);
  const Snapshot before = snapshot_of(cache);
  const std::int64_t count = disturb(
      [&] {
        try {
          (void)test::runs_to_its_end([&] { call(cache); });
        } catch (const std::bad_alloc&) {
        }
      },
      [&](std::int64_t index) {
        EXPECT_EQ(snapshot_of(cache), before) << "after allocation or look " << index;
      });
  call(twin);
  Snapshot after = snapshot_of(cache), expected = snapshot_of(twin);
  EXPECT_EQ(after, expected);
  // The raw keys, which have no accessor, affect the next move.
  for (KVCache* each : {&cache, &twin}) {
    each->append(k.tokens(9, 3), v.tokens(9, 3), std::nullopt, 1);
    each->shift(0, each->tokens(), 3, 1);
  }
  EXPECT_EQ(snapshot_of(cache), snapshot_of(twin));
  return count;
}

// Cancels the call at each look, then fails each of its allocations. Returns the allocations.
std::int64_t fail_each(const Kind& kind, const std::function<void(KVCache&)>& call) {
  disturb_each(kind, call, [](const auto& attempt, const auto& check) {
    return test::cancel_at_each_look(attempt, check);
  });
  return disturb_each(kind, call, [](const auto& attempt, const auto& check) {
    return fail_each_allocation(attempt, check);
  });
}

TEST(KVCacheFailures, EveryCallLeavesTheCacheAsItWas) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(text_of(kind));
    CacheTensor k = random_keys(12, DType::f32, 7), v = random_values(12, DType::f32, 8);
    CacheTensor own_k = random_keys(12, kind.dtype, 7), own_v = random_values(12, kind.dtype, 8);
    EXPECT_EQ(fail_each(kind,
                        [&](KVCache& cache) {
                          cache.append(k.tokens(0, 3), v.tokens(0, 3), std::nullopt, 1);
                        }),
              0);
    EXPECT_EQ(fail_each(kind,
                        [&](KVCache& cache) {
                          cache.append(own_k.tokens(0, 3), own_v.tokens(0, 3), std::nullopt, 1);
                        }),
              0);
    EXPECT_EQ(fail_each(kind, [](KVCache& cache) { cache.truncate(4); }), 0);
    EXPECT_EQ(fail_each(kind, [](KVCache& cache) { cache.evict(2, 5); }), 0);
    EXPECT_EQ(fail_each(kind, [](KVCache& cache) { cache.shift(2, 9, -2, 1); }), 0);
    Rotary other = kind.named.rotary;
    other.frequencies = core::Frequencies(
        std::vector<double>(static_cast<std::size_t>(other.frequencies.pairs()), 0.25), 1.5,
        {other.frequencies.axes().begin(), other.frequencies.axes().end()});
    EXPECT_GT(fail_each(kind, [&](KVCache& cache) { cache.rerotate(other, std::nullopt, 1); }), 0);
    // Other pairs: no single rotation exists.
    other.layout = kind.named.rotary.layout == PairLayout::interleaved ? PairLayout::half
                                                                       : PairLayout::interleaved;
    EXPECT_GT(fail_each(kind, [&](KVCache& cache) { cache.rerotate(other, std::nullopt, 1); }), 0);
    EXPECT_GT(fail_each(kind, [](KVCache& cache) { cache = cache.fork(30); }), 0);
  }
}

TEST(KVCacheFailures, RerotateCanBeTakenBackBitForBit) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(text_of(kind));
    CacheTensor k = random_keys(12), v = random_values(12);
    KVCache cache = filled(kind, k, v), twin = filled(kind, k, v);
    const Snapshot before = snapshot_of(cache);
    cache.undo_rerotate();  // nothing to take back
    EXPECT_EQ(snapshot_of(cache), before);
    Rotary other = kind.named.rotary;
    other.frequencies = core::Frequencies(
        std::vector<double>(static_cast<std::size_t>(other.frequencies.pairs()), 0.25), 1.5,
        {other.frequencies.axes().begin(), other.frequencies.axes().end()});
    cache.rerotate(other, std::nullopt, 1);
    const Snapshot rotated = snapshot_of(cache);
    EXPECT_NE(rotated, before);
    cache.append(k.tokens(9, 2), v.tokens(9, 2), std::nullopt, 1);
    cache.undo_rerotate();
    EXPECT_EQ(snapshot_of(cache), before);
    cache.undo_rerotate();  // once
    EXPECT_EQ(snapshot_of(cache), before);
    cache.rerotate(other, std::nullopt, 1);
    EXPECT_EQ(snapshot_of(cache).keys, rotated.keys);
    cache.truncate(5);
    cache.undo_rerotate();  // too late
    EXPECT_EQ(cache.tokens(), 5);
    for (KVCache* each : {&cache, &twin}) {
      each->truncate(0);
      each->rerotate(kind.named.rotary, std::nullopt, 1);
      each->append(k.tokens(0, 12), v.tokens(0, 12), std::nullopt, 1);
    }
    EXPECT_EQ(snapshot_of(cache).keys, snapshot_of(twin).keys);
  }
}

// A decode step: one token in, one token's attention out, until the cache is full.
TEST(KVCacheAllocations, AWarmStepHasNone) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(text_of(kind));
    KVCache cache(spec_of(kind.named.rotary, kind.mode, kind.dtype));
    CacheTensor k = random_keys(1), v = random_values(1);
    CacheTensor q = CacheTensor::random(DType::f32, kBatch, 1, 2 * kHeads, kDim, 5);
    CacheTensor out(DType::f32, kBatch, 1, 2 * kHeads, kValueDim);
    encodings::ScoreTerms terms;
    terms.rotation = kind.named.rotary;
    terms.scale = 0.2;
    // Distances of positions that do not count up, if the cache has one axis.
    if (kind.named.rotary.frequencies.axis_count() == 1) terms.slopes.assign(2 * kHeads, 0.25);
    AttentionWorkspace workspace;
    AttentionOptions options;
    options.causality = Causality::bottom_right;
    options.threads = 1;
    options.workspace = &workspace;
    for (std::int64_t t = 0; t < kCapacity; ++t) {
      const std::int64_t before = allocation_count();
      cache.append(k.view(), v.view(), core::positions_from(t < 2 ? t : 2 * t), 1);
      cache.attend(terms, q.view(), out.view(), options);
      if (t > 0) {
        EXPECT_EQ(allocation_count(), before) << "token " << t;
      }
    }
    // The same numbers as without a workspace, and with one that served other shapes.
    const std::vector<double> kept = values_of(out.view());
    options.workspace = nullptr;
    cache.attend(terms, q.view(), out.view(), options);
    EXPECT_EQ(values_of(out.view()), kept);
  }
}

// One workspace for calls of every shape: numbers that one leaves there must not affect the next.
TEST(KVCacheAllocations, AWorkspaceServesEveryShape) {
  AttentionWorkspace workspace;
  for (int round = 0; round < 2; ++round) {
    for (const std::int64_t dim : {24, 8, 33, 64, 5}) {
      for (const std::int64_t heads : {1, 3, 10}) {
        CacheTensor q = CacheTensor::random(DType::f32, 2, 2, heads, dim, 1),
                    k = CacheTensor::random(DType::f16, 2, 40, 1, dim, 2),
                    v = CacheTensor::random(DType::bf16, 2, 40, 1, dim + 3, 3),
                    out(DType::f32, 2, 2, heads, dim + 3), other(DType::f32, 2, 2, heads, dim + 3);
        if (round == 1) {  // a call with NaN first
          CacheTensor nan(DType::f32, 2, 2, heads, dim);
          for (std::int64_t i = 0; i < 4 * heads * dim; ++i)
            core::set_element(nan.view(), i, std::nan(""));
          attend({}, nan.view(), k.view(), v.view(), other.view(),
                 {.threads = 1, .workspace = &workspace});
        }
        attend({}, q.view(), k.view(), v.view(), out.view(), {.threads = 1});
        attend({}, q.view(), k.view(), v.view(), other.view(),
               {.threads = 1, .workspace = &workspace});
        EXPECT_EQ(values_of(out.view()), values_of(other.view())) << dim << ' ' << heads;
      }
    }
  }
}

TEST(KVCacheFailures, AttendLeavesTheWorkspaceFit) {
  CacheTensor k = random_keys(12), v = random_values(12);
  const Kind kind{rotaries(kDim)[6], CacheMode::compact, DType::f16};
  KVCache cache = filled(kind, k, v);
  const Snapshot before = snapshot_of(cache);
  CacheTensor q = CacheTensor::random(DType::f32, kBatch, 2, kHeads, kDim, 5);
  CacheTensor out(DType::f32, kBatch, 2, kHeads, kValueDim);
  CacheTensor expected(DType::f32, kBatch, 2, kHeads, kValueDim);
  encodings::ScoreTerms terms;
  terms.rotation = kind.named.rotary;
  cache.attend(terms, q.view(), expected.view(), {.threads = 1});
  AttentionWorkspace workspace;
  const std::int64_t count = fail_each_allocation(
      [&] {
        try {
          cache.attend(terms, q.view(), out.view(), {.threads = 1, .workspace = &workspace});
        } catch (const std::bad_alloc&) {
        }
      },
      [&](std::int64_t) { EXPECT_EQ(snapshot_of(cache), before); });
  EXPECT_GT(count, 0);
  EXPECT_EQ(values_of(out.view()), values_of(expected.view()));
}

// Rows that layers share: a step that finds no memory changes nothing, and the next steps allocate
// nothing.
TEST(KVCacheFailures, StepsThatShareRows) {
  for (const auto& named : {rotaries(kDim)[0], rotaries(kDim)[6]}) {  // one axis, and more
    CacheTensor k = random_keys(9), v = random_values(9);
    CacheTensor q = CacheTensor::random(DType::f32, kBatch, 1, kHeads, kDim, 5);
    CacheTensor out(DType::f32, kBatch, 1, kHeads, kValueDim);
    KVCache cache = filled({named, CacheMode::compact, DType::f16}, k, v);
    encodings::ScoreTerms terms;
    terms.rotation = named.rotary;
    AttentionWorkspace workspace;
    StepRotations rotations;
    const auto step = [&] {
      cache.append(k.tokens(0, 1), v.tokens(0, 1), std::nullopt, 1, &rotations);
      cache.attend(terms, q.view(), out.view(),
                   {.threads = 1, .workspace = &workspace, .rotations = &rotations});
    };
    const Snapshot before = snapshot_of(cache);
    const std::int64_t had = cache.tokens();
    const std::int64_t count = fail_each_allocation(
        [&] {
          try {
            step();
          } catch (const std::bad_alloc&) {
            if (cache.tokens() > had) cache.truncate(had);
          }
        },
        [&](std::int64_t) { EXPECT_EQ(snapshot_of(cache), before); });
    EXPECT_GT(count, 0);
    const std::int64_t allocations = test::allocation_count();
    for (int i = 0; i < 3; ++i) step();
    EXPECT_EQ(test::allocation_count(), allocations) << named.name;
  }
}

// The sums that linear attention carries along.
TEST(LinearStateFailures, ACallLeavesTheStateAsItWas) {
  const Rotary rotary = rotaries(kDim)[0].rotary;
  for (const FeatureMap features :
       {FeatureMap::elu_plus_one, FeatureMap::softmax_exp, FeatureMap::favor}) {
    CacheTensor k = random_keys(6), v = random_values(6);
    CacheTensor q = CacheTensor::random(DType::f32, kBatch, 6, 2 * kHeads, kDim, 5);
    CacheTensor out(DType::f32, kBatch, 3, 2 * kHeads, kValueDim);
    CacheTensor expected(DType::f32, kBatch, 3, 2 * kHeads, kValueDim);
    const LinearOptions options{.causality = Causality::bottom_right,
                                .features = features,
                                .threads = 1,
                                .feature_count = features == FeatureMap::favor ? kDim : 0};
    LinearState state(kBatch, kHeads, kDim, kValueDim);
    linear_attend(rotary, q.tokens(0, 3), k.tokens(0, 3), v.tokens(0, 3), out.view(), options,
                  &state);
    LinearState twin = state;
    const std::int64_t count = fail_each_allocation(
        [&] {
          try {
            linear_attend(rotary, q.tokens(3, 3), k.tokens(3, 3), v.tokens(3, 3), out.view(),
                          options, &state);
          } catch (const std::bad_alloc&) {
          }
        },
        [&](std::int64_t index) { EXPECT_EQ(state.tokens(), 3) << "allocation " << index; });
    EXPECT_GT(count, 0);
    linear_attend(rotary, q.tokens(3, 3), k.tokens(3, 3), v.tokens(3, 3), expected.view(), options,
                  &twin);
    EXPECT_EQ(values_of(out.view()), values_of(expected.view()));
    EXPECT_EQ(state.tokens(), twin.tokens());
  }
}

}  // namespace
}  // namespace phasor::attention::tests
