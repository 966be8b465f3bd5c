// What a cache keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

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
  // Keys turned in float32 on their way into a block of sixteen bits: a token at least.
  std::vector<float> wide_keys;
  // Where rerotate() writes before it takes the place of `keys`; then what it replaced.
  CacheBlock spare_keys = {};
  struct Before {
    std::optional<core::Rotary> rotary;
    PositionRows positions;
    std::int64_t tokens;
    bool keys_moved;
  };
  std::optional<Before> before_rerotate = std::nullopt;

  // Tokens [first, first + count) of one of the blocks.
  [[nodiscard]] core::HeadsView view(const CacheBlock& block, std::int64_t first,
                                     std::int64_t count) const noexcept;
  // Keys of the cache's dtype or of f32, turned by the spec's rotary if it has one, to the tokens
  // after the last, which have their positions. Throws before a token is touched.
  void write_keys(const core::ConstHeadsView& k, const core::Positions& positions, int threads);
  // A tensor of the cache's dtype or of f32, as it is, to the tokens after the last.
  void write_plain(const core::ConstHeadsView& from, const CacheBlock& block) const noexcept;
  // Keys of tokens [0, tokens), at positions `old` of the spec's rotary, rotated to those of `to` and
  // written to `out`.
  void rotate_to(const RotaryAt& to, const core::Positions& old, core::HeadsView out,
                 int threads) const;
  // Turns the keys of tokens [first, first + count) on by `delta` positions. Throws before a key is
  // touched.
  void rotate_by(std::int64_t first, std::int64_t count, double delta, int threads) const;
};

}  // namespace phasor::attention
