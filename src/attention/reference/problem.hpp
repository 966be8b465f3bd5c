// The inputs of an attention as float64, and which query meets which key: what the reference's
// forward and backward share.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "phasor/attention/softmax.hpp"

namespace phasor::attention::reference {

// The score of a pair that never meets.
inline constexpr double kHidden = -std::numeric_limits<double>::infinity();

// [batch, tokens, heads, dim], dense.
struct Dense {
  std::int64_t batch = 0, tokens = 0, heads = 0, dim = 0;
  std::vector<double> values;

  Dense(std::int64_t batch, std::int64_t tokens, std::int64_t heads, std::int64_t dim)
      : batch(batch),
        tokens(tokens),
        heads(heads),
        dim(dim),
        values(static_cast<std::size_t>(batch * tokens * heads * dim), 0.0) {}

  [[nodiscard]] double* row(std::int64_t b, std::int64_t token, std::int64_t head) noexcept {
    return values.data() + ((b * tokens + token) * heads + head) * dim;
  }
  [[nodiscard]] const double* row(std::int64_t b, std::int64_t token,
                                  std::int64_t head) const noexcept {
    return values.data() + ((b * tokens + token) * heads + head) * dim;
  }
};

// A row of a table: its float64 numbers where it has them.
class TableRow {
 public:
  TableRow(const encodings::Table& table, std::int64_t head, std::int64_t row)
      : narrow_(table.row(head, row)),
        wide_(table.wide == nullptr ? nullptr : table.wide + table.offset(head, row)) {}
  [[nodiscard]] double operator[](std::int64_t d) const noexcept {
    return wide_ != nullptr ? wide_[d] : static_cast<double>(narrow_[d]);
  }

 private:
  const float* narrow_;
  const double* wide_;
};

[[nodiscard]] Dense dense_of(const core::ConstHeadsView& view);

// Queries and keys that may meet: a batch row, or one packed sequence of batch row 0.
struct Sequence {
  std::int64_t batch = 0;
  std::int64_t first_query = 0, queries = 0;
  std::int64_t first_key = 0, keys = 0;
  std::int64_t counted_keys = 0;  // key_lengths; the last query stands beside the last of them

  [[nodiscard]] std::int64_t query_position(std::int64_t i) const noexcept {
    return counted_keys - queries + i;
  }
};

// Query i and key j of a sequence, at one head.
struct Meeting {
  const Sequence& sequence;
  std::int64_t head, i, j;

  [[nodiscard]] std::int64_t query() const noexcept { return sequence.first_query + i; }
  [[nodiscard]] std::int64_t key() const noexcept { return sequence.first_key + j; }
  [[nodiscard]] std::int64_t distance() const noexcept { return sequence.query_position(i) - j; }
};

// How TUPE's first tokens replace the position part of a score.
enum class FirstToken : std::uint8_t { neither, query, key };

struct Problem {
  const encodings::ScoreTerms& terms;
  const AttentionOptions& options;
  Dense q, k, v;
  Dense rotated_q, rotated_k;  // T_m q_m and T_n k_n
  std::vector<Sequence> sequences;
  double scale;

  // throws   Error: shapes that do not fit each other, distances that a table refuses
  Problem(const char* where, const encodings::ScoreTerms& terms, core::ConstHeadsView q,
          core::ConstHeadsView k, core::ConstHeadsView v, const AttentionOptions& options);

  [[nodiscard]] std::int64_t key_head(std::int64_t head) const noexcept {
    return head / (q.heads / k.heads);
  }
  // Where a meeting's number lies in [batch, heads, queries, keys].
  [[nodiscard]] std::size_t index(const Meeting& at) const noexcept {
    return static_cast<std::size_t>(
        ((at.sequence.batch * q.heads + at.head) * q.tokens + at.query()) * k.tokens + at.key());
  }

  [[nodiscard]] FirstToken first_token(const Meeting& at) const noexcept;
  [[nodiscard]] std::int64_t segment_row(const Meeting& at) const noexcept;
  // s(m, n) of encodings/score_terms.hpp.
  [[nodiscard]] double score(const Meeting& at) const noexcept;
  [[nodiscard]] double capped(double score) const noexcept;
  // After masks: -infinity for a key that this query does not see.
  [[nodiscard]] double masked(const Meeting& at, double capped_score) const noexcept;

  // Turns x at the positions of queries or keys, or turns gradients back.
  void rotate(Dense& x, core::Role role, core::Direction direction) const;

 private:
  [[nodiscard]] bool within_reach(const Meeting& at) const noexcept;
  void check_distances(const char* where) const;
};

// Calls act(meeting) for every query, key and head.
template <class Act>
void for_each_meeting(const Problem& problem, const Act& act) {
  for (const Sequence& sequence : problem.sequences) {
    for (std::int64_t head = 0; head < problem.q.heads; ++head) {
      for (std::int64_t i = 0; i < sequence.queries; ++i) {
        for (std::int64_t j = 0; j < sequence.keys; ++j) act(Meeting{sequence, head, i, j});
      }
    }
  }
}

}  // namespace phasor::attention::reference
