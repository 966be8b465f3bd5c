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

void check_feature_count(const LinearOptions& options) {
  if (options.features == FeatureMap::favor) {
    if (options.feature_count >= 1 && options.feature_count <= kMaxFeatureCount) return;
    refuse(ErrorCode::out_of_range, kLinearWhere,
           message("favor needs a feature_count of 1 to ", kMaxFeatureCount, ", got ",
                   options.feature_count));
  }
  if (options.feature_count == 0) return;
  refuse(ErrorCode::invalid_argument, kLinearWhere,
         message(name_of(options.features), " has head_dim features: feature_count must be 0, got ",
                 options.feature_count));
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

namespace {

void rotate_call(const core::Rotary& rotary, LinearCall& call) {
  const LinearOptions& options = call.options;
  call.query_positions = checked_positions(rotary, options.query_positions, call.offset, call.q);
  call.key_positions = checked_positions(rotary, options.key_positions, 0, call.k);
  call.rotations = RotationRows(rotary, core::kernels_for(options.isa));
  call.rows_are_shared =
      call.is_causal() && !rotary.growth &&
      ((!options.query_positions && !options.key_positions) ||
       (call.offset == 0 && same_positions(call.query_positions, call.key_positions)));
}

}  // namespace

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
  check_feature_count(options);
  const bool is_favor = options.features == FeatureMap::favor;
  const std::int64_t dim = is_favor ? options.feature_count : sizes.head_dim;
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
                  .random = nullptr,
                  .rotations = std::nullopt,
                  .query_positions = {},
                  .key_positions = {},
                  .kept_queries = {},
                  .kept_keys = {},
                  .rows_are_shared = false,
                  .group = sizes.heads / sizes.key_heads,
                  .offset = sizes.keys - sizes.queries,
                  .dim = dim,
                  .value_dim = sizes.value_dim,
                  .width = kernels::rounded_up(dim, kernels::kWidest),
                  .value_width = kernels::rounded_up(sizes.value_dim, kernels::kWidest),
                  .input_width = kernels::rounded_up(sizes.head_dim, kernels::kWidest),
                  .chunk = std::min(std::max(sizes.queries, sizes.keys), kChunk)};
  if (rotary) {
    core::validate(*rotary);
    const bool rotates_inputs = options.rotates == Rotates::inputs;
    const std::int64_t rotated = rotates_inputs ? sizes.head_dim : dim;
    if (rotary->head_dim != rotated) {
      refuse(ErrorCode::shape_mismatch, kLinearWhere,
             message("the rotary is for head_dim ", rotary->head_dim, ", got ",
                     is_favor && !rotates_inputs ? "feature_count " : "head_dim ", rotated));
    }
    rotate_call(*rotary, call);
  }
  if (is_favor) call.random = random_features(dim, sizes.head_dim, options.seed);
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

}  // namespace phasor::attention
