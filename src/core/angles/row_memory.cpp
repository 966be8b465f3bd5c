#include "core/angles/row_memory.hpp"

#include <cstddef>
#include <memory>
#include <new>

#include "phasor/core/internal/large_memory.hpp"
#include "phasor/core/internal/per_thread.hpp"

namespace phasor::core {
namespace {

struct RowMemory {
  std::shared_ptr<std::byte[]> block;
};

}  // namespace

float* rows_of_this_thread() {
  auto* const memory = per_thread<RowMemory>();
  if (memory == nullptr) return nullptr;
  if (memory->block == nullptr) {
    try {
      memory->block = allocate_large(kManyTokens.floats, sizeof(float));
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  return reinterpret_cast<float*>(memory->block.get());
}

}  // namespace phasor::core
