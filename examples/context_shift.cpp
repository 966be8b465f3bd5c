// A full cache drops old tokens and shifts the others. A shift rotates keys again: a compact cache
// accumulates rounding errors, a drift-free cache rotates its raw keys and does not.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "phasor/attention.hpp"
#include "phasor/attention/kv_cache.hpp"

namespace {

using phasor::attention::CacheMode;
using phasor::attention::KVCache;

constexpr std::int64_t kHeadDim = 64, kCapacity = 64, kSinks = 4, kDropped = 12;

KVCache make_cache(CacheMode mode) {
  const phasor::Rotary rope = phasor::resolve(
      {.head_dim = kHeadDim, .rotary_dim = kHeadDim, .layout = phasor::PairLayout::half});
  return KVCache({.key_heads = 1,
                  .head_dim = kHeadDim,
                  .value_dim = kHeadDim,
                  .capacity = kCapacity,
                  .rotary = rope,
                  .mode = mode});
}

// The key of one token, always the same.
std::vector<float> key_of(std::int64_t token) {
  std::mt19937 random(static_cast<std::uint32_t>(token));
  std::normal_distribution<float> normal;
  std::vector<float> key(kHeadDim);
  for (float& value : key) value = normal(random);
  return key;
}

void append(KVCache& cache, std::int64_t token) {
  const std::vector<float> key = key_of(token);
  const auto view = phasor::heads_view(key.data(), 1, 1, 1, kHeadDim);
  cache.append(view, view);  // at the position after the last token
}

// The largest distance of a key from the same token rotated in float64, relative to its length.
// The cache holds the first `sinks` tokens of all, then those from `first` on.
double error_of(const KVCache& cache, std::int64_t sinks, std::int64_t first) {
  const std::vector<double> positions = cache.positions();
  double worst = 0.0;
  for (std::int64_t t = 0; t < cache.tokens(); ++t) {
    const std::vector<float> raw = key_of(t < sinks ? t : first + t - sinks);
    std::vector<double> fresh(raw.begin(), raw.end());
    phasor::rotate(*cache.spec().rotary, phasor::positions_per_token({&positions[t], 1}),
                   phasor::heads_view(fresh.data(), 1, 1, 1, kHeadDim));
    const float* key = static_cast<const float*>(cache.keys().data) + t * kHeadDim;
    double error = 0.0, length = 0.0;
    for (std::size_t d = 0; d < fresh.size(); ++d) {
      error += (key[d] - fresh[d]) * (key[d] - fresh[d]);
      length += fresh[d] * fresh[d];
    }
    worst = std::max(worst, std::sqrt(error / length));
  }
  return worst;
}

// Reads `count` tokens through a window of kCapacity: the first few stay, the oldest others go.
double stream(CacheMode mode, std::int64_t count) {
  KVCache cache = make_cache(mode);
  for (std::int64_t token = 0; token < count; ++token) {
    if (cache.tokens() == kCapacity) {
      cache.evict(kSinks, kSinks + kDropped);
      cache.shift(kSinks, cache.tokens(), -kDropped);
    }
    append(cache, token);
  }
  return error_of(cache, kSinks, count - cache.tokens() + kSinks);
}

// The same tokens moved again and again, as in a window of many thousand tokens.
double move_often(CacheMode mode, int moves) {
  KVCache cache = make_cache(mode);
  for (std::int64_t token = 0; token < kCapacity; ++token) append(cache, token);
  for (int i = 0; i < moves; ++i) cache.shift(0, kCapacity, -1);
  return error_of(cache, 0, 0);
}

}  // namespace

int main() {
  std::printf("20000 tokens through a window of %d\n  compact %.1e   drift_free %.1e\n\n",
              static_cast<int>(kCapacity), stream(CacheMode::compact, 20000),
              stream(CacheMode::drift_free, 20000));
  std::printf("one token moved so often    error: compact   drift_free   (compact at most)\n");
  bool holds = true;
  for (const int moves : {1, 10, 100, 1000, 10000}) {
    const double compact = move_often(CacheMode::compact, moves);
    const double drift_free = move_often(CacheMode::drift_free, moves);
    const double rotation = phasor::attention::kCacheMoveError * 0x1p-23;
    std::printf("%23d %18.1e %12.1e %19.1e\n", moves, compact, drift_free, rotation * (moves + 1));
    holds = holds && compact <= rotation * (moves + 1) && drift_free <= rotation;
  }
  return holds ? 0 : 1;
}
