#include "phasor/core/rotate.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>
#include <vector>

#include "core/angles/row_memory.hpp"
#include "core/angles/rows.hpp"
#include "core/rotate/rotate_call.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/internal/angle_range.hpp"
#include "phasor/core/internal/dispatch.hpp"
#include "phasor/core/internal/extent.hpp"
#include "phasor/core/internal/rotations.hpp"

namespace phasor::core {
namespace {

// A tensor of this size or more is read from memory, not from a cache: prefetching pays. On a single
// token it would cost 0.2 us.
constexpr std::int64_t kPrefetchBytes = std::int64_t{2} << 20;
constexpr std::int64_t kPrefetchAhead = 2048;
constexpr std::int64_t kStreamAhead = 4096;
// An output of this size or more would evict everything else from the caches.
constexpr std::int64_t kStreamBytes = std::int64_t{4} << 20;

struct Addresses {
  const char* in;
  char* out;
};
Addresses addresses_of(const RotateCall& call, const Rotation& rotation, Token at) {
  return {static_cast<const char*>(rotation.in.data) +
              (at.batch * rotation.in.batch_stride + at.token * rotation.in.token_stride) *
                  call.element,
          static_cast<char*>(rotation.out.data) +
              (at.batch * rotation.out.batch_stride + at.token * rotation.out.token_stride) *
                  call.element};
}

// Rotates the heads of one token, the first at `in` and `out`. row(block) gives cos and sin of that
// block.
template <class Row>
void rotate_token_heads(const RotateCall& call, const Rotation& rotation, const char* in, char* out,
                        const Row& row) {
  for (std::int64_t block = 0; block < call.window.blocks; ++block) {
    const std::int64_t start = (call.window.offset + block * 2 * call.block_pairs) * call.element;
    const kernels::Heads heads{in + start, out + start, rotation.in.head_stride,
                               rotation.out.head_stride, rotation.in.heads};
    const auto [cos, sin] = row(block);
    rotate_block(call, heads, cos, sin);
  }
}

// One tensor's heads of one token.
template <class Row>
void rotate_token(const RotateCall& call, const Rotation& rotation, Token at, const Row& row) {
  const auto [in, out] = addresses_of(call, rotation, at);
  copy_unrotated_features(call, rotation, in, out);
  rotate_token_heads(call, rotation, in, out, row);
}

void rotate_token_f64(const RotateCall& call, Token at, const double* positions) {
  RowBuffersF64 rows;
  for (std::size_t i = 0; i < call.rotations.size(); ++i) {
    const Rotation& rotation = call.rotations[i];
    if (i == 0 || call.grows()) make_row_f64(call, rotation.role, at, positions, rows);
    rotate_token(call, rotation, at, [&](std::int64_t block) {
      return std::pair<const void*, const void*>(rows.cos + block * call.block_pairs,
                                                 rows.sin + block * call.block_pairs);
    });
  }
}

// precondition  scale and sign of the direction are in the row already
void rotate_token_rows(const RotateCall& call, Token at, RowPointers row,
                       std::span<const Rotation> rotations) {
  for (const Rotation& rotation : rotations) {
    rotate_token(call, rotation, at, [&](std::int64_t block) {
      return std::pair<const void*, const void*>(row.cos + block * call.block_pairs,
                                                 row.sin + block * call.block_pairs);
    });
  }
}

// Several tokens of one batch row, with their rows.
struct Run {
  const char* in;
  char* out;
  std::int64_t tokens;
  const float* rows;  // of each token: cos[pairs], sin[pairs]
};

// A head at a time: kernels move along its tokens.
void rotate_run_by_head(const RotateCall& call, const Rotation& rotation, const Run& run) {
  const std::int64_t pairs = call.window.pairs;
  for (std::int64_t head = 0; head < rotation.in.heads; ++head) {
    for (std::int64_t block = 0; block < call.window.blocks; ++block) {
      const std::int64_t start = call.window.offset + block * 2 * call.block_pairs;
      const float* cos = run.rows + block * call.block_pairs;
      rotate_block(call,
                   {run.in + (head * rotation.in.head_stride + start) * call.element,
                    run.out + (head * rotation.out.head_stride + start) * call.element,
                    rotation.in.token_stride, rotation.out.token_stride, run.tokens, 2 * pairs},
                   cos, cos + pairs);
    }
  }
}

// A token of a few heads at a time: kernels move along these heads.
void rotate_run_by_heads(const RotateCall& call, const Rotation& rotation, const Run& run) {
  const std::int64_t pairs = call.window.pairs;
  Rotation few = rotation;
  for (std::int64_t head = 0; head < rotation.in.heads; head += kHeadsTogether) {
    few.in.heads = std::min(kHeadsTogether, rotation.in.heads - head);
    for (std::int64_t t = 0; t < run.tokens; ++t) {
      const float* cos = run.rows + t * 2 * pairs;
      rotate_token_heads(
          call, few,
          run.in + (head * rotation.in.head_stride + t * rotation.in.token_stride) * call.element,
          run.out +
              (head * rotation.out.head_stride + t * rotation.out.token_stride) * call.element,
          [&](std::int64_t block) {
            const float* const at = cos + block * call.block_pairs;
            return std::pair<const void*, const void*>(at, at + pairs);
          });
    }
  }
}

// Several tokens of one batch row, of a tensor that keeps heads before tokens. Returns how many.
std::int64_t rotate_tokens_heads_first(const RotateCall& call, Token at, std::int64_t most,
                                       PositionCursor& cursor, RowBuffers& buffers) {
  alignas(64) float few[kFewTokens.floats + kRowPadding];
  float* const many = call.many_tokens ? rows_of_this_thread() : nullptr;
  float* const rows = many == nullptr ? few : many;
  const TokensAtOnce& limit = many == nullptr ? kFewTokens : kManyTokens;
  const std::int64_t pairs = call.window.pairs;
  const std::int64_t count =
      std::min({most, call.tokens - at.token, limit.tokens, limit.floats / (2 * pairs)});
  for (std::int64_t t = 0; t < count; ++t) {
    const RowPointers row = make_row(call, {at.batch, at.token + t}, cursor, buffers);
    std::copy_n(row.cos, pairs, rows + t * 2 * pairs);
    std::copy_n(row.sin, pairs, rows + t * 2 * pairs + pairs);
  }
  // Streamed out of place, heads together took half as long again as one by one (Zen 4).
  const bool streams = call.staged || call.store == kernels::Store::streaming;
  for (const Rotation& rotation : call.rotations) {
    const auto [in, out] = addresses_of(call, rotation, at);
    for (std::int64_t t = 0; t < count; ++t) {
      copy_unrotated_features(call, rotation, in + t * rotation.in.token_stride * call.element,
                              out + t * rotation.out.token_stride * call.element);
    }
    const Run run{in, out, count, rows};
    many == nullptr || streams ? rotate_run_by_head(call, rotation, run)
                               : rotate_run_by_heads(call, rotation, run);
  }
  return count;
}

void rotate_token_growing(const RotateCall& call, Token at, const double* positions,
                          RowBuffers& buffers) {
  for (const Rotation& rotation : call.rotations) {
    RowBuffersF64 rows;
    make_row_f64(call, rotation.role, at, positions, rows);
    for (std::int64_t i = 0; i < call.window.pairs; ++i) {
      buffers.cos[i] = static_cast<float>(rows.cos[i]);
      buffers.sin[i] = static_cast<float>(rows.sin[i]);
    }
    rotate_token_rows(call, at, {buffers.cos, buffers.sin}, {&rotation, 1});
  }
}

// Tokens between two looks at the caller's cancellation: a millisecond or two of the widest.
constexpr std::int64_t kRowsPerLook = 64;

void rotate_part(void* context, int part, int parts) {
  const RotateCall& call = *static_cast<const RotateCall*>(context);
  const std::int64_t rows = call.batch * call.tokens;
  // No division for a decode step: it would show in its time.
  const std::int64_t begin = parts == 1 ? 0 : rows * part / parts;
  const std::int64_t end = parts == 1 ? rows : rows * (part + 1) / parts;
  if (begin == end) return;
  const int axes = call.rotary == nullptr ? 1 : call.rotary->frequencies.axis_count();
  PositionCursor cursor(call.positions, axes, call.tokens, begin);
  RowBuffers buffers;
  Token at{0, 0};
  if (begin != 0) at = {begin / call.tokens, begin % call.tokens};
  std::int64_t row = begin;
  for (std::int64_t next_look = begin + kRowsPerLook; row < end;) {
    if (row >= next_look) {
      if (is_cancelled()) break;
      next_look = row + kRowsPerLook;
    }
    std::int64_t done = 1;
    if (call.dtype == DType::f64 || call.grows()) {
      double positions[kMaxAxes] = {};
      if (call.rows == nullptr) cursor.next(positions);
      call.dtype == DType::f64 ? rotate_token_f64(call, at, positions)
                               : rotate_token_growing(call, at, positions, buffers);
    } else if (call.heads_first) {
      done = rotate_tokens_heads_first(call, at, end - row, cursor, buffers);
    } else {
      rotate_token_rows(call, at, make_row(call, at, cursor, buffers), call.rotations);
    }
    row += done;
    at.token += done;
    if (at.token == call.tokens) {
      at.token = 0;
      ++at.batch;
    }
  }
  if (call.staged || call.store == kernels::Store::streaming) call.kernels.fence();
  if (row < end) throw_if_cancelled();
}

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
  return bytes >= kStreamBytes;
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

int thread_count(const RotateOptions& options, std::int64_t bytes, std::int64_t rows) {
  if (options.threads < 0) {
    refuse(message("rotate: threads must not be negative, got ", options.threads));
  }
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

// precondition  everything was checked, and there is a token; one of rotary and given is null
void run(const Window& window, const Rotary* rotary, const Positions& positions,
         std::span<const Rotation> rotations, const RotateOptions& options,
         const kernels::Kernels& kernels, const CosSinRows* given) {
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
      .ahead = bytes >= kPrefetchBytes ? kPrefetchAhead : 0,
      .store = kernels::Store::cached,
      .staged = false,
      .heads_first = false,
      .many_tokens = false,
      .sin_sign = options.direction == Direction::forward ? 1.0F : -1.0F,
      // Rows hold cos and sin times the amplitude a; the inverse needs them divided by a.
      .scale = options.direction == Direction::inverse ? 1.0 / (amplitude * amplitude) : 1.0,
      .rows = given,
  };
  call.heads_first = is_heads_first(call);
  call.many_tokens = call.heads_first && call.ahead != 0 && prefers_many_tokens();
  if (is_large_output(call)) {
    call.ahead = kStreamAhead;
    call.staged = !is_aligned_output(call);
    if (!call.staged) call.store = kernels::Store::streaming;
  }
  run_parts(thread_count(options, bytes, rows), rotate_part, &call);
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
