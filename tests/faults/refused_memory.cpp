#include "faults/refused_memory.hpp"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

#include <array>
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

// Where the code of a library is.
struct Code {
  const char* name;
  std::uintptr_t begin = 0, end = 0;

  [[nodiscard]] bool holds(std::uintptr_t address) const noexcept {
    return address >= begin && address < end;
  }
};
constinit std::array<Code, 2> g_exempt = {{{"libgomp"}, {"libsentencepiece"}}};
constinit Code g_onednn = {"libdnnl"};
thread_local bool g_generates_code = false;  // oneDNN does, in this thread

int find_code(dl_phdr_info* library, std::size_t /*size*/, void* code) {
  Code& wanted = *static_cast<Code*>(code);
  if (std::strstr(library->dlpi_name, wanted.name) == nullptr) return 0;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const auto& part = library->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    wanted.begin = library->dlpi_addr + part.p_vaddr;
    wanted.end = wanted.begin + part.p_memsz;
  }
  return 1;
}

_Unwind_Reason_Code visit_frame(_Unwind_Context* frame, void* found) {
  for (const Code& code : g_exempt) {
    if (!code.holds(_Unwind_GetIP(frame))) continue;
    *static_cast<bool*>(found) = true;
    return _URC_END_OF_STACK;
  }
  return _URC_NO_REASON;
}

bool is_exempt() noexcept {
  bool found = false;
  _Unwind_Backtrace(visit_frame, &found);
  return found;
}

// The C library's function of a name that this file defines too.
template <class Function>
Function* original(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
auto* create_thread() {
  static auto* const found = original<decltype(pthread_create)>("pthread_create");
  return found;
}
auto* run_once() {
  static auto* const found = original<decltype(pthread_once)>("pthread_once");
  return found;
}

bool is_refused() noexcept {
  if (g_generates_code) return false;
  const std::int64_t index = g_counts->made.fetch_add(1, std::memory_order_relaxed);
  const Refuse how = g_how.load(std::memory_order_relaxed);
  if (how == Refuse::nothing) return false;
  const std::int64_t first = g_request.load(std::memory_order_relaxed);
  if ((how == Refuse::once ? index != first : index < first) || is_exempt()) return false;
  g_counts->refused.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void* no_memory() noexcept {
  errno = ENOMEM;
  return nullptr;
}

}  // namespace

void share_counts() {
  void* const page =
      mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) std::abort();
  g_counts = new (page) Counts;
}

void refuse(Refusal refusal) {
  // What needs memory, now.
  for (Code& code : g_exempt) dl_iterate_phdr(find_code, &code);
  dl_iterate_phdr(find_code, &g_onednn);
  create_thread();
  run_once();
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
  return is_refused() ? no_memory() : __libc_malloc(size);
}
__attribute__((visibility("default"))) void* calloc(std::size_t count, std::size_t size) {
  return is_refused() ? no_memory() : __libc_calloc(count, size);
}
__attribute__((visibility("default"))) void* realloc(void* memory, std::size_t size) {
  return is_refused() ? no_memory() : __libc_realloc(memory, size);
}
__attribute__((visibility("default"))) void* memalign(std::size_t alignment, std::size_t size) {
  return is_refused() ? no_memory() : __libc_memalign(alignment, size);
}
__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment,
                                                           std::size_t size) {
  return is_refused() ? no_memory() : __libc_memalign(alignment, size);
}
__attribute__((visibility("default"))) int posix_memalign(void** out, std::size_t alignment,
                                                          std::size_t size) {
  if (is_refused()) return ENOMEM;
  void* const memory = __libc_memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *out = memory;
  return 0;
}

__attribute__((visibility("default"))) void* mmap(void* address, std::size_t length, int protection,
                                                  int flags, int descriptor, off_t offset) {
  if (is_refused()) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, address, length, protection, flags, descriptor, offset));
}

__attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                          const pthread_attr_t* attributes,
                                                          void* (*start)(void*), void* argument) {
  if (is_refused()) return EAGAIN;
  return phasor::faults::create_thread()(thread, attributes, start, argument);
}

// std::call_once() calls it, and oneDNN generates its code in that.
__attribute__((visibility("default"))) int pthread_once(pthread_once_t* control,
                                                        void (*initialise)()) {
  const auto caller = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  bool& generates_code = phasor::faults::g_generates_code;
  const bool before = generates_code;
  generates_code = before || phasor::faults::g_onednn.holds(caller);
  const int result = phasor::faults::run_once()(control, initialise);
  generates_code = before;
  return result;
}

}  // extern "C"
