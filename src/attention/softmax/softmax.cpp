#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/softmax/call.hpp"
#include "attention/softmax/few_queries.hpp"
#include "attention/softmax/head_side.hpp"
#include "attention/softmax/passes.hpp"
#include "attention/softmax/places.hpp"
#include "attention/wide.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/error.hpp"

namespace phasor::attention {
namespace {

using kernels::kBlockRows;
using kernels::kPanelRows;
using kernels::kStripPad;
using kernels::kStripRow;
using kernels::kTileKeys;
using kernels::kWidest;
using kernels::rounded_up;

void cut_bench(const Call& call, const QuerySide& side, SliceCutter& cutter, Workbench& bench) {
  const Strides strides = strides_of(call);
  bench.content = cutter.take(kBlockRows * strides.content);
  bench.raw = cutter.take(kBlockRows * strides.relative);
  bench.key_rows = cutter.take(kTileKeys * strides.content);
  bench.strip = cutter.take(kBlockRows * kStripRow + kStripPad);
  bench.weights = cutter.take(kBlockRows * kTileKeys);
  bench.panels = cutter.take(kBlockRows / kPanelRows * strides.content * kWidest);
  bench.state = cutter.take(2 * (kBlockRows + kWidest));
  bench.out = cutter.take(kBlockRows * strides.value);
  if (side.query_rows.count != 0) {
    bench.position = cutter.take(kBlockRows * strides.relative);
    bench.far = cutter.take(kBlockRows * 2);
  }
  if (call.terms.segment_rows.given()) {
    bench.segments = cutter.take(kBlockRows * 2);
    bench.segment_query = cutter.take(strides.relative);
  }
  if (side.key_rows.count != 0) {
    bench.key_sums = cutter.take(kernels::kKeySums);
  }
  if (side.value_rows.count != 0) {
    bench.near = cutter.take(kBlockRows * rounded_up(side.value_rows.count, kWidest));
    bench.outside = cutter.take(kBlockRows * 2);
  }
}

kernels::BlockScratch scratch_of(const Workbench& bench, const QuerySide& side) {
  return {.strip = bench.strip.data(),
          .terms = nullptr,
          .weights = bench.weights.data(),
          .panels = bench.panels.data(),
          .far = bench.far.data(),
          .key_terms = bench.strip.data(),
          .key_sums = bench.key_sums.data(),
          .near = bench.near.data(),
          .near_stride = rounded_up(side.value_rows.count, kWidest),
          .outside = bench.outside.data(),
          .maximum = bench.state.data(),
          .sum = bench.state.data() + kBlockRows + kWidest,
          .out = bench.out.data()};
}

// Some key heads at a time, so that the memory of a call does not grow with its heads: as many as
// keep every thread busy.
struct Wave {
  const Call& call;
  core::HeadsView out;
  const AttentionExtras& extras;
  TileMemory& memory;
  std::int64_t heads_per_side;
  std::int64_t used = 0;  // key sides of this wave
  std::atomic<std::int64_t> next{0};

  [[nodiscard]] QuerySide& query_side(std::int64_t side, std::int64_t head) const {
    return memory.queries[static_cast<std::size_t>(side * heads_per_side + head)];
  }
};

std::int64_t tiles_of(const Call& call) { return (call.most_keys + kTileKeys - 1) / kTileKeys; }
std::int64_t blocks_of(const Call& call) {
  return (call.most_queries + kBlockRows - 1) / kBlockRows;
}

void prepare(void* context, int part, int) {
  Wave& wave = *static_cast<Wave*>(context);
  const Call& call = wave.call;
  const std::int64_t tiles = tiles_of(call);
  float* const scratch = wave.memory.benches[static_cast<std::size_t>(part)].key_rows.data();
  // A key side's tiles, then the tables of its heads.
  const std::int64_t per_side = tiles + wave.heads_per_side;
  for (std::int64_t item = wave.next++; item < wave.used * per_side; item = wave.next++) {
    core::throw_if_cancelled();
    const std::int64_t side = item / per_side;
    const std::int64_t step = item % per_side;
    KeySide& keys = wave.memory.keys[static_cast<std::size_t>(side)];
    if (step < tiles) {
      const std::int64_t first = step * kTileKeys;
      const std::int64_t last = std::min(first + kTileKeys, keys.sequence->keys);
      if (first < last) {
        fill_keys(call, keys, first, last, scratch);
      }
    } else {
      const std::int64_t head = step - tiles;
      fill_tables(call, call.memory.tables, wave.query_side(side, head), keys.first_head + head,
                  scratch);
    }
  }
}

void prepare_far_keys(void* context, int, int) {
  Wave& wave = *static_cast<Wave*>(context);
  for (std::int64_t item = wave.next++; item < wave.used * wave.heads_per_side;
       item = wave.next++) {
    core::throw_if_cancelled();
    const std::int64_t side = item / wave.heads_per_side;
    fill_far_keys(wave.call, wave.memory.keys[static_cast<std::size_t>(side)],
                  wave.query_side(side, item % wave.heads_per_side));
  }
}

// Dense [batch, heads, queries, keys]: the place of query 0 and key 0 of a sequence.
struct Dense {
  std::int64_t row, offset;
};
Dense dense_of(const Call& call, const Sequence& s, std::int64_t head) {
  const std::int64_t rows = (s.batch * call.heads + head) * call.q.tokens + s.first_query;
  return {call.k.tokens, rows * call.k.tokens + s.first_key};
}

kernels::Taps taps_of(const Call& call, const AttentionExtras& extras, const Sequence& s,
                      std::int64_t head) {
  const Dense dense = dense_of(call, s, head);
  const auto at = [&](float* data) { return data == nullptr ? nullptr : data + dense.offset; };
  // Probabilities are made of the masked scores once the row's sum is known.
  float* const masked =
      extras.masked_scores != nullptr ? extras.masked_scores : extras.probabilities;
  return {at(extras.scores), at(extras.capped_scores), at(masked), dense.row};
}

void finish_block(const Wave& wave, const Sequence& s, std::int64_t head,
                  const kernels::Block& block, const kernels::BlockScratch& scratch) {
  const Call& call = wave.call;
  const std::int64_t query = s.first_query + block.first;
  const kernels::Rows to = rows_of(wave.out, s.batch, head, query);
  call.kernels.write_rows(scratch.out, strides_of(call).value, block.count, call.value_dim,
                          to.storage, const_cast<void*>(to.data), to.stride);
  const AttentionExtras& extras = wave.extras;
  if (extras.log_sum_exp == nullptr && extras.probabilities == nullptr) return;
  for (std::int64_t r = 0; r < block.count; ++r) {
    const double sum = static_cast<double>(scratch.sum[r]);
    const double log_sum = sum == 0.0
                               ? -std::numeric_limits<double>::infinity()
                               : static_cast<double>(scratch.maximum[r]) * kLn2 + std::log(sum);
    if (extras.log_sum_exp != nullptr) {
      extras.log_sum_exp[(s.batch * call.heads + head) * call.q.tokens + query + r] =
          static_cast<float>(log_sum);
    }
    if (extras.probabilities == nullptr) continue;
    const Dense dense = dense_of(call, s, head);
    const std::int64_t offset = dense.offset + (block.first + r) * dense.row;
    const float* const scores =
        (extras.masked_scores != nullptr ? extras.masked_scores : extras.probabilities) + offset;
    for (std::int64_t j = 0; j < s.keys; ++j) {
      extras.probabilities[offset + j] =
          sum == 0.0 ? 0.0F
                     : static_cast<float>(std::exp(static_cast<double>(scores[j]) - log_sum));
    }
  }
}

void run_blocks(void* context, int part, int) {
  Wave& wave = *static_cast<Wave*>(context);
  const Call& call = wave.call;
  const std::int64_t blocks = blocks_of(call);
  const Workbench& bench = wave.memory.benches[static_cast<std::size_t>(part)];
  const std::int64_t per_side = wave.heads_per_side * blocks;
  for (std::int64_t item = wave.next++; item < wave.used * per_side; item = wave.next++) {
    const KeySide& keys = wave.memory.keys[static_cast<std::size_t>(item / per_side)];
    const Sequence& s = *keys.sequence;
    // The last blocks of a causal sequence see the most keys: they go first.
    const std::int64_t first = (blocks - 1 - item % blocks) * kBlockRows;
    if (first >= s.queries) continue;
    const QuerySide& side = wave.query_side(item / per_side, item % per_side / blocks);
    const QueryRows rows{bench.content.data(), bench.position.data(), bench.segments.data(),
                         bench.raw.data(), bench.segment_query.data()};
    const kernels::BlockScratch scratch = scratch_of(bench, side);
    const std::int64_t count = std::min(kBlockRows, s.queries - first);
    fill_queries(call, s, side, first, count, rows);
    kernels::Head head = head_of(call, keys, side);
    const kernels::Taps taps = taps_of(call, wave.extras, s, side.head);
    head.visit_all = taps.scores != nullptr || taps.capped != nullptr ? 1 : 0;
    const kernels::Block block{first, count, rows.content, rows.position, rows.segments};
    call.kernels.attend_block(head, block, taps, scratch);
    core::throw_if_cancelled();
    finish_block(wave, s, side.head, block, scratch);
  }
}

void run(Wave& wave, void (*task)(void*, int, int)) {
  wave.next = 0;
  core::run_parts(static_cast<int>(wave.memory.benches.size()), task, &wave);
}

// Key sides: one for each key head of each sequence, or for each query head if extra features differ
// by query head.
std::int64_t sides_per_sequence(const Call& call) {
  return call.extra_dim != 0 ? call.heads : call.key_heads;
}

void attend_in_tiles(const Call& call, core::HeadsView out, const AttentionExtras& extras) {
  TileMemory& memory = call.memory.tiles;
  call.memory.claim_scratch(memory);
  const std::int64_t per_sequence = sides_per_sequence(call);
  const std::int64_t sides = static_cast<std::int64_t>(call.sequences.size()) * per_sequence;
  const auto at_once = static_cast<std::int64_t>(memory.keys.size());
  Wave wave{call, out, extras, memory, call.heads / per_sequence};
  for (std::int64_t first = 0; first < sides; first += at_once) {
    wave.used = std::min(at_once, sides - first);
    for (std::int64_t i = 0; i < wave.used; ++i) {
      KeySide& keys = memory.keys[static_cast<std::size_t>(i)];
      keys.sequence = &call.sequences[static_cast<std::size_t>((first + i) / per_sequence)];
      keys.first_head = (first + i) % per_sequence * wave.heads_per_side;
      keys.key_head = keys.first_head / call.group;
    }
    run(wave, prepare);
    if (call.terms.key_rows) run(wave, prepare_far_keys);
    run(wave, run_blocks);
  }
}

void fill_extras(const Call& call, const AttentionExtras& extras) {
  const std::int64_t rows = call.q.batch * call.heads * call.q.tokens;
  const float hidden = -std::numeric_limits<float>::infinity();
  const auto fill = [&](float* data, std::int64_t count, float value) {
    if (data != nullptr) std::fill_n(data, count, value);
  };
  const std::int64_t all = rows * call.k.tokens;
  fill(extras.log_sum_exp, rows, hidden);
  if (extras.wide_log_sum_exp != nullptr) {
    std::fill_n(extras.wide_log_sum_exp, rows, -std::numeric_limits<double>::infinity());
  }
  // Pairs of different sequences, and padding, have no score.
  fill(extras.scores, all, 0.0F);
  fill(extras.capped_scores, all, 0.0F);
  fill(extras.masked_scores, all, hidden);
  const bool holds_scores = extras.masked_scores == nullptr;
  fill(extras.probabilities, all, holds_scores ? hidden : 0.0F);
}

// Pairs of different sequences still hold -infinity if probabilities were computed in place.
void clear_unmet(const Call& call, const AttentionExtras& extras) {
  if (extras.probabilities == nullptr || extras.masked_scores != nullptr) return;
  const std::int64_t all = call.q.batch * call.heads * call.q.tokens * call.k.tokens;
  for (std::int64_t i = 0; i < all; ++i) {
    float& value = extras.probabilities[i];
    if (value == -std::numeric_limits<float>::infinity()) value = 0.0F;
  }
}

}  // namespace

void prepare_forward(Call& call) {
  if (call.is_wide()) return prepare_wide(call, Pass::forward);
  TileMemory& memory = call.memory.tiles;
  call.has_forward = false;
  const std::int64_t per_sequence = sides_per_sequence(call);
  const std::int64_t sides = static_cast<std::int64_t>(call.sequences.size()) * per_sequence;
  const std::int64_t heads_per_side = call.heads / per_sequence;
  const std::int64_t work = sides * heads_per_side * blocks_of(call);
  const std::int64_t threads = std::clamp<std::int64_t>(work, 1, call.threads);
  const std::int64_t at_once = std::min(sides, threads);
  cut_tables(call, Pass::forward, call.memory.tables);
  resize_segments(call, at_once, memory.segments);
  memory.keys.assign(static_cast<std::size_t>(at_once), {});
  memory.queries.assign(static_cast<std::size_t>(at_once * heads_per_side), {});
  memory.benches.assign(static_cast<std::size_t>(threads), {});
  call.memory.cut_scratch(memory, [&](SliceCutter& cutter) {
    for (std::int64_t i = 0; i < at_once; ++i) {
      KeySide& side = memory.keys[static_cast<std::size_t>(i)];
      cut_key_side(call, Pass::forward, cutter, side);
      side.segments = segments_of(call, i, memory.segments);
    }
    for (QuerySide& side : memory.queries)
      cut_query_side(call, Pass::forward, call.memory.tables, cutter, side);
    for (Workbench& bench : memory.benches) cut_bench(call, memory.queries.front(), cutter, bench);
  });
  pack_tables(call, Pass::forward, call.memory.tables, threads);
  call.has_forward = true;
}

void run_forward(Call& call, const core::HeadsView& out, const AttentionExtras& extras) {
  const core::ConstHeadsView& q = call.q;
  check_output("attend", "out", out, q.batch, q.tokens, q.heads, call.value_dim, call);
  if (extras.wide_log_sum_exp != nullptr && !call.is_wide()) {
    refuse(ErrorCode::unsupported, "attend",
           message("wide_log_sum_exp needs q, k, v and out of f64, got ", core::name_of(q.dtype)));
  }
  check_padding("attend", call);
  if (q.batch == 0 || q.tokens == 0) return;
  fill_extras(call, extras);
  if (call.most_keys == 0) {
    clear_view(out);
  } else if (call.is_wide()) {
    if (!call.has_forward) prepare_forward(call);
    clear_view(out);
    attend_wide(call, out, extras);
  } else if (suits_few_queries(call, extras)) {
    attend_few_queries(call, out, extras);
  } else {
    if (!call.has_forward) prepare_forward(call);
    attend_in_tiles(call, out, extras);
  }
  clear_unmet(call, extras);
}

void repack_tables(Call& call) {
  if (call.is_wide()) {
    if (call.has_forward) widen_tables(call);
    return;
  }
  CallMemory& memory = call.memory;
  if (call.has_forward) {
    memory.claim_scratch(memory.tiles);  // packing uses some of it
    pack_tables(call, Pass::forward, memory.tables,
                static_cast<std::int64_t>(memory.tiles.benches.size()));
  }
  if (call.has_backward) {
    pack_tables(call, Pass::backward, memory.backward_tables,
                static_cast<std::int64_t>(memory.backward.units.size()));
  }
}

}  // namespace phasor::attention
