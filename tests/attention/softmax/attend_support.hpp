// Random attention problems with every kind of term and option, and the comparison of the tiled
// attention with the reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "attention/reference/attend_reference.hpp"
#include "attention/softmax/position_cases.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/encodings/score_terms.hpp"
#include "support/tensor.hpp"

namespace phasor::attention::tests {

using core::DType;
using core::tests::Strides;
using core::tests::Tensor;
using encodings::RelativeMap;
using encodings::RelativeRows;
using encodings::ScoreTerms;
using encodings::Table;

enum class Terms : std::uint8_t {
  none,
  rope,            // part of the head rotates
  xpos,            // grows with the position
  shaw,            // clamped rows that all heads share, for queries and values
  transformer_xl,  // a row for each distance, u and v
  xlnet,           // and segments
  t5,              // a bias whose rows repeat, [buckets, heads] in memory
  alibi,
  tupe,        // extra features and a bias
  tupe_first,  // and the first token on its own
  deberta,     // rows for queries and for keys, in buckets
  everything,  // but the first token, at once, with maps in no order
};
inline constexpr std::array kAllTerms = {
    Terms::none,           Terms::rope,       Terms::xpos,    Terms::shaw,
    Terms::transformer_xl, Terms::xlnet,      Terms::t5,      Terms::alibi,
    Terms::tupe,           Terms::tupe_first, Terms::deberta, Terms::everything};
inline const char* name_of(Terms terms) {
  constexpr std::array kNames = {"none",           "rope",       "xpos",    "shaw",
                                 "transformer_xl", "xlnet",      "t5",      "alibi",
                                 "tupe",           "tupe_first", "deberta", "everything"};
  return kNames[static_cast<std::size_t>(terms)];
}

enum class Masked : std::uint8_t {
  no,
  boolean_rank_2,
  boolean_rank_3,
  boolean_rank_4,
  boolean_short,    // fewer columns than keys
  additive_rank_2,  // a third of it -infinity
  additive_rank_4,
  additive_per_key,  // [batch, 1, 1, keys]
  additive_short,
};
inline const char* name_of(Masked masked) {
  constexpr std::array kNames = {"no",
                                 "boolean_rank_2",
                                 "boolean_rank_3",
                                 "boolean_rank_4",
                                 "boolean_short",
                                 "additive_rank_2",
                                 "additive_rank_4",
                                 "additive_per_key",
                                 "additive_short"};
  return kNames[static_cast<std::size_t>(masked)];
}

enum class Padded : std::uint8_t { no, lengths, flags };

struct Case {
  Terms terms = Terms::none;
  std::int64_t batch = 1, heads = 2, key_heads = 2;
  std::int64_t queries = 1, keys = 1;
  std::int64_t head_dim = 16, value_dim = 16;
  DType dtype = DType::f32, key_dtype = DType::f32;  // of q and out; of k and v
  Strides strides = Strides::heads_first;
  std::int64_t shift = 0;  // elements that the tensors' data are after an aligned address
  Causality causality = Causality::none;
  std::int64_t window = 0;  // 0: none
  double soft_cap = 0.0;
  Masked masked = Masked::no;
  Padded padded = Padded::no;
  std::int64_t packed = 0;  // sequences that the tokens are cut into; 0: not packed
  PositionIds positions = PositionIds::by_default;
  std::optional<std::int64_t> offset = std::nullopt;  // of query 0
  std::uint64_t seed = 1;
};

// As C++, to be pasted into a test.
inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  constexpr std::array kStrides = {"dense", "padded", "heads_first"};
  constexpr std::array kPadded = {"no", "lengths", "flags"};
  out << "{.terms = Terms::" << name_of(c.terms) << ", .batch = " << c.batch
      << ", .heads = " << c.heads << ", .key_heads = " << c.key_heads
      << ", .queries = " << c.queries << ", .keys = " << c.keys << ", .head_dim = " << c.head_dim
      << ", .value_dim = " << c.value_dim << ", .dtype = DType::" << core::name_of(c.dtype)
      << ", .key_dtype = DType::" << core::name_of(c.key_dtype)
      << ", .strides = Strides::" << kStrides[static_cast<std::size_t>(c.strides)]
      << ", .shift = " << c.shift
      << ", .causality = Causality::" << (c.causality == Causality::none ? "none" : "bottom_right")
      << ", .window = " << c.window << ", .soft_cap = " << c.soft_cap
      << ", .masked = Masked::" << name_of(c.masked)
      << ", .padded = Padded::" << kPadded[static_cast<std::size_t>(c.padded)]
      << ", .packed = " << c.packed << ", .positions = PositionIds::" << name_of(c.positions)
      << ", .offset = " << (c.offset ? std::to_string(*c.offset) : "std::nullopt")
      << ", .seed = " << c.seed << "}";
  return out;
}

// A Case with numbers: owns every table, mask and tensor that terms and options point to.
class Problem {
 public:
  explicit Problem(const Case& c)
      : what(c),
        random_(c.seed),
        q(tensor(c.dtype, c.queries, c.heads, c.head_dim)),
        k(tensor(c.key_dtype, c.keys, c.key_heads, c.head_dim)),
        v(tensor(c.key_dtype, c.keys, c.key_heads, c.value_dim)),
        d_out(tensor(c.dtype, c.queries, c.heads, c.value_dim)),
        ids(c.positions, c.batch, c.queries, c.keys, reads_rows_by_position() ? 0 : -50, random_) {
    terms.scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim));
    make_terms();
    make_options();
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  Case what;

 private:
  std::mt19937_64 random_;
  std::deque<std::vector<float>> tables_;  // a deque does not move what it holds

 public:
  Tensor q, k, v, d_out;
  GivenIds ids;
  ScoreTerms terms;
  AttentionOptions options;

  [[nodiscard]] core::ConstHeadsView q_view() const { return shifted(q); }
  [[nodiscard]] core::ConstHeadsView k_view() const { return shifted(k); }
  [[nodiscard]] core::ConstHeadsView v_view() const { return shifted(v); }
  [[nodiscard]] core::ConstHeadsView d_out_view() const { return shifted(d_out); }

  [[nodiscard]] ReferenceResult reference() const {
    return attend_reference(terms, q_view(), k_view(), v_view(), options);
  }
  [[nodiscard]] ReferenceGradients reference_gradients() const {
    return attend_backward_reference(terms, q_view(), k_view(), v_view(), d_out_view(), options);
  }

  // The numbers of one of this problem's tables.
  [[nodiscard]] std::vector<float>& values_of(const Table& table) {
    return *std::find_if(tables_.begin(), tables_.end(), [&](const std::vector<float>& values) {
      return values.data() == table.data;
    });
  }

  std::vector<std::int64_t> key_lengths, query_boundaries, key_boundaries;
  std::vector<std::uint8_t> key_padding, boolean_mask_values;
  std::vector<std::int32_t> query_segments, key_segments;
  std::vector<float> additive_mask_values;

 private:
  [[nodiscard]] core::ConstHeadsView shifted(const Tensor& tensor) const {
    core::ConstHeadsView view = tensor.view();
    view.data = static_cast<const char*>(view.data) +
                what.shift * static_cast<std::int64_t>(core::size_of(view.dtype));
    return view;
  }
  [[nodiscard]] Tensor tensor(DType dtype, std::int64_t tokens, std::int64_t heads,
                              std::int64_t dim) {
    return Tensor(dtype, {what.batch, tokens, heads, dim}, what.strides, random_());
  }

  [[nodiscard]] std::int64_t uniform(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  // Standard normal, so that each term moves a score by about as much as q.k does.
  [[nodiscard]] float* numbers(std::int64_t count, float spread = 1.0F) {
    std::normal_distribution<float> normal(0.0F, spread);
    std::vector<float>& table = tables_.emplace_back(static_cast<std::size_t>(count));
    for (float& x : table) x = normal(random_);
    return table.data();
  }

  [[nodiscard]] Table per_head(std::int64_t rows, std::int64_t dim) {
    return encodings::heads_then_rows<const float>(numbers(what.heads * rows * dim), what.heads,
                                                   rows, dim);
  }
  [[nodiscard]] Table shared(std::int64_t rows, std::int64_t dim) {
    return encodings::shared_rows<const float>(numbers(rows * dim), rows, dim);
  }
  [[nodiscard]] std::int64_t farthest() const {
    return std::max(what.queries + what.keys + std::abs(what.offset.value_or(0)), ids.farthest);
  }
  [[nodiscard]] bool reads_rows_by_position() const {
    return what.terms == Terms::tupe || what.terms == Terms::tupe_first ||
           what.terms == Terms::everything;
  }

  // clip(n - m, -left, right) + left
  [[nodiscard]] static RelativeMap clipped(std::int64_t left, std::int64_t right) {
    RelativeMap map{-right, {}, RelativeMap::Outside::clamp};
    for (std::int64_t distance = -right; distance <= left; ++distance) {
      map.rows.push_back(static_cast<std::int32_t>(left - distance));
    }
    return map;
  }
  // A row for each distance of these tokens, falling.
  [[nodiscard]] RelativeMap each_its_own() const {
    RelativeMap map{-farthest(), {}, RelativeMap::Outside::refuse};
    for (std::int64_t row = 2 * farthest(); row >= 0; --row) {
      map.rows.push_back(static_cast<std::int32_t>(row));
    }
    return map;
  }
  // Near distances have rows of their own, far ones share.
  [[nodiscard]] static RelativeMap buckets(std::int64_t half) {
    const std::int64_t reach = 8 * half;
    RelativeMap map{-reach, {}, RelativeMap::Outside::clamp};
    for (std::int64_t distance = -reach; distance <= reach; ++distance) {
      const std::int64_t far = std::abs(distance);
      const std::int64_t bucket =
          far < half / 2 ? far : std::min(half - 1, half / 2 + (far - half / 2) / half);
      map.rows.push_back(static_cast<std::int32_t>(distance < 0 ? half + bucket : bucket));
    }
    return map;
  }
  [[nodiscard]] RelativeMap in_no_order(std::int64_t first, std::int64_t last, std::int64_t rows) {
    RelativeMap map{first, {}, RelativeMap::Outside::clamp};
    for (std::int64_t distance = first; distance <= last; ++distance) {
      map.rows.push_back(static_cast<std::int32_t>(uniform(0, rows - 1)));
    }
    return map;
  }

  // Features [offset, offset + rotary_dim) rotate; a head of one feature does not.
  void add_rotation(bool grows) {
    const std::int64_t d = what.head_dim;
    const std::int64_t offset = d >= 16 ? 2 : 0;
    const std::int64_t width = d >= 16 ? d / 4 * 2 : d / 2 * 2;
    if (width == 0) return;
    core::Rotary rotary{core::make_frequencies({width, 10000.0}),
                        grows ? core::PairLayout::interleaved : core::PairLayout::half, d, offset};
    if (grows) {
      core::Growth growth{{}, static_cast<double>(what.keys / 2)};
      for (std::int64_t i = 0; i < width / 2; ++i) {
        const double zeta = (2.0 * static_cast<double>(i) / static_cast<double>(width) + 0.4) / 1.4;
        growth.rates.push_back(std::log(zeta) / 512.0);
      }
      rotary.growth = growth;
    }
    terms.rotation = rotary;
  }
  void add_segments() {
    terms.segment_rows = per_head(2, what.head_dim);
    terms.segment_bias = per_head(1, what.head_dim);
    for (std::int64_t i = 0; i < what.batch * what.queries; ++i) {
      query_segments.push_back(static_cast<std::int32_t>(uniform(0, 2)));
    }
    for (std::int64_t i = 0; i < what.batch * what.keys; ++i) {
      key_segments.push_back(static_cast<std::int32_t>(uniform(0, 2)));
    }
    options.query_segments = query_segments;
    options.key_segments = key_segments;
  }
  void add_extra(std::int64_t dim) {
    const auto rows = [](std::int64_t tokens, const std::vector<std::int64_t>& at) {
      return std::max<std::int64_t>({tokens, GivenIds::rows_of(at), 1});
    };
    terms.extra_query = per_head(rows(what.queries, ids.queries), dim);
    terms.extra_key = per_head(rows(what.keys, ids.keys), dim);
  }
  void add_slopes() {
    for (std::int64_t h = 0; h < what.heads; ++h) {
      const double step = -8.0 * static_cast<double>(h + 1) / static_cast<double>(what.heads);
      terms.slopes.push_back(std::exp2(step));
    }
  }

  void make_terms() {
    const std::int64_t d = what.head_dim, heads = what.heads;
    switch (what.terms) {
      case Terms::none:
        return;
      case Terms::rope:
        return add_rotation(false);
      case Terms::xpos:
        return add_rotation(true);
      case Terms::shaw:
        terms.query_rows = {shared(8, d), clipped(3, 4)};
        terms.value_rows = {shared(8, what.value_dim), clipped(3, 4)};
        return;
      case Terms::xlnet:
        add_segments();
        [[fallthrough]];
      case Terms::transformer_xl:
        terms.content_bias = per_head(1, d);
        terms.position_bias = per_head(1, d);
        terms.query_rows = {per_head(2 * farthest() + 1, d), each_its_own()};
        return;
      case Terms::t5:
        terms.bias = {encodings::rows_then_heads<const float>(numbers(16 * heads), 16, heads, 1),
                      buckets(8)};
        terms.scale = 1.0 / static_cast<double>(std::max<std::int64_t>(d / 4, 1));
        return;
      case Terms::alibi:
        return add_slopes();
      case Terms::tupe_first:
        terms.first_row = per_head(1, 1);
        terms.first_column = per_head(1, 1);
        [[fallthrough]];
      case Terms::tupe:
        add_extra(d);
        terms.bias = {per_head(16, 1), buckets(8)};
        terms.scale = 1.0 / std::sqrt(2.0 * static_cast<double>(d));
        return;
      case Terms::deberta:
        terms.query_rows = {per_head(16, d), buckets(8)};
        terms.key_rows = {per_head(16, d), buckets(8)};
        terms.scale = 1.0 / std::sqrt(3.0 * static_cast<double>(d));
        return;
      case Terms::everything:
        add_rotation(false);
        terms.content_bias = shared(1, d);
        terms.position_bias = per_head(1, d);
        terms.query_rows = {per_head(5, d), in_no_order(-40, 35, 5)};
        terms.key_rows = {shared(7, d), in_no_order(2, 9, 7)};
        terms.bias = {shared(9, 1), in_no_order(-130, 170, 9)};
        terms.value_rows = {per_head(6, what.value_dim), in_no_order(-20, 90, 6)};
        add_slopes();
        add_extra(3);
        add_segments();
        terms.scale = 0.5 / std::sqrt(static_cast<double>(d));
        return;
    }
  }

  void make_mask() {
    const std::int64_t columns =
        what.masked == Masked::boolean_short || what.masked == Masked::additive_short
            ? what.keys - what.keys / 3
            : what.keys;
    std::vector<std::int64_t> shape = {what.batch, what.heads, what.queries, columns};
    switch (what.masked) {
      case Masked::no:
        return;
      case Masked::boolean_rank_2:
      case Masked::additive_rank_2:
      case Masked::boolean_short:
        shape = {what.queries, columns};
        break;
      case Masked::boolean_rank_3:
      case Masked::additive_short:
        shape = {what.heads, what.queries, columns};
        break;
      case Masked::boolean_rank_4:
      case Masked::additive_rank_4:
        break;
      case Masked::additive_per_key:
        shape = {what.batch, 1, 1, columns};
        break;
    }
    std::size_t size = 1;
    for (const std::int64_t length : shape) size *= static_cast<std::size_t>(length);
    const auto rows = static_cast<std::int64_t>(size) / std::max<std::int64_t>(columns, 1);
    const std::int64_t dark_row = rows > 1 ? uniform(0, rows - 1) : -1;  // sees no key
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < size; ++i) {
      const bool hidden = static_cast<std::int64_t>(i) / columns == dark_row || uniform(0, 2) == 0;
      boolean_mask_values.push_back(hidden ? 0 : static_cast<std::uint8_t>(uniform(1, 255)));
      additive_mask_values.push_back(hidden ? -std::numeric_limits<float>::infinity()
                                            : normal(random_));
    }
    const bool is_boolean = what.masked <= Masked::boolean_short;
    options.mask = is_boolean ? boolean_mask(boolean_mask_values.data(), shape, what.batch,
                                             what.heads, what.queries, what.keys)
                              : additive_mask(additive_mask_values.data(), shape, what.batch,
                                              what.heads, what.queries, what.keys);
  }

  // Cut at random places, some sequences empty.
  [[nodiscard]] std::vector<std::int64_t> boundaries(std::int64_t tokens) {
    std::vector<std::int64_t> cuts = {0, tokens};
    while (static_cast<std::int64_t>(cuts.size()) <= what.packed) {
      cuts.push_back(uniform(0, tokens));
    }
    std::sort(cuts.begin(), cuts.end());
    return cuts;
  }

  void make_options() {
    options.causality = what.causality;
    if (what.window > 0) options.window = what.window;
    options.query_offset = what.offset;
    options.soft_cap = what.soft_cap;
    make_mask();
    if (what.padded == Padded::lengths) {
      for (std::int64_t b = 0; b < what.batch; ++b) key_lengths.push_back(uniform(0, what.keys));
      options.key_lengths = key_lengths;
    }
    if (what.padded == Padded::flags) {
      for (std::int64_t i = 0; i < what.batch * what.keys; ++i) {
        key_padding.push_back(uniform(0, 3) == 0 ? 0 : 1);
      }
      options.key_padding = key_padding;
    }
    if (what.packed > 0) {
      query_boundaries = boundaries(what.queries);
      key_boundaries = boundaries(what.keys);
      options.query_boundaries = query_boundaries;
      options.key_boundaries = key_boundaries;
    }
    if (what.positions == PositionIds::by_default) return;
    options.query_positions =
        core::positions_per_row(ids.queries.data(), 1, what.batch, what.queries);
    options.key_positions =
        what.positions == PositionIds::scattered
            ? core::positions_per_token(
                  std::span(ids.keys).first(static_cast<std::size_t>(what.keys)))
            : core::positions_per_row(ids.keys.data(), 1, what.batch, what.keys);
    if (ids.padding.empty()) return;
    if (key_padding.empty()) key_padding.assign(ids.padding.size(), 1);
    for (std::size_t i = 0; i < key_padding.size(); ++i) key_padding[i] &= ids.padding[i];
    options.key_padding = key_padding;
  }
};

// One of the terms' tables, its gradient by the reference, and where attention's gradient goes.
struct TableSlot {
  const char* name;
  Table table;
  const std::vector<double>* expected;
  encodings::TableGradient encodings::ScoreTermGradients::*gradient;
};
inline std::vector<TableSlot> tables_of(const ScoreTerms& terms, const ReferenceGradients& g) {
  using G = encodings::ScoreTermGradients;
  const auto of = [](const std::optional<RelativeRows>& rows) {
    return rows ? rows->table : Table{};
  };
  std::vector<TableSlot> slots = {
      {"content_bias", terms.content_bias, &g.content_bias, &G::content_bias},
      {"position_bias", terms.position_bias, &g.position_bias, &G::position_bias},
      {"query_rows", of(terms.query_rows), &g.query_rows, &G::query_rows},
      {"key_rows", of(terms.key_rows), &g.key_rows, &G::key_rows},
      {"bias", of(terms.bias), &g.bias, &G::bias},
      {"extra_query", terms.extra_query, &g.extra_query, &G::extra_query},
      {"extra_key", terms.extra_key, &g.extra_key, &G::extra_key},
      {"first_row", terms.first_row, &g.first_row, &G::first_row},
      {"first_column", terms.first_column, &g.first_column, &G::first_column},
      {"segment_rows", terms.segment_rows, &g.segment_rows, &G::segment_rows},
      {"segment_bias", terms.segment_bias, &g.segment_bias, &G::segment_bias},
      {"value_rows", of(terms.value_rows), &g.value_rows, &G::value_rows},
  };
  std::erase_if(slots, [](const TableSlot& slot) { return !slot.table.given(); });
  return slots;
}

template <class List>
auto pick(const List& list, std::size_t index) {
  return list[index % list.size()];
}

inline AttentionSizes sizes_for(const Case& c) {
  return {.batch = c.batch,
          .queries = c.queries,
          .keys = c.keys,
          .heads = c.heads,
          .key_heads = c.key_heads,
          .head_dim = c.head_dim,
          .value_dim = c.value_dim,
          .arithmetic = c.dtype == DType::f64 ? DType::f64 : DType::f32};
}

inline Case around_tile_edges(Terms terms) {
  return {.terms = terms, .batch = 2, .queries = 97, .keys = 193, .head_dim = 16, .value_dim = 12};
}

// Queries before, across and after the keys, with and without causality and a window.
inline std::vector<Case> at_offsets(Terms terms, std::int64_t queries) {
  std::vector<Case> cases;
  for (const std::int64_t offset : {-1000, -60, 0, 100, 191, 192, 193, 700}) {
    for (const std::int64_t window : {0, 40, 600}) {
      Case c = around_tile_edges(terms);
      c.batch = 1;
      c.queries = queries;
      c.window = window;
      c.offset = offset;
      c.causality = (offset + window) % 20 == 0 ? Causality::bottom_right : Causality::none;
      cases.push_back(c);
    }
  }
  return cases;
}

}  // namespace phasor::attention::tests
