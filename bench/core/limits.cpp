#include "core/limits.hpp"

#include "core/limit_loops.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/internal/kernel_levels.hpp"

namespace phasor::bench {

extern const LimitLoops limits_generic, limits_x86_64_v3, limits_x86_64_v4;

namespace {

// The loops are compiled for fewer levels than the kernels.
const LimitLoops& loops_for(core::InstructionSet isa) {
#if defined(PHASOR_X86_LEVELS)
  return core::KernelLevels<LimitLoops>{&limits_generic, &limits_generic, &limits_x86_64_v3,
                                        &limits_x86_64_v4}
      .of(isa);
#else
  return core::KernelLevels<LimitLoops>{&limits_generic}.of(isa);
#endif
}

struct Piece {
  std::size_t begin, size;
};
// In multiples of 64 bytes, so that every piece stays aligned.
Piece piece_of(std::size_t count, int part, int parts) {
  const std::size_t lines = count / 16;
  const std::size_t begin =
      lines * static_cast<std::size_t>(part) / static_cast<std::size_t>(parts) * 16;
  const std::size_t end = part + 1 == parts ? count
                                            : lines * static_cast<std::size_t>(part + 1) /
                                                  static_cast<std::size_t>(parts) * 16;
  return {begin, end - begin};
}

struct Work {
  const LimitLoops& loops;
  const float* from;
  float* to;
  std::size_t count;
};

}  // namespace

void scale_in_place(core::InstructionSet isa, int threads, float* x, std::size_t count) {
  Work work{loops_for(isa), nullptr, x, count};
  core::run_parts(
      threads,
      [](void* context, int part, int parts) {
        const Work& w = *static_cast<const Work*>(context);
        const Piece piece = piece_of(w.count, part, parts);
        // So close to one that values neither grow nor vanish over thousands of rounds.
        w.loops.scale(w.to + piece.begin, piece.size, 0.99999994F);
      },
      &work);
}

void stream_copy(core::InstructionSet isa, int threads, const float* from, float* to,
                 std::size_t count) {
  Work work{loops_for(isa), from, to, count};
  core::run_parts(
      threads,
      [](void* context, int part, int parts) {
        const Work& w = *static_cast<const Work*>(context);
        const Piece piece = piece_of(w.count, part, parts);
        w.loops.stream_copy(w.from + piece.begin, w.to + piece.begin, piece.size);
      },
      &work);
}

}  // namespace phasor::bench
