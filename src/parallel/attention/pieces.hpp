// The rectangles of queries and keys that ranks attend to, and the way of the keys round the ring.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "phasor/parallel/shards.hpp"

namespace phasor::parallel {

// Queries of one rank and keys of one rank, of one packed sequence. Rows count in their shards; query i
// is at row offset + i of the piece's keys, as AttentionOptions::query_offset says.
struct Piece {
  std::int64_t first_query = 0, queries = 0;
  std::int64_t first_key = 0, keys = 0;
  std::int64_t stride = 1;  // tokens from one row to the next
  std::int64_t offset = 0;
  bool causal = false;                                // some pair is hidden by causality
  std::optional<std::int64_t> window = std::nullopt;  // in rows; none: it hides nothing
  // Where the first query and key are in their sequence: their positions unless the caller gives others.
  std::int64_t query_position = 0, key_position = 0;
  // And in the whole call.
  std::int64_t query_token = 0, key_token = 0;
};

// Which pairs of the whole sequence see each other.
class Layout {
 public:
  // throws   Error(invalid_argument): boundaries that do not fit; Error(unsupported): a window without
  //          causality over striped shards, whose two ends are not the same number of rows
  Layout(const attention::AttentionSizes& whole, const attention::AttentionOptions& options,
         TokenOrder order, int ranks);

  [[nodiscard]] const Shards& queries() const noexcept { return queries_; }
  [[nodiscard]] const Shards& keys() const noexcept { return keys_; }
  [[nodiscard]] int ranks() const noexcept { return keys_.ranks(); }
  [[nodiscard]] bool is_packed() const noexcept { return query_bounds_.size() > 2; }
  // The boundaries of the sequences; [0, tokens] if there is one.
  [[nodiscard]] std::span<const std::int64_t> query_bounds() const noexcept {
    return query_bounds_;
  }
  [[nodiscard]] std::span<const std::int64_t> key_bounds() const noexcept { return key_bounds_; }

  // What queries of `query_rank` see of the keys of `key_rank`: nothing that is hidden entirely, and every
  // row of a piece sees a key or is seen.
  [[nodiscard]] std::vector<Piece> pieces(int query_rank, int key_rank) const;
  [[nodiscard]] bool needs(int query_rank, int key_rank) const;

 private:
  template <class Visit>
  void visit_pieces(int query_rank, int key_rank, const Visit& visit) const;
  [[nodiscard]] std::optional<Piece> trimmed(Piece piece, std::int64_t distance) const;

  Shards queries_, keys_;
  std::vector<std::int64_t> query_bounds_, key_bounds_;
  bool causal_;
  std::optional<std::int64_t> window_;
};

// In step s rank r works on the shard of rank r - s.
class Schedule {
 public:
  explicit Schedule(const Layout& layout);

  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] int shard(int rank, int step) const noexcept { return wrapped(rank - step); }
  [[nodiscard]] int wrapped(int rank) const noexcept { return ((rank % ranks_) + ranks_) % ranks_; }
  // Whether `rank` works on the shard of `home`, another rank.
  [[nodiscard]] bool needs(int rank, int home) const noexcept {
    return needs_[static_cast<std::size_t>(rank * ranks_ + home)] != 0;
  }
  // The rank that sends the shard of `home` to `rank`: the one before it if that one has it, else its home.
  // precondition  needs(rank, home)
  [[nodiscard]] int source(int rank, int home) const noexcept {
    const int before = wrapped(rank - 1);
    return needs(before, home) ? before : home;
  }
  // The rank to which `rank` sends the gradients of the shard of `home`.
  // precondition  needs(rank, home)
  [[nodiscard]] int gradient_target(int rank, int home) const noexcept {
    const int after = wrapped(rank + 1);
    return needs(after, home) ? after : home;
  }

 private:
  int ranks_;
  std::vector<char> needs_;  // [rank][home]; false for the own shard
};

}  // namespace phasor::parallel
