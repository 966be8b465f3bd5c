#include "attention/linear/linear_call.hpp"

#include <algorithm>
#include <cmath>

#include "attention/softmax/call.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/angle_range.hpp"
#include "phasor/core/internal/dispatch.hpp"
#include "phasor/core/internal/extent.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/core/internal/positions.hpp"
#include "phasor/core/internal/rotations.hpp"

namespace phasor::attention {
namespace {

using core::ConstHeadsView;

constexpr float kToPowersOfTwo = static_cast<float>(kLog2e);
// Bits by which exponents may grow inside a chunk: its first query loses this much of the range.
constexpr float kExponentGrowth = 20.0F;
// Larger keys count as this one, so that the exponent is exact in float32.
constexpr float kLargestKey = 1e6F;
// Multiplications that make another thread worth its cost.
constexpr std::int64_t kThreadWork = std::int64_t{1} << 19;

void check_linear_input(const char* name, const ConstHeadsView& view) {
  if (view.batch < 0 || view.tokens < 0 || view.heads < 1 || view.head_dim < 1) {
    refuse(ErrorCode::shape_mismatch, kLinearWhere,
           message(name, " needs at least one head and one feature, got ", core::shape_text(view)));
  }
  core::check_extent(kLinearWhere, name, view);
  if (view.data == nullptr && view.batch * view.tokens > 0) {
    refuse(ErrorCode::invalid_argument, kLinearWhere,
           message(name, " of shape ", core::shape_text(view), " must not be null"));
  }
}

void check_linear_sizes(const LinearSizes& sizes) {
  if (sizes.batch < 0 || sizes.queries < 0 || sizes.keys < 0 || sizes.heads < 1 ||
      sizes.key_heads < 1 || sizes.head_dim < 1 || sizes.value_dim < 1) {
    refuse(ErrorCode::shape_mismatch, kLinearWhere,
           message("sizes must not be negative, heads and dims at least 1, got batch ", sizes.batch,
                   ", queries ", sizes.queries, ", keys ", sizes.keys, ", heads ", sizes.heads,
                   ", key_heads ", sizes.key_heads, ", head_dim ", sizes.head_dim, ", value_dim ",
                   sizes.value_dim));
  }
  if (sizes.heads % sizes.key_heads != 0) {
    refuse(ErrorCode::shape_mismatch, kLinearWhere,
           message("q has ", sizes.heads, " heads, k has ", sizes.key_heads,
                   ": heads must be a multiple of key heads"));
  }
}

core::Positions checked_positions(const core::Rotary& rotary,
                                  const std::optional<core::Positions>& given,
                                  std::int64_t otherwise, const ConstHeadsView& x) {
  const core::Positions positions = given.value_or(core::positions_from(otherwise));
  const core::PositionBounds bounds =
      core::check_positions(positions, rotary.frequencies.axis_count(), x.batch, x.tokens);
  if (x.tokens > 0) {
    core::check_angle_range(kLinearWhere, rotary.frequencies, bounds.low, bounds.high);
  }
  return positions;
}

}  // namespace

Scratch::Scratch(std::int64_t parts, std::int64_t floats)
    : floats_(kernels::rounded_up(floats, kernels::kWidest)),
      memory_(static_cast<std::size_t>(parts * floats_ + 2 * kernels::kWidest)) {}

Carver Scratch::part(std::int64_t index) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
  const auto to_line = static_cast<std::int64_t>((64 - address % 64) % 64 / sizeof(float));
  return Carver(memory_.data() + to_line + index * floats_);
}

std::int64_t Sums::floats_for(std::int64_t rows, std::int64_t columns,
                              std::int64_t width) noexcept {
  return 2 * (room_for(rows) * columns + width);
}

Sums Sums::at(float* memory, float* exponent, std::int64_t rows, std::int64_t columns,
              std::int64_t width) noexcept {
  Sums sums;
  sums.columns = columns;
  sums.floats = floats_for(rows, columns, width);
  sums.exponent = exponent;
  sums.products = memory;
  sums.products_carry = memory + room_for(rows) * columns;
  sums.vectors = sums.products_carry + room_for(rows) * columns;
  sums.vectors_carry = sums.vectors + width;
  return sums;
}

Sums LinearStateAccess::sums(const LinearState& state, float* memory, float* exponents,
                             std::int64_t head) noexcept {
  const std::int64_t columns = kernels::rounded_up(state.value_dim_, kernels::kWidest);
  const std::int64_t width = kernels::rounded_up(state.head_dim_, kernels::kWidest);
  const std::int64_t floats = Sums::floats_for(state.head_dim_, columns, width);
  return Sums::at(memory + head * floats, exponents + head, state.head_dim_, columns, width);
}

LinearSizes linear_sizes(const ConstHeadsView& q, const ConstHeadsView& k,
                         const ConstHeadsView& v) {
  check_linear_input("q", q);
  check_linear_input("k", k);
  check_linear_input("v", v);
  check_width(kLinearWhere, "k", k.dtype, "q", q.dtype);
  check_width(kLinearWhere, "v", v.dtype, "q", q.dtype);
  if (q.batch != k.batch || k.batch != v.batch || k.tokens != v.tokens || k.heads != v.heads ||
      q.head_dim != k.head_dim) {
    refuse(ErrorCode::shape_mismatch, kLinearWhere,
           message("q [batch, Nq, heads, d], k [batch, Nk, key_heads, d] and v [batch, Nk, "
                   "key_heads, dv] must agree, got ",
                   core::shape_text(q), ", ", core::shape_text(k), " and ", core::shape_text(v)));
  }
  const LinearSizes sizes{
      q.batch, q.tokens,   k.tokens,   q.heads,
      k.heads, q.head_dim, v.head_dim, q.dtype == core::DType::f64 ? q.dtype : core::DType::f32};
  check_linear_sizes(sizes);
  return sizes;
}

void check_linear_view(const char* name, const ConstHeadsView& view, const ConstHeadsView& like,
                       std::int64_t dim) {
  check_linear_input(name, view);
  check_width(kLinearWhere, name, view.dtype, "q", like.dtype);
  if (view.batch != like.batch || view.tokens != like.tokens || view.heads != like.heads ||
      view.head_dim != dim) {
    const std::int64_t expected[] = {like.batch, like.tokens, like.heads, dim};
    refuse(
        ErrorCode::shape_mismatch, kLinearWhere,
        message(name, " must be ", core::shape_text(expected), ", got ", core::shape_text(view)));
  }
}

void check_linear_output(const char* name, const core::HeadsView& view,
                         std::initializer_list<ConstHeadsView> others) {
  if (view.batch * view.tokens == 0) return;
  if (core::overlaps_itself(view)) {
    refuse(ErrorCode::invalid_argument, kLinearWhere,
           message("the elements of ", name, " must be distinct, got strides [", view.batch_stride,
                   ", ", view.token_stride, ", ", view.head_stride, ", 1] for ",
                   core::shape_text(view)));
  }
  for (const ConstHeadsView& other : others) {
    if (other.batch * other.tokens > 0 && core::overlap(view, other)) {
      refuse(ErrorCode::invalid_argument, kLinearWhere,
             message(name, " ", core::shape_text(view), " overlaps another tensor of the call, ",
                     core::shape_text(other)));
    }
  }
}

LinearCall checked_linear_call(const std::optional<core::Rotary>& rotary, const LinearSizes& sizes,
                               const LinearOptions& options) {
  check_linear_sizes(sizes);
  if (!options.key_padding.empty() &&
      static_cast<std::int64_t>(options.key_padding.size()) != sizes.batch * sizes.keys) {
    refuse(ErrorCode::shape_mismatch, kLinearWhere,
           message("key_padding must be [batch ", sizes.batch, ", keys ", sizes.keys, "], got ",
                   options.key_padding.size(), " elements"));
  }
  if (options.threads < 0) {
    refuse(ErrorCode::invalid_argument, kLinearWhere,
           message("threads must not be negative, got ", options.threads));
  }
  const auto view = [&](std::int64_t tokens, std::int64_t heads, std::int64_t dim) {
    ConstHeadsView empty;
    empty.dtype = sizes.dtype;
    empty.batch = sizes.batch;
    empty.tokens = tokens;
    empty.heads = heads;
    empty.head_dim = dim;
    return empty;
  };
  LinearCall call{.q = view(sizes.queries, sizes.heads, sizes.head_dim),
                  .k = view(sizes.keys, sizes.key_heads, sizes.head_dim),
                  .v = view(sizes.keys, sizes.key_heads, sizes.value_dim),
                  .options = options,
                  .kernels = attention::kernels_for(options.isa),
                  .rotations = std::nullopt,
                  .query_positions = {},
                  .key_positions = {},
                  .kept_queries = {},
                  .kept_keys = {},
                  .rows_are_shared = false,
                  .group = sizes.heads / sizes.key_heads,
                  .offset = sizes.keys - sizes.queries,
                  .dim = sizes.head_dim,
                  .value_dim = sizes.value_dim,
                  .width = kernels::rounded_up(sizes.head_dim, kernels::kWidest),
                  .value_width = kernels::rounded_up(sizes.value_dim, kernels::kWidest),
                  .chunk = std::min(std::max(sizes.queries, sizes.keys), kChunk)};
  if (!rotary) return call;
  core::validate(*rotary);
  if (rotary->head_dim != sizes.head_dim) {
    refuse(ErrorCode::shape_mismatch, kLinearWhere,
           message("the rotary is for head_dim ", rotary->head_dim, ", got head_dim ",
                   sizes.head_dim));
  }
  call.query_positions = checked_positions(*rotary, options.query_positions, call.offset, call.q);
  call.key_positions = checked_positions(*rotary, options.key_positions, 0, call.k);
  call.rotations = RotationRows(*rotary, core::kernels_for(options.isa));
  call.rows_are_shared =
      call.is_causal() && !rotary->growth &&
      ((!options.query_positions && !options.key_positions) ||
       (call.offset == 0 && same_positions(call.query_positions, call.key_positions)));
  return call;
}

int linear_threads(const LinearCall& call, std::int64_t units) {
  const std::int64_t work = call.q.batch *
                            (call.q.tokens * call.q.heads + call.k.tokens * call.k.heads) *
                            call.width * call.value_width;
  const std::int64_t useful = std::min(work / kThreadWork, units);
  if (useful <= 1) return 1;
  const int wanted = call.options.threads > 0 ? call.options.threads : core::available_threads();
  return static_cast<int>(std::min<std::int64_t>(wanted, useful));
}

namespace {

void make_rows(const LinearCall& call, const KeptRows& kept, const core::Positions& positions,
               std::int64_t tokens, core::Role role, std::int64_t b, std::int64_t first,
               std::int64_t count, ChunkRows& rows) {
  rows.first = first;
  if (!call.rotations) return;
  if (kept.forward != nullptr) {
    const std::int64_t at =
        ((kept.per_batch_row ? b * tokens : 0) + first) * call.rotations->row_floats();
    rows.forward = kept.forward + at;
    rows.transposed = kept.transposed == nullptr ? nullptr : kept.transposed + at;
    return;
  }
  call.rotations->make(positions, tokens, b, first, count, role, rows.memory);
  rows.forward = rows.memory;
  if (rows.transposed_memory == nullptr) return;
  call.rotations->transpose(rows.memory, count, rows.transposed_memory);
  rows.transposed = rows.transposed_memory;
}

}  // namespace

void make_key_rows(const LinearCall& call, std::int64_t b, std::int64_t first, std::int64_t count,
                   ChunkRows& rows) {
  make_rows(call, call.kept_keys, call.key_positions, call.k.tokens, core::Role::key, b, first,
            count, rows);
}
void make_query_rows(const LinearCall& call, std::int64_t b, std::int64_t first, std::int64_t count,
                     ChunkRows& rows) {
  make_rows(call, call.kept_queries, call.query_positions, call.q.tokens, core::Role::query, b,
            first, count, rows);
}

void make_aligned_query_rows(const LinearCall& call, std::int64_t b, std::int64_t first,
                             std::int64_t count, const ChunkRows& key_rows, ChunkRows& query_rows) {
  if (!call.rows_are_shared) {
    return make_query_rows(call, b, first - call.offset, count, query_rows);
  }
  query_rows = key_rows;
  query_rows.first -= call.offset;
}

void read_tokens(const LinearCall& call, const ConstHeadsView& view, std::int64_t b, std::int64_t h,
                 std::int64_t first, std::int64_t count, float* out, std::int64_t stride) {
  call.kernels.read_rows(rows_of(view, b, h, first), count, view.head_dim, out, stride);
  if (view.head_dim == stride) return;
  for (std::int64_t t = 0; t < count; ++t) {
    std::fill(out + t * stride + view.head_dim, out + (t + 1) * stride, 0.0F);
  }
}

void write_tokens(const LinearCall& call, const float* in, std::int64_t stride, std::int64_t count,
                  const core::HeadsView& view, std::int64_t b, std::int64_t h, std::int64_t first) {
  const kernels::Rows rows = rows_of(view, b, h, first);
  call.kernels.write_rows(in, stride, count, view.head_dim, rows.storage,
                          const_cast<void*>(rows.data), rows.stride);
}

KeyChunk carve_keys(const LinearCall& call, Carver& carver) {
  const std::int64_t rows = room_for(call.chunk);
  KeyChunk keys;
  keys.features = carver.take(rows * call.width);
  keys.rotated = call.rotations ? carver.take(rows * call.width) : keys.features;
  keys.values = carver.take(rows * call.value_width);
  keys.largest = carver.take(rows);
  return keys;
}

void read_keys(const LinearCall& call, std::int64_t b, std::int64_t g, std::int64_t first,
               std::int64_t count, KeyChunk& keys) {
  keys.first = first;
  keys.count = count;
  read_tokens(call, call.k, b, g, first, count, keys.features, call.width);
  read_tokens(call, call.v, b, g, first, count, keys.values, call.value_width);
  if (!call.options.key_padding.empty()) {
    for (std::int64_t t = 0; t < count; ++t) {
      if (!call.is_padding(b, first + t)) continue;
      std::fill_n(keys.features + t * call.width, call.width, 0.0F);
      std::fill_n(keys.values + t * call.value_width, call.value_width, 0.0F);
    }
  }
  if (!call.is_exp()) return;
  call.kernels.linear.largest(keys.features, call.width, count, call.dim, keys.largest);
  for (std::int64_t t = 0; t < count; ++t) {
    if (call.is_padding(b, first + t)) keys.largest[t] = kNoExponent;
  }
}

std::int64_t shared_chunk(const LinearCall& call, const KeyChunk& keys, float exponent) {
  const kernels::LinearKernels& kernels = call.kernels.linear;
  std::int64_t count = keys.count;
  const auto finite = [&](std::int64_t from, std::int64_t tokens) {
    return kernels.all_finite(keys.features + from * call.width, call.width, tokens) != 0 &&
           kernels.all_finite(keys.values + from * call.value_width, call.value_width, tokens) != 0;
  };
  if (!finite(0, count)) {
    std::int64_t first = 0;
    while (first < count && finite(first, 1)) ++first;
    count = std::max<std::int64_t>(first, 1);
  }
  if (!call.is_exp()) return count;
  float start = std::max(exponent, keys.largest[0] * kToPowersOfTwo);
  for (std::int64_t t = 1; t < count; ++t) {
    const float here = keys.largest[t] * kToPowersOfTwo;
    if (start <= kNoExponent) start = here;  // only padding so far
    if (here > start + kExponentGrowth) return t;
  }
  return count;
}

float exponent_for(const LinearCall& call, const KeyChunk& keys, float before) {
  if (!call.is_exp()) return 0.0F;
  const float largest = *std::max_element(keys.largest, keys.largest + keys.count);
  if (largest <= kNoExponent) return before;
  return std::max(before,
                  std::ceil(std::clamp(largest, -kLargestKey, kLargestKey) * kToPowersOfTwo));
}

void map_keys(const LinearCall& call, std::int64_t b, float exponent, const ChunkRows& rows,
              KeyChunk& keys) {
  const kernels::LinearKernels& kernels = call.kernels.linear;
  keys.exponent = exponent;
  if (call.is_exp()) {
    const float units = exponent <= kNoExponent ? 0.0F : exponent;
    kernels.exp_scaled(keys.features, call.width, keys.count, call.dim, &units, 0);
  } else {
    kernels.elu_plus_one(keys.features, call.width, keys.count, call.dim);
  }
  for (std::int64_t t = 0; t < keys.count && !call.options.key_padding.empty(); ++t) {
    if (call.is_padding(b, keys.first + t))
      std::fill_n(keys.features + t * call.width, call.width, 0.0F);
  }
  if (call.rotations) {
    call.rotations->rotate(rows.forward + (keys.first - rows.first) * call.rotations->row_floats(),
                           keys.features, keys.rotated, call.width, keys.count);
  }
}

void change_exponent(const LinearCall& call, ScaleOf scale, float exponent, const Sums& sums) {
  const float before = *sums.exponent;
  *sums.exponent = exponent;
  if (before == exponent || before <= kNoExponent || exponent <= kNoExponent) return;
  const float bits = scale == ScaleOf::keys ? before - exponent : exponent - before;
  // Powers of two: nothing is rounded. Sums scaled below 2^-100 are negligible.
  const float factor = bits < -100.0F ? 0.0F : std::ldexp(1.0F, static_cast<int>(bits));
  call.kernels.linear.scaled_rows(sums.products, 0, &factor, 0, 1, sums.floats, sums.products, 0,
                                  0);
}

void add_keys_to_sums(const LinearCall& call, const KeyChunk& keys, const float* total,
                      const Sums& sums) {
  const kernels::LinearKernels& kernels = call.kernels.linear;
  kernels.add_product({keys.rotated, 1, call.width}, {keys.values, call.value_width, 1},
                      {sums.products, sums.columns, 1}, sums.products_carry, call.dim, keys.count,
                      call.value_width);
  kernels.add_carried(total, call.width, sums.vectors, sums.vectors_carry);
}

QueryChunk carve_queries(const LinearCall& call, Carver& carver) {
  const std::int64_t rows = room_for(call.chunk);
  QueryChunk queries;
  queries.features = carver.take(rows * call.width);
  queries.rotated = call.rotations ? carver.take(rows * call.width) : queries.features;
  queries.exponents = carver.take(rows);
  return queries;
}

void load_queries(const LinearCall& call, std::int64_t b, std::int64_t h, std::int64_t first,
                  std::int64_t count, const ChunkRows& rows, QueryChunk& queries) {
  const kernels::LinearKernels& kernels = call.kernels.linear;
  read_tokens(call, call.q, b, h, first, count, queries.features, call.width);
  if (call.is_exp()) {
    // softmax over the features: its own denominator cancels in (19), as any factor of a query
    // does.
    kernels.largest(queries.features, call.width, count, call.dim, queries.exponents);
    for (std::int64_t t = 0; t < count; ++t) {
      queries.exponents[t] =
          std::ceil(std::clamp(queries.exponents[t], -kLargestKey, kLargestKey) * kToPowersOfTwo);
    }
    kernels.exp_scaled(queries.features, call.width, count, call.dim, queries.exponents, 1);
  } else {
    kernels.elu_plus_one(queries.features, call.width, count, call.dim);
  }
  if (call.rotations) {
    call.rotations->rotate(rows.forward + (first - rows.first) * call.rotations->row_floats(),
                           queries.features, queries.rotated, call.width, count);
  }
}

void unmap(const LinearCall& call, const float* features, float* gradient, std::int64_t count) {
  const kernels::LinearKernels& kernels = call.kernels.linear;
  call.is_exp() ? kernels.times_exp_slope(features, gradient, count * call.width)
                : kernels.times_elu_slope(features, gradient, count * call.width);
}

void invert(float* x, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) x[i] = x[i] == 0.0F ? 0.0F : 1.0F / x[i];
}

}  // namespace phasor::attention
