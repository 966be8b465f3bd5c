#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <vector>

#include "attention/softmax/backward_unit.hpp"
#include "attention/softmax/call.hpp"
#include "attention/softmax/head_side.hpp"
#include "attention/softmax/passes.hpp"
#include "attention/softmax/places.hpp"
#include "attention/wide.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/rotations.hpp"

namespace phasor::attention {
namespace {

constexpr const char* kBackward = "attend_backward";

using kernels::kBlockRows;
using kernels::kGuardRows;
using kernels::kPanelRows;
using kernels::kStripPad;
using kernels::kStripRow;
using kernels::kTileKeys;
using kernels::kWidest;
using kernels::rounded_up;

// Whether the gradients of a tile's keys are written when its last query is done: nothing else adds to
// them or reads them.
bool is_written_by_tile(const Call& call) {
  return is_backward_by_tile(call) && call.extra_dim == 0;
}

void cut_unit(const Call& call, SliceCutter& cutter, Unit& unit) {
  const std::int64_t first = cutter.used();
  const Strides strides = strides_of(call);
  const std::int64_t queries = rounded_up(call.most_queries, kBlockRows);
  const std::int64_t keys = rounded_up(call.most_keys, kTileKeys);
  const std::int64_t summed = is_written_by_tile(call) ? kTileKeys : keys;
  cut_key_side(call, Pass::backward, cutter, unit.keys);
  cut_query_side(call, Pass::backward, call.memory.backward_tables, cutter, unit.side);
  unit.content = cutter.take(queries * strides.content);
  unit.raw = cutter.take(kBlockRows * strides.relative);
  unit.d_out = cutter.take(queries * strides.value);
  unit.out_rows = cutter.take(kBlockRows * strides.value);
  unit.log_sum = cutter.take(queries);
  unit.delta = cutter.take(queries);
  unit.block = cutter.take(std::max(kBlockRows, kTileKeys) * strides.relative);
  unit.key_scratch = cutter.take(kTileKeys * strides.content);
  unit.d_content = cutter.take(queries * strides.content);
  unit.d_keys = cutter.take(summed * strides.content);
  unit.d_values = cutter.take(summed * strides.value);
  unit.strip = cutter.take(kPanelRows * kStripRow + kStripPad);
  unit.terms = cutter.take(kPanelRows * kStripRow + kStripPad);
  unit.weights = cutter.take((kBlockRows + 2 * kGuardRows) * kStripRow);
  unit.d_scores = cutter.take((kBlockRows + 2 * kGuardRows) * kStripRow);
  if (call.terms.query_rows) {
    unit.position = cutter.take(queries * strides.relative);
    unit.d_position = cutter.take(queries * strides.relative);
    unit.query_far = cutter.take(queries * 2);
    unit.query_outside = cutter.take(queries * 2);
    unit.d_query_rows = cutter.take((unit.side.query_rows.count + kPanelRows) * strides.relative);
  }
  if (call.terms.key_rows) {
    unit.d_raw_keys = cutter.take(keys * strides.relative);
    unit.key_outside = cutter.take(keys * 2);
    unit.d_key_rows = cutter.take((unit.side.key_rows.count + kPanelRows) * strides.relative);
    unit.key_terms = cutter.take(kBlockRows * kStripRow + kStripPad);
    unit.key_sums = cutter.take(kernels::kKeySums);
  }
  if (call.terms.value_rows) {
    unit.value_far = cutter.take(queries * 2);
    unit.value_outside = cutter.take(queries * 2);
    unit.d_value_rows = cutter.take((unit.side.value_rows.count + kPanelRows) * strides.value);
  }
  if (call.terms.segment_rows.given()) {
    unit.segments = cutter.take(queries * 2);
    unit.d_segments = cutter.take(queries * 2);
    unit.segment_query = cutter.take(strides.relative);
  }
  if (call.terms.bias) unit.d_bias = cutter.take(bias_floats(call));
  unit.memory = cutter.since(first);
}

void clear(const Slice& floats) { clear_floats(floats.data(), floats.count()); }

void fill_rows_of_queries(const Backward& backward, Unit& unit) {
  const Call& call = backward.call;
  const Strides strides = strides_of(call);
  const Sequence& s = *unit.keys.sequence;
  const std::int64_t head = unit.side.head;
  const auto at = [](const Slice& floats, std::int64_t offset) {
    return floats.count() == 0 ? nullptr : floats.data() + offset;
  };
  for (std::int64_t first = 0; first < s.queries; first += kBlockRows) {
    core::throw_if_cancelled();
    const std::int64_t count = std::min(kBlockRows, s.queries - first);
    fill_queries(
        call, s, unit.side, first, count,
        {unit.content.data() + first * strides.content, at(unit.position, first * strides.relative),
         at(unit.segments, first * 2), unit.raw.data(), unit.segment_query.data()});
    const std::int64_t query = s.first_query + first;
    call.kernels.read_rows(rows_of(backward.forward.d_out, s.batch, head, query), count,
                           call.value_dim, unit.d_out.data() + first * strides.value,
                           strides.value);
    call.kernels.read_rows(rows_of(backward.forward.out, s.batch, head, query), count,
                           call.value_dim, unit.out_rows.data(), strides.value);
    call.kernels.linear.dots(unit.out_rows.data(), strides.value,
                             unit.d_out.data() + first * strides.value, strides.value, count,
                             strides.value, unit.delta.data() + first);
  }
  const float* const log_sums =
      backward.forward.log_sum_exp + (s.batch * call.heads + head) * call.q.tokens + s.first_query;
  for (std::int64_t i = 0; i < s.queries; ++i) {
    const double log_sum = static_cast<double>(log_sums[i]);
    // A row that sees no key has no weights: 2^(s - infinity).
    unit.log_sum.data()[i] = log_sum == -std::numeric_limits<double>::infinity()
                                 ? std::numeric_limits<float>::infinity()
                                 : static_cast<float>(log_sum * kLog2e);
  }
}

void clear_for_head(const Call& call, Unit& unit) {
  const Strides rows = strides_of(call);
  // Rows of queries after the sequence's last must be zeros: another sequence may have been longer.
  const auto clear_tail = [&](const Slice& floats, std::int64_t row) {
    const std::int64_t first = unit.keys.sequence->queries * row;
    if (floats.count() != 0) clear_floats(floats.data() + first, floats.count() - first);
  };
  clear_tail(unit.content, rows.content);
  clear_tail(unit.position, rows.relative);
  clear_tail(unit.segments, 2);
  clear_tail(unit.d_out, rows.value);
  for (const Slice* floats : {&unit.d_content, &unit.d_position, &unit.d_segments, &unit.d_bias,
                              &unit.d_query_rows, &unit.d_key_rows, &unit.d_value_rows,
                              &unit.query_outside, &unit.key_outside, &unit.value_outside}) {
    if (floats->count() != 0) clear(*floats);
  }
  if (unit.step == 0 && !is_written_by_tile(call)) {
    clear(unit.d_keys);
    clear(unit.d_values);
    if (unit.d_raw_keys.count() != 0) clear(unit.d_raw_keys);
  }
  if (call.extra_dim == 0) return;
  // Gradients of extra features belong to one head.
  const Strides strides = strides_of(call);
  const std::int64_t keys = rounded_up(call.most_keys, kTileKeys);
  for (std::int64_t j = 0; j < keys; ++j)
    std::fill_n(unit.d_keys.data() + j * strides.content + call.head_dim, call.extra_dim, 0.0F);
}

// What the columns outside a table add to the rows' gradients and to those of the table's ends.
// Sum i of a side is at outside + i * step + side * side_step.
struct Outside {
  const float* sums;
  std::int64_t step, side_step;
};
void add_ends(const Call& call, const Outside& outside, std::int64_t count, const float* rows,
              std::int64_t stride, std::int64_t dim, const Spread& spread, float* d_rows,
              float* d_table) {
  const std::int64_t last = (spread.count - 1) * stride;
  for (std::int64_t i = 0; i < count; ++i) {
    for (int side = 0; side < 2; ++side) {
      const float sum = outside.sums[i * outside.step + side * outside.side_step];
      if (sum == 0.0F) continue;
      const std::int64_t end = side == 0 ? 0 : last;
      if (d_rows != nullptr) {
        call.kernels.add_rows(spread.rows.data() + end, 0, sum, 1, dim, d_rows + i * stride, 0);
      }
      call.kernels.add_rows(rows + i * stride, 0, sum, 1, dim, d_table + end, 0);
    }
  }
}

void write_gradient(const Call& call, const core::HeadsView& to, const Sequence& s,
                    std::int64_t head, std::int64_t token, std::int64_t count, const float* rows,
                    std::int64_t stride) {
  const kernels::Rows out = rows_of(to, s.batch, head, token);
  call.kernels.write_rows(rows, stride, count, to.head_dim, out.storage,
                          const_cast<void*>(out.data), out.stride);
}

// dq = T^T (scale dS K) + scale dS A + scale dS E.
void write_queries(const Backward& backward, Unit& unit) {
  const Call& call = backward.call;
  const Strides strides = strides_of(call);
  const Sequence& s = *unit.keys.sequence;
  const std::int64_t head = unit.side.head;
  const auto scale = static_cast<float>(call.scale);
  float* const block = unit.block.data();
  for (std::int64_t first = 0; first < s.queries; first += kBlockRows) {
    const std::int64_t count = std::min(kBlockRows, s.queries - first);
    const std::int64_t token = s.first_query + first;
    call.kernels.scale_rows(unit.d_content.data() + first * strides.content, strides.content,
                            nullptr, scale, count, call.head_dim, block, strides.relative);
    if (call.query_rotator) {
      call.query_rotator->rotate(s.batch * call.q.tokens + token, count, block, strides.relative,
                                 core::Direction::transpose);
    }
    if (unit.d_position.count() != 0) {
      call.kernels.add_rows(unit.d_position.data() + first * strides.relative, strides.relative,
                            scale, count, call.head_dim, block, strides.relative);
    }
    for (std::int64_t r = 0; r < count && unit.d_segments.count() != 0; ++r) {
      for (int different = 0; different < 2; ++different) {
        call.kernels.add_rows(call.terms.segment_rows.row(head, different), 0,
                              scale * unit.d_segments.data()[(first + r) * 2 + different], 1,
                              call.head_dim, block + r * strides.relative, 0);
      }
    }
    write_gradient(call, backward.gradients.d_q, s, head, token, count, block, strides.relative);
  }
}

// dk = T^T (dS^T q) + scale dS^T B and dv = P^T d_out of the keys from `begin` on, after all heads of
// the group. The gradients' memory begins with key `origin`.
void write_keys(const Backward& backward, Unit& unit, std::int64_t begin, std::int64_t end,
                std::int64_t origin) {
  const Call& call = backward.call;
  const Strides strides = strides_of(call);
  const Sequence& s = *unit.keys.sequence;
  float* const block = unit.block.data();
  for (std::int64_t first = begin; first < end; first += kTileKeys) {
    const std::int64_t count = std::min(kTileKeys, end - first);
    const std::int64_t token = s.first_key + first;
    const std::int64_t local = first - origin;
    call.kernels.scale_rows(unit.d_keys.data() + local * strides.content, strides.content, nullptr,
                            kNatural, count, call.head_dim, block, strides.relative);
    if (call.key_rotator) {
      call.key_rotator->rotate(s.batch * call.k.tokens + token, count, block, strides.relative,
                               core::Direction::transpose);
    }
    if (unit.d_raw_keys.count() != 0) {
      call.kernels.add_rows(unit.d_raw_keys.data() + first * strides.relative, strides.relative,
                            static_cast<float>(call.scale), count, call.head_dim, block,
                            strides.relative);
    }
    for (std::int64_t j = 0; j < count && !call.options.key_padding.empty(); ++j) {
      if (unit.keys.padding.data()[first + j] == 0.0F) continue;
      std::fill_n(block + j * strides.relative, call.head_dim, 0.0F);
    }
    write_gradient(call, backward.gradients.d_k, s, unit.keys.key_head, token, count, block,
                   strides.relative);
    write_gradient(call, backward.gradients.d_v, s, unit.keys.key_head, token, count,
                   unit.d_values.data() + local * strides.value, strides.value);
  }
}

void fill_tiles(const Call& call, Unit& unit, std::int64_t begin, std::int64_t end) {
  for (std::int64_t first = begin; first < end; first += kTileKeys) {
    core::throw_if_cancelled();
    fill_keys(call, unit.keys, first, std::min(first + kTileKeys, end), unit.key_scratch.data());
  }
}

// `count` keys from `first` on as a head of their own: its key 0 is `first`.
kernels::Head keys_of(kernels::Head head, std::int64_t first, std::int64_t count) {
  head.keys = count;
  head.offset -= first;
  if (head.key_segments != nullptr) head.key_segments += first;
  if (head.key_padding != nullptr) head.key_padding += first;
  if (head.mask.kind != kernels::HeadMask::Kind::none) {
    const std::int64_t size = head.mask.kind == kernels::HeadMask::Kind::additive
                                  ? static_cast<std::int64_t>(sizeof(float))
                                  : 1;
    head.mask.data = static_cast<const char*>(head.mask.data) + first * head.mask.key_stride * size;
    head.mask.keys -= first;
  }
  return head;
}

// The kernels over all queries, one tile of keys after the other, each filled before.
void run_tiles(Backward& backward, Unit& unit, const kernels::Head& head,
               kernels::BackwardHead rows, const kernels::BackwardScratch& scratch) {
  const Call& call = backward.call;
  const Strides strides = strides_of(call);
  const bool writes = is_written_by_tile(call);
  const std::int64_t keys = unit.keys.sequence->keys;
  for (std::int64_t first = 0; first < keys; first += kTileKeys) {
    const std::int64_t last = std::min(first + kTileKeys, keys);
    unit.keys.origin = first;
    fill_tiles(call, unit, first, last);
    if (writes) {
      clear(unit.d_keys);
      clear(unit.d_values);
    } else {
      rows.d_keys = unit.d_keys.data() + first * strides.content;
      rows.d_values = unit.d_values.data() + first * strides.value;
    }
    call.kernels.backward_head(keys_of(head, first, last - first), rows, scratch);
    core::throw_if_cancelled();
    if (writes) write_keys(backward, unit, first, last, first);
  }
}

void run_head(Backward& backward, Unit& unit) {
  const Call& call = backward.call;
  const Strides strides = strides_of(call);
  const Sequence& s = *unit.keys.sequence;
  const std::int64_t head = unit.keys.key_head * call.group + unit.step;
  unit.keys.first_head = head;
  clear_for_head(call, unit);
  fill_tables(call, call.memory.backward_tables, unit.side, head, nullptr);
  const bool by_tile = is_backward_by_tile(call);
  if (!by_tile && (unit.step == 0 || call.extra_dim != 0)) fill_tiles(call, unit, 0, s.keys);
  fill_far_keys(call, unit.keys, unit.side);
  fill_rows_of_queries(backward, unit);
  unit.bias_gradient = nullptr;
  if (unit.d_bias.count() != 0)
    unit.bias_gradient = unit.d_bias.data() + (unit.side.bias - unit.side.bias_memory.data());
  const kernels::BackwardHead rows{.content = unit.content.data(),
                                   .position = unit.position.data(),
                                   .segments = unit.segments.data(),
                                   .d_out = unit.d_out.data(),
                                   .log_sum = unit.log_sum.data(),
                                   .delta = unit.delta.data(),
                                   .value_columns = unit.keys.value_columns.data(),
                                   .key_rows = unit.keys.rows.data(),
                                   .d_content = unit.d_content.data(),
                                   .d_position = unit.d_position.data(),
                                   .d_segments = unit.d_segments.data(),
                                   .d_keys = unit.d_keys.data(),
                                   .d_raw_keys = unit.d_raw_keys.data(),
                                   .d_values = unit.d_values.data(),
                                   .d_bias = unit.bias_gradient,
                                   .d_query_rows = unit.d_query_rows.data(),
                                   .d_key_rows = unit.d_key_rows.data(),
                                   .d_value_rows = unit.d_value_rows.data(),
                                   .query_far = unit.query_far.data(),
                                   .value_far = unit.value_far.data(),
                                   .query_outside = unit.query_outside.data(),
                                   .key_outside = unit.key_outside.data(),
                                   .key_outside_side = unit.key_outside.count() / 2,
                                   .value_outside = unit.value_outside.data()};
  kernels::BackwardScratch scratch{};
  scratch.block.strip = unit.strip.data();
  scratch.block.terms = unit.terms.data();
  scratch.block.key_terms = unit.key_terms.data();
  scratch.block.key_sums = unit.key_sums.data();
  scratch.weights = unit.weights.data();
  scratch.d_scores = unit.d_scores.data();
  const kernels::Head whole = head_of(call, unit.keys, unit.side);
  call.kernels.backward_far(whole, rows);
  if (by_tile) {
    run_tiles(backward, unit, whole, rows, scratch);
  } else {
    call.kernels.backward_head(whole, rows, scratch);
  }
  core::throw_if_cancelled();
  if (call.terms.query_rows) {
    add_ends(call, {unit.query_outside.data(), 2, 1}, s.queries, unit.position.data(),
             strides.relative, call.head_dim, unit.side.query_rows, unit.d_position.data(),
             unit.d_query_rows.data());
  }
  if (call.terms.key_rows) {
    add_ends(call, {unit.key_outside.data(), 1, unit.key_outside.count() / 2}, s.keys,
             unit.keys.raw.data(), strides.relative, call.head_dim, unit.side.key_rows,
             unit.d_raw_keys.data(), unit.d_key_rows.data());
  }
  if (call.terms.value_rows) {
    add_ends(call, {unit.value_outside.data(), 2, 1}, s.queries, unit.d_out.data(), strides.value,
             call.value_dim, unit.side.value_rows, nullptr, unit.d_value_rows.data());
  }
  write_queries(backward, unit);
  if (unit.step + 1 == call.group && !is_written_by_tile(call))
    write_keys(backward, unit, 0, s.keys, 0);
}

// Adds one head of unit `index` to the tables after those of the units before it.
void add_in_order(Backward& backward, const Unit& unit, std::int64_t index) {
  if (!backward.has_tables) return;
  std::int64_t& turn = backward.memory.turns[static_cast<std::size_t>(unit.step)];
  {
    std::unique_lock lock(backward.mutex);
    backward.added.wait(lock, [&] { return turn == index || backward.has_failed; });
    if (backward.has_failed) return;  // another thread throws
    if (unit.has_tokens()) add_tables(backward, unit);
    ++turn;
  }
  backward.added.notify_all();
}

// Takes one unit after the other until none is left.
void run_units(void* context, int part, int) {
  Backward& backward = *static_cast<Backward*>(context);
  const Call& call = backward.call;
  Unit& unit = backward.memory.units[static_cast<std::size_t>(part)];
  try {
    for (std::int64_t at = backward.next++; at < backward.units; at = backward.next++) {
      if (!unit.is_clear) clear(unit.memory);
      unit.is_clear = true;
      unit.keys.sequence = &call.sequences[static_cast<std::size_t>(at / call.key_heads)];
      unit.keys.key_head = at % call.key_heads;
      for (unit.step = 0; unit.step < call.group; ++unit.step) {
        if (unit.has_tokens()) run_head(backward, unit);
        add_in_order(backward, unit, at);
      }
    }
  } catch (...) {
    {
      const std::lock_guard lock(backward.mutex);
      backward.has_failed = true;
    }
    backward.added.notify_all();
    throw;
  }
}

void check_gradient(const char* name, const encodings::TableGradient& gradient,
                    const encodings::Table& table) {
  if (!gradient.given() && gradient.wide == nullptr) return;
  const bool fits = table.given() && gradient.heads == table.heads && gradient.rows == table.rows &&
                    gradient.dim == table.dim;
  if (fits) return;
  throw Error(ErrorCode::shape_mismatch,
              message("attend_backward: the gradient of ", name, " must be [", table.heads, ", ",
                      table.rows, ", ", table.dim, "] like its table, got [", gradient.heads, ", ",
                      gradient.rows, ", ", gradient.dim, "]"));
}

void check_gradients(const encodings::ScoreTerms& terms, const encodings::ScoreTermGradients& to) {
  const PerTable<encodings::Table> tables = tables_of(terms);
  for_each_table(check_gradient, kTableNames, to, tables);
}

void check_forward(const Call& call, const AttentionForward& forward) {
  const auto check = [&](const char* name, const core::ConstHeadsView& view) {
    check_width(kBackward, name, view.dtype, "q", call.q.dtype);
    const bool fits = view.batch == call.q.batch && view.tokens == call.q.tokens &&
                      view.heads == call.heads && view.head_dim == call.value_dim;
    if (fits && view.data != nullptr) return;
    throw Error(ErrorCode::shape_mismatch,
                message("attend_backward: ", name, " must be [", call.q.batch, ", ", call.q.tokens,
                        ", ", call.heads, ", ", call.value_dim, "] with data, got [", view.batch,
                        ", ", view.tokens, ", ", view.heads, ", ", view.head_dim,
                        view.data == nullptr ? "] and null" : "]"));
  };
  check("out", forward.out);
  check("d_out", forward.d_out);
  const bool is_given =
      call.is_wide() ? forward.wide_log_sum_exp != nullptr : forward.log_sum_exp != nullptr;
  if (is_given) return;
  refuse(ErrorCode::invalid_argument, kBackward,
         message(call.is_wide() ? "wide_log_sum_exp" : "log_sum_exp",
                 " of the forward pass is missing (null)"));
}

}  // namespace

void prepare_backward(Call& call) {
  if (call.is_wide()) return prepare_wide(call, Pass::backward);
  BackwardMemory& memory = call.memory.backward;
  call.has_backward = false;
  const std::int64_t units = static_cast<std::int64_t>(call.sequences.size()) * call.key_heads;
  const std::int64_t at_once = std::min<std::int64_t>(units, call.threads);
  cut_tables(call, Pass::backward, call.memory.backward_tables);
  resize_segments(call, at_once, memory.segments);
  memory.units.assign(static_cast<std::size_t>(at_once), {});
  call.memory.cut_scratch(memory, [&](SliceCutter& cutter) {
    for (std::int64_t i = 0; i < at_once; ++i) {
      Unit& unit = memory.units[static_cast<std::size_t>(i)];
      cut_unit(call, cutter, unit);
      unit.keys.segments = segments_of(call, i, memory.segments);
    }
  });
  resize_table_sums(call);
  memory.turns.resize(static_cast<std::size_t>(call.group));
  pack_tables(call, Pass::backward, call.memory.backward_tables, at_once);
  call.has_backward = true;
}

void run_backward(Call& call, const AttentionForward& forward,
                  const AttentionGradients& gradients) {
  const core::ConstHeadsView &q = call.q, &k = call.k, &v = call.v;
  check_output(kBackward, "d_q", gradients.d_q, q.batch, q.tokens, q.heads, q.head_dim, call);
  check_output(kBackward, "d_k", gradients.d_k, k.batch, k.tokens, k.heads, k.head_dim, call);
  check_output(kBackward, "d_v", gradients.d_v, v.batch, v.tokens, v.heads, v.head_dim, call);
  check_gradients(call.terms, gradients.terms);
  if (q.batch * q.tokens > 0) check_forward(call, forward);
  check_padding(kBackward, call);
  // Queries and keys of sequences without the other, and keys after a sequence's last, have gradients
  // of zero; all others are written.
  const bool writes_all =
      std::all_of(call.sequences.begin(), call.sequences.end(), [&](const Sequence& s) {
        const bool has_padding = call.options.query_boundaries.empty() && s.keys != k.tokens;
        return s.queries > 0 && s.keys > 0 && !has_padding;
      });
  if (!writes_all || call.is_wide()) {
    clear_view(gradients.d_q);
    clear_view(gradients.d_k);
    clear_view(gradients.d_v);
  }
  if (call.most_queries == 0 || call.most_keys == 0) return;
  if (!call.has_backward) prepare_backward(call);
  if (call.is_wide()) return attend_backward_wide(call, forward, gradients);
  BackwardMemory& memory = call.memory.backward;
  call.memory.claim_scratch(memory);
  Backward backward{.call = call,
                    .forward = forward,
                    .gradients = gradients,
                    .sums = AllSums(gradients.terms, call.group, memory),
                    .memory = memory,
                    .units = static_cast<std::int64_t>(call.sequences.size()) * call.key_heads};
  backward.has_tables = backward.sums.wanted();
  std::fill(memory.turns.begin(), memory.turns.end(), 0);
  core::run_parts(static_cast<int>(memory.units.size()), run_units, &backward);
  backward.sums.finish();
}

}  // namespace phasor::attention
