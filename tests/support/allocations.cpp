#include "support/allocations.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>

namespace phasor::test {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

std::atomic<std::int64_t> g_count{0};
std::atomic<std::int64_t> g_bytes{0};
std::atomic<std::int64_t> g_until_failure{kNever};
std::atomic<bool> g_failed{false};

void* allocate(std::size_t size, std::size_t alignment) noexcept {
  g_count.fetch_add(1, std::memory_order_relaxed);
  g_bytes.fetch_add(static_cast<std::int64_t>(size), std::memory_order_relaxed);
  if (g_until_failure.load(std::memory_order_relaxed) != kNever &&
      g_until_failure.fetch_sub(1, std::memory_order_relaxed) == 0) {
    g_failed.store(true, std::memory_order_relaxed);
    return nullptr;
  }
  if (size == 0) size = 1;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* const memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

std::int64_t allocation_count() noexcept { return g_count.load(std::memory_order_relaxed); }

std::int64_t allocated_bytes() noexcept { return g_bytes.load(std::memory_order_relaxed); }

FailingAllocation::FailingAllocation(std::int64_t index) noexcept {
  g_failed.store(false, std::memory_order_relaxed);
  g_until_failure.store(index, std::memory_order_relaxed);
}

FailingAllocation::~FailingAllocation() {
  g_until_failure.store(kNever, std::memory_order_relaxed);
}

bool FailingAllocation::has_failed() noexcept { return g_failed.load(std::memory_order_relaxed); }

}  // namespace phasor::test

using phasor::test::allocate;
using phasor::test::allocate_or_throw;

// Each form that the standard library may call, over the two above.
void* operator new(std::size_t size) { return allocate_or_throw(size, 0); }
void* operator new[](std::size_t size) { return allocate_or_throw(size, 0); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 0); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 0); }
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
