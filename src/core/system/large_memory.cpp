#include "phasor/core/internal/large_memory.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <utility>

namespace phasor::core {
namespace {

// A block of this size or more uses huge pages: a table of 64 MiB otherwise spends more time on its
// 16384 first touches than on its cosines, and a rotation ten times as long as on the rotation itself.
constexpr std::size_t kHugeBytes = std::size_t{4} << 20;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t padded_bytes(std::size_t count, std::size_t size) {
  if (size != 0 && count > (std::numeric_limits<std::size_t>::max() - 2 * kMemoryPadding) / size) {
    throw std::bad_alloc();
  }
  return count * size + kMemoryPadding;
}

}  // namespace

void prefer_huge_pages(void* memory, std::size_t bytes) noexcept {
#if defined(__linux__)
  if (bytes < kHugeBytes) return;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t first = (begin + page - 1) / page * page;
  // Advice: a refusal changes nothing.
  madvise(reinterpret_cast<void*>(first), begin + bytes - first, MADV_HUGEPAGE);
#else
  static_cast<void>(memory);
  static_cast<void>(bytes);
#endif
}

std::shared_ptr<std::byte[]> allocate_large(std::size_t count, std::size_t size) {
  const std::size_t bytes = padded_bytes(count, size);
  const std::align_val_t alignment{bytes >= kHugeBytes ? kHugePage : 64};
  auto* memory = static_cast<std::byte*>(::operator new(bytes, alignment));
  prefer_huge_pages(memory, bytes);
  std::memset(memory + bytes - kMemoryPadding, 0, kMemoryPadding);
  return {memory, [alignment](std::byte* block) { ::operator delete(block, alignment); }};
}

void require_memory(std::size_t bytes) {
  void* volatile block = std::malloc(bytes);  // volatile: a compiler may leave out an unused block
  if (block == nullptr) throw std::bad_alloc();
  std::free(block);
}

std::shared_ptr<std::byte[]> allocate_beside(std::size_t count, std::size_t size) {
  constexpr std::size_t kSlab = std::size_t{32} << 20;
  const std::size_t bytes = (padded_bytes(count, size) + 63) / 64 * 64;
  if (bytes >= kSlab / 4) return allocate_large(count, size);
  static std::mutex mutex;
  // Not weak_ptr<std::byte[]>, which the C++ library of Emscripten gets wrong.
  struct Slab {
    std::shared_ptr<std::byte[]> memory;
  };
  static std::weak_ptr<Slab> slab;
  static std::size_t used = 0;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Slab> current = slab.lock();
  if (current == nullptr || bytes > kSlab - used) {
    current = std::make_shared<Slab>(Slab{allocate_large(kSlab, 1)});
    slab = current;
    used = 0;
  }
  std::byte* const begin = current->memory.get() + used;
  used += bytes;
  std::memset(begin + count * size, 0, kMemoryPadding);
  return {std::move(current), begin};
}

}  // namespace phasor::core
