// The scores of one query against the keys of its sequence, in float64: what the forward and backward
// passes over f64 views share.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "attention/softmax/call.hpp"
#include "attention/wide_arithmetic.hpp"

namespace phasor::attention {

// The score of a hidden key.
inline constexpr double kWideHidden = -std::numeric_limits<double>::infinity();

// A table as float64: its `wide` numbers, or a copy of its float32 numbers.
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
  encodings::Table at_;  // with the strides of widened_ if there are no `wide` numbers
  std::vector<double> widened_;
};

// A call with its tables and rotated heads in float64.
struct WideCall {
  explicit WideCall(const Call& call);

  const Call& call;
  const encodings::ScoreTerms& terms;
  WideTable content_bias, position_bias, query_rows, key_rows, bias, extra_query, extra_key,
      first_row, first_column, segment_rows, segment_bias, value_rows;

  // T_m q_m and T_n k_n; q and k themselves without a rotation.
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

// The memory of one thread: its present query and the scores of that query.
class WideScores {
 public:
  explicit WideScores(const WideCall& wide);

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

  [[nodiscard]] double* row() noexcept { return row_.data(); }  // [keys], for the pass to use

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
