// Fork and join over a pool that starts its threads on first use and keeps them.
#pragma once

#include <cstdint>

namespace phasor::core {

// The CPUs this process may use.
[[nodiscard]] int available_threads() noexcept;

// Calls task(context, part, parts) once for each part in [0, parts), the caller taking part 0, and
// returns when all are done. Runs everything on the caller when parts is 1, or while another thread
// is inside this function. The task must not throw.
void run_parts(int parts, void (*task)(void* context, int part, int parts), void* context);

}  // namespace phasor::core
