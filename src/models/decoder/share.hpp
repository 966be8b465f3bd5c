// A sequence whose context is shared by ranks (phasor/models/context_share.hpp).
//
// The tokens of a call are divided into blocks, one for each rank, which computes them and keeps their keys
// and values; too few to divide, they are computed by every rank and kept by the one that has the fewest.
// In each layer, queries go to all ranks: each attends to the keys that it has, and the partial results are
// merged by their log-sum-exp. What is sent does not grow with the context.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "phasor/attention/kv_cache.hpp"
#include "phasor/models/context_share.hpp"

namespace phasor::models {

struct Run;

// Consecutive tokens of a call.
struct TokenBlock {
  std::int64_t first = 0, count = 0;
};

// Fewer tokens than this for each rank are not divided: a product of so few reads the same weights.
inline constexpr std::int64_t kTokensToDivide = 8;

// The capacity of a rank's caches for a context of `capacity` tokens: TokenOwners never needs more.
[[nodiscard]] std::int64_t share_of_capacity(std::int64_t capacity, int ranks) noexcept;

// Which rank keeps each token of a sequence.
class TokenOwners {
 public:
  TokenOwners() = default;
  TokenOwners(const ContextShare& share, std::int64_t first_position, std::int64_t capacity);

  // How a call of `tokens` is divided, by rank, in the order of the ranks: so that all have as nearly as
  // possible the same number of tokens after it.
  [[nodiscard]] std::vector<TokenBlock> blocks(std::int64_t tokens) const;
  // Divided, and not computed by every rank.
  [[nodiscard]] bool divides(std::int64_t tokens) const noexcept;
  // No allocation within the capacity.
  void append(std::span<const TokenBlock> blocks);
  void truncate(std::int64_t tokens) noexcept;

  // Of the rows of this rank's caches, ascending.
  [[nodiscard]] std::span<const std::int64_t> own_positions() const noexcept { return own_; }

 private:
  std::vector<int> owners_;               // by token
  std::vector<std::int64_t> own_, held_;  // held_: tokens by rank
  std::int64_t first_position_ = 0;
  int rank_ = 0;
};

// Memory that layers share.
struct ShareWorkspace {
  std::vector<float> partial, answers;
  std::vector<std::uint8_t> mask;
  std::vector<attention::StepRotations> rotations;  // by run and asking rank
};

// One layer of a run.
struct SharedLayer {
  const attention::KVCache& cache;  // with the run's own tokens
  const encodings::ScoreTerms& terms;
  attention::AttentionOptions options;  // of a run that is not shared
  std::int64_t heads = 0, head_dim = 0;
  std::size_t run = 0;  // its number in the call
};
// Collective: attention of the run's rows of this rank over the keys of all ranks.
//
// shape    query and out [run.count(), heads, head_dim]
void attend_shared(const Run& run, const SharedLayer& layer, const float* query, float* out,
                   ShareWorkspace& work);

}  // namespace phasor::models
