// Memory for tables and caches.
#pragma once

#include <cstddef>
#include <memory>

namespace phasor::core {

// At least `count` * `size` bytes that begin at a multiple of 64, not initialised, followed by
// kMemoryPadding bytes of zeros: kernels read whole vectors, up to two of them from the last value
// on. Large blocks use huge pages.
//
// throws   std::bad_alloc, also if count * size overflows
inline constexpr std::size_t kMemoryPadding = 128;
[[nodiscard]] std::shared_ptr<std::byte[]> allocate_large(std::size_t count, std::size_t size);
// The same inside a block of huge pages that other calls share, since matrices and caches of a layer
// seldom fill a huge page: for arrays that are read one after another. The block lives as
// long as anything in it.
[[nodiscard]] std::shared_ptr<std::byte[]> allocate_beside(std::size_t count, std::size_t size);

// Asks the system for huge pages where a large block has no pages yet. For memory that another
// allocator has just given and that is about to be written: its contents do not change. A small block
// stays as it is.
void prefer_huge_pages(void* memory, std::size_t bytes) noexcept;

// Allocates a block and frees it again. For libraries that end the process, or damage it, when an
// allocation of theirs fails: called before them, with more than they need.
//
// throws   std::bad_alloc when there is no such block
void require_memory(std::size_t bytes);

}  // namespace phasor::core
