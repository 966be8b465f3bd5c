#include "parallel/heads/head_slices.hpp"

#include <cstddef>
#include <vector>

namespace phasor::parallel {
namespace {

template <class T>
void slice(encodings::BasicTable<T>& table, HeadRange range) {
  if (!table.given() || table.heads == 1) return;
  if (table.wide != nullptr) table.wide += range.first * table.head_stride;
  table.data += range.first * table.head_stride;
  table.heads = range.count;
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

}  // namespace phasor::parallel
