// The KV cache in C.
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "capi/arguments.hpp"
#include "capi/attention_options.hpp"
#include "capi/edge.hpp"
#include "capi/handles.hpp"
#include "phasor/attention/kv_cache.hpp"
#include "phasor/phasor.h"

struct phasor_cache {
  phasor::attention::KVCache cache;
};

namespace phasor::capi {
namespace {

attention::CacheSpec to_cache_spec(const phasor_cache_spec* given, std::string_view where) {
  const phasor_cache_spec from = take_struct(given, phasor_cache_spec{}, where, "spec");
  static_assert(static_cast<int>(attention::CacheMode::compact) == PHASOR_CACHE_COMPACT);
  static_assert(static_cast<int>(attention::CacheMode::drift_free) == PHASOR_CACHE_DRIFT_FREE);
  attention::CacheSpec spec;
  spec.batch = from.batch;
  spec.key_heads = from.key_heads;
  spec.head_dim = from.head_dim;
  spec.value_dim = from.value_dim;
  spec.capacity = from.capacity;
  spec.dtype = to_dtype(from.dtype, where);
  if (from.rope != nullptr) spec.rotary = from.rope->rotary;
  spec.mode = choice(from.mode, attention::CacheMode::drift_free, where, "mode");
  return spec;
}

int axis_count(const attention::CacheSpec& spec) {
  return spec.rotary ? spec.rotary->frequencies.axis_count() : 1;
}

// A view into the cache. phasor_heads has no const data: callers must not write to it.
phasor_heads view_of(const core::ConstHeadsView& view) {
  return {.data = const_cast<void*>(view.data),  // NOLINT(cppcoreguidelines-pro-type-const-cast)
          .dtype = static_cast<phasor_dtype>(view.dtype),
          .batch = view.batch,
          .tokens = view.tokens,
          .heads = view.heads,
          .head_dim = view.head_dim,
          .batch_stride = view.batch_stride,
          .token_stride = view.token_stride,
          .head_stride = view.head_stride};
}

void refuse_if(bool given, std::string_view what, std::string_view where) {
  if (given) {
    throw Error(ErrorCode::unsupported,
                message(where, ": ", what, " is not supported in attention over a cache"));
  }
}

}  // namespace
}  // namespace phasor::capi

using namespace phasor;  // NOLINT(google-build-using-namespace): the functions below belong to no
                         // namespace
using namespace phasor::capi;  // NOLINT(google-build-using-namespace)

phasor_status phasor_cache_create(const phasor_cache_spec* spec, phasor_cache** out) {
  constexpr std::string_view kWhere = "phasor_cache_create";
  return guarded([&] {
    need(out, kWhere, "out");
    hand_over(attention::KVCache(to_cache_spec(spec, kWhere)), out);
  });
}

phasor_status phasor_cache_fork(const phasor_cache* cache, int64_t capacity, phasor_cache** out) {
  constexpr std::string_view kWhere = "phasor_cache_fork";
  return guarded([&] {
    need(cache, kWhere, "cache");
    need(out, kWhere, "out");
    hand_over(capacity == 0 ? cache->cache.fork() : cache->cache.fork(capacity), out);
  });
}

void phasor_cache_destroy(phasor_cache* cache) { delete cache; }

phasor_status phasor_cache_describe(const phasor_cache* cache, phasor_cache_info* info) {
  constexpr std::string_view kWhere = "phasor_cache_describe";
  return guarded([&] {
    need(cache, kWhere, "cache");
    const std::size_t size = size_to_fill(info, kWhere, "info");
    const attention::CacheSpec& spec = cache->cache.spec();
    phasor_cache_info filled{};
    filled.dtype = static_cast<phasor_dtype>(spec.dtype);
    filled.batch = spec.batch;
    filled.key_heads = spec.key_heads;
    filled.head_dim = spec.head_dim;
    filled.value_dim = spec.value_dim;
    filled.capacity = spec.capacity;
    filled.tokens = cache->cache.tokens();
    filled.next_position = cache->cache.next_position();
    filled.axis_count = axis_count(spec);
    filled.mode = static_cast<phasor_cache_mode>(spec.mode);
    filled.rotates = spec.rotary ? 1 : 0;
    give_struct(filled, size, info);
  });
}

phasor_status phasor_cache_positions(const phasor_cache* cache, double* positions, size_t count) {
  constexpr std::string_view kWhere = "phasor_cache_positions";
  return guarded([&] {
    need(cache, kWhere, "cache");
    need_array(positions, count, kWhere, "positions");
    const std::vector<double> all = cache->cache.positions();
    need_count(count, std::ssize(all), kWhere, "count");
    std::copy(all.begin(), all.end(), positions);
  });
}

phasor_status phasor_cache_views(const phasor_cache* cache, phasor_heads* keys,
                                 phasor_heads* values) {
  return guarded([&] {
    need(cache, "phasor_cache_views", "cache");
    if (keys != nullptr) *keys = view_of(cache->cache.keys());
    if (values != nullptr) *values = view_of(cache->cache.values());
  });
}

phasor_status phasor_cache_append(phasor_cache* cache, const phasor_heads* k, const phasor_heads* v,
                                  const phasor_positions* positions, int32_t threads) {
  constexpr std::string_view kWhere = "phasor_cache_append";
  return guarded([&] {
    need(cache, kWhere, "cache");
    cache->cache.append(to_view(k, kWhere, "k"), to_view(v, kWhere, "v"),
                        optional_positions_of(positions, kWhere, "positions"),
                        to_threads(threads, kWhere));
  });
}

phasor_status phasor_cache_truncate(phasor_cache* cache, int64_t tokens) {
  return guarded([&] {
    need(cache, "phasor_cache_truncate", "cache");
    cache->cache.truncate(tokens);
  });
}

phasor_status phasor_cache_evict(phasor_cache* cache, int64_t first, int64_t last) {
  return guarded([&] {
    need(cache, "phasor_cache_evict", "cache");
    cache->cache.evict(first, last);
  });
}

phasor_status phasor_cache_shift(phasor_cache* cache, int64_t first, int64_t last, int64_t delta,
                                 int32_t threads) {
  constexpr std::string_view kWhere = "phasor_cache_shift";
  return guarded([&] {
    need(cache, kWhere, "cache");
    cache->cache.shift(first, last, delta, to_threads(threads, kWhere));
  });
}

phasor_status phasor_cache_rerotate(phasor_cache* cache, const phasor_rope* rope,
                                    const phasor_positions* positions, int32_t threads) {
  constexpr std::string_view kWhere = "phasor_cache_rerotate";
  return guarded([&] {
    need(cache, kWhere, "cache");
    need(rope, kWhere, "rope");
    cache->cache.rerotate(rope->rotary, optional_positions_of(positions, kWhere, "positions"),
                          to_threads(threads, kWhere));
  });
}

phasor_status phasor_cache_attend(const phasor_cache* cache, const phasor_encoding* encoding,
                                  const phasor_heads* q, const phasor_heads* out,
                                  const phasor_attend_options* options) {
  constexpr std::string_view kWhere = "phasor_cache_attend";
  return guarded([&] {
    need(cache, kWhere, "cache");
    const phasor_attend_options given = attend_options(options, kWhere);
    refuse_if(given.log_sum_exp != nullptr, "log_sum_exp", kWhere);
    refuse_if(given.wide_log_sum_exp != nullptr, "wide_log_sum_exp", kWhere);
    refuse_if(given.scores != nullptr, "scores", kWhere);
    refuse_if(given.capped_scores != nullptr, "capped_scores", kWhere);
    refuse_if(given.masked_scores != nullptr, "masked_scores", kWhere);
    refuse_if(given.probabilities != nullptr, "probabilities", kWhere);
    // The cache determines which keys are rotated.
    refuse_if(given.key_state == PHASOR_KEYS_ROTATED, "key_state", kWhere);
    const core::ConstHeadsView queries = to_view(q, kWhere, "q");
    const core::HeadsView target = to_view(out, kWhere, "out");
    const core::ConstHeadsView keys = cache->cache.keys();
    const attention::AttentionOptions chosen = to_options(given, queries, keys, kWhere);
    // The rotation of the cache alone reads no distance.
    encodings::ScoreTerms terms =
        terms_of(encoding, encoding == nullptr
                               ? encodings::attention_shape(queries, keys, cache->cache.values())
                               : cache->cache.attention_shape(queries, chosen));
    // The cache has rotated its keys already: queries get the same rotation, besides other terms.
    if (!terms.rotation) terms.rotation = cache->cache.spec().rotary;
    cache->cache.attend(terms, queries, target, chosen);
  });
}
