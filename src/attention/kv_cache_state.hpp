// What a cache keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "attention/position_rows.hpp"
#include "phasor/attention/kv_cache.hpp"
#include "phasor/attention/rerotate.hpp"

namespace phasor::attention {

// One of the cache's tensors: [batch][key_heads][capacity][dim].
struct CacheBlock {
  std::shared_ptr<std::byte[]> memory;
  std::int64_t dim = 0;
};

struct KVCache::State {
  CacheSpec spec;
  CacheBlock keys, values;
  CacheBlock raw_keys;  // drift_free alone
  PositionRows positions;
  std::int64_t tokens = 0;

  // Tokens [first, first + count) of one of the blocks.
  [[nodiscard]] core::HeadsView view(const CacheBlock& block, std::int64_t first,
                                     std::int64_t count) const noexcept;
  // Tokens [first, first + count), which stand at `old` under the spec's rotary, turned to stand as
  // in `to`. Throws before a key is touched.
  void move_keys(std::int64_t first, std::int64_t count, const core::Positions& old,
                 const Stance& to, int threads) const;
};

}  // namespace phasor::attention
