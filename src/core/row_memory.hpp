// Where the rows of tokens wait that are turned a head at a time.
#pragma once

#include <cstdint>

namespace phasor::core {

// Where a tensor keeps heads before tokens, a token's heads lie far apart, often in the same few
// sets of every cache. So many tokens are then turned a head at a time. Few keep their rows in the
// first cache; many read memory in order, for longer. In place on 1 x 32 x 4096 x 128 floats, where
// scaling them takes 1, an Intel Xeon took 1.0 with 16; an AMD EPYC (Zen 4) 2.6 with 16, 2.1 with 64,
// 2.0 with 256 and 1.6 with 1024.
struct TokensAtOnce {
  std::int64_t tokens;
  std::int64_t floats;  // of all their rows
};
inline constexpr TokensAtOnce kFewTokens = {16, 8192};
inline constexpr TokensAtOnce kManyTokens = {1024, 131072};

// Whether this CPU turns a tensor that comes from memory sooner with many tokens at once.
[[nodiscard]] bool prefers_many_tokens();

// Room for the rows of many tokens and for what kernels read behind them: the thread's own, made when
// it first asks. Null where there is no memory for it.
[[nodiscard]] float* rows_of_this_thread();

}  // namespace phasor::core
