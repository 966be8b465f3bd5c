// What sequences that are sharded over ranks cost: the tokens of each rank, the bytes that it sends, the
// pairs that it computes. Formulas only, no MPI: the plans of room parallel send exactly these bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "phasor/attention/position_ids.hpp"
#include "phasor/export.h"

namespace phasor::porting {

// Which tokens a rank holds. Chunks differ by at most one token, the first are the longer ones.
using TokenOrder = attention::Split;

// Of numbers that travel between ranks.
enum class WireType : std::uint8_t { f32, bf16 };
[[nodiscard]] PHASOR_API std::string_view name_of(WireType wire) noexcept;
[[nodiscard]] PHASOR_API std::int64_t bytes_of(WireType wire) noexcept;

// Which keys a query sees.
enum class Sees : std::uint8_t { all, earlier };  // earlier: causal, itself included

// Tokens first, first + stride, ...
struct TokenRun {
  std::int64_t first = 0, count = 0, stride = 1;
};
// The tokens of a rank, in the order of its rows; a run may be empty. Only zigzag has two.
//
// throws   Error(out_of_range): tokens < 0, ranks < 1 or a rank that does not exist
[[nodiscard]] PHASOR_API std::array<TokenRun, 2> shard_runs(TokenOrder order, std::int64_t tokens,
                                                            int ranks, int rank);
[[nodiscard]] PHASOR_API std::int64_t shard_tokens(TokenOrder order, std::int64_t tokens, int ranks,
                                                   int rank);

// Self-attention over a whole sequence.
struct ShardedSizes {
  std::int64_t batch = 1, tokens = 0;
  std::int64_t heads = 0, key_heads = 0;  // heads: a multiple of key_heads
  std::int64_t head_dim = 0, value_dim = 0;
  Sees sees = Sees::earlier;
  std::optional<std::int64_t> window = std::nullopt;  // as attention::AttentionOptions
  TokenOrder order = TokenOrder::zigzag;
  WireType wire = WireType::f32;
};

// Some query of rank `queries` sees some key of rank `keys`.
[[nodiscard]] PHASOR_API bool shard_in_reach(const ShardedSizes& sizes, int ranks, int queries,
                                             int keys);

// The heads that a rank computes when heads are divided: chunk g of the query
// heads, and the key heads that they read.
struct HeadRange {
  std::int64_t first = 0, count = 0;          // of queries
  std::int64_t first_key = 0, key_count = 0;  // of keys
};
[[nodiscard]] PHASOR_API HeadRange shard_heads(const ShardedSizes& sizes, int ranks, int rank);

// Bytes that one rank sends for one layer.
struct RankBytes {
  std::int64_t forward = 0, backward = 0;
};

// Ring: the keys and values of rank j go to the ranks that have a query which sees one of them, R(j), and to
// no other: from the rank before if that one has them, else from j. In the backward pass they travel again,
// and each rank of R(j) sends their gradients on, the other way round.
//
//   S(j) = batch * tokens of j * key_heads * (head_dim + value_dim) * bytes of the wire
//   forward(r)  = sum of S(j) over j and i in R(j) whose source is r
//   backward(r) = forward(r) + sum of S(j) over j with r in R(j)
//   causal, zigzag or striped: forward (P - 1) S, backward 2 (P - 1) S on every rank
//
// throws   Error(out_of_range | invalid_argument) for sizes that are not positive (tokens may be 0),
//          heads that are no multiple of key_heads, ranks < 1
// cost     O(ranks^2)
[[nodiscard]] PHASOR_API std::vector<RankBytes> ring_bytes(const ShardedSizes& sizes, int ranks);

// Heads: rank g computes the heads of shard_heads() for all tokens. q, k, v and out cross the ranks, with the log-sum-exp (4 bytes) of each row; in
// the backward pass q, k, v, out, d_out and the log-sum-exp there, dq, dk and dv back. n: tokens of a
// rank, T: of all, a(g): query heads of rank g, c(g): key heads, D = head_dim, V = value_dim, w: bytes of
// the wire.
//
//   forward(r)  = batch * (n w sum over g != r of (a(g) D + c(g) (D + V)) + (T - n) a(r) (V w + 4))
//   backward(r) = batch * (n sum over g != r of (a(g) ((D + 2 V) w + 4) + c(g) (D + V) w)
//                          + (T - n) w (a(r) D + c(r) (D + V)))
//
// throws   as ring_bytes()
[[nodiscard]] PHASOR_API std::vector<RankBytes> heads_bytes(const ShardedSizes& sizes, int ranks);

// Grid of ring x heads ranks, rank = ring index * heads + heads index: the tokens of a ring index are
// those of a rank of the ring; its `heads_ranks` ranks hold contiguous parts of its rows and exchange heads
// among themselves, then each passes the keys and values of its heads on to the next ring index.
//
// throws   as ring_bytes()
[[nodiscard]] PHASOR_API std::vector<RankBytes> grid_bytes(const ShardedSizes& sizes,
                                                           int ring_ranks, int heads_ranks);

// The pairs of query and key that the queries of each rank see, of one head and batch row.
//
// throws   as ring_bytes()
[[nodiscard]] PHASOR_API std::vector<double> ring_pairs(const ShardedSizes& sizes, int ranks);

}  // namespace phasor::porting
