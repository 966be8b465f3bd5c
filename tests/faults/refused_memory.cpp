#include "faults/refused_memory.hpp"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

// The C library's own, under the names that it has for programs like this one.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
}

namespace phasor::faults {
namespace {

struct Counts {
  std::atomic<std::int64_t> made{0}, refused{0};
};
constinit Counts g_own;
constinit Counts* g_counts = &g_own;
constinit std::atomic<Refuse> g_how{Refuse::nothing};
constinit std::atomic<std::int64_t> g_request{0};

// The code of libgomp.
struct Range {
  std::uintptr_t begin = 0, end = 0;
};
constinit Range g_exempt;

int find_exempt(dl_phdr_info* library, std::size_t /*size*/, void* /*unused*/) {
  if (std::strstr(library->dlpi_name, "libgomp") == nullptr) return 0;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const auto& part = library->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    g_exempt.begin = library->dlpi_addr + part.p_vaddr;
    g_exempt.end = g_exempt.begin + part.p_memsz;
  }
  return 1;
}

using CreateThread = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
CreateThread create_thread() {
  static const auto real = reinterpret_cast<CreateThread>(dlsym(RTLD_NEXT, "pthread_create"));
  return real;
}

bool is_refused(const void* caller) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(caller);
  if (address >= g_exempt.begin && address < g_exempt.end) return false;
  const std::int64_t index = g_counts->made.fetch_add(1, std::memory_order_relaxed);
  const Refuse how = g_how.load(std::memory_order_relaxed);
  if (how == Refuse::nothing) return false;
  const std::int64_t first = g_request.load(std::memory_order_relaxed);
  if (how == Refuse::once ? index != first : index < first) return false;
  g_counts->refused.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void* no_memory() noexcept {
  errno = ENOMEM;
  return nullptr;
}

}  // namespace

void share_counts() {
  void* const page = mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) std::abort();
  g_counts = new (page) Counts;
}

void refuse(Refusal refusal) {
  if (g_exempt.end == 0) dl_iterate_phdr(find_exempt, nullptr);
  create_thread();  // finds it, which needs memory, now
  g_request.store(refusal.request, std::memory_order_relaxed);
  g_counts->made.store(0, std::memory_order_relaxed);
  g_counts->refused.store(0, std::memory_order_relaxed);
  g_how.store(refusal.how, std::memory_order_relaxed);
}

Requests requests() noexcept {
  return {g_counts->made.load(std::memory_order_relaxed),
          g_counts->refused.load(std::memory_order_relaxed)};
}

}  // namespace phasor::faults

using phasor::faults::is_refused;
using phasor::faults::no_memory;

extern "C" {

__attribute__((visibility("default"))) void* malloc(std::size_t size) {
  return is_refused(__builtin_return_address(0)) ? no_memory() : __libc_malloc(size);
}
__attribute__((visibility("default"))) void* calloc(std::size_t count, std::size_t size) {
  return is_refused(__builtin_return_address(0)) ? no_memory() : __libc_calloc(count, size);
}
__attribute__((visibility("default"))) void* realloc(void* memory, std::size_t size) {
  return is_refused(__builtin_return_address(0)) ? no_memory() : __libc_realloc(memory, size);
}
__attribute__((visibility("default"))) void* memalign(std::size_t alignment, std::size_t size) {
  return is_refused(__builtin_return_address(0)) ? no_memory() : __libc_memalign(alignment, size);
}
__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment,
                                                           std::size_t size) {
  return is_refused(__builtin_return_address(0)) ? no_memory() : __libc_memalign(alignment, size);
}
__attribute__((visibility("default"))) int posix_memalign(void** out, std::size_t alignment,
                                                          std::size_t size) {
  if (is_refused(__builtin_return_address(0))) return ENOMEM;
  void* const memory = __libc_memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *out = memory;
  return 0;
}

__attribute__((visibility("default"))) void* mmap(void* address, std::size_t length, int protection,
                                                  int flags, int descriptor, off_t offset) {
  if (is_refused(__builtin_return_address(0))) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, address, length, protection, flags, descriptor, offset));
}

__attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                          const pthread_attr_t* attributes,
                                                          void* (*start)(void*), void* argument) {
  if (is_refused(__builtin_return_address(0))) return EAGAIN;
  return phasor::faults::create_thread()(thread, attributes, start, argument);
}

}  // extern "C"
