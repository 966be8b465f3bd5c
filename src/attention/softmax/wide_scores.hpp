// The scores of one query against the keys of its sequence, in float64: what the forward and backward
// passes over f64 views share.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "attention/softmax/call.hpp"
#include "attention/softmax/packed_tables.hpp"
#include "attention/softmax/per_table.hpp"
#include "attention/wide_arithmetic.hpp"

namespace phasor::attention {

// The score of a hidden key.
inline constexpr double kWideHidden = -std::numeric_limits<double>::infinity();

// Queries that a thread of the forward pass takes at a time; rows do not depend on each other.
inline constexpr std::int64_t kWideQueries = 16;

// What threads share out. Forward: blocks of queries of every head of every sequence; backward: the
// key heads of every sequence.
[[nodiscard]] std::int64_t wide_items(const Call& call, Pass pass) noexcept;
[[nodiscard]] std::int64_t wide_threads(const Call& call, Pass pass) noexcept;

// A table as float64: its `wide` numbers, or a dense copy of its float32 numbers.
class WideTable {
 public:
  WideTable() = default;
  WideTable(const encodings::Table& table, const std::vector<double>& copy) noexcept : at_(table) {
    if (!table.given() || table.wide != nullptr) return;
    at_.wide = copy.data();
    at_.row_stride = table.dim;
    at_.head_stride = table.rows * table.dim;
  }

  [[nodiscard]] bool given() const noexcept { return at_.given(); }
  [[nodiscard]] const double* row(std::int64_t head, std::int64_t row) const noexcept {
    return at_.wide + at_.offset(head, row);
  }

 private:
  encodings::Table at_;
};

// One query of one head of one sequence.
struct WideQuery {
  const Sequence* sequence = nullptr;
  std::int64_t head = 0, i = 0;

  // In tokens, for the masks.
  [[nodiscard]] std::int64_t position() const noexcept { return sequence->offset + i; }
  [[nodiscard]] std::int64_t token() const noexcept { return sequence->first_query + i; }
};

// A prepared call with its tables and rotated heads in float64.
struct WideCall : PerTable<WideTable> {
  // Rotates q and k of the bound call.
  explicit WideCall(const Call& call);

  const Call& call;
  const encodings::ScoreTerms& terms;

  // T_m q_m and T_n k_n; q and k themselves without a rotation.
  [[nodiscard]] const double* rotated_query(std::int64_t b, std::int64_t t,
                                            std::int64_t h) const noexcept {
    return call.query_rotator ? wide_row(call.memory.wide.rotated_q.view(), b, t, h)
                              : wide_row(call.q, b, t, h);
  }
  [[nodiscard]] const double* rotated_key(std::int64_t b, std::int64_t t,
                                          std::int64_t h) const noexcept {
    return call.key_rotator ? wide_row(call.memory.wide.rotated_k.view(), b, t, h)
                            : wide_row(call.k, b, t, h);
  }
  [[nodiscard]] std::int64_t distance(const WideQuery& query, std::int64_t j) const noexcept {
    return call.query_position(*query.sequence, query.i) - call.key_position(*query.sequence, j);
  }
  // C[r(m - n)].
  [[nodiscard]] const double* value_row(std::int64_t head, std::int64_t distance) const noexcept {
    return value_rows.row(head, terms.value_rows->map.row_of(distance));
  }
};

// How TUPE's first tokens replace the position part of a score.
enum class WideFirstToken : std::uint8_t { neither, query, key };

// Keys [first, last) of a sequence.
struct KeyRange {
  std::int64_t first = 0, last = 0;
};

// The scores of one query at a time, in the memory of one thread.
class WideScores {
 public:
  WideScores(const WideCall& wide, WideThread& memory) noexcept : wide_(&wide), memory_(&memory) {}

  // Sets the present query and its vectors below.
  void begin(const WideQuery& query) noexcept;

  // The keys that causality and window let it see.
  [[nodiscard]] KeyRange reach() const noexcept;
  [[nodiscard]] bool is_padding(std::int64_t j) const noexcept;
  [[nodiscard]] WideFirstToken first_token(std::int64_t j) const noexcept;
  [[nodiscard]] std::int64_t segment_row(std::int64_t j) const noexcept;
  // s(m, n) of encodings/score_terms.hpp.
  [[nodiscard]] double score(std::int64_t j) const noexcept;
  // c tanh(s / c), or s.
  [[nodiscard]] double capped(double score) const noexcept;
  // After the mask, for a key within reach that is no padding: -infinity if the mask hides it.
  [[nodiscard]] double masked(std::int64_t j, double capped_score) const noexcept;

  [[nodiscard]] double* row() noexcept {
    return memory_->row.data();
  }  // [keys], for the pass to use

  // T_m q_m + u, q_m + v, q_m + w and (q_m + w) . E.
  [[nodiscard]] const double* content() const noexcept { return memory_->content.data(); }
  [[nodiscard]] const double* relative() const noexcept { return memory_->relative.data(); }
  [[nodiscard]] const double* segment_query() const noexcept {
    return memory_->segment_query.data();
  }

 private:
  const WideCall* wide_;
  WideThread* memory_;
  WideQuery query_;
  double segment_scores_[2] = {0.0, 0.0};
};

}  // namespace phasor::attention
