#include "attention/softmax/head_side.hpp"
#include "phasor/core/cancellation.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace phasor::attention {
namespace {

using kernels::kPanelRows;
using kernels::kTileKeys;
using kernels::kWidest;
using kernels::rounded_up;

// TUPE's first token, in two features: 1 at the query against (theta1 - bias) of each key, and
// (theta2 - bias) of each query against 1 at the key: they cancel what the bias term adds.
struct FirstTokenScores {
  const Call& call;
  std::int64_t head;

  [[nodiscard]] float of_key(std::int64_t position) const {
    if (!call.terms.first_row.given()) return 0.0F;
    const double theta = static_cast<double>(*call.terms.first_row.row(head, 0));
    return static_cast<float>((theta - call.table_bias_of(head, -position)) * kLog2e);
  }
  [[nodiscard]] float of_query(std::int64_t position) const {
    if (!call.terms.first_column.given()) return 0.0F;
    if (position == 0 && call.terms.first_row.given()) return 0.0F;
    const double theta = static_cast<double>(*call.terms.first_column.row(head, 0));
    return static_cast<float>((theta - call.table_bias_of(head, position)) * kLog2e);
  }
};

void add_key_features(const Call& call, const Sequence& s, std::int64_t head, std::int64_t j,
                      float* row) {
  // Without a query there is no score, and the sequence has no positions: see find_places().
  if (call.extra_dim == 0 || s.queries == 0) return;
  const encodings::Table& extra = call.terms.extra_key;
  float* const features = row + call.head_dim;
  const std::int64_t position = call.key_position(s, j);
  const bool replaced = position == 0 && call.terms.first_column.given();
  if (extra.given()) {
    const float* const from = extra.row(head, call.key_row(s, j));
    for (std::int64_t i = 0; i < extra.dim; ++i) features[i] = replaced ? 0.0F : from[i];
  }
  if (!call.has_first_token()) return;
  const FirstTokenScores first{call, head};
  features[call.extra_dim - 2] = first.of_key(position);
  features[call.extra_dim - 1] = replaced ? 1.0F : 0.0F;
}

void add_query_features(const Call& call, const Sequence& s, std::int64_t head, std::int64_t i,
                        float factor, float* row) {
  if (call.extra_dim == 0 || s.keys == 0) return;  // as above
  const encodings::Table& extra = call.terms.extra_query;
  float* const features = row + call.head_dim;
  const std::int64_t position = call.query_position(s, i);
  const bool replaced = position == 0 && call.terms.first_row.given();
  if (extra.given()) {
    const float* const from = extra.row(head, call.query_row(s, i));
    for (std::int64_t e = 0; e < extra.dim; ++e) features[e] = replaced ? 0.0F : factor * from[e];
  }
  if (!call.has_first_token()) return;
  const FirstTokenScores first{call, head};
  features[call.extra_dim - 2] = replaced ? 1.0F : 0.0F;
  features[call.extra_dim - 1] = first.of_query(position);
}

float dot(const float* a, const float* b, std::int64_t dim) {
  constexpr std::int64_t kSums = 8;  // that do not wait for each other
  double sums[kSums] = {};
  std::int64_t i = 0;
  for (; i + kSums <= dim; i += kSums) {
    for (std::int64_t lane = 0; lane < kSums; ++lane)
      sums[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
  }
  for (; i < dim; ++i) sums[0] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  double sum = 0.0;
  for (const double part : sums) sum += part;
  return static_cast<float>(sum);
}

}  // namespace

bool is_backward_by_tile(const Call& call) noexcept {
  // Heads of a group share their keys, unless extra features differ; key_rows and runs of position
  // ids look at all keys.
  return (call.group == 1 || call.extra_dim != 0) && !call.terms.key_rows && !call.is_scattered();
}

void cut_key_side(const Call& call, Pass pass, SliceCutter& cutter, KeySide& side) {
  const Strides strides = strides_of(call);
  const std::int64_t keys = rounded_up(call.most_keys, kTileKeys);
  const std::int64_t packed =
      pass == Pass::backward && is_backward_by_tile(call) ? kTileKeys : keys;
  side.columns = cutter.take(packed * strides.depth);
  // Backward reads values only as columns; the rows of one tile are enough to pack them from.
  side.values = cutter.take((pass == Pass::backward ? kTileKeys : keys) * strides.value);
  // A panel of keys may begin at any key and is read whole.
  if (call.terms.key_rows) side.raw = cutter.take((keys + kPanelRows) * strides.relative);
  if (pass == Pass::backward) {
    side.rows = cutter.take(packed * strides.content);
    side.value_columns = cutter.take(packed * call.value_dim);
  }
  if (!call.options.key_padding.empty()) side.padding = cutter.take(keys);
}

void resize_segments(const Call& call, std::int64_t sides, std::vector<std::int32_t>& memory) {
  if (!call.terms.segment_rows.given()) return;
  memory.assign(static_cast<std::size_t>(sides * rounded_up(call.most_keys, kTileKeys)), 0);
}

std::span<std::int32_t> segments_of(const Call& call, std::int64_t side,
                                    std::vector<std::int32_t>& memory) {
  if (!call.terms.segment_rows.given()) return {};
  const auto keys = static_cast<std::size_t>(rounded_up(call.most_keys, kTileKeys));
  return std::span(memory).subspan(static_cast<std::size_t>(side) * keys, keys);
}

void fill_keys(const Call& call, KeySide& side, std::int64_t first, std::int64_t last,
               float* scratch) {
  const Strides strides = strides_of(call);
  const Sequence& s = *side.sequence;
  const std::int64_t count = last - first;
  const std::int64_t token = s.first_key + first;
  const std::int64_t local = first - side.origin;
  float* const rows = side.rows.count() == 0 ? scratch : side.rows.data() + local * strides.content;
  // Backward packs values as columns, forward as rows of a tile.
  const bool as_columns = side.value_columns.count() != 0;
  float* const values = side.values.data() + (as_columns ? 0 : local * strides.value);
  call.kernels.read_rows(rows_of(call.k, s.batch, side.key_head, token), count, call.head_dim, rows,
                         strides.content);
  const kernels::Rows value_rows = rows_of(call.v, s.batch, side.key_head, token);
  if (as_columns) {
    call.kernels.read_rows(value_rows, count, call.value_dim, values, strides.value);
  } else {
    call.kernels.pack_values(value_rows, 0, count, call.value_dim, values);
  }
  for (std::int64_t j = 0; j < count; ++j) {
    if (!call.options.key_padding.empty()) {
      // Padding may hold anything: a zero weight times a NaN would be one.
      const bool hidden =
          call.options.key_padding[static_cast<std::size_t>(s.batch * call.k.tokens + token + j)] ==
          0;
      side.padding.data()[first + j] = hidden ? -std::numeric_limits<float>::infinity() : 0.0F;
      if (hidden) {
        std::fill_n(rows + j * strides.content, call.head_dim, 0.0F);
        if (as_columns) {
          std::fill_n(values + j * strides.value, call.value_dim, 0.0F);
        } else {
          call.kernels.pack_values({}, j, 1, call.value_dim, values);
        }
      }
    }
    if (side.raw.count() != 0) {
      std::copy_n(rows + j * strides.content, call.head_dim,
                  side.raw.data() + (first + j) * strides.relative);
    }
    if (!side.segments.empty()) {
      side.segments[static_cast<std::size_t>(first + j)] =
          call.options.key_segments[static_cast<std::size_t>(s.batch * call.k.tokens + token + j)];
    }
  }
  if (call.key_rotator)
    call.key_rotator->rotate(s.batch * call.k.tokens + token, count, rows, strides.content);
  for (std::int64_t j = 0; j < count; ++j)
    add_key_features(call, s, side.first_head, first + j, rows + j * strides.content);
  call.kernels.pack_columns(rows, strides.content, count, strides.depth, 1.0F,
                            side.columns.data() + local * strides.depth);
  if (as_columns) {
    call.kernels.pack_columns(values, strides.value, count, call.value_dim, 1.0F,
                              side.value_columns.data() + local * call.value_dim);
  }
}

void cut_query_side(const Call& call, Pass pass, const PackedTables& tables, SliceCutter& cutter,
                    QuerySide& side) {
  cut_side_tables(call, pass, tables, cutter, side);
  if (!call.terms.key_rows) return;
  side.far_left = cutter.take(rounded_up(call.most_keys, kTileKeys));
  side.far_right = cutter.take(rounded_up(call.most_keys, kTileKeys));
}

void fill_far_keys(const Call& call, const KeySide& keys, QuerySide& side) {
  if (!call.terms.key_rows) return;
  const Strides strides = strides_of(call);
  const auto factor = static_cast<float>(call.scale * kLog2e);
  const float* const left = side.key_rows.rows.data();
  const float* const right = left + (side.key_rows.count - 1) * strides.relative;
  for (std::int64_t j = 0; j < keys.sequence->keys; ++j) {
    const float* const key = keys.raw.data() + j * strides.relative;
    side.far_left.data()[j] = factor * dot(key, left, call.head_dim);
    side.far_right.data()[j] = factor * dot(key, right, call.head_dim);
  }
}

kernels::Head head_of(const Call& call, const KeySide& keys, const QuerySide& side) {
  const Strides strides = strides_of(call);
  const Sequence& s = *keys.sequence;
  const AttentionOptions& options = call.options;
  const auto relative = [](const Spread& spread, std::int64_t stride) {
    return kernels::Relative{spread.columns.data(), spread.rows.data(), stride, spread.first,
                             spread.count};
  };
  kernels::Head head{};
  head.queries = s.queries;
  head.keys = s.keys;
  head.offset = s.offset;
  head.shift = s.shift;
  if (call.is_scattered()) {
    const Places& places = call.memory.places;
    const std::int64_t query = s.batch * call.q.tokens + s.first_query;
    const std::int64_t key = s.batch * call.k.tokens + s.first_key;
    head.query_places = places.queries.data() + query;
    head.key_places = places.keys.data() + key;
    head.query_runs = places.query_runs.data() + query;
    head.key_runs = places.key_runs.data() + key;
  }
  head.depth = strides.depth;
  head.content_stride = strides.content;
  head.relative_depth = call.head_dim;
  head.relative_stride = strides.relative;
  head.value_dim = call.value_dim;
  head.value_stride = strides.value;
  head.key_columns = keys.columns.data();
  head.values = keys.values.data();
  head.bias = side.bias;
  head.bias_first = call.bias_first;
  head.bias_last = call.bias_last;
  if (!call.terms.slopes.empty()) {
    head.slope =
        static_cast<float>(call.terms.slopes[static_cast<std::size_t>(side.head)] * kLog2e);
  }
  head.query_rows = relative(side.query_rows, strides.relative);
  head.key_rows = relative(side.key_rows, strides.relative);
  head.key_factor = static_cast<float>(call.scale * kLog2e);
  head.value_rows = relative(side.value_rows, strides.value);
  head.raw_keys = keys.raw.data();
  head.key_far_left = side.far_left.data();
  head.key_far_right = side.far_right.data();
  if (!keys.segments.empty()) {
    head.query_segments = options.query_segments.data() + s.batch * call.q.tokens + s.first_query;
    head.key_segments = keys.segments.data();
  }
  head.key_padding = keys.padding.data();
  if (options.mask.kind != Mask::Kind::none) {
    const Mask& mask = options.mask;
    const bool additive = mask.kind == Mask::Kind::additive;
    const std::int64_t offset = s.batch * mask.batch_stride + side.head * mask.head_stride +
                                s.first_query * mask.query_stride + s.first_key * mask.key_stride;
    head.mask = {additive ? kernels::HeadMask::Kind::additive : kernels::HeadMask::Kind::boolean,
                 static_cast<const char*>(mask.data) +
                     offset * static_cast<std::int64_t>(additive ? sizeof(float) : 1),
                 mask.query_stride, mask.key_stride, mask.keys - s.first_key};
  }
  head.causal = options.causality == Causality::bottom_right ? 1 : 0;
  head.window = options.window.value_or(0);
  head.soft_cap = static_cast<float>(options.soft_cap * kLog2e);
  head.is_cancelled = core::is_cancelled;
  return head;
}

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

void fill_queries(const Call& call, const Sequence& sequence, const QuerySide& side,
                  std::int64_t first, std::int64_t count, const QueryRows& rows) {
  const Strides strides = strides_of(call);
  const std::int64_t padded = rounded_up(count, kPanelRows);
  const std::int64_t token = sequence.first_query + first;
  const auto factor = static_cast<float>(call.scale * kLog2e);
  const std::int64_t head = side.head;
  const auto row_or_null = [&](const encodings::Table& table) {
    return table.given() ? table.row(head, 0) : nullptr;
  };
  call.kernels.read_rows(rows_of(call.q, sequence.batch, head, token), count, call.head_dim,
                         rows.raw, strides.relative);
  if (rows.position != nullptr) {
    call.kernels.scale_rows(rows.raw, strides.relative, row_or_null(call.terms.position_bias),
                            factor, count, call.head_dim, rows.position, strides.relative);
    std::fill(rows.position + count * strides.relative, rows.position + padded * strides.relative,
              0.0F);
  }
  if (rows.segments != nullptr) {
    for (std::int64_t r = 0; r < count; ++r) {
      call.kernels.scale_rows(rows.raw + r * strides.relative, 0,
                              row_or_null(call.terms.segment_bias), factor, 1, call.head_dim,
                              rows.segment_query, 0);
      for (int different = 0; different < 2; ++different) {
        rows.segments[r * 2 + different] =
            dot(rows.segment_query, call.terms.segment_rows.row(head, different), call.head_dim);
      }
    }
    std::fill(rows.segments + count * 2, rows.segments + padded * 2, 0.0F);
  }
  if (call.query_rotator) {
    call.query_rotator->rotate(sequence.batch * call.q.tokens + token, count, rows.raw,
                               strides.relative);
  }
  call.kernels.scale_rows(rows.raw, strides.relative, row_or_null(call.terms.content_bias), factor,
                          count, call.head_dim, rows.content, strides.content);
  for (std::int64_t r = 0; r < count; ++r) {
    add_query_features(call, sequence, head, first + r, factor, rows.content + r * strides.content);
  }
  std::fill(rows.content + count * strides.content, rows.content + padded * strides.content, 0.0F);
}

}  // namespace phasor::attention
