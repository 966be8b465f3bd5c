// Values that a thread keeps from one call to the next.
#pragma once

#include <new>

namespace phasor::core {

namespace detail {

struct ThreadValue {
  virtual ~ThreadValue() = default;
  ThreadValue* before = nullptr;  // the thread's previous one
};
// Deletes the value when the calling thread ends. Without memory for that, or for the threads that
// are left when the library is unloaded, it stays until the process ends.
void delete_at_thread_end(ThreadValue* value) noexcept;

}  // namespace detail

// The calling thread's T, made at its first call and destroyed when the thread ends; null if there is
// no memory for it. The type is the name: one T per use. A thread_local variable with a destructor
// would end the process instead: glibc does so when it cannot allocate the entry for the destructor.
template <class T>
[[nodiscard]] T* per_thread() noexcept {
  struct Kept final : detail::ThreadValue {
    explicit Kept(Kept*& place) noexcept : place_(place) {}
    ~Kept() override { place_ = nullptr; }
    T value;
    Kept*& place_;
  };
  thread_local Kept* kept = nullptr;
  if (kept == nullptr) {
    kept = new (std::nothrow) Kept(kept);
    if (kept == nullptr) return nullptr;
    detail::delete_at_thread_end(kept);
  }
  return &kept->value;
}

}  // namespace phasor::core
