// The backward pass of softmax attention, between its files: the work on one key head, and the sums
// of the tables' gradients.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "attention/softmax/call.hpp"
#include "attention/softmax/head_side.hpp"
#include "phasor/attention/softmax.hpp"

namespace phasor::attention {

// The factor from a gradient of the kernels' powers of two to a natural one.
inline constexpr float kNatural = static_cast<float>(kLn2);

// Sums a table's gradient. Units finish in an order that depends on the threads; what all heads share
// is summed in double, so that the result does not depend on it.
class GradientSums {
 public:
  GradientSums() = default;
  // memory   zeros for the sums of a shared table; moved past what is used
  GradientSums(const encodings::TableGradient& to, double*& memory) noexcept : to_(to) {
    if (!to.given() || to.heads != 1) return;
    shared_ = {memory, static_cast<std::size_t>(to.rows * to.dim)};
    memory += to.rows * to.dim;
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
  std::span<double> shared_;
};

struct AllSums : PerTable<GradientSums> {
  // Sets the memory's sums to zero and uses them.
  AllSums(const encodings::ScoreTermGradients& to, BackwardMemory& memory) noexcept {
    std::fill(memory.shared_sums.begin(), memory.shared_sums.end(), 0.0);
    double* next = memory.shared_sums.data();
    PerTable<GradientSums>& here = *this;
    for_each_table([&](GradientSums& sums,
                       const encodings::TableGradient& table) { sums = GradientSums(table, next); },
                   here, to);
  }
  void finish() {
    PerTable<GradientSums>& here = *this;
    for_each_table([](GradientSums& sums) { sums.finish(); }, here);
  }
};

struct Backward {
  const Call& call;
  const AttentionForward& forward;
  const AttentionGradients& gradients;
  AllSums sums;
  BackwardMemory& memory;
  std::int64_t used = 0;
};

// Makes the sums of `call.memory.backward` large enough for any gradients of its tables.
//
// throws   std::bad_alloc
void resize_table_sums(const Call& call);
// Adds what one head of a unit gives to the gradients of the tables.
void add_tables(Backward& backward, const Unit& unit);

}  // namespace phasor::attention
