// The scores of one query against the keys that it may meet, in float64: what the wide forward and
// backward share.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "attention/softmax/call.hpp"
#include "attention/wide_arithmetic.hpp"

namespace phasor::attention {

// The score of a pair that never meets.
inline constexpr double kWideHidden = -std::numeric_limits<double>::infinity();

// A table as float64: the caller's wide numbers where there are any, else the others widened.
class WideTable {
 public:
  explicit WideTable(const encodings::Table& table);
  explicit WideTable(const std::optional<encodings::RelativeRows>& rows)
      : WideTable(rows ? rows->table : encodings::Table{}) {}

  [[nodiscard]] bool given() const noexcept { return at_.given(); }
  [[nodiscard]] const encodings::Table& shape() const noexcept { return at_; }
  [[nodiscard]] const double* row(std::int64_t head, std::int64_t row) const noexcept {
    return (at_.wide != nullptr ? at_.wide : widened_.data()) + at_.offset(head, row);
  }

 private:
  encodings::Table at_;  // strides are those of widened_ where that is read
  std::vector<double> widened_;
};

// A call with its tables and turned heads in float64.
struct WideCall {
  explicit WideCall(const Call& call);

  const Call& call;
  const encodings::ScoreTerms& terms;
  WideTable content_bias, position_bias, query_rows, key_rows, bias, extra_query, extra_key,
      first_row, first_column, segment_rows, segment_bias, value_rows;

  // T_m q_m and T_n k_n; the caller's where nothing turns.
  [[nodiscard]] const double* rotated_query(std::int64_t b, std::int64_t t,
                                            std::int64_t h) const noexcept {
    return call.query_rotator ? wide_row(rotated_q_.view(), b, t, h) : wide_row(call.q, b, t, h);
  }
  [[nodiscard]] const double* rotated_key(std::int64_t b, std::int64_t t,
                                          std::int64_t h) const noexcept {
    return call.key_rotator ? wide_row(rotated_k_.view(), b, t, h) : wide_row(call.k, b, t, h);
  }
  // C[r(m - n)].
  [[nodiscard]] const double* value_row(std::int64_t head, std::int64_t distance) const noexcept {
    return value_rows.row(head, terms.value_rows->map.row_of(distance));
  }

 private:
  WideHeads rotated_q_, rotated_k_;
};

// How TUPE's first tokens replace the position part of a score.
enum class WideFirstToken : std::uint8_t { neither, query, key };

// One query of one head of one sequence.
struct WideQuery {
  const Sequence* sequence = nullptr;
  std::int64_t head = 0, i = 0;

  [[nodiscard]] std::int64_t position() const noexcept { return sequence->offset + i; }
  [[nodiscard]] std::int64_t distance(std::int64_t j) const noexcept { return position() - j; }
  [[nodiscard]] std::int64_t token() const noexcept { return sequence->first_query + i; }
};
// Keys [first, last) of a sequence.
struct KeyRange {
  std::int64_t first = 0, last = 0;
};

// The memory of one thread: the query in hand, and its scores.
class WideScores {
 public:
  explicit WideScores(const WideCall& wide);

  // Takes a query in hand: its vectors below.
  void begin(const WideQuery& query) noexcept;

  // The keys that causality and window leave it.
  [[nodiscard]] KeyRange reach() const noexcept;
  [[nodiscard]] bool is_padding(std::int64_t j) const noexcept;
  [[nodiscard]] WideFirstToken first_token(std::int64_t j) const noexcept;
  [[nodiscard]] std::int64_t segment_row(std::int64_t j) const noexcept;
  // s(m, n) of encodings/score_terms.hpp.
  [[nodiscard]] double score(std::int64_t j) const noexcept;
  // c tanh(s / c), or s.
  [[nodiscard]] double capped(double score) const noexcept;
  // After the mask, for a key within reach that is no padding: -infinity where it is hidden.
  [[nodiscard]] double masked(std::int64_t j, double capped_score) const noexcept;

  [[nodiscard]] double* row() noexcept { return row_.data(); }  // [keys]: the pass's own

  // T_m q_m + u, q_m + v, q_m + w and (q_m + w) . E.
  [[nodiscard]] const double* content() const noexcept { return content_.data(); }
  [[nodiscard]] const double* relative() const noexcept { return relative_.data(); }
  [[nodiscard]] const double* segment_query() const noexcept { return segment_query_.data(); }

 private:
  const WideCall* wide_;
  WideQuery query_;
  std::vector<double> content_, relative_, segment_query_, row_;
  double segment_scores_[2] = {0.0, 0.0};
};

}  // namespace phasor::attention
