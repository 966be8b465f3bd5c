// The backward pass of softmax attention, between its files: the work on one key head, and the sums
// of the tables' gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/floats.hpp"
#include "attention/softmax/call.hpp"
#include "attention/softmax/head_side.hpp"
#include "phasor/attention/softmax.hpp"

namespace phasor::attention {

// What turns a gradient of the kernels' powers of two into a natural one.
inline constexpr float kNatural = static_cast<float>(kLn2);

// One key head of one sequence, with the query head of its group that is in hand. One thread works
// on a unit; what units add to shared tables is added when all have finished their head, in order.
struct Unit {
  KeySide keys;
  QuerySide side;
  std::int64_t step = 0;  // which query head of the group
  Floats content, raw, position, segments, d_out, out_rows, log_sum, delta, key_scratch, block;
  Floats d_content, d_position, d_segments, d_keys, d_raw_keys, d_values;
  Floats d_bias, d_query_rows, d_key_rows, d_value_rows;
  Floats query_far, value_far, query_outside, key_outside, value_outside;
  Floats strip, terms, weights, d_scores, band;
  float* bias_gradient = nullptr;  // d_bias[c]
};

// Where a table's gradient is summed. Units finish in an order that depends on the threads: what
// all heads share is summed in double, so that the order does not show.
class TableSums {
 public:
  explicit TableSums(const encodings::TableGradient& to) : to_(to) {
    if (to.given() && to.heads == 1) shared_.resize(static_cast<std::size_t>(to.rows * to.dim));
  }
  [[nodiscard]] bool wanted() const noexcept { return to_.given(); }
  void add(std::int64_t head, std::int64_t row, std::int64_t element, double value) {
    if (shared_.empty()) {
      to_.row(head, row)[element] += static_cast<float>(value);
    } else {
      shared_[static_cast<std::size_t>(row * to_.dim + element)] += value;
    }
  }
  // A whole row: factor * values.
  void add_row(std::int64_t head, std::int64_t row, const float* values, double factor) {
    if (!shared_.empty()) {
      for (std::int64_t e = 0; e < to_.dim; ++e)
        add(head, row, e, factor * static_cast<double>(values[e]));
      return;
    }
    float* const out = to_.row(head, row);
    for (std::int64_t e = 0; e < to_.dim; ++e) out[e] += static_cast<float>(factor) * values[e];
  }
  void finish() {
    for (std::size_t i = 0; i < shared_.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      to_.row(0, at / to_.dim)[at % to_.dim] += static_cast<float>(shared_[i]);
    }
  }

 private:
  encodings::TableGradient to_;
  std::vector<double> shared_;
};

struct AllSums {
  explicit AllSums(const encodings::ScoreTermGradients& to)
      : content_bias(to.content_bias),
        position_bias(to.position_bias),
        query_rows(to.query_rows),
        key_rows(to.key_rows),
        bias(to.bias),
        extra_query(to.extra_query),
        extra_key(to.extra_key),
        first_row(to.first_row),
        first_column(to.first_column),
        segment_rows(to.segment_rows),
        segment_bias(to.segment_bias),
        value_rows(to.value_rows) {}
  TableSums content_bias, position_bias, query_rows, key_rows, bias, extra_query, extra_key,
      first_row, first_column, segment_rows, segment_bias, value_rows;
  void finish() {
    for (TableSums* sums :
         {&content_bias, &position_bias, &query_rows, &key_rows, &bias, &extra_query, &extra_key,
          &first_row, &first_column, &segment_rows, &segment_bias, &value_rows}) {
      sums->finish();
    }
  }
};

struct Backward {
  const Call& call;
  const AttentionForward& forward;
  const AttentionGradients& gradients;
  AllSums sums;
  std::vector<Unit> units;
  std::int64_t used = 0;
};

// Adds what one head of a unit gives to the gradients of the tables.
void add_tables(Backward& backward, const Unit& unit);

}  // namespace phasor::attention
