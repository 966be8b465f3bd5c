// Keys and values of the tokens so far. Keys are turned when they are appended, so that decoding
// turns nothing but its own token; when tokens move, their keys are turned again.
//
// What turning again cannot repair: from the second layer on, keys and values were computed from
// hidden states that had attended to tokens since evicted, at the positions of then. The cache
// moves rotations, not that history; a model that shifts its context reads slightly other keys than
// one that recomputes. See docs/cache.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "phasor/attention/softmax.hpp"
#include "phasor/core/rotary.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/core/view.hpp"
#include "phasor/export.h"

namespace phasor::attention {

enum class CacheMode : std::uint8_t {
  compact,     // turned keys alone; a move turns them once more: the error grows with the moves
  drift_free,  // raw keys too; a move turns those: the error is always that of one turn
};

struct CacheSpec {
  std::int64_t batch = 1, key_heads = 0, head_dim = 0, value_dim = 0;
  std::int64_t capacity = 0;                          // tokens; fixed, allocated at once
  core::DType dtype = core::DType::f32;               // of keys and values: f32, f16 or bf16
  std::optional<core::Rotary> rotary = std::nullopt;  // none: keys are kept as they come
  CacheMode mode = CacheMode::compact;
};

// How far a key may be from one turned afresh, after n moves (shifts and re-rotations) of a compact
// cache:
//   |key - fresh| <= (kCacheMoveError * epsilon(f32) + h) * (n + 1) * (length of the pair)
// with h = 0 for f32 and epsilon(dtype) / 2, one rounding to storage, for f16 and bf16: each move
// is one turn (core::kRotateErrorF32) of what was there. Moves by one distance, forth or back,
// round alike each time, so that the growth is linear in truth; over many distances it is like a
// square root. In a drift_free cache n counts as 0 for ever; where keys of f32 came into sixteen bits,
// the raw ones were rounded as well, and h counts twice after the first move.
inline constexpr double kCacheMoveError = 2.0;

// A key that is appended is rounded once, after its turn, whether it comes in the cache's dtype or in
// f32. In f16 and bf16 it is then that of the float64 rotation, rounded, or its neighbour, where its
// magnitude is above kCacheKeyFloor of the length of its pair; below, an error of float32
// (kCacheMoveError) is more than a unit of the small number. At least kCacheKeysAlike of all keys are
// the very same: the others lay next to the middle of two numbers.
inline constexpr double kCacheKeyFloor = 1.0 / 1024;
inline constexpr double kCacheKeysAlike = 0.999;

// Every call that throws leaves the cache as it was, std::bad_alloc included: what can fail comes
// before the first change, and rerotate() writes to a block of its own. Calls that change a cache need the cache to
// themselves; calls that do not may run side by side. A cache that was moved from can be assigned
// to or destroyed, nothing else.
class PHASOR_API KVCache {
 public:
  // throws   Error(invalid_argument): sizes that are not positive; Error(shape_mismatch): a rotary
  //          of another head_dim; Error(unsupported): f64; std::bad_alloc
  explicit KVCache(CacheSpec spec);
  ~KVCache();
  KVCache(KVCache&&) noexcept;
  KVCache& operator=(KVCache&&) noexcept;

  // As given, except that the rotary is that of the last rerotate().
  [[nodiscard]] const CacheSpec& spec() const noexcept;
  [[nodiscard]] std::int64_t tokens() const noexcept;
  // The next token's position when append is not told one: the first integer behind the last
  // token's largest axis; 0 in an empty cache.
  [[nodiscard]] std::int64_t next_position() const noexcept;
  // Each token's position, [axes, tokens]; all batch rows stand alike. axes is that of the rotary's
  // frequencies (M-RoPE: 3), 1 without a rotary.
  [[nodiscard]] std::vector<double> positions() const;

  // Turns the keys straight from the caller's memory into the cache and copies the values.
  // Positions default to next_position() and on, every axis alike; text positions serve every axis.
  // Positions that differ between batch rows are refused: rows that stand apart need a cache each.
  //
  // shape    k [batch, n, key_heads, head_dim], v [batch, n, key_heads, value_dim], any strides,
  //          each of the cache's dtype or of f32; n = 0 does nothing
  // error    f16 and bf16: one rounding, see kCacheKeyFloor; without a rotary, and of values, exact
  // throws   Error(out_of_range) naming capacity and tokens when it is full, or for positions
  //          beyond the exact angles; Error(shape_mismatch); Error(invalid_argument): positions
  //          that are not finite; Error(unsupported): positions that differ between batch rows
  // cost     one read and one write of k and v; no allocation
  void append(core::ConstHeadsView k, core::ConstHeadsView v,
              std::optional<core::Positions> positions = std::nullopt, int threads = 0);
  // Drops the tokens behind the first `tokens`.
  //
  // throws   Error(out_of_range), as evict and shift, for tokens that are not there
  void truncate(std::int64_t tokens);
  // Drops tokens [first, last) and closes the gap in memory; later tokens keep their positions
  // until shift().
  void evict(std::int64_t first, std::int64_t last);
  // Adds `delta` to the positions of tokens [first, last), every axis alike: one more turn of their
  // keys, the amplitude left as it is. By 0 nothing is touched.
  //
  // error    in f16 and bf16 a compact cache rounds these keys once more: kCacheMoveError
  // throws   also Error(out_of_range) for positions beyond the exact angles
  // cost     no allocation
  void shift(std::int64_t first, std::int64_t last, std::int64_t delta, int threads = 0);
  // The same tokens under another rotation (new base, longrope long factors, YaRN's amplitude ...),
  // at the same or at new positions: one turn. The spec's rotary is the new one from then on. A
  // cache without a rotary gets one. Where the number of axes changes, the same positions can be
  // kept if all axes of each token agree.
  //
  // error    as shift()
  // throws   Error(shape_mismatch | invalid_argument | out_of_range | unsupported) as append;
  //          std::bad_alloc
  // memory   a second block of keys from the first such call on, kept for the next
  void rerotate(const core::Rotary& rotary, std::optional<core::Positions> positions = std::nullopt,
                int threads = 0);
  // Takes back the last rerotate() and the tokens appended since, bit for bit: for a caller whose
  // next step failed. Nothing happens without one, after one that threw, or after truncate, evict or
  // shift.
  void undo_rerotate() noexcept;
  // An independent cache with the same tokens, of the same capacity or another.
  //
  // throws   Error(out_of_range) for a capacity below tokens(); std::bad_alloc
  [[nodiscard]] KVCache fork() const;
  [[nodiscard]] KVCache fork(std::int64_t capacity) const;

  // Turned keys and values, [batch, tokens, key_heads, dim], heads before tokens in memory, so that
  // decoding streams one head's keys. Valid until the next call that changes the cache.
  [[nodiscard]] core::ConstHeadsView keys() const noexcept;
  [[nodiscard]] core::ConstHeadsView values() const noexcept;

  // Attention of q over the cache, keys as they are. q is turned with the cache's rotary at
  // options.query_positions; by default queries are the cache's last tokens and each stands where
  // its own key stands, the last query at the last token's position (queries before the first token
  // stand one apart).
  //
  // throws   as attention::attend; Error(invalid_argument) when terms.turn is not the cache's
  //          rotary, none for none (a cache used after its spec changed), when
  //          options.key_positions are given (the cache has them), or when options.angles are not
  //          exact (the keys' are)
  // cost     with options.workspace, up to four queries: no allocation once the workspace has served
  //          a cache of this capacity
  void attend(const encodings::ScoreTerms& terms, core::ConstHeadsView q, core::HeadsView out,
              AttentionOptions options = {}) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace phasor::attention
