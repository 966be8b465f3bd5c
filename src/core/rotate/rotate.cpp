#include "phasor/core/rotate.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>
#include <vector>

#include "core/angles/rows.hpp"
#include "core/rotate/rotate_call.hpp"
#include "core/system/cache_sizes.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/internal/angle_range.hpp"
#include "phasor/core/internal/dispatch.hpp"
#include "phasor/core/internal/extent.hpp"
#include "phasor/core/internal/rotations.hpp"

namespace phasor::core {
namespace {

// An output of this size or more, and of more than the L2 cache, would evict everything else from the
// caches.
constexpr std::int64_t kStreamBytes = std::int64_t{4} << 20;

void check_table(const Rotary& rotary, const RotateOptions& options, DType dtype,
                 const PositionBounds& bounds) {
  const CosSinTable& table = *options.table;
  if (dtype == DType::f64) {
    refuse(ErrorCode::unsupported,
           "rotate: a float32 table cannot rotate float64 data exactly; remove the table");
  }
  if (rotary.growth) {
    refuse(ErrorCode::unsupported, "rotate: a table holds no xPos growth; remove the table");
  }
  if (!table.serves(rotary.frequencies, options.angles)) {
    refuse(message("rotate: the table must be built from the rotary's frequencies, got one with ",
                   table.pairs(), " pairs and amplitude ", table.amplitude()));
  }
  if (!bounds.integral) {
    refuse(ErrorCode::unsupported, "rotate: a table needs integer positions, got floats");
  }
  const PositionRange range = table.range();
  if (bounds.low < static_cast<double>(range.first) ||
      bounds.high > static_cast<double>(range.first + range.count - 1)) {
    refuse(ErrorCode::out_of_range,
           message("rotate: positions must be in the table's range [", range.first, ", ",
                   range.first + range.count, "), got ", bounds.low, " to ", bounds.high));
  }
}

// Whether the output is so large that streaming stores should bypass the caches.
bool is_large_output(const RotateCall& call) {
  if (call.crosses() || call.options.angles != AngleMode::exact || call.dtype == DType::f64) {
    return false;
  }
  std::int64_t bytes = 0;
  for (const Rotation& rotation : call.rotations) {
    if (same_view(rotation.in, rotation.out)) return false;
    const HeadsView& out = rotation.out;
    bytes += out.batch * out.tokens * out.heads * out.head_dim * call.element;
  }
  return bytes >= std::max(kStreamBytes, l2_cache_bytes());
}

// Whether every vector that the kernel stores begins at a multiple of 64 bytes.
bool is_aligned_output(const RotateCall& call) {
  std::int64_t alignment = 0;
  for (const Rotation& rotation : call.rotations) {
    const HeadsView& out = rotation.out;
    for (const std::int64_t count : {out.batch_stride, out.token_stride, out.head_stride,
                                     call.window.offset, call.block_pairs}) {
      alignment |= static_cast<std::int64_t>(static_cast<std::uint64_t>(count) *
                                             static_cast<std::uint64_t>(call.element));
    }
    alignment |= static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(out.data));
  }
  return alignment % 64 == 0;
}

// Whether heads are further apart than tokens, in any tensor of the call. Paths that do not use the
// kernels for several tokens work on one token.
bool is_heads_first(const RotateCall& call) {
  if (call.crosses() || call.options.angles != AngleMode::exact) return false;
  return std::any_of(call.rotations.begin(), call.rotations.end(), [](const Rotation& rotation) {
    return rotation.out.tokens > 1 && rotation.out.heads > 1 &&
           std::abs(rotation.out.head_stride) > std::abs(rotation.out.token_stride);
  });
}

void check_threads(const RotateOptions& options) {
  if (options.threads < 0) {
    refuse(message("rotate: threads must not be negative, got ", options.threads));
  }
}

int thread_count(const RotateOptions& options, std::int64_t bytes, std::int64_t rows) {
  const std::int64_t useful = std::min(bytes / kThreadBytes, rows);
  if (useful <= 1) return 1;
  return static_cast<int>(
      std::min<std::int64_t>(options.threads > 0 ? options.threads : available_threads(), useful));
}

// Without heads there may be any number of tokens, which it would take time to walk over.
bool are_empty(std::span<const Rotation> rotations) {
  const ConstHeadsView& first = rotations.front().in;
  return first.batch == 0 || first.tokens == 0 ||
         std::none_of(rotations.begin(), rotations.end(),
                      [](const Rotation& rotation) { return rotation.in.heads > 0; });
}

// Of paths that are not written for large tensors.
constexpr Way kOneWay[1] = {};

// precondition  everything was checked, and there is a token; one of rotary and given is null
void run(const Window& window, const Rotary* rotary, const Positions& positions,
         std::span<const Rotation> rotations, const RotateOptions& options,
         const kernels::Kernels& kernels, const CosSinRows* given) {
  check_threads(options);
  const ConstHeadsView& first = rotations.front().in;
  const std::int64_t rows = first.batch * first.tokens;
  std::int64_t bytes = 0;
  const auto element = static_cast<std::int64_t>(size_of(first.dtype));
  for (const Rotation& rotation : rotations)
    bytes += rows * rotation.in.heads * window.rotary_dim() * element;
  const double amplitude = rotary == nullptr ? 1.0 : rotary->frequencies.amplitude();
  RotateCall call{
      .window = window,
      .rotary = rotary,
      .positions = positions,
      .rotations = rotations,
      .options = options,
      .kernels = kernels,
      .dtype = first.dtype,
      .batch = first.batch,
      .tokens = first.tokens,
      .element = element,
      .block_pairs = window.blocks == 1 ? window.pairs : window.pairs / window.blocks,
      .store = kernels::Store::cached,
      .staged = false,
      .heads_first = false,
      .copies = window.rotary_dim() < window.head_dim,
      .sin_sign = options.direction == Direction::forward ? 1.0F : -1.0F,
      // Rows hold cos and sin times the amplitude a; the inverse needs them divided by a.
      .scale = options.direction == Direction::inverse ? 1.0 / (amplitude * amplitude) : 1.0,
      .rows = given,
  };
  call.heads_first = is_heads_first(call);
  call.rows_in_table = options.table != nullptr && rotary != nullptr &&
                       rotary->frequencies.axis_count() == 1 &&
                       options.direction == Direction::forward;
  const bool streams = is_large_output(call);
  call.staged = streams && !is_aligned_output(call);
  if (streams && !call.staged) call.store = kernels::Store::streaming;
  call.kernel = plain_kernel(call);
  call.ways =
      call.kernel != nullptr || call.staged
          ? ways_of({bytes, element, options.isa, streams, call.heads_first, call.kernel_layout()})
          : Ways{kOneWay};
  if (call.ways.choice != nullptr) call.row_bytes = bytes / rows;
  run_parts(thread_count(options, bytes, rows), rotate_part, &call);
}

// Whether the call is a decode step: one token in place, which a row and a kernel are enough for.
bool is_decode_step(const Rotary& rotary, std::span<const Rotation> rotations,
                    const RotateOptions& options) {
  const ConstHeadsView& first = rotations.front().in;
  return first.batch == 1 && first.tokens == 1 && first.dtype != DType::f64 &&
         rotary.layout != PairLayout::interleaved_to_half && rotary.blocks == 1 && !rotary.growth &&
         rotary.frequencies.axis_count() == 1 && options.angles == AngleMode::exact &&
         options.direction == Direction::forward &&
         std::all_of(rotations.begin(), rotations.end(),
                     [](const Rotation& rotation) { return same_view(rotation.in, rotation.out); });
}

// The heads of a decode step. It takes a quarter of a microsecond: what run() prepares for many tokens
// would be a fifth of it.
void rotate_step(const Rotary& rotary, kernels::RotateFunction kernel, RowPointers row,
                 std::span<const Rotation> rotations) {
  const auto element = static_cast<std::int64_t>(size_of(rotations.front().in.dtype));
  for (const Rotation& rotation : rotations) {
    const HeadsView& x = rotation.out;
    void* const first = static_cast<char*>(x.data) + rotary.offset * element;
    kernel({first, first, x.head_stride, x.head_stride, x.heads}, rotary.frequencies.pairs(),
           row.cos, row.sin, 0, kernels::Store::cached);
  }
}

// The same without a table. On its own: room for the row is not free.
[[gnu::noinline]] void rotate_step_without_table(const Rotary& rotary, double position,
                                                 const kernels::Kernels& kernels,
                                                 kernels::RotateFunction kernel,
                                                 std::span<const Rotation> rotations) {
  RowBuffers buffers;
  kernels.row_f32(kernel_angles(rotary.frequencies), &position, buffers.cos, buffers.sin);
  rotate_step(rotary, kernel, {buffers.cos, buffers.sin}, rotations);
}

void run_decode_step(const Rotary& rotary, double position, std::span<const Rotation> rotations,
                     const RotateOptions& options, const kernels::Kernels& kernels) {
  check_threads(options);
  throw_if_cancelled();
  const kernels::RotateFunction kernel =
      kernels.rotate[static_cast<int>(rotations.front().in.dtype) - 1]
                    [rotary.layout == PairLayout::half ? 1 : 0];
  if (options.table == nullptr)
    return rotate_step_without_table(rotary, position, kernels, kernel, rotations);
  const float* const cos = options.table->cos(static_cast<std::int64_t>(position)).data();
  rotate_step(rotary, kernel, {cos, cos + rotary.frequencies.pairs()}, rotations);
}

}  // namespace

void rotate(const Rotary& rotary, const Positions& positions, std::span<const Rotation> rotations,
            const RotateOptions& options) {
  if (rotations.empty()) return;
  validate(rotary);
  check_rotations(rotary.head_dim, rotations);
  const ConstHeadsView& first = rotations.front().in;
  const kernels::Kernels& kernels = kernels_for(options.isa);
  const PositionBounds bounds =
      check_positions(positions, rotary.frequencies.axis_count(), first.batch, first.tokens);
  if (are_empty(rotations)) return;
  check_angle_range("rotate", rotary.frequencies, bounds.low, bounds.high, options.angles);
  if (options.table != nullptr) check_table(rotary, options, first.dtype, bounds);
  if (is_decode_step(rotary, rotations, options))
    return run_decode_step(rotary, bounds.low, rotations, options, kernels);
  run(window_of(rotary), &rotary, positions, rotations, options, kernels, nullptr);
}

void rotate_by(const CosSinRows& rows, PairLayout layout, std::int64_t offset,
               std::span<const Rotation> rotations, const RotateOptions& options) {
  if (rotations.empty()) return;
  rotate_window({layout, rotations.front().in.head_dim, offset, 1, rows.pairs}, rows, rotations,
                options);
}

void rotate_window(const Window& window, const CosSinRows& rows,
                   std::span<const Rotation> rotations, const RotateOptions& options) {
  if (rotations.empty()) return;
  if (options.direction == Direction::inverse) {
    refuse(ErrorCode::unsupported,
           "rotate_by: direction must be forward or transpose, got inverse: the amplitude of the "
           "rows is unknown");
  }
  if (rows.pairs < 1 || rows.pairs > kMaxPairs) {
    refuse(ErrorCode::shape_mismatch,
           message("rotate_by: rows must have 1 to ", kMaxPairs, " pairs, got ", rows.pairs));
  }
  check_window(window);
  check_rotations(window.head_dim, rotations);
  const kernels::Kernels& kernels = kernels_for(options.isa);
  const ConstHeadsView& first = rotations.front().in;
  if (are_empty(rotations)) return;
  if (rows.cos == nullptr || rows.sin == nullptr) refuse("rotate_by: cos or sin is null");
  const std::array<Dimension, 3> dimensions{{{first.batch, rows.batch_stride},
                                             {first.tokens, rows.token_stride},
                                             {rows.pairs, rows.pair_stride}}};
  if (!is_addressable(dimensions, size_of(rows.dtype))) {
    refuse(ErrorCode::out_of_range,
           message("rotate_by: cos and sin must lie within 2^56 bytes, got the strides [",
                   rows.batch_stride, ", ", rows.token_stride, ", ", rows.pair_stride,
                   "] for batch ", first.batch, ", tokens ", first.tokens, ", pairs ", rows.pairs));
  }
  RotateOptions by_rows = options;
  by_rows.table = nullptr;
  by_rows.angles = AngleMode::exact;
  run(window, nullptr, positions_from(0), rotations, by_rows, kernels, &rows);
}

void rotate(const Rotary& rotary, const Positions& positions, HeadsView x,
            const RotateOptions& options) {
  rotate(rotary, positions, x, x, options);
}

void rotate(const Rotary& rotary, const Positions& positions, ConstHeadsView in, HeadsView out,
            const RotateOptions& options) {
  const Rotation rotation{in, out, Role::query};
  rotate(rotary, positions, {&rotation, 1}, options);
}

void rotate_qk(const Rotary& rotary, const Positions& positions, HeadsView q, HeadsView k,
               const RotateOptions& options) {
  const Rotation rotations[] = {{q, q, Role::query}, {k, k, Role::key}};
  rotate(rotary, positions, rotations, options);
}

}  // namespace phasor::core
