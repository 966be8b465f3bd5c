#include "attention/softmax/call.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "phasor/core/error.hpp"
#include "phasor/core/internal/positions.hpp"
#include "phasor/core/internal/rotations.hpp"
#include "phasor/core/threads.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::attention {
namespace {

using core::ConstHeadsView;
using encodings::RelativeMap;
using encodings::RelativeRows;

// The text is made when it is needed: decoding checks its shapes thousands of times a second.
template <class... Parts>
void require_shape(bool holds, const char* where, const Parts&... parts) {
  if (!holds) refuse(ErrorCode::shape_mismatch, where, message(parts...));
}

void check_input(const char* where, const char* name, const ConstHeadsView& view) {
  if (view.batch < 0 || view.tokens < 0 || view.heads < 1 || view.head_dim < 1) {
    refuse(ErrorCode::invalid_argument, where,
           message(name, " must have a head and a feature, got ", shape_text(view)));
  }
  if (view.data == nullptr && view.batch * view.tokens > 0) {
    refuse(ErrorCode::invalid_argument, where,
           message(name, " must have data, got null for ", shape_text(view)));
  }
}

void check_shapes(const char* where, const ConstHeadsView& q, const ConstHeadsView& k,
                  const ConstHeadsView& v) {
  check_input(where, "q", q);
  check_input(where, "k", k);
  check_input(where, "v", v);
  check_width(where, "k", k.dtype, "q", q.dtype);
  check_width(where, "v", v.dtype, "q", q.dtype);
  require_shape(q.batch == k.batch && k.batch == v.batch, where,
                "q, k and v must have one batch, got ", q.batch, ", ", k.batch, " and ", v.batch);
  require_shape(k.tokens == v.tokens, where, "k and v must have the same tokens, got ", k.tokens,
                " and ", v.tokens);
  require_shape(q.head_dim == k.head_dim, where, "q and k must have one head_dim, got ", q.head_dim,
                " and ", k.head_dim);
  require_shape(k.heads == v.heads, where, "k and v must have the same heads, got ", k.heads,
                " and ", v.heads);
  require_shape(q.heads % k.heads == 0, where,
                "the heads of q must be a multiple of those of k, got ", q.heads, " and ", k.heads);
}

void check_counts(const char* where, const ConstHeadsView& q, const ConstHeadsView& k,
                  const AttentionOptions& options) {
  const auto fits = [&](const char* name, std::size_t got, std::int64_t wanted) {
    require_shape(got == 0 || static_cast<std::int64_t>(got) == wanted, where, name, " must have ",
                  wanted, " entries, got ", got);
  };
  fits("key_lengths", options.key_lengths.size(), k.batch);
  fits("key_padding", options.key_padding.size(), k.batch * k.tokens);
  fits("query_segments", options.query_segments.size(), q.batch * q.tokens);
  fits("key_segments", options.key_segments.size(), k.batch * k.tokens);
  for (const std::int64_t length : options.key_lengths) {
    if (length < 0 || length > k.tokens) {
      refuse(ErrorCode::out_of_range, where,
             message("key_lengths must be from 0 to ", k.tokens, ", got ", length));
    }
  }
}

void check_boundaries(const char* where, const char* name, std::span<const std::int64_t> bounds,
                      std::int64_t tokens) {
  const bool fits = !bounds.empty() && bounds.front() == 0 && bounds.back() == tokens &&
                    std::is_sorted(bounds.begin(), bounds.end());
  if (fits) return;
  refuse(
      ErrorCode::invalid_argument, where,
      message(name, " must rise from 0 to the ", tokens, " tokens, got ", bounds.size(), " values",
              bounds.empty() ? std::string() : message(" ending in ", bounds.back())));
}

void check_options(const char* where, const encodings::ScoreTerms& terms, const ConstHeadsView& q,
                   const ConstHeadsView& k, const AttentionOptions& options) {
  check_counts(where, q, k, options);
  if (options.window && *options.window < 1) {
    refuse(ErrorCode::invalid_argument, where,
           message("window must be at least 1, got ", *options.window));
  }
  if (options.scale && !std::isfinite(*options.scale)) {
    refuse(ErrorCode::invalid_argument, where,
           message("scale must be finite, got ", *options.scale));
  }
  if (!std::isfinite(options.soft_cap) || options.soft_cap < 0.0) {
    refuse(ErrorCode::invalid_argument, where,
           message("soft_cap must be finite and not negative, got ", options.soft_cap));
  }
  if (options.threads < 0) {
    refuse(ErrorCode::invalid_argument, where,
           message("threads must not be negative, got ", options.threads));
  }
  if (options.mask.kind != Mask::Kind::none && options.mask.data == nullptr) {
    refuse(ErrorCode::invalid_argument, where, "mask must have data, got null");
  }
  if (options.mask.kind == Mask::Kind::additive_f64 && q.dtype != core::DType::f64) {
    refuse(ErrorCode::unsupported, where,
           message("mask must be of f32 beside q of ", name_of(q.dtype), ", got f64"));
  }
  if (options.mask.kind != Mask::Kind::none &&
      (options.mask.keys < 0 || options.mask.keys > k.tokens)) {
    refuse(ErrorCode::shape_mismatch, where,
           message("mask must have at most ", k.tokens, " keys, got ", options.mask.keys));
  }
  if (terms.segment_rows.given() &&
      (static_cast<std::int64_t>(options.query_segments.size()) != q.batch * q.tokens ||
       static_cast<std::int64_t>(options.key_segments.size()) != k.batch * k.tokens)) {
    refuse(ErrorCode::invalid_argument, where,
           message("segment_rows need query_segments and key_segments of ", q.batch * q.tokens,
                   " and ", k.batch * k.tokens, " entries, got ", options.query_segments.size(),
                   " and ", options.key_segments.size()));
  }
  const bool packed = !options.query_boundaries.empty() || !options.key_boundaries.empty();
  if (!packed) return;
  check_boundaries(where, "query_boundaries", options.query_boundaries, q.tokens);
  check_boundaries(where, "key_boundaries", options.key_boundaries, k.tokens);
  require_shape(options.query_boundaries.size() == options.key_boundaries.size(), where,
                "query_boundaries and key_boundaries must be as many, got ",
                options.query_boundaries.size(), " and ", options.key_boundaries.size());
  if (q.batch != 1 || !options.key_lengths.empty()) {
    refuse(ErrorCode::unsupported, where,
           message("packed sequences need batch 1 and no key_lengths, got batch ", q.batch));
  }
}

void find_sequences(const ConstHeadsView& q, const ConstHeadsView& k,
                    const AttentionOptions& options, std::vector<Sequence>& sequences) {
  sequences.clear();
  const auto queries = options.query_boundaries, keys = options.key_boundaries;
  for (std::size_t s = 0; s + 1 < queries.size(); ++s) {
    const std::int64_t query_count = queries[s + 1] - queries[s];
    const std::int64_t key_count = keys[s + 1] - keys[s];
    sequences.push_back({0, queries[s], query_count, keys[s], key_count, key_count - query_count});
  }
  if (!queries.empty()) return;
  for (std::int64_t b = 0; b < q.batch; ++b) {
    const std::int64_t length =
        options.key_lengths.empty() ? k.tokens : options.key_lengths[static_cast<std::size_t>(b)];
    sequences.push_back({b, 0, q.tokens, 0, length, length - q.tokens});
  }
}

DistanceRange distances_of(std::span<const Sequence> sequences, const AttentionOptions& options) {
  DistanceRange range{0, 0};
  for (const Sequence& s : sequences) {
    if (s.queries == 0 || s.keys == 0) continue;
    range.low = std::min(range.low, s.offset - (s.keys - 1));
    range.high = std::max(range.high, s.offset + s.queries - 1);
  }
  if (options.causality == Causality::bottom_right) range.low = 0;
  if (options.window) {
    range.low = std::max(range.low, 1 - *options.window);
    range.high = std::min(range.high, *options.window - 1);
  }
  return range;
}

void check_distances(const char* where, const char* name, const std::optional<RelativeRows>& rows,
                     const DistanceRange& range) {
  if (!rows || rows->map.outside == RelativeMap::Outside::clamp) return;
  if (range.low >= rows->map.first && range.high <= rows->map.last()) return;
  refuse(ErrorCode::out_of_range, where,
         message(name, " must have rows for the distances ", range.low, " to ", range.high,
                 ", got rows for ", rows->map.first, " to ", rows->map.last()));
}

// [axes][tokens of every batch row], the caller's or those of the sequences.
void find_ids(const core::Rotary& rotary, const std::optional<core::Positions>& positions,
              const ConstHeadsView& x, std::span<const Sequence> sequences, core::Role role,
              std::vector<double>& ids) {
  const int axes = rotary.frequencies.axis_count();
  const std::int64_t tokens = x.batch * x.tokens;
  ids.assign(static_cast<std::size_t>(axes * tokens), 0.0);
  if (positions) {
    static_cast<void>(core::check_positions(*positions, axes, x.batch, x.tokens));
    if (tokens == 0) return;
    core::PositionCursor cursor(*positions, axes, x.tokens, 0);
    double values[core::kMaxAxes];
    for (std::int64_t t = 0; t < tokens; ++t) {
      cursor.next(values);
      for (int axis = 0; axis < axes; ++axis)
        ids[static_cast<std::size_t>(axis * tokens + t)] = values[axis];
    }
    return;
  }
  for (const Sequence& s : sequences) {
    const bool is_query = role == core::Role::query;
    const std::int64_t first = s.batch * x.tokens + (is_query ? s.first_query : s.first_key);
    const std::int64_t count = is_query ? s.queries : s.keys;
    for (std::int64_t t = 0; t < count; ++t) {
      for (int axis = 0; axis < axes; ++axis) {
        ids[static_cast<std::size_t>(axis * tokens + first + t)] =
            static_cast<double>(is_query ? s.offset + t : t);
      }
    }
  }
}

}  // namespace

std::string shape_text(const ConstHeadsView& view) {
  return message("[", view.batch, ", ", view.tokens, ", ", view.heads, ", ", view.head_dim, "]");
}

void refuse(ErrorCode code, const char* where, const std::string& what) {
  throw Error(code, message(where, ": ", what));
}

double Call::table_bias_of(std::int64_t head, std::int64_t distance) const noexcept {
  if (!terms.bias) return 0.0;
  return static_cast<double>(*terms.bias->table.row(head, terms.bias->map.row_of(distance)));
}

double Call::bias_of(std::int64_t head, std::int64_t distance) const noexcept {
  const double bias = table_bias_of(head, distance);
  if (terms.slopes.empty()) return bias;
  return bias -
         terms.slopes[static_cast<std::size_t>(head)] * static_cast<double>(std::abs(distance));
}

Call checked_call(const char* where, const encodings::ScoreTerms& terms, ConstHeadsView q,
                  ConstHeadsView k, ConstHeadsView v, const AttentionOptions& options,
                  CallMemory& memory) {
  check_shapes(where, q, k, v);
  check_options(where, terms, q, k, options);
  find_sequences(q, k, options, memory.sequences);
  const std::int64_t extra = terms.extra_query.given() ? terms.extra_query.dim : 0;
  const std::int64_t first = terms.first_row.given() || terms.first_column.given() ? 2 : 0;
  Call call{.terms = terms,
            .q = q,
            .k = k,
            .v = v,
            .options = options,
            .kernels = kernels_for(options.isa),
            .heads = q.heads,
            .key_heads = k.heads,
            .group = q.heads / k.heads,
            .head_dim = q.head_dim,
            .value_dim = v.head_dim,
            .extra_dim = extra + first,
            .scale = options.scale.value_or(terms.scale),
            .threads = options.threads > 0 ? options.threads : core::available_threads(),
            .memory = memory,
            .sequences = memory.sequences,
            .distances = {},
            .query_rotator = std::nullopt,
            .key_rotator = std::nullopt};
  for (const Sequence& s : call.sequences) {
    call.most_queries = std::max(call.most_queries, s.queries);
    call.most_keys = std::max(call.most_keys, s.keys);
  }
  encodings::validate(terms, {.heads = q.heads,
                              .key_heads = k.heads,
                              .head_dim = q.head_dim,
                              .value_dim = v.head_dim,
                              .query_tokens = call.most_queries,
                              .key_tokens = call.most_keys});
  call.distances = distances_of(call.sequences, options);
  check_distances(where, "query_rows", terms.query_rows, call.distances);
  check_distances(where, "key_rows", terms.key_rows, call.distances);
  check_distances(where, "bias", terms.bias, call.distances);
  check_distances(where, "value_rows", terms.value_rows, call.distances);
  if (terms.rotation) {
    const core::Rotary& rotary = *terms.rotation;
    const RotatorChoices choices{
        options.angles, options.isa,
        options.keys == KeyState::rotated ? FeatureOrder::as_written : FeatureOrder::any,
        call.is_wide() ? core::DType::f64 : core::DType::f32};
    find_ids(rotary, options.query_positions, q, call.sequences, core::Role::query,
             memory.queries.ids);
    call.query_rotator.emplace(rotary, core::Role::query, choices, memory.queries);
    if (options.keys == KeyState::raw) {
      find_ids(rotary, options.key_positions, k, call.sequences, core::Role::key, memory.keys.ids);
      call.key_rotator.emplace(rotary, core::Role::key, choices, memory.keys, &*call.query_rotator);
    }
  }
  return call;
}

void check_output(const char* where, const char* name, const core::HeadsView& view,
                  std::int64_t batch, std::int64_t tokens, std::int64_t heads, std::int64_t dim,
                  const Call& call) {
  check_input(where, name, view);
  check_width(where, name, view.dtype, "q", call.q.dtype);
  if (view.batch != batch || view.tokens != tokens || view.heads != heads || view.head_dim != dim) {
    refuse(ErrorCode::shape_mismatch, where,
           message(name, " must be [", batch, ", ", tokens, ", ", heads, ", ", dim, "], got ",
                   shape_text(view)));
  }
  if (batch * tokens == 0) return;
  if (core::overlaps_itself(view)) {
    refuse(ErrorCode::invalid_argument, where,
           message("the elements of ", name, " must be distinct, got strides [", view.batch_stride,
                   ", ", view.token_stride, ", ", view.head_stride, ", 1] for ", shape_text(view)));
  }
  const ConstHeadsView* const inputs[] = {&call.q, &call.k, &call.v};
  const char* const names[] = {"q", "k", "v"};
  for (int i = 0; i < 3; ++i) {
    if (inputs[i]->batch * inputs[i]->tokens > 0 && core::overlap(view, *inputs[i])) {
      refuse(ErrorCode::invalid_argument, where,
             message(name, " must not overlap an input, got one that overlaps ", names[i]));
    }
  }
}

void check_width(const char* where, const char* name, core::DType dtype, const char* like_name,
                 core::DType like) {
  if ((dtype == core::DType::f64) == (like == core::DType::f64)) return;
  refuse(
      ErrorCode::unsupported, where,
      message(name, " must be ", like == core::DType::f64 ? "f64" : "f32, f16 or bf16", " beside ",
              like_name, " of ", core::name_of(like), ", got ", core::name_of(dtype)));
}

void clear_view(const core::HeadsView& view) {
  const auto size = static_cast<std::int64_t>(core::size_of(view.dtype));
  for (std::int64_t b = 0; b < view.batch; ++b) {
    for (std::int64_t t = 0; t < view.tokens; ++t) {
      for (std::int64_t h = 0; h < view.heads; ++h) {
        std::fill_n(
            static_cast<char*>(view.data) +
                (b * view.batch_stride + t * view.token_stride + h * view.head_stride) * size,
            view.head_dim * size, '\0');
      }
    }
  }
}

kernels::Storage storage_of(core::DType dtype) noexcept {
  return dtype == core::DType::f16    ? kernels::Storage::f16
         : dtype == core::DType::bf16 ? kernels::Storage::bf16
                                      : kernels::Storage::f32;
}

kernels::Rows rows_of(const ConstHeadsView& view, std::int64_t batch, std::int64_t head,
                      std::int64_t token) noexcept {
  const auto size = static_cast<std::int64_t>(core::size_of(view.dtype));
  const std::int64_t offset =
      batch * view.batch_stride + token * view.token_stride + head * view.head_stride;
  return {static_cast<const char*>(view.data) + offset * size, view.token_stride,
          storage_of(view.dtype)};
}

}  // namespace phasor::attention
