// Keys and values of the tokens so far. Keys are rotated when they are appended, so that a decoding
// step rotates only its own token; when tokens change position, their keys are rotated again.
//
// What rotation cannot change: from the second layer on, keys and values were computed from hidden
// states that had attended to tokens since evicted, at their former positions. A model that shifts
// its context therefore reads slightly different keys than one that recomputes. See docs/cache.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "phasor/attention/softmax.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/core/view.hpp"
#include "phasor/encodings/encoding.hpp"
#include "phasor/export.h"

namespace phasor::attention {

// Keys rotated under one scheme, rotated again as if under another: k_B = R_B R_A^-1 k_A.

// A scheme and the positions of its tokens.
struct RotaryAt {
  const core::Rotary& rotary;
  core::Positions positions;
};

// If both schemes pair features in the same way, this is one rotation by the difference of the exact
// angles, times b/a for the amplitudes; otherwise the inverse under `from`, then the rotation under
// `to`, without rounding in between.
//
// shape    keys as core::rotate; both schemes have its head_dim
// throws   as core::rotate, before keys are written
PHASOR_API void rerotate(const RotaryAt& from, const RotaryAt& to, core::HeadsView keys,
                         int threads = 0);

enum class CacheMode : std::uint8_t {
  compact,     // rotated keys only; a move rotates them again: the error grows with each move
  drift_free,  // raw keys too; a move rotates those: the error is always that of one rotation
};

struct CacheSpec {
  std::int64_t batch = 1, key_heads = 0, head_dim = 0, value_dim = 0;
  std::int64_t capacity = 0;                          // tokens; fixed, allocated at once
  core::DType dtype = core::DType::f32;               // of keys and values: f32, f16 or bf16
  std::optional<core::Rotary> rotary = std::nullopt;  // none: keys are not rotated
  CacheMode mode = CacheMode::compact;
  // Of the first token of an empty cache, unless append() is given positions.
  std::int64_t first_position = 0;
  // Of keys and queries. Keys with other than exact angles cannot be rotated again.
  core::AngleMode angles = core::AngleMode::exact;
};

// Error bound of a key after n moves (shifts and re-rotations) of a compact cache, compared with a key
// rotated once:
//   |key - fresh| <= (kCacheMoveError * epsilon(f32) + h) * (n + 1) * (length of the pair)
// with h = 0 for f32 and epsilon(dtype) / 2, one rounding to storage, for f16 and bf16: each move is
// one rotation (core::kRotateErrorF32) of the stored key. Moves by the same distance round in the
// same way each time, so that the error does grow linearly; over many distances it grows like a
// square root. In a drift_free cache n is always 0; if keys of f32 were stored in 16 bits, the raw
// ones were rounded as well, and h counts twice after the first move.
inline constexpr double kCacheMoveError = 2.0;

// An appended key is rounded once, after its rotation, whether it comes in the cache's dtype or in
// f32. In f16 and bf16 the result is the float64 rotation, rounded, or its neighbour, if its magnitude
// is above kCacheKeyFloor of the length of its pair; below that, the float32 error (kCacheMoveError)
// exceeds one unit in the last place. At least kCacheKeysAlike of all keys equal the rounded float64
// rotation.
inline constexpr double kCacheKeyFloor = 1.0 / 1024;
inline constexpr double kCacheKeysAlike = 0.999;

// Every call that throws leaves the cache unchanged, std::bad_alloc included. Calls that change a
// cache need exclusive access; const calls may run concurrently. A cache that was moved from can be
// assigned to or destroyed, nothing else.
class PHASOR_API KVCache {
 public:
  // throws   Error(invalid_argument): sizes that are not positive; Error(shape_mismatch): a rotary
  //          with a different head_dim; Error(out_of_range): a first position from which the capacity
  //          exceeds the angles; Error(unsupported): f64; std::bad_alloc
  explicit KVCache(CacheSpec spec);
  ~KVCache();
  KVCache(KVCache&&) noexcept;
  KVCache& operator=(KVCache&&) noexcept;

  // As given, except that the rotary is that of the last rerotate().
  [[nodiscard]] const CacheSpec& spec() const noexcept;
  [[nodiscard]] std::int64_t tokens() const noexcept;
  // The default position of the next token: the first integer after the last token's largest axis;
  // spec().first_position in an empty cache.
  [[nodiscard]] std::int64_t next_position() const noexcept;
  // Each token's position, [axes, tokens], the same for all batch rows. axes is that of the rotary's
  // frequencies (M-RoPE: 3 or 4), 1 without a rotary.
  [[nodiscard]] std::vector<double> positions() const;

  // Rotates the keys from the caller's memory into the cache and copies the values. Positions default
  // to next_position(), next_position() + 1, ... on every axis; positions with one axis serve every
  // axis. They must be the same for all batch rows: rows with different positions need a cache each.
  //
  // rotations  rows of cos and sin that layers share; null: computed here
  // shape    k [batch, n, key_heads, head_dim], v [batch, n, key_heads, value_dim], any strides,
  //          each of the cache's dtype or of f32; n = 0 does nothing
  // error    f16 and bf16: one rounding, see kCacheKeyFloor; without a rotary, and of values, exact
  // throws   Error(out_of_range) naming capacity and tokens when it is full, or for positions
  //          beyond the exact angles; Error(shape_mismatch); Error(invalid_argument): positions
  //          that are not finite; Error(unsupported): positions that differ between batch rows
  // cost     one read and one write of k and v; no allocation, except to grow `rotations`
  void append(core::ConstHeadsView k, core::ConstHeadsView v,
              std::optional<core::Positions> positions = std::nullopt, int threads = 0,
              StepRotations* rotations = nullptr);
  // Drops all tokens after the first `tokens`.
  //
  // throws   Error(out_of_range), as evict and shift, for tokens that the cache does not have
  void truncate(std::int64_t tokens);
  // Drops tokens [first, last) and closes the gap in memory; later tokens keep their positions
  // until shift().
  void evict(std::int64_t first, std::int64_t last);
  // Adds `delta` to the positions of tokens [first, last) on every axis and rotates their keys by the
  // difference; the amplitude does not change. A delta of 0 changes nothing.
  //
  // error    in f16 and bf16 a compact cache rounds these keys once more: kCacheMoveError
  // throws   also Error(out_of_range) for positions beyond the exact angles; Error(unsupported) for
  //          a cache of other angles
  // cost     no allocation
  void shift(std::int64_t first, std::int64_t last, std::int64_t delta, int threads = 0);
  // Rotates the keys from the cache's rotation to another (new base, LongRoPE long factors, YaRN's
  // amplitude ...), at the same or at new positions. It becomes the spec's rotary, also of a cache
  // that had none. If the number of axes changes, positions can be kept if all axes of each token
  // agree.
  //
  // error    as shift()
  // throws   Error(shape_mismatch | invalid_argument | out_of_range | unsupported) as append and
  //          shift;
  //          std::bad_alloc
  // memory   a second block of keys from the first such call on, kept for the next
  void rerotate(const core::Rotary& rotary, std::optional<core::Positions> positions = std::nullopt,
                int threads = 0);
  // Undoes the last rerotate() and the appends since, bit for bit: for a caller whose next step
  // failed. Does nothing without one, after one that threw, or after truncate, evict or shift.
  void undo_rerotate() noexcept;
  // An independent cache with the same tokens, of the same capacity or another.
  //
  // throws   Error(out_of_range) for a capacity below tokens(); std::bad_alloc
  [[nodiscard]] KVCache fork() const;
  [[nodiscard]] KVCache fork(std::int64_t capacity) const;

  // Rotated keys and values, [batch, tokens, key_heads, dim], heads before tokens in memory, so that
  // decoding streams one head's keys. Valid until the next call that changes the cache.
  [[nodiscard]] core::ConstHeadsView keys() const noexcept;
  [[nodiscard]] core::ConstHeadsView values() const noexcept;

  // Attention of q over the cache. Queries are at options.query_positions; by default they are the
  // cache's last tokens, each at the position of its own key (queries before the first token count
  // down from its position). q is rotated there with the cache's rotary, and terms that read distances
  // read those between positions: gaps that evict() left count, shift() closes them.
  //
  // throws   as attention::attend; Error(invalid_argument) when terms.rotation differs from the
  //          cache's rotary, when options.key_positions are given, or when options.angles are not
  //          those of the spec; Error(unsupported) for terms that read distances in a cache of several axes
  // cost     with options.workspace and up to four queries: no allocation once the workspace has
  //          served a cache of this capacity; options.rotations as in append
  void attend(const encodings::ScoreTerms& terms, core::ConstHeadsView q, core::HeadsView out,
              AttentionOptions options = {}) const;
  // The shape to resolve an encoding for, before attend() of q [batch, n, heads, head_dim] with these
  // options: distances are those of the cache's positions.
  //
  // throws   as attention::attention_shape
  [[nodiscard]] encodings::AttentionShape attention_shape(const core::ConstHeadsView& q,
                                                          AttentionOptions options = {}) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace phasor::attention
