// Where the rows of tokens wait that are turned a head at a time.
#pragma once

#include <cstdint>

namespace phasor::core {

// Where a tensor keeps heads before tokens, a token's heads lie far apart, often in the same few
// sets of every cache. So many tokens are then turned before the next, a head at a time. Few keep
// their rows in the first cache; many read memory in order, for longer. Rows of many come from the
// second cache, so a few heads share them. In place on 1 x 32 x 4096 x 128 floats, where scaling them
// takes 1, an Intel Xeon took 1.0 with 16 tokens; an AMD EPYC (Zen 4) took 2.6 with 16, 1.6 with 1024
// and, four heads together, 1.25; two heads 1.6, eight 2.0.
struct TokensAtOnce {
  std::int64_t tokens;
  std::int64_t floats;  // of all their rows
};
inline constexpr TokensAtOnce kFewTokens = {16, 8192};
inline constexpr TokensAtOnce kManyTokens = {1024, 131072};
inline constexpr std::int64_t kHeadsTogether = 4;

// Whether this CPU turns a tensor that comes from memory sooner with many tokens at once.
[[nodiscard]] bool prefers_many_tokens();

// Room for the rows of many tokens and for what kernels read behind them: the thread's own, made when
// it first asks. Null where there is no memory for it.
[[nodiscard]] float* rows_of_this_thread();

}  // namespace phasor::core
