// The backward pass of softmax attention, between its files: the work on one key head, and the sums
// of the tables' gradients.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>

#include "attention/softmax/call.hpp"
#include "attention/softmax/head_side.hpp"
#include "phasor/attention/softmax.hpp"

namespace phasor::attention {

// The factor from a gradient of the kernels' powers of two to a natural one.
inline constexpr float kNatural = static_cast<float>(kLn2);

// Sums a table's gradient. Threads add the heads of their units one after the other. A table that all
// heads share has one sum for each head of a group: every sum is added to in the order of the units, so
// that the bits of the result do not depend on the threads, and no thread waits for a whole unit of
// another.
class GradientSums {
 public:
  GradientSums() = default;
  // memory   zeros for the sums of a shared table; moved past what is used
  GradientSums(const encodings::TableGradient& to, std::int64_t group, double*& memory) noexcept
      : to_(to), group_(group) {
    if (!to.given() || to.heads != 1) return;
    shared_ = {memory, static_cast<std::size_t>(group * to.rows * to.dim)};
    memory += group * to.rows * to.dim;
  }
  [[nodiscard]] bool wanted() const noexcept { return to_.given(); }
  void add(std::int64_t head, std::int64_t row, std::int64_t element, double value) {
    if (shared_.empty()) {
      to_.row(head, row)[element] += static_cast<float>(value);
    } else {
      const std::int64_t at = (head % group_ * to_.rows + row) * to_.dim + element;
      shared_[static_cast<std::size_t>(at)] += value;
    }
  }
  // A whole row: factor * values.
  void add_row(const kernels::Kernels& kernels, std::int64_t head, std::int64_t row,
               const float* values, double factor) {
    if (!shared_.empty()) {
      for (std::int64_t e = 0; e < to_.dim; ++e)
        add(head, row, e, factor * static_cast<double>(values[e]));
      return;
    }
    kernels.add_rows(values, 0, static_cast<float>(factor), 1, to_.dim, to_.row(head, row), 0);
  }
  void finish() {
    if (shared_.empty()) return;
    const std::int64_t size = to_.rows * to_.dim;
    for (std::int64_t at = 0; at < size; ++at) {
      double sum = 0.0;
      for (std::int64_t step = 0; step < group_; ++step)
        sum += shared_[static_cast<std::size_t>(step * size + at)];
      to_.row(0, at / to_.dim)[at % to_.dim] += static_cast<float>(sum);
    }
  }

 private:
  encodings::TableGradient to_;
  std::int64_t group_ = 1;
  std::span<double> shared_;
};

struct AllSums : PerTable<GradientSums> {
  // Sets the memory's sums to zero and uses them.
  AllSums(const encodings::ScoreTermGradients& to, std::int64_t group,
          BackwardMemory& memory) noexcept {
    std::fill(memory.shared_sums.begin(), memory.shared_sums.end(), 0.0);
    double* next = memory.shared_sums.data();
    PerTable<GradientSums>& here = *this;
    for_each_table(
        [&](GradientSums& sums, const encodings::TableGradient& table) {
          sums = GradientSums(table, group, next);
        },
        here, to);
  }
  [[nodiscard]] bool wanted() const noexcept {
    bool any = false;
    const PerTable<GradientSums>& here = *this;
    for_each_table([&](const GradientSums& sums) { any = any || sums.wanted(); }, here);
    return any;
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
  std::int64_t units;
  std::atomic<std::int64_t> next{0};
  bool has_tables = false;  // whether any gradient of a table is wanted
  std::mutex mutex{};       // of what follows, the sums and the memory's turns
  std::condition_variable added{};
  bool has_failed = false;
};

// Makes the sums of `call.memory.backward` large enough for any gradients of its tables.
//
// throws   std::bad_alloc
void resize_table_sums(const Call& call);
// Adds what one head of a unit gives to the gradients of the tables.
void add_tables(Backward& backward, const Unit& unit);

}  // namespace phasor::attention
