// Stops a long call from outside: from another thread, from a signal handler, or by a question that the
// calling thread asks now and then.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "phasor/export.h"

namespace phasor::core {

// A request to stop, shared by those who ask and by the calls that look at it.
class Cancellation {
 public:
  // From any thread, or from a signal handler.
  void request() noexcept { requested_.store(true, std::memory_order_relaxed); }
  void reset() noexcept { requested_.store(false, std::memory_order_relaxed); }
  [[nodiscard]] bool requested() const noexcept {
    return requested_.load(std::memory_order_relaxed);
  }

 private:
  static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler must not wait");
  std::atomic<bool> requested_{false};
};

// A question for programs that learn of an interruption on one thread only, as Python does on its main
// thread. The thread that made the scope asks it, between tiles and while it waits for other threads.
struct CancellationPoll {
  bool (*stop)(void* user) = nullptr;  // true: stop. No exception may leave it
  void* user = nullptr;
  std::chrono::milliseconds interval{50};  // at most one question in this time; 0: at every look
};

// While it lives, calls of this thread, and the threads that work for them, look at `cancellation`
// between tiles, and throw Error(cancelled) once it is requested. Later calls in the same scope then fail
// too, even after reset(). The innermost scope counts; one with null and no poll looks at nothing.
//
//   static Cancellation stop;
//   std::signal(SIGINT, [](int) { stop.request(); });
//   const CancellationScope scope(&stop);
//   attend(...);  // throws Error(cancelled) some milliseconds after Ctrl-C
//
// An array that a cancelled call writes holds unfinished values. Caches, states, sequences and models are
// as before the call: what changes keys in place (KVCache::shift, Sequence::shift) looks before it begins,
// and then finishes. A cancelled conversion of a checkpoint is resumed by the next one.
class PHASOR_API CancellationScope {
 public:
  explicit CancellationScope(const Cancellation* cancellation,
                             const CancellationPoll& poll = {}) noexcept;
  ~CancellationScope();
  CancellationScope(const CancellationScope&) = delete;
  CancellationScope& operator=(const CancellationScope&) = delete;

 private:
  friend PHASOR_API bool is_cancelled() noexcept;
  [[nodiscard]] bool look() noexcept;
  [[nodiscard]] bool poll() noexcept;

  const Cancellation* cancellation_;
  CancellationPoll poll_;
  CancellationScope* outer_;
  const void* thread_;          // identifies the thread that made the scope
  std::int64_t next_poll_ = 0;  // milliseconds; 0: no look yet, 1: one look
  std::atomic<bool> stopped_{false};
};

// For tasks of run_parts: whether the call that they work for must stop, and the same as an exception.
//
// cost     some nanoseconds, with a poll about 10
[[nodiscard]] PHASOR_API bool is_cancelled() noexcept;
// throws   Error(cancelled)
PHASOR_API void throw_if_cancelled();

}  // namespace phasor::core
