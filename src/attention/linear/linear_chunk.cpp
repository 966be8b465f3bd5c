// Chunks of keys and queries in scratch: read, rotated, mapped, and their gradients mapped back.
#include <algorithm>
#include <cmath>

#include "attention/linear/linear_call.hpp"
#include "attention/softmax/call.hpp"

namespace phasor::attention {
namespace {

using core::ConstHeadsView;

constexpr float kToPowersOfTwo = static_cast<float>(kLog2e);
// Bits by which exponents may grow inside a chunk: its first query loses this much of the range.
constexpr float kExponentGrowth = 20.0F;
// Larger keys count as this one, so that the exponent is exact in float32.
constexpr float kLargestKey = 1e6F;
// favor: |k'|^2 / 2 may reach this, for the same reason.
constexpr float kLowestKey = -1.1e7F;

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

namespace {

void rotate_rows(const LinearCall& call, const float* rows_of_cos, const ChunkRows& rows,
                 std::int64_t first, std::int64_t count, const float* in, float* out,
                 std::int64_t stride) {
  call.rotations->rotate(rows_of_cos + (first - rows.first) * call.rotations->row_floats(), in, out,
                         stride, count);
}

// What the map takes the exponential or elu of: x, or R x, or W x.
void project(const LinearCall& call, const ChunkRows& rows, std::int64_t first, std::int64_t count,
             float* inputs, float* features) {
  if (call.rotates(Rotates::inputs)) {
    rotate_rows(call, rows.forward, rows, first, count, inputs, inputs, call.input_width);
  }
  if (!call.is_favor()) return;
  const RandomFeatures& random = *call.random;
  call.kernels.linear.multiply({inputs, call.input_width, 1}, {random.by_input, random.width, 1},
                               {features, call.width, 1}, count, random.head_dim, call.width, 0);
}

// |x'|^2 / 2 of each key, in double: unlike W x it does not cancel between keys.
void halve_squares(const LinearCall& call, KeyChunk& keys) {
  const std::int64_t dim = call.random->head_dim;
  for (std::int64_t t = 0; t < keys.count; ++t) {
    const float* const x = keys.inputs + t * call.input_width;
    double sums[4] = {0.0, 0.0, 0.0, 0.0};
    for (std::int64_t e = 0; e < dim; ++e) {
      sums[e % 4] += static_cast<double>(x[e]) * static_cast<double>(x[e]);
    }
    const double half = 0.5 * call.random->scale * ((sums[0] + sums[1]) + (sums[2] + sums[3]));
    const double whole = std::nearbyint(half * kLog2e);
    keys.wholes[t] = static_cast<float>(whole);
    // A key beyond kLowestKey is zero, and what is left of its exponent is only rounding.
    keys.factors[t] = half > 1e9 && std::isfinite(half)
                          ? 1.0F
                          : static_cast<float>(std::exp(whole * kLn2 - half));
    keys.largest[t] = std::isfinite(half)
                          ? static_cast<float>(static_cast<double>(keys.largest[t]) - half)
                          : kNoExponent;
  }
}

}  // namespace

KeyChunk carve_keys(const LinearCall& call, Carver& carver) {
  const std::int64_t rows = room_for(call.chunk);
  KeyChunk keys;
  keys.features = carver.take(rows * call.width);
  keys.inputs = call.is_favor() ? carver.take(rows * call.input_width) : keys.features;
  keys.rotated = call.rotates(Rotates::features) ? carver.take(rows * call.width) : keys.features;
  keys.values = carver.take(rows * call.value_width);
  keys.largest = carver.take(rows);
  if (!call.is_favor()) return keys;
  keys.wholes = carver.take(rows);
  keys.factors = carver.take(rows);
  keys.exponents = carver.take(rows);
  return keys;
}

void read_keys(const LinearCall& call, std::int64_t b, std::int64_t g, std::int64_t first,
               std::int64_t count, const ChunkRows& rows, KeyChunk& keys) {
  keys.first = first;
  keys.count = count;
  read_tokens(call, call.k, b, g, first, count, keys.inputs, call.input_width);
  read_tokens(call, call.v, b, g, first, count, keys.values, call.value_width);
  if (!call.options.key_padding.empty()) {
    for (std::int64_t t = 0; t < count; ++t) {
      if (!call.is_padding(b, first + t)) continue;
      std::fill_n(keys.inputs + t * call.input_width, call.input_width, 0.0F);
      std::fill_n(keys.values + t * call.value_width, call.value_width, 0.0F);
    }
  }
  project(call, rows, first, count, keys.inputs, keys.features);
  if (!call.is_exp()) return;
  call.kernels.linear.largest(keys.features, call.width, count, call.dim, keys.largest);
  if (call.is_favor()) halve_squares(call, keys);
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
  const float lowest = call.is_favor() ? kLowestKey : -kLargestKey;
  return std::max(before, std::ceil(std::clamp(largest, lowest, kLargestKey) * kToPowersOfTwo));
}

void map_keys(const LinearCall& call, std::int64_t b, float exponent, const ChunkRows& rows,
              KeyChunk& keys) {
  const kernels::LinearKernels& kernels = call.kernels.linear;
  keys.exponent = exponent;
  const float units = exponent <= kNoExponent ? 0.0F : exponent;
  if (call.is_favor()) {
    for (std::int64_t t = 0; t < keys.count; ++t) keys.exponents[t] = units + keys.wholes[t];
    kernels.exp_scaled(keys.features, call.width, keys.count, call.dim, keys.exponents, 1);
    kernels.scaled_rows(keys.features, call.width, keys.factors, 1, keys.count, call.width,
                        keys.features, call.width, 0);
  } else if (call.is_exp()) {
    kernels.exp_scaled(keys.features, call.width, keys.count, call.dim, &units, 0);
  } else {
    kernels.elu_plus_one(keys.features, call.width, keys.count, call.dim);
  }
  for (std::int64_t t = 0; t < keys.count && !call.options.key_padding.empty(); ++t) {
    if (call.is_padding(b, keys.first + t))
      std::fill_n(keys.features + t * call.width, call.width, 0.0F);
  }
  if (call.rotates(Rotates::features)) {
    rotate_rows(call, rows.forward, rows, keys.first, keys.count, keys.features, keys.rotated,
                call.width);
  }
}

void change_exponent(const LinearCall& call, SumsOf of, float exponent, const Sums& sums) {
  const float before = *sums.exponent;
  *sums.exponent = exponent;
  if (before == exponent || before <= kNoExponent || exponent <= kNoExponent) return;
  const float bits = of == SumsOf::keys ? before - exponent : exponent - before;
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
  queries.inputs = call.is_favor() ? carver.take(rows * call.input_width) : queries.features;
  queries.rotated =
      call.rotates(Rotates::features) ? carver.take(rows * call.width) : queries.features;
  queries.exponents = carver.take(rows);
  return queries;
}

void load_queries(const LinearCall& call, std::int64_t b, std::int64_t h, std::int64_t first,
                  std::int64_t count, const ChunkRows& rows, QueryChunk& queries) {
  const kernels::LinearKernels& kernels = call.kernels.linear;
  read_tokens(call, call.q, b, h, first, count, queries.inputs, call.input_width);
  project(call, rows, first, count, queries.inputs, queries.features);
  if (call.is_exp()) {
    // softmax over the features: its own denominator cancels in (19), as any factor of a query
    // does, e^(-|q'|^2 / 2) too.
    kernels.largest(queries.features, call.width, count, call.dim, queries.exponents);
    for (std::int64_t t = 0; t < count; ++t) {
      queries.exponents[t] =
          std::ceil(std::clamp(queries.exponents[t], -kLargestKey, kLargestKey) * kToPowersOfTwo);
    }
    kernels.exp_scaled(queries.features, call.width, count, call.dim, queries.exponents, 1);
  } else {
    kernels.elu_plus_one(queries.features, call.width, count, call.dim);
  }
  if (call.rotates(Rotates::features)) {
    rotate_rows(call, rows.forward, rows, first, count, queries.features, queries.rotated,
                call.width);
  }
}

InputGradients carve_input_gradients(const LinearCall& call, float* d_features, Carver& carver) {
  if (!call.is_favor()) return {d_features, nullptr};
  const std::int64_t rows = room_for(call.chunk);
  InputGradients to;
  to.d_inputs = carver.take(rows * call.input_width);
  to.sums = carver.take(rows);
  return to;
}

void unmap(const LinearCall& call, const float* features, const float* inputs,
           const ChunkRows& rows, std::int64_t first, std::int64_t count, float* d_features,
           const InputGradients& to) {
  const kernels::LinearKernels& kernels = call.kernels.linear;
  call.is_exp() ? kernels.times_exp_slope(features, d_features, count * call.width)
                : kernels.times_elu_slope(features, d_features, count * call.width);
  if (call.is_favor()) {
    // d x' = sum_i d phi_i phi_i (w_i - x')
    const RandomFeatures& random = *call.random;
    kernels.multiply({d_features, call.width, 1}, {random.by_feature, random.input_width, 1},
                     {to.d_inputs, call.input_width, 1}, count, call.dim, call.input_width, 0);
    if (inputs != nullptr) {
      kernels.dots(d_features, call.width, random.ones, 0, count, call.width, to.sums);
      for (std::int64_t t = 0; t < count; ++t) to.sums[t] *= -static_cast<float>(random.scale);
      kernels.scaled_rows(inputs, call.input_width, to.sums, 1, count, call.input_width,
                          to.d_inputs, call.input_width, 1);
    }
  }
  if (call.rotates(Rotates::inputs)) {
    rotate_rows(call, rows.transposed, rows, first, count, to.d_inputs, to.d_inputs,
                call.input_width);
  }
}

void invert(float* x, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) x[i] = x[i] == 0.0F ? 0.0F : 1.0F / x[i];
}

}  // namespace phasor::attention
