#include "attention/softmax/packed_tables.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "phasor/core/cancellation.hpp"
#include "phasor/core/cpu.hpp"

namespace phasor::attention {
namespace {

using encodings::RelativeRows;
using kernels::kPanelRows;
using kernels::kTileKeys;
using kernels::kWidest;
using kernels::rounded_up;

// Which forms of a table a pass reads, and the factor on its columns.
struct TableForm {
  std::int64_t stride;
  bool columns, rows;
  float factor = 1.0F;
};
struct TableForms {
  TableForm query_rows, key_rows, value_rows;
};
TableForms forms_of(const Call& call, Pass pass) {
  const Strides strides = strides_of(call);
  const bool backward = pass == Pass::backward;
  return {{strides.relative, true, backward || call.is_scattered()},
          {strides.relative, true, true, static_cast<float>(call.scale * kLog2e)},
          {strides.value, backward, true}};
}

// Columns rise as distances fall. If the map ends inside the call's distances, the column at its end
// serves all beyond.
Spread columns_of(const Call& call, const RelativeRows& rows) {
  const std::int64_t low = std::clamp(rows.map.first, call.distances.low, call.distances.high);
  const std::int64_t high = std::clamp(rows.map.last(), call.distances.low, call.distances.high);
  return {.first = -high, .count = high - low + 1, .columns = {}, .rows = {}};
}

void cut_spread(const Call& call, const RelativeRows& rows, const TableForm& form,
                SliceCutter& cutter, Spread& spread) {
  spread = columns_of(call, rows);
  const std::int64_t padded = rounded_up(spread.count, kWidest);
  if (form.columns) spread.columns = cutter.take(padded * rows.table.dim);
  // Gradients work on whole panels of rows.
  if (form.rows) spread.rows = cutter.take((padded + kPanelRows) * form.stride);
}

// `chunk` is read only if the spread keeps no rows.
void fill_spread(const Call& call, const RelativeRows& rows, const TableForm& form,
                 std::int64_t head, const Spread& spread, float* chunk) {
  const std::int64_t dim = rows.table.dim;
  for (std::int64_t first = 0; first < spread.count; first += kTileKeys) {
    const std::int64_t count = std::min(kTileKeys, spread.count - first);
    float* const out = spread.rows.count() == 0 ? chunk : spread.rows.data() + first * form.stride;
    for (std::int64_t x = 0; x < count; ++x) {
      const std::int64_t distance = -(spread.first + first + x);
      std::memcpy(out + x * form.stride, rows.table.row(head, rows.map.row_of(distance)),
                  static_cast<std::size_t>(dim) * sizeof(float));
    }
    if (spread.columns.count() != 0) {
      call.kernels.pack_columns(out, form.stride, count, dim, form.factor,
                                spread.columns.data() + first * dim);
    }
  }
}

// The call's columns, and a tile's width on both sides.
std::int64_t column_zero(const Call& call) { return kTileKeys - call.bias_first; }

void fill_bias(const Call& call, std::int64_t head, const Slice& bias) {
  for (std::int64_t x = 0; x < bias.count(); ++x) {
    bias.data()[x] = static_cast<float>(call.bias_of(head, column_zero(call) - x) * kLog2e);
  }
}

// How many heads of a table are packed before the run: one for all, each, or none.
std::int64_t packed_heads(const Call& call, std::int64_t table_heads, std::int64_t floats) {
  if (table_heads == 1) return 1;
  if (call.reuse == Reuse::one_run && call.sequences.size() <= 1) return 0;
  const std::int64_t most = kPackedTableBytes / static_cast<std::int64_t>(sizeof(float));
  return floats <= most / call.heads ? call.heads : 0;
}

void cut_shared(const Call& call, const std::optional<RelativeRows>& rows, const TableForm& form,
                SliceCutter& cutter, std::vector<Spread>& spreads) {
  spreads.clear();
  if (!rows) return;
  SliceCutter counter;
  Spread one;
  cut_spread(call, *rows, form, counter, one);
  spreads.resize(static_cast<std::size_t>(packed_heads(call, rows->table.heads, counter.used())));
  for (Spread& spread : spreads) cut_spread(call, *rows, form, cutter, spread);
}

template <class T>
const T& of_head(const std::vector<T>& shared, std::int64_t head) {
  return shared[shared.size() == 1 ? 0 : static_cast<std::size_t>(head)];
}

struct Packing {
  const Call& call;
  const PackedTables& tables;
  TableForms forms;
  Pass pass;
  std::atomic<std::int64_t> next{0};
};

void pack_part(void* context, int part, int) {
  Packing& packing = *static_cast<Packing*>(context);
  const Call& call = packing.call;
  const PackedTables& tables = packing.tables;
  float* const chunk =
      packing.pass == Pass::backward
          ? nullptr
          : call.memory.tiles.benches[static_cast<std::size_t>(part)].key_rows.data();
  const auto count = [](const auto& shared) { return static_cast<std::int64_t>(shared.size()); };
  const std::int64_t heads = std::max({count(tables.bias), count(tables.query_rows),
                                       count(tables.key_rows), count(tables.value_rows)});
  for (std::int64_t head = packing.next++; head < heads; head = packing.next++) {
    core::throw_if_cancelled();
    const auto at = static_cast<std::size_t>(head);
    if (head < count(tables.bias)) fill_bias(call, head, tables.bias[at]);
    const auto fill = [&](const std::optional<RelativeRows>& rows, const TableForm& form,
                          const std::vector<Spread>& spreads) {
      if (head < count(spreads)) fill_spread(call, *rows, form, head, spreads[at], chunk);
    };
    fill(call.terms.query_rows, packing.forms.query_rows, tables.query_rows);
    fill(call.terms.key_rows, packing.forms.key_rows, tables.key_rows);
    fill(call.terms.value_rows, packing.forms.value_rows, tables.value_rows);
  }
}

}  // namespace

std::int64_t bias_floats(const Call& call) noexcept {
  return call.bias_last - call.bias_first + 1 + 2 * kTileKeys;
}

Strides strides_of(const Call& call) noexcept {
  return {call.depth(), rounded_up(call.depth(), kWidest), rounded_up(call.head_dim, kWidest),
          rounded_up(call.value_dim, kWidest)};
}

void cut_tables(const Call& call, Pass pass, PackedTables& tables) {
  const TableForms forms = forms_of(call, pass);
  cut_slices(tables.floats, [&](SliceCutter& cutter) {
    tables.bias.clear();
    if (call.has_bias()) {
      const bool shared = call.terms.slopes.empty() && call.terms.bias->table.heads == 1;
      tables.bias.resize(
          static_cast<std::size_t>(packed_heads(call, shared ? 1 : call.heads, bias_floats(call))));
      for (Slice& bias : tables.bias) bias = cutter.take(bias_floats(call));
    }
    cut_shared(call, call.terms.query_rows, forms.query_rows, cutter, tables.query_rows);
    cut_shared(call, call.terms.key_rows, forms.key_rows, cutter, tables.key_rows);
    cut_shared(call, call.terms.value_rows, forms.value_rows, cutter, tables.value_rows);
  });
}

void pack_tables(const Call& call, Pass pass, PackedTables& tables, std::int64_t parts) {
  if (tables.floats.count() == 0) return;
  Packing packing{call, tables, forms_of(call, pass), pass, {}};
  const std::int64_t bytes = tables.floats.count() * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t useful = std::clamp<std::int64_t>(bytes / core::kThreadBytes, 1, parts);
  core::run_parts(static_cast<int>(useful), pack_part, &packing);
}

void cut_side_tables(const Call& call, Pass pass, const PackedTables& tables, SliceCutter& cutter,
                     QuerySide& side) {
  const TableForms forms = forms_of(call, pass);
  if (call.has_bias() && tables.bias.empty()) side.bias_memory = cutter.take(bias_floats(call));
  const auto cut = [&](const std::optional<RelativeRows>& rows, const TableForm& form,
                       const std::vector<Spread>& shared, Spread& spread) {
    if (!rows) return;
    if (shared.empty()) {
      cut_spread(call, *rows, form, cutter, spread);
    } else {
      spread = shared.front();
    }
  };
  cut(call.terms.query_rows, forms.query_rows, tables.query_rows, side.query_rows);
  cut(call.terms.key_rows, forms.key_rows, tables.key_rows, side.key_rows);
  cut(call.terms.value_rows, forms.value_rows, tables.value_rows, side.value_rows);
}

void fill_tables(const Call& call, const PackedTables& tables, QuerySide& side, std::int64_t head,
                 float* chunk) {
  side.head = head;
  if (call.has_bias()) {
    if (tables.bias.empty()) {
      fill_bias(call, head, side.bias_memory);
    } else {
      side.bias_memory = of_head(tables.bias, head);
    }
    side.bias = side.bias_memory.data() + column_zero(call);
  }
  // The factors are those of both passes.
  const TableForms forms = forms_of(call, Pass::forward);
  const auto fill = [&](const std::optional<RelativeRows>& rows, const TableForm& form,
                        const std::vector<Spread>& shared, Spread& spread) {
    if (!rows) return;
    if (shared.empty()) {
      fill_spread(call, *rows, form, head, spread, chunk);
    } else {
      spread = of_head(shared, head);
    }
  };
  fill(call.terms.query_rows, forms.query_rows, tables.query_rows, side.query_rows);
  fill(call.terms.key_rows, forms.key_rows, tables.key_rows, side.key_rows);
  fill(call.terms.value_rows, forms.value_rows, tables.value_rows, side.value_rows);
}

}  // namespace phasor::attention
