// The twelve tables of ScoreTerms, by name.
#pragma once

#include <optional>

#include "phasor/encodings/score_terms.hpp"

namespace phasor::attention {

template <class T>
struct PerTable {
  T content_bias, position_bias, query_rows, key_rows, bias, extra_query, extra_key, first_row,
      first_column, segment_rows, segment_bias, value_rows;
};

inline constexpr PerTable<const char*> kTableNames = {
    "content_bias", "position_bias", "query_rows",   "key_rows",     "bias",         "extra_query",
    "extra_key",    "first_row",     "first_column", "segment_rows", "segment_bias", "value_rows"};

// Calls act with the members of every struct, table by table: each is a PerTable or a
// ScoreTermGradients.
template <class Act, class... Structs>
void for_each_table(const Act& act, Structs&... of) {
  act(of.content_bias...);
  act(of.position_bias...);
  act(of.query_rows...);
  act(of.key_rows...);
  act(of.bias...);
  act(of.extra_query...);
  act(of.extra_key...);
  act(of.first_row...);
  act(of.first_column...);
  act(of.segment_rows...);
  act(of.segment_bias...);
  act(of.value_rows...);
}

[[nodiscard]] inline PerTable<encodings::Table> tables_of(const encodings::ScoreTerms& terms) {
  const auto rows = [](const std::optional<encodings::RelativeRows>& relative) {
    return relative ? relative->table : encodings::Table{};
  };
  return {terms.content_bias, terms.position_bias, rows(terms.query_rows), rows(terms.key_rows),
          rows(terms.bias),   terms.extra_query,   terms.extra_key,        terms.first_row,
          terms.first_column, terms.segment_rows,  terms.segment_bias,     rows(terms.value_rows)};
}

}  // namespace phasor::attention
