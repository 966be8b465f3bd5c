#include "core/angles/row_memory.hpp"

#include <cstddef>
#include <memory>
#include <new>

#include "phasor/core/internal/large_memory.hpp"

namespace phasor::core {

bool prefers_many_tokens() {
#if defined(__x86_64__)
  static const bool intel = __builtin_cpu_is("intel") != 0;
  return !intel;
#else
  return true;
#endif
}

float* rows_of_this_thread() {
  thread_local std::shared_ptr<std::byte[]> memory;
  if (memory == nullptr) {
    try {
      memory = allocate_large(kManyTokens.floats, sizeof(float));
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  return reinterpret_cast<float*>(memory.get());
}

}  // namespace phasor::core
