// Long calls: without the GIL, and interrupted by Ctrl-C.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <mutex>
#include <type_traits>

#include "phasor/core/cancellation.hpp"
#include "phasor/core/error.hpp"

namespace phasor::python {

// Notes which thread is Python's main thread. Called once, with the GIL.
void watch_main_thread();

// What a handler of a signal raises while a call computes. Python runs handlers on its main thread
// only, so a call of that thread asks for them itself: after 50 ms, then every 50 ms.
class Interruption {
 public:
  Interruption() = default;
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  // precondition  the GIL is held, as for rethrow()
  ~Interruption();

  [[nodiscard]] core::CancellationPoll poll() noexcept;
  [[nodiscard]] bool raised() const noexcept { return type_ != nullptr; }
  // precondition  raised()
  [[noreturn]] void rethrow();

 private:
  static bool ask(void* self) noexcept;

  PyObject *type_ = nullptr, *value_ = nullptr, *trace_ = nullptr;
};

// Counts the calls of this thread that ended while they may have been writing: interrupted, or out of
// memory. Their outputs hold unfinished values.
[[nodiscard]] int unfinished_calls() noexcept;
void count_unfinished_call() noexcept;

// The result of body(), called without the GIL. An exception of a signal handler, KeyboardInterrupt above
// all, ends the call and is raised; see core::CancellationScope for what the call leaves behind.
//
// precondition  the GIL is held; body() returns nothing that needs it
template <class Body>
std::invoke_result_t<Body> without_gil(Body body) {
  Interruption interruption;
  std::exception_ptr error;
  {
    const nanobind::gil_scoped_release released;
    const core::CancellationScope scope(nullptr, interruption.poll());
    try {
      if constexpr (std::is_void_v<std::invoke_result_t<Body>>) {
        body();
        if (!interruption.raised()) return;
      } else {
        auto result = body();
        if (!interruption.raised()) return result;
      }
    } catch (const Error& refusal) {
      error = std::current_exception();
      if (refusal.code() == ErrorCode::internal) count_unfinished_call();
    } catch (...) {
      error = std::current_exception();
      count_unfinished_call();
    }
  }
  if (interruption.raised()) interruption.rethrow();
  std::rethrow_exception(error);
}

// Locks a mutex inside without_gil(): a call that waits for another one is interrupted too.
class InterruptibleLock {
 public:
  explicit InterruptibleLock(std::timed_mutex& mutex) : lock_(mutex, std::defer_lock) {
    while (!lock_.try_lock_for(core::CancellationPoll{}.interval)) core::throw_if_cancelled();
  }

 private:
  std::unique_lock<std::timed_mutex> lock_;
};

}  // namespace phasor::python
