#include "phasor/parallel/traffic.hpp"

#include <algorithm>

#include "parallel/heads/heads_state.hpp"
#include "phasor/core/error.hpp"

namespace phasor::parallel {
namespace {

using attention::AttentionPasses;
using attention::AttentionSizes;

// The bytes that one exchange moves for a token of one head.
struct TokenBytes {
  std::int64_t of_queries = 0, of_keys = 0;
};

// The all-to-all of a row of ranks, whose tokens are those of `sizes`.
struct RowTraffic {
  AttentionSizes sizes;
  std::int64_t ranks, queries, keys;  // tokens of the rank
  std::int64_t wire;

  [[nodiscard]] std::int64_t heads() const {
    return heads_of(sizes.heads, static_cast<int>(ranks), 0).count;
  }
  [[nodiscard]] std::int64_t key_heads() const {
    return heads_of(sizes.key_heads, static_cast<int>(ranks), 0).count;
  }
  [[nodiscard]] std::int64_t log_sum() const {
    return static_cast<std::int64_t>(core::size_of(sizes.arithmetic));
  }
  [[nodiscard]] std::int64_t tokens(std::int64_t q, std::int64_t k, TokenBytes bytes) const {
    return sizes.batch * (q * heads() * bytes.of_queries + k * key_heads() * bytes.of_keys);
  }
  [[nodiscard]] std::int64_t gather_sent(TokenBytes bytes) const {
    return (ranks - 1) * tokens(queries, keys, bytes);
  }
  [[nodiscard]] std::int64_t gather_received(TokenBytes bytes) const {
    return tokens(sizes.queries, sizes.keys, bytes);
  }
  [[nodiscard]] std::int64_t release_sent(TokenBytes bytes) const {
    return tokens(sizes.queries - queries, sizes.keys - keys, bytes);
  }
  [[nodiscard]] std::int64_t release_received(TokenBytes bytes) const {
    return ranks * tokens(queries, keys, bytes);
  }

  [[nodiscard]] TokenBytes in() const {
    return {wire * sizes.head_dim, wire * (sizes.head_dim + sizes.value_dim)};
  }
  [[nodiscard]] TokenBytes out() const { return {wire * sizes.value_dim, 0}; }
  [[nodiscard]] TokenBytes backward_in() const {
    return {wire * (sizes.head_dim + 2 * sizes.value_dim) + log_sum(), in().of_keys};
  }
  // Gradients go back as q, k and v came.
  [[nodiscard]] RunBytes sent() const {
    return {.forward = gather_sent(in()) + release_sent(out()),
            .backward = gather_sent(backward_in()) + release_sent(in()),
            .log_sum_exp = release_sent({log_sum(), 0})};
  }
};

std::int64_t wire_bytes(const AttentionSizes& whole, const ParallelOptions& parallel) {
  return parallel.wire == WireType::bf16
             ? 2
             : static_cast<std::int64_t>(core::size_of(whole.arithmetic));
}

RowTraffic row_traffic(const AttentionSizes& whole, const ParallelOptions& parallel, int ranks,
                       int rank) {
  check_heads(whole, parallel, ranks);
  return {whole, ranks, Shards(parallel.order, whole.queries, ranks).count(rank),
          Shards(parallel.order, whole.keys, ranks).count(rank), wire_bytes(whole, parallel)};
}

}  // namespace

RunBytes heads_bytes(const AttentionSizes& whole, const ParallelOptions& parallel, int ranks,
                     int rank) {
  return row_traffic(whole, parallel, ranks, rank).sent();
}

std::int64_t heads_memory(const AttentionSizes& whole, const ParallelOptions& parallel,
                          AttentionPasses passes, int ranks, int rank) {
  const RowTraffic row = row_traffic(whole, parallel, ranks, rank);
  const bool trains = passes == AttentionPasses::forward_and_backward;
  const std::int64_t both = row.wire * (whole.head_dim + whole.value_dim);
  TokenBytes out = row.out();
  out.of_queries += row.log_sum();
  std::int64_t bytes = row.gather_received({both + row.log_sum(), both});
  std::int64_t sent = std::max(row.gather_sent(row.in()), row.release_sent(out));
  std::int64_t received = std::max(row.gather_received(row.in()), row.release_received(out));
  if (trains) {
    bytes += row.gather_received({both, both});
    sent = std::max({sent, row.gather_sent(row.backward_in()), row.release_sent(row.in())});
    received = std::max(
        {received, row.gather_received(row.backward_in()), row.release_received(row.in())});
    if (whole.key_heads < ranks) {
      bytes += whole.batch * row.keys * std::max(whole.head_dim, whole.value_dim) * row.log_sum();
    }
  }
  return bytes + sent + received;
}

namespace {

// The tokens of one row of a grid, which its ranks hold in contiguous parts.
AttentionSizes sizes_of_row(const AttentionSizes& whole, TokenOrder order, int ring_ranks,
                            int row) {
  AttentionSizes sizes = whole;
  sizes.queries = Shards(order, whole.queries, ring_ranks).count(row);
  sizes.keys = Shards(order, whole.keys, ring_ranks).count(row);
  return sizes;
}

}  // namespace

RunBytes grid_bytes(const AttentionSizes& whole, const attention::AttentionOptions& options,
                    const ParallelOptions& parallel, int ring_ranks, int heads_ranks, int rank) {
  const int row = rank / heads_ranks, column = rank % heads_ranks;
  RunBytes sent = heads_bytes(sizes_of_row(whole, parallel.order, ring_ranks, row),
                              {.wire = parallel.wire}, heads_ranks, column);
  const RingBytes ring =
      ring_bytes(sizes_of_heads(whole, heads_ranks), options, parallel, ring_ranks, row);
  sent.forward += ring.keys_and_values;
  sent.backward += ring.keys_and_values + ring.gradients;
  return sent;
}

std::int64_t grid_memory(const AttentionSizes& whole, const ParallelOptions& parallel,
                         AttentionPasses passes, int ring_ranks, int heads_ranks, int rank) {
  return heads_memory(sizes_of_row(whole, parallel.order, ring_ranks, rank / heads_ranks),
                      {.wire = parallel.wire}, passes, heads_ranks, rank % heads_ranks);
}

}  // namespace phasor::parallel
