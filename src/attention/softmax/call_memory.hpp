// What a plan of softmax attention owns: sequences, rows of cos and sin, packed tables, scratch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/floats.hpp"
#include "attention/softmax/per_table.hpp"
#include "attention/wide_arithmetic.hpp"
#include "phasor/attention/softmax.hpp"

namespace phasor::attention {

// Queries and keys that attend to each other: a batch row, or one packed sequence of batch row 0.
struct Sequence {
  std::int64_t batch = 0;
  std::int64_t first_query = 0, queries = 0;
  std::int64_t first_key = 0, keys = 0;  // keys that count
  std::int64_t offset = 0;               // position of query 0; the mask is aligned bottom-right
  // Position ids: key 0 is at `origin`, and query i and key j are offset + shift + i - j apart,
  // unless Places say otherwise.
  std::int64_t origin = 0, shift = 0;
};

// Position ids of sequences that do not count up token by token, less the sequence's origin; empty if
// all do.
struct Places {
  std::vector<std::int32_t> queries, keys;  // [batch * tokens]; after the keys one tile of zeros
  // For each token the index, in its sequence, after the last one that counts up from it.
  std::vector<std::int32_t> query_runs, key_runs;
  // Keys that a query sees, the farthest on either side first: scratch.
  std::vector<std::int64_t> ahead, behind;
};

struct RotatorMemory {
  std::vector<double> ids;  // [axes][tokens of every batch row]
  Floats rows;              // of cos and sin
};

// A relative table over the columns of a call.
struct Spread {
  std::int64_t first = 0, count = 0;  // of columns
  Slice columns, rows;
};

// Tables that all sequences and runs share. Each list has one entry for all heads, one per head, or
// none: then every query side packs its own.
struct PackedTables {
  std::vector<Slice> bias;
  std::vector<Spread> query_rows, key_rows, value_rows;
  Floats floats;
};

// Keys and values of one key head of one sequence (or, when extra features differ by query head, of
// one query head).
struct KeySide {
  const Sequence* sequence = nullptr;
  std::int64_t key_head = 0;
  std::int64_t first_head = 0;  // of the query heads that read it
  std::int64_t origin = 0;      // the key that columns, rows and value_columns begin with
  Slice columns, values;
  Slice raw;            // keys as given, for key_rows
  Slice rows;           // backward: what columns was packed from
  Slice value_columns;  // backward
  Slice padding;        // 0 or -infinity for each key
  std::span<std::int32_t> segments;
};

// Tables and vectors of one query head.
struct QuerySide {
  std::int64_t head = 0;
  Slice bias_memory;
  const float* bias = nullptr;  // bias[c]
  Spread query_rows, key_rows, value_rows;
  Slice far_left, far_right;
};

// The scratch of one thread of the forward pass.
struct Workbench {
  Slice content, panels, raw, key_rows, strip, weights, state, out;
  Slice position, far, segments, segment_query, key_sums, near, outside;
};

// The forward pass works on some key heads at a time.
struct TileMemory {
  std::vector<KeySide> keys;
  std::vector<QuerySide> queries;  // [keys][heads of a key side]
  std::vector<Workbench> benches;  // one per thread
  std::vector<std::int32_t> segments;
  Floats floats;
  std::int64_t used = 0;  // floats that the slices take
};

// The backward pass of one key head of one sequence, with one query head of its group at a time. One
// thread works on a unit; what units add to shared tables is added when all have finished their
// head, in order.
struct Unit {
  KeySide keys;
  QuerySide side;
  std::int64_t step = 0;  // which query head of the group
  Slice content, raw, position, segments, segment_query, d_out, out_rows, log_sum, delta;
  Slice key_scratch, block;
  Slice d_content, d_position, d_segments, d_keys, d_raw_keys, d_values;
  Slice d_bias, d_query_rows, d_key_rows, d_value_rows;
  Slice query_far, value_far, query_outside, key_outside, value_outside;
  Slice strip, weights, d_scores, key_terms, key_sums;
  float* bias_gradient = nullptr;  // d_bias[c]
  Slice memory;                    // all of the above
  bool is_clear = false;           // whether the memory was set to zero before its first use

  [[nodiscard]] bool has_tokens() const noexcept {
    return keys.sequence->queries > 0 && keys.sequence->keys > 0;
  }
};

struct BackwardMemory {
  std::vector<Unit> units;
  std::vector<std::int32_t> segments;
  // The gradients of the tables that all heads share; what one head adds to the rows of one table.
  std::vector<double> shared_sums, row_sums;
  // For each head of a group, the next unit whose head of that number adds to the tables.
  std::vector<std::int64_t> turns;
  Floats floats;
  std::int64_t used = 0;

  // Every thread clears its unit before it uses it.
  void forget_zeros() noexcept {
    for (Unit& unit : units) unit.is_clear = false;
  }
};

// Float64 views: what one thread works with.
struct WideThread {
  std::vector<double> content, relative, segment_query;  // of the present query
  std::vector<double> row;                               // [keys]
  // Backward: d of q_m from query_rows and from segment_rows; the gradients of the tables from the
  // query heads of one key head.
  std::vector<double> by_relative, by_segment, table_sums;
};

struct WideMemory {
  PerTable<std::vector<double>> tables;  // dense copies of those without `wide` numbers
  WideHeads rotated_q, rotated_k;
  // Backward: gradients of q and k before the rotation; without memory if d_q and d_k hold them.
  WideHeads raw_q, raw_k;
  std::vector<WideThread> threads;
};

struct CallMemory {
  std::vector<Sequence> sequences;
  Places places;
  RotatorMemory queries, keys;
  std::vector<double> positions;  // of a cache's queries, if they are not contiguous in the cache
  Floats few;                     // few_queries.cpp
  // A cache's capacity: what grows with the keys is allocated for this many at once.
  std::int64_t room_for_keys = 0;
  PackedTables tables, backward_tables;
  TileMemory tiles;
  BackwardMemory backward;
  WideMemory wide;
  // Plans that share a workspace: its memory, whose `scratch` is the floats of their tiles and units. Whose
  // numbers are in it is `scratch_user`: kernels need the zeros that were there when it was cut.
  CallMemory* shared = nullptr;
  Floats scratch;
  const void* scratch_user = nullptr;

  // Cuts the floats of `part`, tiles or backward.
  template <class Part, class Cut>
  void cut_scratch(Part& part, const Cut& cut) {
    SliceCutter counter;
    cut(counter);
    part.used = counter.used();
    if (shared == nullptr) {
      clear_scratch(part);
    } else {
      shared->scratch.reserve(part.used);
      part.floats = shared->scratch;  // the same memory
      shared->scratch_user = nullptr;
      claim_scratch(part);
    }
    SliceCutter cutter(part.floats.data());
    cut(cutter);
  }
  // Before a run: what another plan left becomes zeros.
  template <class Part>
  void claim_scratch(Part& part) {
    if (shared == nullptr || shared->scratch_user == &part) return;
    clear_scratch(part);
    shared->scratch_user = &part;
  }
  static void clear_scratch(TileMemory& part) { part.floats.reset(part.used); }
  static void clear_scratch(BackwardMemory& part) {
    part.floats.reserve_untouched(part.used);
    part.forget_zeros();
  }
  [[nodiscard]] std::size_t bytes() const noexcept;
};

}  // namespace phasor::attention
