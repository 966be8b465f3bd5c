// Which tokens of a sequence each rank holds, and what ranks send each other. Without MPI.
#pragma once

#include <cstdint>
#include <vector>

#include "phasor/attention/position_ids.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/porting/shard_costs.hpp"

namespace phasor::parallel {

// contiguous: one chunk a rank. zigzag: of 2 P chunks, rank r holds r and 2 P - 1 - r, so that causal work
// is equal. striped: rank r holds the tokens r, r + P, ...
using TokenOrder = attention::Split;

// Tokens first_token, first_token + stride, ... in the rows first_row, first_row + 1, ... of a shard.
struct TokenRun {
  std::int64_t first_row = 0, first_token = 0, count = 0, stride = 1;
};

// The tokens [0, tokens) of a sequence on `ranks` ranks, for any number of tokens: chunks differ by at most
// one token, and with fewer tokens than chunks the last are empty. Where attention::split_ids is defined,
// it gives the same tokens.
class Shards {
 public:
  // throws   Error(invalid_argument): tokens < 0 or ranks < 1
  Shards(TokenOrder order, std::int64_t tokens, int ranks);

  [[nodiscard]] TokenOrder order() const noexcept { return order_; }
  [[nodiscard]] std::int64_t tokens() const noexcept { return tokens_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  // precondition of all below: 0 <= rank < ranks()
  [[nodiscard]] std::int64_t count(int rank) const;
  [[nodiscard]] std::int64_t largest_count() const;
  // precondition  0 <= row < count(rank)
  [[nodiscard]] std::int64_t token(int rank, std::int64_t row) const;
  // The tokens of all rows, ascending.
  [[nodiscard]] std::vector<std::int64_t> tokens_of(int rank) const;
  // The same as at most two runs, none of them empty: those of porting::shard_runs().
  [[nodiscard]] std::vector<TokenRun> runs(int rank) const;

 private:
  TokenOrder order_;
  std::int64_t tokens_;
  int ranks_;
};

// How keys, values and their gradients are written between ranks: f32 as they are (f64 if attention computes
// in f64); bf16: keys and values are rounded once, on the rank that holds them, before anyone reads them.
using porting::WireType;
struct ParallelOptions {
  TokenOrder order = TokenOrder::contiguous;
  WireType wire = WireType::f32;
};

// What one rank sends in one run of a RingPlan. A shard goes to the ranks that have a query which sees one of
// its keys, and to no other: from rank to rank along the ring, from its own rank after a gap. The gradients of
// its keys and values go the same way back to it, summed on the way.
//
//   bytes of shard j = batch * tokens of j * key_heads * (head_dim + value_dim) * bytes of a number
//   all ranks: sum over j of (ranks other than j that need j) * bytes of shard j, for keys and values and once
//   more for gradients
struct RingBytes {
  std::int64_t keys_and_values = 0;  // of a forward run; a backward run sends them again
  std::int64_t gradients = 0;        // of a backward run
};
// inputs   sizes and options of the whole sequence; of options causality, window and boundaries are read
// throws   Error(invalid_argument | unsupported) as RingPlan
// cost     ranks^2 pairs of shards
[[nodiscard]] RingBytes ring_bytes(const attention::AttentionSizes& whole,
                                   const attention::AttentionOptions& options,
                                   const ParallelOptions& parallel, int ranks, int rank);

}  // namespace phasor::parallel
