// The gradients of the tables of an encoding, summed over ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/encodings/score_terms.hpp"
#include "phasor/parallel/communicator.hpp"

namespace phasor::parallel {

inline constexpr encodings::TableGradient encodings::ScoreTermGradients::*kTables[] = {
    &encodings::ScoreTermGradients::content_bias, &encodings::ScoreTermGradients::position_bias,
    &encodings::ScoreTermGradients::query_rows,   &encodings::ScoreTermGradients::key_rows,
    &encodings::ScoreTermGradients::bias,         &encodings::ScoreTermGradients::extra_query,
    &encodings::ScoreTermGradients::extra_key,    &encodings::ScoreTermGradients::first_row,
    &encodings::ScoreTermGradients::first_column, &encodings::ScoreTermGradients::segment_rows,
    &encodings::ScoreTermGradients::segment_bias, &encodings::ScoreTermGradients::value_rows};

// f32 calls read no `wide`.
template <class Number>
bool is_wanted(const encodings::TableGradient& gradient) noexcept {
  return gradient.given() || (std::is_same_v<Number, double> && gradient.wide != nullptr);
}

// This rank's part of the gradients of the tables, dense, one after the other.
template <class Number>
class TableSums {
 public:
  TableSums(const encodings::ScoreTermGradients& wanted, std::vector<std::byte>& memory)
      : wanted_(wanted) {
    std::int64_t count = 0;
    for (const auto table : kTables) {
      if (is_wanted<Number>(wanted.*table)) count += size_of(wanted.*table);
    }
    memory.assign(static_cast<std::size_t>(count) * sizeof(Number), std::byte{0});
    numbers_ = {reinterpret_cast<Number*>(memory.data()), static_cast<std::size_t>(count)};
    Number* next = numbers_.data();
    for (const auto table : kTables) {
      const encodings::TableGradient& to = wanted.*table;
      if (!is_wanted<Number>(to)) continue;
      encodings::TableGradient& own = own_.*table;
      own = encodings::heads_then_rows<float>(nullptr, to.heads, to.rows, to.dim);
      if constexpr (std::is_same_v<Number, double>) {
        own.wide = next;
      } else {
        own.data = next;
      }
      next += size_of(to);
    }
  }
  [[nodiscard]] const encodings::ScoreTermGradients& own() const noexcept { return own_; }
  // The part of some heads; tables that heads share are given whole.
  [[nodiscard]] encodings::ScoreTermGradients of_heads(std::int64_t first,
                                                       std::int64_t count) const noexcept {
    encodings::ScoreTermGradients some = own_;
    for (const auto table : kTables) {
      encodings::TableGradient& part = some.*table;
      if (part.heads == 1) continue;
      if (part.data != nullptr) part.data += first * part.head_stride;
      if (part.wide != nullptr) part.wide += first * part.head_stride;
      part.heads = count;
    }
    return some;
  }
  // Collective: adds the sum over ranks to the caller's gradients.
  void finish(Communicator& ranks) {
    if (numbers_.empty()) return;
    ranks.sum(numbers_);
    const Number* from = numbers_.data();
    for (const auto table : kTables) {
      const encodings::TableGradient& to = wanted_.*table;
      if (!is_wanted<Number>(to)) continue;
      for (std::int64_t h = 0; h < to.heads; ++h) {
        for (std::int64_t r = 0; r < to.rows; ++r) {
          for (std::int64_t e = 0; e < to.dim; ++e, ++from) {
            if (std::is_same_v<Number, double> && to.wide != nullptr) {
              to.wide[to.offset(h, r) + e] += static_cast<double>(*from);
            } else {
              to.row(h, r)[e] += static_cast<float>(*from);
            }
          }
        }
      }
    }
  }

 private:
  [[nodiscard]] static std::int64_t size_of(const encodings::TableGradient& table) noexcept {
    return table.heads * table.rows * table.dim;
  }
  const encodings::ScoreTermGradients& wanted_;
  encodings::ScoreTermGradients own_;
  std::span<Number> numbers_;
};

// Which gradients of tables a rank wants, with their sizes.
template <class Number>
std::string wanted_text(const encodings::ScoreTermGradients& terms) {
  std::string text;
  for (const auto table : kTables) {
    const encodings::TableGradient& to = terms.*table;
    text +=
        is_wanted<Number>(to) ? message("[", to.heads, ", ", to.rows, ", ", to.dim, "] ") : "- ";
  }
  return text;
}

}  // namespace phasor::parallel
