#include "phasor/core/cancellation.hpp"

#include <ctime>
#include <utility>

#include "core/system/adopted_scope.hpp"
#include "phasor/core/error.hpp"

namespace phasor::core {
namespace {

// The scope that this thread works in; its address identifies the thread.
thread_local CancellationScope* t_scope = nullptr;

// The time of a monotonic clock, at least 2. The coarse clock is accurate to a few milliseconds and takes
// a quarter of the time: a decode step of a small model reads it a hundred times.
std::int64_t milliseconds() noexcept {
#if defined(CLOCK_MONOTONIC_COARSE)
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000 + 2;
#else
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count() + 2;
#endif
}

}  // namespace

CancellationScope::CancellationScope(const Cancellation* cancellation,
                                     const CancellationPoll& poll) noexcept
    : cancellation_(cancellation),
      poll_(poll),
      outer_(std::exchange(t_scope, this)),
      thread_(&t_scope) {}

CancellationScope::~CancellationScope() { t_scope = outer_; }

bool CancellationScope::look() noexcept {
  if (stopped_.load(std::memory_order_relaxed)) return true;
  const bool stops = (cancellation_ != nullptr && cancellation_->requested()) ||
                     (poll_.stop != nullptr && thread_ == &t_scope && poll());
  // Kept: a part that ended early must fail its call, whatever happens to the request.
  if (stops) stopped_.store(true, std::memory_order_relaxed);
  return stops;
}

bool CancellationScope::poll() noexcept {
  if (poll_.interval.count() > 0) {
    // The clock begins with the second look: a short call, which looks once, reads no clock.
    const std::int64_t due = next_poll_;
    if (due == 0) {
      next_poll_ = 1;
      return false;
    }
    const std::int64_t now = milliseconds();
    if (now < due) return false;
    next_poll_ = now + poll_.interval.count();
    if (due == 1) return false;
  }
  return poll_.stop(poll_.user);
}

AdoptedScope::AdoptedScope(CancellationScope* scope) noexcept
    : before_(std::exchange(t_scope, scope)) {}

AdoptedScope::~AdoptedScope() { t_scope = before_; }

CancellationScope* AdoptedScope::current() noexcept { return t_scope; }

bool is_cancelled() noexcept { return t_scope != nullptr && t_scope->look(); }

void throw_if_cancelled() {
  if (is_cancelled())
    refuse(ErrorCode::cancelled, "the call was cancelled before it was done, as its caller asked");
}

}  // namespace phasor::core
