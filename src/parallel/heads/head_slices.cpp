#include "parallel/heads/head_slices.hpp"

#include <span>

#include "phasor/attention/internal/per_table.hpp"

namespace phasor::parallel {
namespace {

template <class T>
void slice(encodings::BasicTable<T>& table, HeadRange range) {
  if (!table.given() || table.heads == 1) return;
  if (table.wide != nullptr) table.wide += range.first * table.head_stride;
  table.data += range.first * table.head_stride;
  table.heads = range.count;
}

// The same in each table of `from` and `to`.
template <class Number>
void add_table(const Number* from, const encodings::TableGradient& to, Number* numbers) {
  for (std::int64_t h = 0; h < to.heads; ++h) {
    for (std::int64_t r = 0; r < to.rows; ++r) {
      for (std::int64_t e = 0; e < to.dim; ++e) numbers[to.offset(h, r) + e] += *from++;
    }
  }
}

}  // namespace

encodings::ScoreTerms terms_of_heads(encodings::ScoreTerms terms, HeadRange range) {
  for (auto* rows : {&terms.query_rows, &terms.key_rows, &terms.bias, &terms.value_rows}) {
    if (*rows) slice((*rows)->table, range);
  }
  for (auto* table :
       {&terms.content_bias, &terms.position_bias, &terms.extra_query, &terms.extra_key,
        &terms.first_row, &terms.first_column, &terms.segment_rows, &terms.segment_bias}) {
    slice(*table, range);
  }
  if (!terms.slopes.empty()) {
    const auto first = terms.slopes.begin() + range.first;
    terms.slopes = std::vector<double>(first, first + range.count);
  }
  return terms;
}

attention::AttentionOptions options_of_heads(attention::AttentionOptions options, HeadRange range) {
  using Kind = attention::Mask::Kind;
  attention::Mask& mask = options.mask;
  const std::int64_t size = mask.kind == Kind::boolean ? 1 : mask.kind == Kind::additive ? 4 : 8;
  if (mask.kind != Kind::none && mask.data != nullptr) {
    mask.data = static_cast<const std::byte*>(mask.data) + size * range.first * mask.head_stride;
  }
  return options;
}

TableSums::TableSums(const encodings::ScoreTermGradients& wanted, core::DType arithmetic)
    : wanted_(wanted), all_(wanted) {
  std::int64_t count = 0, wide = 0;
  const auto dense = [&](encodings::TableGradient& table) {
    if (!table.given()) return;
    table.row_stride = table.dim;
    table.head_stride = table.rows * table.dim;
    if (arithmetic != core::DType::f64) table.wide = nullptr;
    (table.wide == nullptr ? count : wide) += table.heads * table.head_stride;
  };
  attention::for_each_table(dense, all_);
  numbers_.resize(static_cast<std::size_t>(count));
  wide_.resize(static_cast<std::size_t>(wide));
  float* next = numbers_.data();
  double* next_wide = wide_.data();
  const auto place = [&](encodings::TableGradient& table) {
    if (!table.given()) return;
    if (table.wide == nullptr) {
      table.data = std::exchange(next, next + table.heads * table.head_stride);
    } else {
      table.wide = std::exchange(next_wide, next_wide + table.heads * table.head_stride);
    }
  };
  attention::for_each_table(place, all_);
}

encodings::ScoreTermGradients TableSums::of_heads(HeadRange range) {
  encodings::ScoreTermGradients some = all_;
  attention::for_each_table(
      [&](encodings::TableGradient& table) {
        if (!table.given() || table.heads == 1) return;
        // `data` of wide gradients is not written, but must not be null.
        if (table.wide == nullptr)
          table.data += range.first * table.head_stride;
        else
          table.wide += range.first * table.head_stride;
        table.heads = range.count;
      },
      some);
  return some;
}

void TableSums::add_over(Communicator& ranks) {
  if (!numbers_.empty()) ranks.sum(std::span(numbers_));
  if (!wide_.empty()) ranks.sum(std::span(wide_));
  attention::for_each_table(
      [](const encodings::TableGradient& from, const encodings::TableGradient& to) {
        if (!to.given()) return;
        if (from.wide == nullptr) {
          add_table(from.data, to, to.data);
        } else {
          add_table(from.wide, to, to.wide);
        }
      },
      all_, wanted_);
}

}  // namespace phasor::parallel
