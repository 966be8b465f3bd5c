#include "attention/softmax/call.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "attention/softmax/places.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/extent.hpp"
#include "phasor/core/internal/positions.hpp"
#include "phasor/core/internal/rotations.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::attention {
namespace {

using core::ConstHeadsView;

// The text is made when it is needed: decoding checks its shapes thousands of times a second.
template <class... Parts>
void require_shape(bool holds, const char* where, const Parts&... parts) {
  if (!holds) refuse(ErrorCode::shape_mismatch, where, message(parts...));
}

void check_input(const char* where, const char* name, const ConstHeadsView& view) {
  if (view.batch < 0 || view.tokens < 0 || view.heads < 1 || view.head_dim < 1) {
    refuse(ErrorCode::invalid_argument, where,
           message(name, " must have at least one head and one feature, got ", shape_text(view)));
  }
  core::check_extent(where, name, view);
  if (view.data == nullptr && view.batch * view.tokens > 0) {
    refuse(ErrorCode::invalid_argument, where,
           message(name, " of shape ", shape_text(view), " has no data (null)"));
  }
}

void check_counts(const char* where, const AttentionSizes& sizes, const AttentionOptions& options) {
  const auto fits = [&](const char* name, std::size_t got, std::int64_t wanted) {
    require_shape(got == 0 || static_cast<std::int64_t>(got) == wanted, where, name, " must have ",
                  wanted, " entries, got ", got);
  };
  fits("key_lengths", options.key_lengths.size(), sizes.batch);
  fits("key_padding", options.key_padding.size(), sizes.batch * sizes.keys);
  fits("query_segments", options.query_segments.size(), sizes.batch * sizes.queries);
  fits("key_segments", options.key_segments.size(), sizes.batch * sizes.keys);
  for (const std::int64_t length : options.key_lengths) {
    if (length < 0 || length > sizes.keys) {
      refuse(ErrorCode::out_of_range, where,
             message("key_lengths must be from 0 to ", sizes.keys, ", got ", length));
    }
  }
}

void check_boundaries(const char* where, const char* name, std::span<const std::int64_t> bounds,
                      std::int64_t tokens) {
  if (bounds.empty()) {
    refuse(ErrorCode::invalid_argument, where,
           message(name, " is missing: packed sequences need query_boundaries and key_boundaries"));
  }
  const bool fits = bounds.front() == 0 && bounds.back() == tokens &&
                    std::is_sorted(bounds.begin(), bounds.end());
  if (fits) return;
  refuse(ErrorCode::invalid_argument, where,
         message(name, " must rise from 0 to the ", tokens, " tokens, got ", bounds.size(),
                 " values from ", bounds.front(), " to ", bounds.back()));
}

void check_offset(const char* where, std::int64_t offset, const AttentionOptions& options,
                  bool packed) {
  if (packed || !options.key_lengths.empty()) {
    refuse(ErrorCode::unsupported, where,
           message("query_offset ", offset, " cannot be combined with ",
                   packed ? "packed sequences" : "key_lengths"));
  }
  // As far as positions reach.
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  if (offset < -kMost || offset > kMost) {
    refuse(ErrorCode::out_of_range, where,
           message("query_offset must be within 2^53 of 0, got ", offset));
  }
}

void check_options(const char* where, const encodings::ScoreTerms& terms,
                   const AttentionSizes& sizes, const AttentionOptions& options) {
  check_counts(where, sizes, options);
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
    refuse(ErrorCode::invalid_argument, where, "mask has no data (null)");
  }
  if (options.mask.kind == Mask::Kind::additive_f64 && sizes.arithmetic != core::DType::f64) {
    refuse(ErrorCode::unsupported, where,
           "a mask of f64 needs q, k, v and out of f64, got f32 arithmetic");
  }
  if (options.mask.kind != Mask::Kind::none &&
      (options.mask.keys < 0 || options.mask.keys > sizes.keys)) {
    refuse(ErrorCode::shape_mismatch, where,
           message("mask must have at most ", sizes.keys, " keys, got ", options.mask.keys));
  }
  const std::array<core::Dimension, 4> mask{{{sizes.batch, options.mask.batch_stride},
                                             {sizes.heads, options.mask.head_stride},
                                             {sizes.queries, options.mask.query_stride},
                                             {options.mask.keys, options.mask.key_stride}}};
  if (!core::is_addressable(mask, options.mask.kind == Mask::Kind::additive_f64 ? 8 : 4)) {
    refuse(ErrorCode::out_of_range, where,
           message("mask must lie within 2^56 bytes, got the strides [", options.mask.batch_stride,
                   ", ", options.mask.head_stride, ", ", options.mask.query_stride, ", ",
                   options.mask.key_stride, "] for batch ", sizes.batch, ", heads ", sizes.heads,
                   ", queries ", sizes.queries, ", keys ", options.mask.keys));
  }
  const std::int64_t queries = sizes.batch * sizes.queries, keys = sizes.batch * sizes.keys;
  if (terms.segment_rows.given() &&
      (static_cast<std::int64_t>(options.query_segments.size()) != queries ||
       static_cast<std::int64_t>(options.key_segments.size()) != keys)) {
    refuse(ErrorCode::invalid_argument, where,
           message("segment_rows need query_segments and key_segments of ", queries, " and ", keys,
                   " entries, got ", options.query_segments.size(), " and ",
                   options.key_segments.size()));
  }
  const bool packed = !options.query_boundaries.empty() || !options.key_boundaries.empty();
  if (options.query_offset) check_offset(where, *options.query_offset, options, packed);
  if (!packed) return;
  check_boundaries(where, "query_boundaries", options.query_boundaries, sizes.queries);
  check_boundaries(where, "key_boundaries", options.key_boundaries, sizes.keys);
  require_shape(options.query_boundaries.size() == options.key_boundaries.size(), where,
                "query_boundaries and key_boundaries must have the same length, got ",
                options.query_boundaries.size(), " and ", options.key_boundaries.size());
  if (sizes.batch != 1 || !options.key_lengths.empty()) {
    refuse(ErrorCode::unsupported, where,
           message("packed sequences need batch 1 and no key_lengths, got batch ", sizes.batch,
                   " and ", options.key_lengths.size(), " lengths"));
  }
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

// How many rows of a table with a row per token, or per position, a call reads.
std::int64_t rows_for(const encodings::Table& table,
                      const std::optional<core::Positions>& positions, std::int64_t tokens,
                      std::int64_t most_tokens) {
  if (!table.given() || !positions) return most_tokens;
  const std::optional<double> largest = positions->largest(tokens);
  if (!largest || !std::isfinite(*largest)) return most_tokens;
  return static_cast<std::int64_t>(std::clamp(*largest + 1.0, 0.0, 0x1p53));
}

}  // namespace

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

bool Call::has_refusing_map() const noexcept {
  const auto refuses = [](const std::optional<encodings::RelativeRows>& rows) {
    return rows && rows->map.outside == encodings::RelativeMap::Outside::refuse;
  };
  return refuses(terms.query_rows) || refuses(terms.key_rows) || refuses(terms.bias) ||
         refuses(terms.value_rows);
}

AttentionSizes sizes_of(const char* where, const ConstHeadsView& q, const ConstHeadsView& k,
                        const ConstHeadsView& v) {
  check_input(where, "q", q);
  check_input(where, "k", k);
  check_input(where, "v", v);
  check_width(where, "k", k.dtype, "q", q.dtype);
  check_width(where, "v", v.dtype, "q", q.dtype);
  require_shape(q.batch == k.batch && k.batch == v.batch, where,
                "q, k and v must have the same batch, got ", q.batch, ", ", k.batch, " and ",
                v.batch);
  require_shape(k.tokens == v.tokens, where, "k and v must have the same tokens, got ", k.tokens,
                " and ", v.tokens);
  require_shape(q.head_dim == k.head_dim, where, "q and k must have the same head_dim, got ",
                q.head_dim, " and ", k.head_dim);
  require_shape(k.heads == v.heads, where, "k and v must have the same heads, got ", k.heads,
                " and ", v.heads);
  require_shape(q.heads % k.heads == 0, where, "q has ", q.heads, " heads, k has ", k.heads,
                ": heads must be a multiple of key heads");
  return {.batch = q.batch,
          .queries = q.tokens,
          .keys = k.tokens,
          .heads = q.heads,
          .key_heads = k.heads,
          .head_dim = q.head_dim,
          .value_dim = v.head_dim,
          .arithmetic = q.dtype == core::DType::f64 ? core::DType::f64 : core::DType::f32};
}

Call make_call(const char* where, const encodings::ScoreTerms& terms, const AttentionSizes& sizes,
               const AttentionOptions& options, CallMemory& memory, Reuse reuse) {
  check_options(where, terms, sizes, options);
  find_sequences(sizes, options, memory.sequences);
  const std::int64_t extra = terms.extra_query.given() ? terms.extra_query.dim : 0;
  const std::int64_t first = terms.first_row.given() || terms.first_column.given() ? 2 : 0;
  const auto without_data = [&](std::int64_t tokens, std::int64_t heads, std::int64_t dim) {
    return ConstHeadsView{.data = nullptr,
                          .dtype = sizes.arithmetic,
                          .batch = sizes.batch,
                          .tokens = tokens,
                          .heads = heads,
                          .head_dim = dim};
  };
  Call call{.terms = terms,
            .q = without_data(sizes.queries, sizes.heads, sizes.head_dim),
            .k = without_data(sizes.keys, sizes.key_heads, sizes.head_dim),
            .v = without_data(sizes.keys, sizes.key_heads, sizes.value_dim),
            .options = options,
            .kernels = kernels_for(options.isa),
            .heads = sizes.heads,
            .key_heads = sizes.key_heads,
            .group = sizes.heads / sizes.key_heads,
            .head_dim = sizes.head_dim,
            .value_dim = sizes.value_dim,
            .extra_dim = extra + first,
            .scale = options.scale.value_or(terms.scale),
            .threads = options.threads > 0 ? options.threads : core::available_threads(),
            .memory = memory,
            .reuse = reuse,
            .sequences = memory.sequences,
            .distances = {},
            .query_rotator = std::nullopt,
            .key_rotator = std::nullopt};
  for (const Sequence& s : call.sequences) {
    call.most_queries = std::max(call.most_queries, s.queries);
    call.most_keys = std::max(call.most_keys, s.keys);
  }
  encodings::validate(
      terms,
      {.heads = sizes.heads,
       .key_heads = sizes.key_heads,
       .head_dim = sizes.head_dim,
       .value_dim = sizes.value_dim,
       .query_tokens =
           rows_for(terms.extra_query, options.query_positions, sizes.queries, call.most_queries),
       .key_tokens = rows_for(terms.extra_key, options.key_positions, sizes.keys, call.most_keys)});
  find_places(where, call);
  if (terms.query_rows || terms.key_rows || terms.value_rows)
    call.distances = seen_distances(call, Hidden::by_token);
  check_distances(where, call);
  if (terms.rotation) {
    const core::Rotary& rotary = *terms.rotation;
    const bool rotated_keys = options.keys == KeyState::rotated;
    RotatorChoices choices{options.angles, options.isa,
                           rotated_keys ? FeatureOrder::as_written : FeatureOrder::any,
                           sizes.arithmetic};
    // Shared rows hold one list of positions per rotary: that of the queries of a cache.
    if (rotated_keys && options.rotations != nullptr) choices.shared = &options.rotations->rows();
    find_ids(rotary, options.query_positions, call.q, call.sequences, core::Role::query,
             memory.queries.ids);
    call.query_rotator.emplace(rotary, core::Role::query, choices, memory.queries);
    if (!rotated_keys) {
      find_ids(rotary, options.key_positions, call.k, call.sequences, core::Role::key,
               memory.keys.ids);
      call.key_rotator.emplace(rotary, core::Role::key, choices, memory.keys, &*call.query_rotator);
    }
  }
  return call;
}

void bind(const char* where, Call& call, const ConstHeadsView& q, const ConstHeadsView& k,
          const ConstHeadsView& v) {
  const auto check = [&](const char* name, const ConstHeadsView& view,
                         const ConstHeadsView& planned) {
    check_input(where, name, view);
    if (view.batch != planned.batch || view.tokens != planned.tokens ||
        view.heads != planned.heads || view.head_dim != planned.head_dim) {
      refuse(
          ErrorCode::shape_mismatch, where,
          message(name, " must be ", shape_text(planned), " as planned, got ", shape_text(view)));
    }
    check_width(where, name, view.dtype, "the plan", planned.dtype);
  };
  check("q", q, call.q);
  check("k", k, call.k);
  check("v", v, call.v);
  call.q = q;
  call.k = k;
  call.v = v;
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
             message(name, " overlaps ", names[i], ": an output must not overlap an input"));
    }
  }
}

void check_width(const char* where, const char* name, core::DType dtype, const char* like_name,
                 core::DType like) {
  if ((dtype == core::DType::f64) == (like == core::DType::f64)) return;
  refuse(ErrorCode::unsupported, where,
         message(name, " is ", core::name_of(dtype), ", ", like_name, " is ", core::name_of(like),
                 ": f64 cannot be combined with another type"));
}

void clear_view(const core::HeadsView& view) {
  const auto size = static_cast<std::int64_t>(core::size_of(view.dtype));
  for (std::int64_t b = 0; b < view.batch; ++b) {
    for (std::int64_t t = 0; t < view.tokens; ++t) {
      if (t % 1024 == 0) core::throw_if_cancelled();
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
