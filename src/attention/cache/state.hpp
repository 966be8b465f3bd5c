// The memory of a cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "attention/position_rows.hpp"
#include "attention/rotation_rows.hpp"
#include "phasor/attention/kv_cache.hpp"

namespace phasor::attention {

// One of the cache's tensors: [batch][key_heads][capacity][dim].
struct CacheBlock {
  std::shared_ptr<std::byte[]> memory;
  std::int64_t dim = 0;
};

struct KVCache::State {
  CacheSpec spec;
  CacheBlock keys, values;
  CacheBlock raw_keys;  // drift_free only
  PositionRows positions;
  std::int64_t tokens = 0;
  // Keys rotated in float32 before they are rounded to 16 bits: one token or more.
  std::vector<float> wide_keys;
  // rerotate() writes here, then swaps with `keys`.
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
  // Rotates keys of the cache's dtype or of f32 by the spec's rotary, if it has one, and writes them
  // after the last token; their positions are already in `positions`. Throws before a key is
  // written.
  //
  // shared   rows of cos and sin of other layers; null: none
  void write_keys(const core::ConstHeadsView& k, const core::Positions& positions, int threads,
                  SharedRows* shared);
  // Writes a tensor of the cache's dtype or of f32 after the last token, unrotated.
  void write_plain(const core::ConstHeadsView& from, const CacheBlock& block) const noexcept;
  // Keys of tokens [0, tokens), at positions `old` of the spec's rotary, rotated to those of `to` and
  // written to `out`.
  void rotate_to(const RotaryAt& to, const core::Positions& old, core::HeadsView out,
                 int threads) const;
  // Rotates the keys of tokens [first, first + count) by `delta` more positions. Throws before a key
  // is written.
  void rotate_by(std::int64_t first, std::int64_t count, double delta, int threads) const;
};

}  // namespace phasor::attention
