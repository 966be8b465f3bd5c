#include "phasor/core/cpu.hpp"

#include <cstdint>
#include <type_traits>

#include "capi/edge.hpp"
#include "phasor/phasor.h"

// The function pointers of both structs are the same type.
static_assert(std::is_same_v<int, std::int32_t>);

extern "C" {

int32_t phasor_available_threads(void) { return phasor::core::available_threads(); }

phasor_status phasor_set_parallel_for(const phasor_parallel_for* parallel_for) {
  return phasor::capi::guarded([&] {
    if (parallel_for == nullptr) return phasor::core::set_parallel_for(nullptr);
    const char* const where = "phasor_set_parallel_for";
    const phasor_parallel_for from =
        phasor::capi::take_struct(parallel_for, phasor_parallel_for{}, where, "parallel_for");
    if (from.run == nullptr) {
      throw phasor::Error(phasor::ErrorCode::invalid_argument,
                          phasor::message(where, ": run must not be NULL"));
    }
    const phasor::core::ParallelFor given{from.run, from.user, from.threads};
    phasor::core::set_parallel_for(&given);
  });
}

}  // extern "C"
