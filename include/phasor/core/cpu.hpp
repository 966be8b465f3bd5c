// What a call may use of the machine: instruction sets and threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "phasor/export.h"

namespace phasor::core {

// The instruction set levels that kernels are compiled for, and the one used on this CPU.

enum class InstructionSet : std::uint8_t {
  best,       // the highest level this CPU has
  generic,    // the compiler's baseline for the target
  x86_64_v2,  // SSE4.2
  x86_64_v3,  // AVX2, FMA, F16C
  x86_64_v4,  // AVX-512 F, BW, CD, DQ, VL
};

[[nodiscard]] PHASOR_API std::string_view name_of(InstructionSet isa) noexcept;
// The level of a name as name_of writes it ("x86-64-v3"); none for another.
[[nodiscard]] PHASOR_API std::optional<InstructionSet> instruction_set_of(
    std::string_view name) noexcept;
// The levels that this build has and this CPU can run, lowest first; never empty, never `best`.
[[nodiscard]] PHASOR_API const std::vector<InstructionSet>& available_instruction_sets();
// throws   Error(unsupported) for a level that this CPU or this build does not have
[[nodiscard]] PHASOR_API InstructionSet resolve_instruction_set(InstructionSet isa);

// Fork and join: over threads that Phasor starts on first use and keeps, or over the parallel-for
// of the program that Phasor is part of.

// The CPUs that this process may use: those of its affinity mask, and no more than the quota of its
// control group (cpu.max, rounded up). Read once, at the first call. While a parallel-for with
// `threads` is set, that number.
[[nodiscard]] PHASOR_API int available_threads() noexcept;

// Calls task(context, part, parts) once for each part in [0, parts) and returns when all are done.
// Any thread may run any part. Threads that call at the same time share the CPUs, and a task may
// call run_parts itself: a caller works on its own parts until none is left to take, so it never
// waits for a free thread. At most available_threads() threads are kept besides the callers; if
// memory or the system allows fewer, those run all the parts.
//
// throws   what a part threw. Every part is called even if another throws, and all have ended before
//          the exception leaves; if several throw, it is the exception of the lowest part.
//          Error(cancelled) in a CancellationScope: parts that have not begun are not called
//          Error(internal) when a parallel-for of the program did not call each part once
// cost     about a microsecond while the threads are awake; no allocation once they are started
PHASOR_API void run_parts(int parts, void (*task)(void* context, int part, int parts),
                          void* context);

// A parallel-for of the embedding program, so that both share one set of threads.
struct ParallelFor {
  // Calls task(context, part, parts) exactly once for each part in [0, parts), on any threads and
  // in any order, and returns when all are done. Several threads may call it at once, and a task
  // may call it again. No exception leaves a task, and none may leave this function: it can be
  // written in C.
  void (*run)(void* user, int parts, void (*task)(void* context, int part, int parts),
              void* context) = nullptr;
  void* user = nullptr;
  int threads = 0;  // the value of available_threads(); 0: as without a parallel-for
};

// Runs all later calls of run_parts with `parallel_for`, or on Phasor's own threads if it is null.
// Calls that have started keep the previous one: `user` must stay valid until they return.
// throws   Error(invalid_argument): run is null, threads negative
PHASOR_API void set_parallel_for(const ParallelFor* parallel_for);

}  // namespace phasor::core
