#include "phasor/core/cancellation.hpp"

#include <utility>

#include "core/system/adopted_scope.hpp"
#include "phasor/core/error.hpp"

namespace phasor::core {
namespace {

// The scope that this thread works in; its address identifies the thread.
thread_local CancellationScope* t_scope = nullptr;

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
    const auto now = std::chrono::steady_clock::now();
    const bool begins = next_poll_ == std::chrono::steady_clock::time_point{};
    if (!begins && now < next_poll_) return false;
    next_poll_ = now + poll_.interval;
    if (begins) return false;
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
