// The part of a call that one thread does: tokens one after another.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/angles/row_memory.hpp"
#include "core/angles/rows.hpp"
#include "core/rotate/rotate_call.hpp"
#include "phasor/core/cancellation.hpp"

namespace phasor::core {
namespace {

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
                        std::int64_t ahead, const Row& row) {
  for (std::int64_t block = 0; block < call.window.blocks; ++block) {
    const std::int64_t start = (call.window.offset + block * 2 * call.block_pairs) * call.element;
    const kernels::Heads heads{in + start, out + start, rotation.in.head_stride,
                               rotation.out.head_stride, rotation.in.heads};
    const auto [cos, sin] = row(block);
    rotate_block(call, heads, cos, sin, ahead);
  }
}

// One tensor's heads of one token.
template <class Row>
void rotate_token(const RotateCall& call, const Rotation& rotation, Token at, std::int64_t ahead,
                  const Row& row) {
  const auto [in, out] = addresses_of(call, rotation, at);
  if (call.copies) copy_unrotated_features(call, rotation, in, out);
  rotate_token_heads(call, rotation, in, out, ahead, row);
}

void rotate_token_f64(const RotateCall& call, Token at, const double* positions) {
  RowBuffersF64 rows;
  for (std::size_t i = 0; i < call.rotations.size(); ++i) {
    const Rotation& rotation = call.rotations[i];
    if (i == 0 || call.grows()) make_row_f64(call, rotation.role, at, positions, rows);
    rotate_token(call, rotation, at, 0, [&](std::int64_t block) {
      return std::pair<const void*, const void*>(rows.cos + block * call.block_pairs,
                                                 rows.sin + block * call.block_pairs);
    });
  }
}

// precondition  scale and sign of the direction are in the row already
void rotate_token_rows(const RotateCall& call, Token at, RowPointers row,
                       std::span<const Rotation> rotations, std::int64_t ahead) {
  for (const Rotation& rotation : rotations) {
    rotate_token(call, rotation, at, ahead, [&](std::int64_t block) {
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
  std::int64_t ahead;
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
                   cos, cos + pairs, run.ahead);
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
          run.ahead, [&](std::int64_t block) {
            const float* const at = cos + block * call.block_pairs;
            return std::pair<const void*, const void*>(at, at + pairs);
          });
    }
  }
}

// Several tokens of one batch row, of a tensor that keeps heads before tokens. Returns how many.
std::int64_t rotate_tokens_heads_first(const RotateCall& call, Way way, Token at, std::int64_t most,
                                       PositionCursor& cursor, RowBuffers& buffers) {
  alignas(64) float few[kFewTokens.floats + kRowPadding];
  float* const many = way.run != HeadsFirst::few_tokens ? rows_of_this_thread() : nullptr;
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
  for (const Rotation& rotation : call.rotations) {
    const auto [in, out] = addresses_of(call, rotation, at);
    for (std::int64_t t = 0; call.copies && t < count; ++t) {
      copy_unrotated_features(call, rotation, in + t * rotation.in.token_stride * call.element,
                              out + t * rotation.out.token_stride * call.element);
    }
    const Run run{in, out, count, rows, way.ahead};
    const bool is_together = many != nullptr && way.run == HeadsFirst::heads_together;
    is_together ? rotate_run_by_heads(call, rotation, run)
                : rotate_run_by_head(call, rotation, run);
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
    rotate_token_rows(call, at, {buffers.cos, buffers.sin}, {&rotation, 1}, 0);
  }
}

// Where a part of a call has come to.
struct Walk {
  Walk(const RotateCall& call, std::int64_t begin)
      : cursor(call.positions, call.rotary == nullptr ? 1 : call.rotary->frequencies.axis_count(),
               call.tokens, begin),
        row(begin) {
    if (begin != 0) at = {begin / call.tokens, begin % call.tokens};
  }
  PositionCursor cursor;
  RowBuffers buffers;
  Token at{0, 0};
  std::int64_t row;  // of batch * tokens
};

// Tensors that rotate_tokens() rotates together: q and k.
constexpr std::size_t kTensorsTogether = 2;

// Whether tokens need nothing but a kernel's call for each tensor.
bool is_plain(const RotateCall& call) {
  return call.kernel != nullptr && call.window.blocks == 1 && !call.copies &&
         call.rotations.size() <= kTensorsTogether;
}

// Streaming stores wait at each new page for the translation of its address: a tenth of a large
// rotation. A prefetch from a page that is written soon has it translated by then; nothing else is read
// from there. For the pages that begin in the `bytes` that follow kTranslateAhead bytes after `out`.
// Inlined: GCC drops calls of a function that does nothing but prefetch.
constexpr std::uintptr_t kTranslateAhead = 16384;
[[gnu::always_inline]] inline void translate_pages(const void* out, std::int64_t bytes) {
  constexpr std::uintptr_t kPage = 4096;
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(out) + kTranslateAhead;
  const std::uintptr_t end = begin + static_cast<std::uintptr_t>(bytes);
  for (std::uintptr_t page = (begin + kPage - 1) / kPage * kPage; page < end; page += kPage)
    __builtin_prefetch(reinterpret_cast<const void*>(page), 0, 0);
}

// Tokens of one batch row; returns how many. What does not change is read from `call` once: between two
// tokens there is little but the kernel.
//
// precondition  is_plain(call)
std::int64_t rotate_tokens(const RotateCall& call, Way way, std::int64_t most, Walk& walk) {
  const std::int64_t count = std::min(most, call.tokens - walk.at.token);
  struct {
    kernels::Heads heads;
    std::int64_t in_step, out_step;  // from a token to the next, bytes
    std::int64_t translated;         // of the output with each token, bytes
  } tensors[kTensorsTogether];
  const std::size_t tensor_count = call.rotations.size();
  for (std::size_t i = 0; i < tensor_count; ++i) {
    const Rotation& rotation = call.rotations[i];
    const std::int64_t start = call.window.offset * call.element;
    const auto [in, out] = addresses_of(call, rotation, walk.at);
    tensors[i] = {{in + start, out + start, rotation.in.head_stride, rotation.out.head_stride,
                   rotation.in.heads},
                  rotation.in.token_stride * call.element,
                  rotation.out.token_stride * call.element,
                  0};
    // Without gaps: what follows in memory is written next.
    if (call.store == kernels::Store::streaming &&
        rotation.out.token_stride == rotation.out.heads * rotation.out.head_stride)
      tensors[i].translated = tensors[i].out_step;
  }
  const kernels::RotateFunction kernel = call.kernel;
  const std::int64_t pairs = call.block_pairs;
  const kernels::Store store = call.store;
  for (std::int64_t t = 0; t < count; ++t) {
    const RowPointers row =
        make_row(call, {walk.at.batch, walk.at.token + t}, walk.cursor, walk.buffers);
    // Positions usually count up: the next token reads the next row, while heads fill the nearer caches.
    if (call.rows_in_table && t + 1 < count) {
      for (std::int64_t i = 0; i < 2 * pairs; i += 64 / static_cast<std::int64_t>(sizeof(float)))
        __builtin_prefetch(row.cos + 2 * pairs + i);
    }
    for (std::size_t i = 0; i < tensor_count; ++i) {
      auto& [heads, in_step, out_step, translated] = tensors[i];
      if (translated > 0) translate_pages(heads.out, translated);
      kernel(heads, pairs, row.cos, row.sin, way.ahead, store);
      heads.in = static_cast<const char*>(heads.in) + in_step;
      heads.out = static_cast<char*>(heads.out) + out_step;
    }
  }
  return count;
}

void rotate_rows(const RotateCall& call, Way way, std::int64_t end, Walk& walk) {
  while (walk.row < end) {
    std::int64_t done = 1;
    if (call.dtype == DType::f64 || call.grows()) {
      double positions[kMaxAxes] = {};
      if (call.rows == nullptr) walk.cursor.next(positions);
      call.dtype == DType::f64 ? rotate_token_f64(call, walk.at, positions)
                               : rotate_token_growing(call, walk.at, positions, walk.buffers);
    } else if (call.heads_first) {
      done =
          rotate_tokens_heads_first(call, way, walk.at, end - walk.row, walk.cursor, walk.buffers);
    } else if (is_plain(call)) {
      done = rotate_tokens(call, way, end - walk.row, walk);
    } else {
      rotate_token_rows(call, walk.at, make_row(call, walk.at, walk.cursor, walk.buffers),
                        call.rotations, way.ahead);
    }
    walk.row += done;
    walk.at.token += done;
    if (walk.at.token == call.tokens) {
      walk.at.token = 0;
      ++walk.at.batch;
    }
  }
}

// In the fastest way, or timed if that is not known yet.
void rotate_piece(const RotateCall& call, std::int64_t end, Walk& walk) {
  const std::span<const Way> ways = call.ways.ways;
  const auto rotate = [&](int way) {
    rotate_rows(call, ways[static_cast<std::size_t>(way)], end, walk);
  };
  if (call.ways.choice == nullptr) return rotate(0);
  call.ways.choice->run(static_cast<int>(ways.size()),
                        static_cast<float>((end - walk.row) * call.row_bytes), rotate);
}

// Tokens between two looks at the caller's cancellation: a millisecond or two of the widest.
constexpr std::int64_t kRowsPerLook = 64;

}  // namespace

void rotate_part(void* context, int part, int parts) {
  const RotateCall& call = *static_cast<const RotateCall*>(context);
  const std::int64_t rows = call.batch * call.tokens;
  // No division for a decode step: it would show in its time.
  const std::int64_t begin = parts == 1 ? 0 : rows * part / parts;
  const std::int64_t end = parts == 1 ? rows : rows * (part + 1) / parts;
  if (begin == end) return;
  const bool has_long_runs = call.heads_first && call.ways.choice != nullptr;
  // Memory is asked for in the first call, not in the first that needs it.
  if (has_long_runs) static_cast<void>(rows_of_this_thread());
  const std::int64_t piece = has_long_runs ? kManyTokens.tokens : kRowsPerLook;
  Walk walk(call, begin);
  while (walk.row < end && (walk.row == begin || !is_cancelled()))
    rotate_piece(call, std::min(end, walk.row + piece), walk);
  if (call.staged || call.store == kernels::Store::streaming) call.kernels.fence();
  if (walk.row < end) throw_if_cancelled();
}

}  // namespace phasor::core
