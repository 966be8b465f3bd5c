#include <algorithm>
#include <cstring>

#include "core/angles/float32_engine.hpp"
#include "core/rotate/rotate_call.hpp"
#include "phasor/core/internal/rotations.hpp"

namespace phasor::core {
namespace {

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

kernels::RotateFunction kernel_of(const RotateCall& call) {
  const int half = call.kernel_layout() == PairLayout::half ? 1 : 0;
  return call.dtype == DType::f64 ? call.kernels.rotate_f64[half]
                                  : call.kernels.rotate[static_cast<int>(call.dtype) - 1][half];
}

// One call of the kernel for the dtype and layout.
void run_rotate_kernel(const RotateCall& call, const kernels::Heads& heads, const void* cos,
                       const void* sin, std::int64_t ahead) {
  if (call.options.angles != AngleMode::exact && call.dtype != DType::f64) {
    float32_rotate(call.dtype, call.kernel_layout(), heads, call.block_pairs,
                   static_cast<const float*>(cos), static_cast<const float*>(sin));
  } else {
    kernel_of(call)(heads, call.block_pairs, cos, sin, ahead, call.store);
  }
}

// interleaved_to_half: one head at a time through a buffer, since reading and writing use different
// pairs.
void rotate_block_across_layouts(const RotateCall& call, const kernels::Heads& heads,
                                 const void* cos, const void* sin) {
  alignas(64) char buffer[kMaxRotaryDim * sizeof(double)];
  const std::int64_t pairs = call.block_pairs;
  const bool forward = call.options.direction == Direction::forward;
  for (std::int64_t head = 0; head < heads.heads; ++head) {
    const void* in = static_cast<const char*>(heads.in) + head * heads.in_stride * call.element;
    void* out = static_cast<char*>(heads.out) + head * heads.out_stride * call.element;
    if (forward) {
      pair_up(call.element, in, pairs, buffer, Direction::forward);
      run_rotate_kernel(call, {buffer, out, 0, 0, 1}, cos, sin, 0);
    } else {
      run_rotate_kernel(call, {in, buffer, 0, 0, 1}, cos, sin, 0);
      pair_up(call.element, buffer, pairs, out, Direction::transpose);
    }
  }
}

// Vectors that straddle cache lines would make streaming stores useless and ordinary ones three
// times as slow, so heads are rotated into a buffer in the L1 cache and streamed from there.
void rotate_block_staged(const RotateCall& call, const kernels::Heads& heads, const void* cos,
                         const void* sin, std::int64_t ahead) {
  constexpr std::int64_t kBytes = 16384;
  static_assert(kBytes >= kMaxRotaryDim * static_cast<std::int64_t>(sizeof(double)));
  alignas(64) char buffer[kBytes];
  const std::int64_t width = 2 * call.block_pairs;
  const std::int64_t at_once = kBytes / (width * call.element);
  for (std::int64_t first = 0; first < heads.heads; first += at_once) {
    const std::int64_t count = std::min(at_once, heads.heads - first);
    const char* in = static_cast<const char*>(heads.in) + first * heads.in_stride * call.element;
    char* out = static_cast<char*>(heads.out) + first * heads.out_stride * call.element;
    const std::int64_t row = first * heads.row_stride;
    run_rotate_kernel(call, {in, buffer, heads.in_stride, width, count, heads.row_stride},
                      static_cast<const float*>(cos) + row, static_cast<const float*>(sin) + row,
                      ahead);
    const bool dense = heads.out_stride == width;
    const std::int64_t run = (dense ? count : 1) * width * call.element;
    for (std::int64_t head = 0; head < (dense ? 1 : count); ++head) {
      call.kernels.stream_bytes(out + head * heads.out_stride * call.element, buffer + head * run,
                                run);
    }
  }
}

}  // namespace

kernels::RotateFunction plain_kernel(const RotateCall& call) {
  const bool plain = !call.crosses() && !call.staged && call.dtype != DType::f64 &&
                     call.options.angles == AngleMode::exact;
  return plain ? kernel_of(call) : nullptr;
}

void rotate_block_otherwise(const RotateCall& call, const kernels::Heads& heads, const void* cos,
                            const void* sin, std::int64_t ahead) {
  if (call.crosses()) {
    rotate_block_across_layouts(call, heads, cos, sin);
  } else if (call.staged) {
    rotate_block_staged(call, heads, cos, sin, ahead);
  } else {
    run_rotate_kernel(call, heads, cos, sin, ahead);
  }
}

void copy_unrotated_features(const RotateCall& call, const Rotation& rotation, const char* in,
                             char* out) {
  const std::int64_t before = call.window.offset;
  const std::int64_t rotated = before + call.window.rotary_dim();
  const std::int64_t after = call.window.head_dim - rotated;
  if (same_view(rotation.in, rotation.out)) return;
  for (std::int64_t head = 0; head < rotation.in.heads; ++head) {
    const char* from = in + head * rotation.in.head_stride * call.element;
    char* to = out + head * rotation.out.head_stride * call.element;
    std::memcpy(to, from, static_cast<std::size_t>(before * call.element));
    std::memcpy(to + rotated * call.element, from + rotated * call.element,
                static_cast<std::size_t>(after * call.element));
  }
}

}  // namespace phasor::core
