// What the attention kernels of every instruction set offer: plain structs and function pointers,
// no templates (see core/kernels/kernels.hpp). Scores are kept in powers of two: s log2(e).
//
// Masks count tokens: key j is at position j, query i at offset + i. c, the negative distance between
// a query and a key, is the column of a relative term, so that columns rise with the keys: it is
// j - (offset + shift + i), or the difference of their places.
#pragma once

#include <cstdint>

#include "attention/kernels/linear_kernels.hpp"

namespace phasor::attention::kernels {

inline constexpr std::int64_t kPanelRows = 6;   // queries that a product works on at once
inline constexpr std::int64_t kBlockRows = 96;  // queries that share a pass over the keys
inline constexpr std::int64_t kFewRows = 8;     // queries that decoding works on at once
inline constexpr std::int64_t kTileKeys = 192;  // keys of a tile; a multiple of 6 and of 64
// The widest vector: packed columns and padded rows are rounded up to it at every level.
inline constexpr std::int64_t kWidest = 16;
// A strip of scores has room on both sides for what skewed products write outside (at most
// kWidest - 1 + kPanelRows - 1).
inline constexpr std::int64_t kStripPad = 32;
// Not a power of two: products read P and dS down their columns, and rows a KiB apart would share a
// few sets of the cache.
inline constexpr std::int64_t kStripRow = kTileKeys + 2 * kStripPad + kWidest;

[[nodiscard]] constexpr std::int64_t rounded_up(std::int64_t value, std::int64_t unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

// A query as score_rows reads it, in floats: bf16 is read two vectors at a time.
[[nodiscard]] constexpr std::int64_t beside_floats(std::int64_t dim) noexcept {
  return rounded_up(dim, 2 * kWidest);
}

// Keys whose products with key_rows are transposed at once, in vectors: whole panels of any vector.
inline constexpr std::int64_t kKeyGroup = 3;
inline constexpr std::int64_t kKeySums =
    kKeyGroup * kWidest * (kBlockRows + (kKeyGroup + 2) * kWidest);

enum class Storage : std::uint8_t { f32, f16, bf16 };

// Rows of a tensor: row r at data + r * stride elements.
struct Rows {
  const void* data;
  std::int64_t stride;
  Storage storage;
};

// How keys that are not packed are read. `ahead`: prefetches the key so many keys after the one at hand;
// 0: none. places = 2: keys of a single query from the first and the second half in turn, so that
// a core has lines of two places of the memory on their way. Numbers do not depend on it.
struct RowWalk {
  std::int64_t ahead;
  int places;
};

// A relative table spread over the columns that read rows of their own: column first + x reads row
// x of `rows`; columns outside read the first or the last.
struct Relative {
  const float* columns;  // packed by pack_columns: the rows as columns, one per x
  const float* rows;     // the same, row-major: backward, and the values
  std::int64_t row_stride;
  std::int64_t first, count;  // count = 0: no such term
};

struct HeadMask {
  enum class Kind : std::uint8_t { none, boolean, additive };
  Kind kind;
  const void* data;  // of this batch row and head
  std::int64_t query_stride, key_stride;
  std::int64_t keys;
};

// One head over one sequence: everything that does not change from query block to query block.
struct Head {
  std::int64_t queries, keys;
  std::int64_t offset;  // the position of query 0
  std::int64_t shift;   // what position ids add to every distance
  // Position ids, less one number for all tokens of the sequence; null: every distance is
  // offset + shift + i - j. Places are read to the end of the last tile.
  const std::int32_t* query_places;
  const std::int32_t* key_places;
  // For each token the index after the last one that counts up from it.
  const std::int32_t* query_runs;
  const std::int32_t* key_runs;
  std::int64_t depth;           // features of a row of content and of key_columns
  std::int64_t content_stride;  // floats of a content row: depth rounded up
  std::int64_t relative_depth;  // features of a row of position: head_dim
  std::int64_t relative_stride;
  std::int64_t value_dim, value_stride;
  const float* key_columns;  // [keys / vector][depth][vector]
  const float* values;       // [keys / kTileKeys][value_stride / vector][kTileKeys][vector]
  const float* bias;         // bias[c] for columns bias_first to bias_last; null: none
  // Outside, the bias is that of the nearest column less `slope` for each column farther from 0.
  std::int64_t bias_first, bias_last;
  float slope;  // in powers of two
  Relative query_rows;
  Relative key_rows;  // columns are scaled like the queries, by key_factor
  float key_factor;
  const float* raw_keys;       // [keys rounded up][relative_stride]: for key_rows
  const float* key_far_left;   // key_far_left[j] = k_j . first row of key_rows
  const float* key_far_right;  // and the last
  Relative value_rows;         // count = 0: none; rows have value_stride
  const std::int32_t* query_segments;
  const std::int32_t* key_segments;  // null: none
  const float* key_padding;          // 0 or -infinity for each key; null: none
  HeadMask mask;
  std::int64_t causal;     // 1: key j <= position
  std::int64_t window;     // |position - j| < window; 0: none
  float soft_cap;          // in powers of two; 0: none
  std::int64_t visit_all;  // 1: hidden keys are computed too (scores were asked for)
  // Asked before each tile of keys: true ends the kernel, with results that are not used.
  bool (*is_cancelled)() noexcept;
};

// Where the stages of the scores of query 0 of this head go, dense rows of `keys`; null: nowhere.
struct Taps {
  float* scores;
  float* capped;
  float* masked;
  std::int64_t row;  // floats from one query to the next
};

// The queries of one block, rounded up to whole panels; rows after the last are zeros.
struct Block {
  std::int64_t first;  // query
  std::int64_t count;
  const float* content;   // [rows][content_stride]: rotated, biased, scaled by scale log2(e)
  const float* position;  // [rows][relative_stride]: the same for query_rows, not rotated
  const float* segments;  // [rows][2]: score of the same and of another segment; null: none
};

// Memory for one block, one thread.
struct BlockScratch {
  float* strip;      // [kBlockRows][kStripRow]; backward: [kPanelRows][kStripRow]
  float* terms;      // [kPanelRows][kStripRow]; forward: in strip
  float* weights;    // [kBlockRows][kTileKeys]: forward alone
  float* panels;     // [kBlockRows / kPanelRows][content_stride][kWidest at most]: packed content
  float* far;        // [kBlockRows][2]: query_rows' first and last
  float* key_terms;  // [kBlockRows][kStripRow]: of key_rows, for one tile; forward: strip
  float* key_sums;   // [kKeySums]
  float* near;       // [kBlockRows][near_stride]: weights of value_rows
  std::int64_t near_stride;
  float* outside;  // [kBlockRows][2]: weights of the keys left and right of value_rows
  float* maximum;  // [kBlockRows + kWidest]
  float* sum;      // [kBlockRows + kWidest]
  float* out;      // [kBlockRows][value_stride]: the sums, then the output
};

// Backward, one head: rows of all queries (rounded up to whole blocks) and of all keys (to whole
// tiles). Gradients are sums of dS times the other factor of the score's term; the caller applies the
// scales.
struct BackwardHead {
  const float* content;        // [queries][content_stride]
  const float* position;       // [queries][relative_stride]; null: no query_rows
  const float* segments;       // [queries][2]
  const float* d_out;          // [queries][value_stride]
  const float* log_sum;        // [queries]: log2 of the row's sum; +infinity: it sees no key
  const float* delta;          // [queries]: d_out . out
  const float* value_columns;  // [keys / vector][value_dim][vector]
  const float* key_rows;       // [keys][content_stride]
  float* d_content;            // [queries][content_stride]
  float* d_position;           // [queries][relative_stride]
  float* d_segments;           // [queries][2]
  float* d_keys;               // [keys][content_stride]
  float* d_raw_keys;           // [keys][relative_stride]: through head.key_rows
  float* d_values;             // [keys][value_stride]
  float* d_bias;               // d_bias[c]; null: none
  float* d_query_rows;         // [count + kPanelRows][relative_stride]
  float* d_key_rows;           // the same
  float* d_value_rows;         // [count + kPanelRows][value_stride]
  float* query_far;            // [queries][2]: position . first and last row of query_rows
  float* value_far;            // the same of d_out and value_rows
  // Sums over the columns left and right of a table: dS for each query [queries][2], dS for each
  // key (right: key_outside_side floats after left), P for each query [queries][2].
  float* query_outside;
  float* key_outside;
  std::int64_t key_outside_side;
  float* value_outside;
};

// Rows of zeros around the block: products along the diagonals read up to kPanelRows - 1 beyond it.
inline constexpr std::int64_t kGuardRows = kPanelRows;

struct BackwardScratch {
  BlockScratch block;
  float* weights;   // P [kGuardRows + kBlockRows + kGuardRows][kStripRow], zeros at first
  float* d_scores;  // dS, the same
};

struct Kernels {
  // Rows as float32: row r of the result at out + r * out_stride. Only the first `dim` are written.
  void (*read_rows)(const Rows& rows, std::int64_t count, std::int64_t dim, float* out,
                    std::int64_t out_stride);
  void (*write_rows)(const float* in, std::int64_t in_stride, std::int64_t count, std::int64_t dim,
                     Storage storage, void* out, std::int64_t out_stride);
  // out = factor (in + bias), `dim` features of each row; bias may be null.
  void (*scale_rows)(const float* in, std::int64_t in_stride, const float* bias, float factor,
                     std::int64_t count, std::int64_t dim, float* out, std::int64_t out_stride);
  // out += factor in.
  void (*add_rows)(const float* in, std::int64_t in_stride, float factor, std::int64_t count,
                   std::int64_t dim, float* out, std::int64_t out_stride);
  // sums[e] += weight * row[e] over the rows, in their order; weight r at weights + 2 r, or 1 if
  // null.
  void (*sum_rows)(const float* rows, std::int64_t stride, const float* weights, std::int64_t count,
                   std::int64_t dim, double* sums);
  // factor * [count][row_stride] -> [count / vector][depth][vector]; columns after the last are
  // zeros, up to a multiple of kWidest.
  void (*pack_columns)(const float* rows, std::int64_t row_stride, std::int64_t count,
                       std::int64_t depth, float factor, float* columns);
  // Rows [0, count) as rows [first, first + count) of one tile of head.values. Without data: one row
  // of zeros.
  void (*pack_values)(const Rows& rows, std::int64_t first, std::int64_t count, std::int64_t dim,
                      float* tile);
  void (*attend_block)(const Head& head, const Block& block, const Taps& taps,
                       const BlockScratch& scratch);
  // Sets query_far and value_far, before the head or any part of its keys.
  void (*backward_far)(const Head& head, const BackwardHead& backward);
  void (*backward_head)(const Head& head, const BackwardHead& backward,
                        const BackwardScratch& scratch);
  // scores[r][j] = q[r] . k[j] for `rows` <= kFewRows queries that share their keys. There are
  // kFewRows rows of q, zeros after the last feature up to a multiple of kWidest; `beside` has room for
  // kFewRows * beside_floats(dim).
  void (*score_rows)(const float* q, std::int64_t q_stride, std::int64_t rows, const Rows& keys,
                     std::int64_t count, std::int64_t dim, const RowWalk& walk, float* beside,
                     float* scores, std::int64_t score_row);
  // out[r] += sum_j p[r][j] v[j]; there are kFewRows rows of p and out. Prefetches the row `ahead` rows
  // after the one at hand; 0: none.
  void (*weigh_rows)(const float* p, std::int64_t p_row, std::int64_t rows, const Rows& values,
                     std::int64_t count, std::int64_t dim, std::int64_t ahead, float* out,
                     std::int64_t out_stride);
  // Scores to weights 2^(s - maximum) in place.
  void (*exp_row)(float* scores, std::int64_t count, float* maximum, float* sum);
  // scores[j] += step * (first + j).
  void (*add_line)(float* scores, std::int64_t count, float step, std::int64_t first);
  void (*soft_cap_row)(float* scores, std::int64_t count, float cap);
  LinearKernels linear;
};

}  // namespace phasor::attention::kernels
