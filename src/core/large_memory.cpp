#include "core/large_memory.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstring>
#include <limits>
#include <new>

namespace phasor::core {
namespace {

// From here on a block asks for huge pages: a table of 64 MiB otherwise spends more time on its
// 16384 first touches than on its cosines.
constexpr std::size_t kHugeBytes = std::size_t{4} << 20;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

std::shared_ptr<std::byte[]> allocate_large(std::size_t count, std::size_t size) {
  if (size != 0 && count > (std::numeric_limits<std::size_t>::max() - kMemoryPadding) / size) {
    throw std::bad_alloc();
  }
  const std::size_t bytes = count * size + kMemoryPadding;
  const std::align_val_t alignment{bytes >= kHugeBytes ? kHugePage : 64};
  auto* memory = static_cast<std::byte*>(::operator new(bytes, alignment));
#if defined(__linux__)
  if (bytes >= kHugeBytes)
    madvise(memory, bytes, MADV_HUGEPAGE);  // advice: a refusal changes nothing
#endif
  std::memset(memory + bytes - kMemoryPadding, 0, kMemoryPadding);
  return {memory, [alignment](std::byte* block) { ::operator delete(block, alignment); }};
}

}  // namespace phasor::core
