// Memory for the rows of several tokens, for tensors that are rotated one head at a time.
#pragma once

#include <cstdint>

namespace phasor::core {

// In a tensor [batch, heads, tokens, head_dim] the heads of a token are far apart, often in the same few
// sets of every cache. Such a tensor is rotated one head at a time, several tokens per step. The rows
// of few tokens stay in the L1 cache; many tokens read memory in longer runs, but their rows come from
// the L2 cache, so a few heads share them. In place on 1 x 32 x 4096 x 128 floats, relative to scaling
// them, 16 tokens took 1.0 on one CPU and 2.6 on another, where 1024 tokens took 1.6, and 1.25 with four
// heads together (two heads: 1.6, eight: 2.0), and 1.5 on a third, where 1024 tokens of one head took 1.1:
// rotate_ways.hpp measures which is faster.
struct TokensAtOnce {
  std::int64_t tokens;
  std::int64_t floats;  // of all their rows
};
inline constexpr TokensAtOnce kFewTokens = {16, 8192};
inline constexpr TokensAtOnce kManyTokens = {1024, 131072};
inline constexpr std::int64_t kHeadsTogether = 4;

// Memory for the rows of many tokens and for what kernels read after them: one block per thread,
// allocated at the first call. Null if that fails.
[[nodiscard]] float* rows_of_this_thread();

}  // namespace phasor::core
