#include "phasor/core/internal/large_memory.hpp"

#include "phasor/core/cpu.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <utility>

namespace phasor::core {
namespace {

// A block of this size or more uses huge pages: a table of 64 MiB otherwise spends more time on its
// 16384 first touches than on its cosines.
constexpr std::size_t kHugeBytes = std::size_t{4} << 20;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t padded_bytes(std::size_t count, std::size_t size) {
  if (size != 0 && count > (std::numeric_limits<std::size_t>::max() - 2 * kMemoryPadding) / size) {
    throw std::bad_alloc();
  }
  return count * size + kMemoryPadding;
}

// Memory of huge pages that is about to be written.
struct NewPages {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
};

// Most of the time of a load is the system's clearing of new pages, one fault after the other: threads do it
// at the same time. The contents stay as they are, so that others may write there meanwhile.
void populate(NewPages pages) {
#if defined(__linux__) && defined(MADV_POPULATE_WRITE)
  if (pages.bytes == 0) return;
  const int parts = static_cast<int>(pages.bytes / kHugePage);
  run_parts(
      std::min(parts, available_threads()),
      [](void* context, int part, int count) {
        const auto& all = *static_cast<const NewPages*>(context);
        const auto at = [&](int i) {
          return all.bytes / kHugePage * static_cast<std::size_t>(i) /
                 static_cast<std::size_t>(count) * kHugePage;
        };
        // An older system refuses; the pages then come when they are written.
        madvise(all.begin + at(part), at(part + 1) - at(part), MADV_POPULATE_WRITE);
      },
      &pages);
#else
  static_cast<void>(pages);
#endif
}

}  // namespace

std::shared_ptr<std::byte[]> allocate_large(std::size_t count, std::size_t size) {
  const std::size_t bytes = padded_bytes(count, size);
  const std::align_val_t alignment{bytes >= kHugeBytes ? kHugePage : 64};
  auto* memory = static_cast<std::byte*>(::operator new(bytes, alignment));
#if defined(__linux__)
  if (bytes >= kHugeBytes)
    madvise(memory, bytes, MADV_HUGEPAGE);  // advice: a refusal changes nothing
#endif
  std::memset(memory + bytes - kMemoryPadding, 0, kMemoryPadding);
  return {memory, [alignment](std::byte* block) { ::operator delete(block, alignment); }};
}

void require_memory(std::size_t bytes) {
  void* volatile block = std::malloc(bytes);  // volatile: a compiler may leave out an unused block
  if (block == nullptr) throw std::bad_alloc();
  std::free(block);
}

std::shared_ptr<std::byte[]> allocate_beside(std::size_t count, std::size_t size) {
  constexpr std::size_t kSlab = std::size_t{32} << 20, kStep = std::size_t{8} << 20;
  const std::size_t bytes = (padded_bytes(count, size) + 63) / 64 * 64;
  if (bytes >= kSlab / 4) return allocate_large(count, size);
  static std::mutex mutex;
  // Not weak_ptr<std::byte[]>, which the C++ library of Emscripten gets wrong.
  struct Slab {
    std::shared_ptr<std::byte[]> memory;
  };
  static std::weak_ptr<Slab> slab;
  static std::size_t used = 0;
  std::shared_ptr<Slab> current;
  std::byte* begin = nullptr;
  NewPages fresh;
  {
    const std::lock_guard lock(mutex);
    current = slab.lock();
    if (current == nullptr || bytes > kSlab - used) {
      current = std::make_shared<Slab>(Slab{allocate_large(kSlab, 1)});
      slab = current;
      used = 0;
    }
    begin = current->memory.get() + used;
    // The step that the block ends in, unless an earlier block did, and those before it.
    const auto step_of = [](std::size_t end) { return (end + kStep - 1) / kStep * kStep; };
    fresh = {current->memory.get() + step_of(used), step_of(used + bytes) - step_of(used)};
    used += bytes;
  }
  populate(fresh);
  std::memset(begin + count * size, 0, kMemoryPadding);
  return {std::move(current), begin};
}

}  // namespace phasor::core
