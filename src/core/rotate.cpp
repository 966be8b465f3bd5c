#include "phasor/core/rotate.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/angle_range.hpp"
#include "core/dispatch.hpp"
#include "core/float32_engine.hpp"
#include "core/positions.hpp"
#include "core/turns.hpp"
#include "phasor/core/threads.hpp"

namespace phasor::core {
namespace {

constexpr std::int64_t kMaxPairs = kMaxRotaryDim / 2;
// Kernels read whole vectors of a row.
constexpr std::int64_t kRowPadding = 32;
// From here on a tensor comes from memory, not from a cache near the core: prefetching pays; on a
// single token it would cost a fifth of a microsecond.
constexpr std::int64_t kPrefetchBytes = std::int64_t{2} << 20;
constexpr std::int64_t kPrefetchAhead = 2048;
constexpr std::int64_t kStreamAhead = 4096;
// From here on the output would push everything else out of the caches.
constexpr std::int64_t kStreamBytes = std::int64_t{4} << 20;

// Everything that is the same for all tokens of a call.
struct Call {
  const Rotary& rotary;
  const Positions& positions;
  std::span<const Turn> turns;
  const RotateOptions& options;
  const kernels::Kernels& kernels;
  DType dtype;
  std::int64_t batch, tokens;
  std::int64_t element;  // bytes
  std::int64_t block_pairs;
  std::int64_t ahead;
  kernels::Store store;
  bool staged;  // large output that is not aligned for streaming stores
  float sin_sign;
  double scale;  // on cos and sin

  // Reads one layout and writes the other.
  [[nodiscard]] bool crosses() const { return rotary.layout == PairLayout::interleaved_to_half; }
  // The layout that the kernel works in.
  [[nodiscard]] PairLayout kernel_layout() const {
    return crosses() ? PairLayout::half : rotary.layout;
  }
};

// One token's cos and sin.
struct RowBuffers {
  alignas(64) float cos[kMaxPairs + kRowPadding];
  alignas(64) float sin[kMaxPairs + kRowPadding];
};
struct RowBuffersF64 {
  double cos[kMaxPairs];
  double sin[kMaxPairs];
};

// xPos: e^{+-rate (m - centre)}, the sign by role and direction.
void apply_growth(const Call& call, Role role, double position, RowBuffersF64& row) {
  if (!call.rotary.growth) return;
  const Growth& growth = *call.rotary.growth;
  const bool shrink = (role == Role::key) != (call.options.direction == Direction::inverse);
  const double distance = (position - growth.centre) * (shrink ? -1.0 : 1.0);
  for (std::size_t i = 0; i < growth.rates.size(); ++i) {
    const double factor = std::exp(growth.rates[i] * distance);
    row.cos[i] *= factor;
    row.sin[i] *= factor;
  }
}

void row_f64(const Call& call, Role role, const double* positions, RowBuffersF64& row) {
  const Frequencies& frequencies = call.rotary.frequencies;
  if (call.options.angles == AngleMode::float32) {
    float cos[kMaxPairs], sin[kMaxPairs];
    float32_row(frequencies, positions, cos, sin);
    std::copy_n(cos, frequencies.pairs(), row.cos);
    std::copy_n(sin, frequencies.pairs(), row.sin);
  } else {
    call.kernels.row_f64(kernel_angles(frequencies), positions, row.cos, row.sin);
  }
  apply_growth(call, role, positions[0], row);
  const double sin_scale = call.scale * call.sin_sign;
  for (std::int64_t i = 0; i < frequencies.pairs(); ++i) {
    row.cos[i] *= call.scale;
    row.sin[i] *= sin_scale;
  }
}

// Rows out of a table: one row, or one entry per axis.
struct RowPointers {
  const float* cos;
  const float* sin;
};
RowPointers table_row(const Call& call, const std::int64_t* positions, RowBuffers& buffers) {
  const CosSinTable& table = *call.options.table;
  const Frequencies& frequencies = call.rotary.frequencies;
  if (frequencies.axis_count() == 1)
    return {table.cos(positions[0]).data(), table.sin(positions[0]).data()};
  const auto axes = frequencies.axes();
  for (std::size_t i = 0; i < axes.size(); ++i) {
    buffers.cos[i] = table.cos(positions[axes[i]])[i];
    buffers.sin[i] = table.sin(positions[axes[i]])[i];
  }
  return {buffers.cos, buffers.sin};
}

template <class Element>
void pair_up(const Element* in, std::int64_t pairs, Element* out, Direction direction) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    const std::int64_t from_a = direction == Direction::forward ? 2 * i : i;
    const std::int64_t from_b = direction == Direction::forward ? 2 * i + 1 : i + pairs;
    const std::int64_t to_a = direction == Direction::forward ? i : 2 * i;
    const std::int64_t to_b = direction == Direction::forward ? i + pairs : 2 * i + 1;
    out[to_a] = in[from_a];
    out[to_b] = in[from_b];
  }
}
// (2i, 2i+1) -> (i, i + pairs), or back.
void pair_up(std::int64_t element, const void* in, std::int64_t pairs, void* out,
             Direction direction) {
  switch (element) {
    case 8:
      return pair_up(static_cast<const std::uint64_t*>(in), pairs, static_cast<std::uint64_t*>(out),
                     direction);
    case 4:
      return pair_up(static_cast<const std::uint32_t*>(in), pairs, static_cast<std::uint32_t*>(out),
                     direction);
    default:
      return pair_up(static_cast<const std::uint16_t*>(in), pairs, static_cast<std::uint16_t*>(out),
                     direction);
  }
}

// Turns the heads of one block.
void turn_heads(const Call& call, const kernels::Heads& heads, const void* cos, const void* sin) {
  const PairLayout layout = call.kernel_layout();
  const int half = layout == PairLayout::half ? 1 : 0;
  if (call.options.angles == AngleMode::float32 && call.dtype != DType::f64) {
    float32_rotate(call.dtype, layout, heads, call.block_pairs, static_cast<const float*>(cos),
                   static_cast<const float*>(sin));
  } else if (call.dtype == DType::f64) {
    call.kernels.rotate_f64[half](heads, call.block_pairs, cos, sin, 0, kernels::Store::cached);
  } else {
    call.kernels.rotate[static_cast<int>(call.dtype) - 1][half](heads, call.block_pairs, cos, sin,
                                                                call.ahead, call.store);
  }
}

// interleaved_to_half: a head at a time through a buffer, since reading and writing use other
// pairs.
void turn_heads_across(const Call& call, const kernels::Heads& heads, const void* cos,
                       const void* sin) {
  alignas(64) char buffer[kMaxRotaryDim * sizeof(double)];
  const std::int64_t pairs = call.block_pairs;
  const bool forward = call.options.direction == Direction::forward;
  for (std::int64_t head = 0; head < heads.heads; ++head) {
    const void* in = static_cast<const char*>(heads.in) + head * heads.in_stride * call.element;
    void* out = static_cast<char*>(heads.out) + head * heads.out_stride * call.element;
    if (forward) {
      pair_up(call.element, in, pairs, buffer, Direction::forward);
      turn_heads(call, {buffer, out, 0, 0, 1}, cos, sin);
    } else {
      turn_heads(call, {in, buffer, 0, 0, 1}, cos, sin);
      pair_up(call.element, buffer, pairs, out, Direction::transpose);
    }
  }
}

// Vectors that straddle cache lines would make streaming stores useless and ordinary ones three
// times as slow, so heads are turned into a buffer in the first cache and streamed from there.
void turn_heads_staged(const Call& call, const kernels::Heads& heads, const void* cos,
                       const void* sin) {
  constexpr std::int64_t kBytes = 16384;
  static_assert(kBytes >= kMaxRotaryDim * static_cast<std::int64_t>(sizeof(double)));
  alignas(64) char buffer[kBytes];
  const std::int64_t width = 2 * call.block_pairs;
  const std::int64_t at_once = kBytes / (width * call.element);
  for (std::int64_t first = 0; first < heads.heads; first += at_once) {
    const std::int64_t count = std::min(at_once, heads.heads - first);
    const char* in = static_cast<const char*>(heads.in) + first * heads.in_stride * call.element;
    char* out = static_cast<char*>(heads.out) + first * heads.out_stride * call.element;
    turn_heads(call, {in, buffer, heads.in_stride, width, count}, cos, sin);
    const bool dense = heads.out_stride == width;
    const std::int64_t run = (dense ? count : 1) * width * call.element;
    for (std::int64_t head = 0; head < (dense ? 1 : count); ++head) {
      call.kernels.stream_bytes(out + head * heads.out_stride * call.element, buffer + head * run,
                                run);
    }
  }
}

// The features that do not turn, when the output is another buffer.
void copy_the_rest(const Call& call, const Turn& turn, const char* in, char* out) {
  const std::int64_t before = call.rotary.offset;
  const std::int64_t turned = before + call.rotary.rotary_dim();
  const std::int64_t after = call.rotary.head_dim - turned;
  if (before + after == 0 || same_view(turn.in, turn.out)) return;
  for (std::int64_t head = 0; head < turn.in.heads; ++head) {
    const char* from = in + head * turn.in.head_stride * call.element;
    char* to = out + head * turn.out.head_stride * call.element;
    std::memcpy(to, from, static_cast<std::size_t>(before * call.element));
    std::memcpy(to + turned * call.element, from + turned * call.element,
                static_cast<std::size_t>(after * call.element));
  }
}

struct Token {
  std::int64_t batch, token;
};

// Turns one tensor's heads of one token. row(block) gives cos and sin of that block.
template <class Row>
void turn_token(const Call& call, const Turn& turn, Token at, const Row& row) {
  const char* in =
      static_cast<const char*>(turn.in.data) +
      (at.batch * turn.in.batch_stride + at.token * turn.in.token_stride) * call.element;
  char* out = static_cast<char*>(turn.out.data) +
              (at.batch * turn.out.batch_stride + at.token * turn.out.token_stride) * call.element;
  copy_the_rest(call, turn, in, out);
  for (std::int64_t block = 0; block < call.rotary.blocks; ++block) {
    const std::int64_t start = (call.rotary.offset + block * 2 * call.block_pairs) * call.element;
    const kernels::Heads heads{in + start, out + start, turn.in.head_stride, turn.out.head_stride,
                               turn.in.heads};
    const auto [cos, sin] = row(block);
    if (call.crosses()) {
      turn_heads_across(call, heads, cos, sin);
    } else if (call.staged) {
      turn_heads_staged(call, heads, cos, sin);
    } else {
      turn_heads(call, heads, cos, sin);
    }
  }
}

void turn_token_f64(const Call& call, Token at, const double* positions) {
  RowBuffersF64 rows;
  for (std::size_t i = 0; i < call.turns.size(); ++i) {
    const Turn& turn = call.turns[i];
    if (i == 0 || call.rotary.growth) row_f64(call, turn.role, positions, rows);
    turn_token(call, turn, at, [&](std::int64_t block) {
      return std::pair<const void*, const void*>(rows.cos + block * call.block_pairs,
                                                 rows.sin + block * call.block_pairs);
    });
  }
}

// precondition  scale and sign of the direction are in the row already
void turn_token_rows(const Call& call, Token at, RowPointers row, std::span<const Turn> turns) {
  for (const Turn& turn : turns) {
    turn_token(call, turn, at, [&](std::int64_t block) {
      return std::pair<const void*, const void*>(row.cos + block * call.block_pairs,
                                                 row.sin + block * call.block_pairs);
    });
  }
}

// The row as the direction wants it: transposing turns sin's sign, inverting also divides by the
// amplitude.
RowPointers directed(const Call& call, RowPointers row, RowBuffers& buffers) {
  if (call.options.direction == Direction::forward) return row;
  const auto scale = static_cast<float>(call.scale);
  const float sin_scale = scale * call.sin_sign;
  for (std::int64_t i = 0; i < call.rotary.frequencies.pairs(); ++i) {
    buffers.cos[i] = row.cos[i] * scale;
    buffers.sin[i] = row.sin[i] * sin_scale;
  }
  return {buffers.cos, buffers.sin};
}

void turn_token_growing(const Call& call, Token at, const double* positions, RowBuffers& buffers) {
  for (const Turn& turn : call.turns) {
    RowBuffersF64 rows;
    row_f64(call, turn.role, positions, rows);  // scale and sign are inside already
    for (std::int64_t i = 0; i < call.rotary.frequencies.pairs(); ++i) {
      buffers.cos[i] = static_cast<float>(rows.cos[i]);
      buffers.sin[i] = static_cast<float>(rows.sin[i]);
    }
    turn_token_rows(call, at, {buffers.cos, buffers.sin}, {&turn, 1});
  }
}

void turn_part(void* context, int part, int parts) {
  const Call& call = *static_cast<const Call*>(context);
  const std::int64_t rows = call.batch * call.tokens;
  // Divisions are for large work: a decode step has time for none.
  const std::int64_t begin = parts == 1 ? 0 : rows * part / parts;
  const std::int64_t end = parts == 1 ? rows : rows * (part + 1) / parts;
  if (begin == end) return;
  const int axes = call.rotary.frequencies.axis_count();
  PositionCursor cursor(call.positions, axes, call.tokens, begin);
  RowBuffers buffers;
  const kernels::Angles angles = kernel_angles(call.rotary.frequencies);
  Token at{0, 0};
  if (begin != 0) at = {begin / call.tokens, begin % call.tokens};
  for (std::int64_t row = begin; row < end; ++row) {
    if (call.options.table != nullptr) {
      std::int64_t positions[kMaxAxes];
      cursor.next(positions);
      turn_token_rows(call, at, directed(call, table_row(call, positions, buffers), buffers),
                      call.turns);
    } else {
      double positions[kMaxAxes];
      cursor.next(positions);
      if (call.dtype == DType::f64) {
        turn_token_f64(call, at, positions);
      } else if (call.rotary.growth) {
        turn_token_growing(call, at, positions, buffers);
      } else {
        if (call.options.angles == AngleMode::float32) {
          float32_row(call.rotary.frequencies, positions, buffers.cos, buffers.sin);
        } else {
          call.kernels.row_f32(angles, positions, buffers.cos, buffers.sin);
        }
        turn_token_rows(call, at, directed(call, {buffers.cos, buffers.sin}, buffers), call.turns);
      }
    }
    if (++at.token == call.tokens) {
      at.token = 0;
      ++at.batch;
    }
  }
  if (call.staged || call.store == kernels::Store::streaming) call.kernels.fence();
}

void check_table(const Rotary& rotary, const RotateOptions& options, DType dtype,
                 const PositionBounds& bounds) {
  const CosSinTable& table = *options.table;
  if (dtype == DType::f64) {
    throw Error(ErrorCode::unsupported,
                "rotate: a float32 table cannot turn float64 data exactly, expected no table");
  }
  if (rotary.growth) {
    throw Error(ErrorCode::unsupported, "rotate: a table holds no xPos growth, expected no table");
  }
  if (!table.serves(rotary.frequencies, options.angles)) {
    throw Error(ErrorCode::invalid_argument,
                message("rotate: the table must be built from the same frequencies, got one with ",
                        table.pairs(), " pairs and amplitude ", table.amplitude()));
  }
  if (!bounds.integral) {
    throw Error(ErrorCode::unsupported, "rotate: a table serves integer positions, got floats");
  }
  const PositionRange range = table.range();
  if (bounds.low < static_cast<double>(range.first) ||
      bounds.high > static_cast<double>(range.first + range.count - 1)) {
    throw Error(ErrorCode::out_of_range,
                message("rotate: positions must lie in the table's [", range.first, ", ",
                        range.first + range.count, "), got ", bounds.low, " to ", bounds.high));
  }
}

// Whether the output is so large that it should go past the caches.
bool is_large_output(const Call& call) {
  if (call.crosses() || call.options.angles == AngleMode::float32 || call.dtype == DType::f64) {
    return false;
  }
  std::int64_t bytes = 0;
  for (const Turn& turn : call.turns) {
    if (same_view(turn.in, turn.out)) return false;
    const HeadsView& out = turn.out;
    bytes += out.batch * out.tokens * out.heads * out.head_dim * call.element;
  }
  return bytes >= kStreamBytes;
}

// Whether every vector that the kernel stores begins at a multiple of 64 bytes.
bool is_aligned_output(const Call& call) {
  std::int64_t alignment = 0;
  for (const Turn& turn : call.turns) {
    const HeadsView& out = turn.out;
    for (const std::int64_t count : {out.batch_stride, out.token_stride, out.head_stride,
                                     call.rotary.offset, call.block_pairs}) {
      alignment |= count * call.element;
    }
    alignment |= static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(out.data));
  }
  return alignment % 64 == 0;
}

int thread_count(const RotateOptions& options, std::int64_t bytes, std::int64_t rows) {
  if (options.threads < 0) {
    throw Error(ErrorCode::invalid_argument,
                message("rotate: threads must not be negative, got ", options.threads));
  }
  const std::int64_t useful = std::min(bytes / kThreadBytes, rows);
  if (useful <= 1) return 1;
  return static_cast<int>(
      std::min<std::int64_t>(options.threads > 0 ? options.threads : available_threads(), useful));
}

}  // namespace

void rotate(const Rotary& rotary, const Positions& positions, std::span<const Turn> turns,
            const RotateOptions& options) {
  if (turns.empty()) return;
  validate(rotary);
  check_turns(rotary.head_dim, turns);
  const ConstHeadsView& first = turns.front().in;
  const kernels::Kernels& kernels = kernels_for(options.isa);
  const PositionBounds bounds =
      check_positions(positions, rotary.frequencies.axis_count(), first.batch, first.tokens);
  const std::int64_t rows = first.batch * first.tokens;
  if (rows == 0) return;
  check_angle_range("rotate", rotary.frequencies, bounds.low, bounds.high);
  if (options.table != nullptr) check_table(rotary, options, first.dtype, bounds);

  std::int64_t bytes = 0;
  const auto element = static_cast<std::int64_t>(size_of(first.dtype));
  for (const Turn& turn : turns) bytes += rows * turn.in.heads * rotary.rotary_dim() * element;
  const double amplitude = rotary.frequencies.amplitude();
  Call call{
      .rotary = rotary,
      .positions = positions,
      .turns = turns,
      .options = options,
      .kernels = kernels,
      .dtype = first.dtype,
      .batch = first.batch,
      .tokens = first.tokens,
      .element = element,
      .block_pairs = rotary.blocks == 1 ? rotary.frequencies.pairs()
                                        : rotary.frequencies.pairs() / rotary.blocks,
      .ahead = bytes >= kPrefetchBytes ? kPrefetchAhead : 0,
      .store = kernels::Store::cached,
      .staged = false,
      .sin_sign = options.direction == Direction::forward ? 1.0F : -1.0F,
      // Rows hold cos and sin times the amplitude a; the inverse wants them over a.
      .scale = options.direction == Direction::inverse ? 1.0 / (amplitude * amplitude) : 1.0,
  };
  if (is_large_output(call)) {
    call.ahead = kStreamAhead;
    call.staged = !is_aligned_output(call);
    if (!call.staged) call.store = kernels::Store::streaming;
  }
  run_parts(thread_count(options, bytes, rows), turn_part, &call);
}

void rotate(const Rotary& rotary, const Positions& positions, HeadsView x,
            const RotateOptions& options) {
  rotate(rotary, positions, x, x, options);
}

void rotate(const Rotary& rotary, const Positions& positions, ConstHeadsView in, HeadsView out,
            const RotateOptions& options) {
  const Turn turn{in, out, Role::query};
  rotate(rotary, positions, {&turn, 1}, options);
}

void rotate_qk(const Rotary& rotary, const Positions& positions, HeadsView q, HeadsView k,
               const RotateOptions& options) {
  const Turn turns[] = {{q, q, Role::query}, {k, k, Role::key}};
  rotate(rotary, positions, turns, options);
}

}  // namespace phasor::core
