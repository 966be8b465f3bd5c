#include "phasor/core/cpu.hpp"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "core/system/adopted_scope.hpp"
#include "core/system/cpu_count.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/error.hpp"

namespace phasor::core {
namespace {

// Some ten microseconds: longer would take time from other programs.
constexpr int kSpins = 2000;
// A caller whose parts run elsewhere yields this many times before it sleeps: waking up takes longer
// than most parts that are still missing.
constexpr int kYields = 400;
// A caller that sleeps wakes up so often to look whether it was cancelled.
constexpr std::chrono::milliseconds kLongestSleep{50};

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

struct Task {
  void (*call)(void*, int, int) = nullptr;
  void* context = nullptr;
  int parts = 0;
  CancellationScope* scope = nullptr;  // of the caller
};

// What parts threw: the exception of the lowest one, so that it does not depend on the threads.
class FirstError {
 public:
  // precondition  inside a catch block
  void keep(int part) noexcept {
    const std::lock_guard lock(mutex_);
    if (error_ && part_ < part) return;
    part_ = part;
    error_ = std::current_exception();
  }
  // precondition  no part runs any more
  [[nodiscard]] std::exception_ptr take() noexcept { return std::exchange(error_, nullptr); }

 private:
  std::mutex mutex_;
  int part_ = 0;
  std::exception_ptr error_;
};

void run_caught(const Task& task, int part, FirstError& error) noexcept {
  const AdoptedScope scope(task.scope);
  try {
    throw_if_cancelled();
    task.call(task.context, part, task.parts);
  } catch (...) {
    error.keep(part);
  }
}

void rethrow(std::exception_ptr error) {
  if (error) std::rethrow_exception(std::move(error));
}

void run_alone(const Task& task) {
  FirstError error;
  for (int part = 0; part < task.parts; ++part) run_caught(task, part, error);
  rethrow(error.take());
}

// A place for the parts of one call. It outlives the call, so that a worker may look at it at any
// time; only a successful take() lets it read the task.
class alignas(64) Slot {
 public:
  // Opens all parts but 0, which is the caller's.
  void open(const Task& task) noexcept {
    task_ = task;
    done_.store(0, std::memory_order_relaxed);
    const std::uint64_t call = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
    ticket_.store(call << 32 | static_cast<std::uint32_t>(task.parts - 1),
                  std::memory_order_release);
  }

  // The next part that is not taken, or 0. The number of the call is part of what is compared, so
  // that a worker that looked at an earlier call takes no part of this one.
  [[nodiscard]] int take() noexcept {
    std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
    while (static_cast<std::uint32_t>(ticket) != 0) {
      if (ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
        return task_.parts - static_cast<int>(static_cast<std::uint32_t>(ticket));
      }
    }
    return 0;
  }

  void run(int part) noexcept { run_caught(task_, part, error_); }

  // A worker's part is done. Nothing of the call may be read after the count: the caller may have
  // returned. Waking up the next caller of this slot instead does no harm.
  void finish() noexcept {
    done_.fetch_add(1);
    if (!caller_sleeps_.load()) return;
    const std::lock_guard lock(sleep_);  // the caller waits, or has not looked at the count yet
    done_changed_.notify_all();
  }

  // Waits until workers have finished `parts` parts.
  void join(int parts) noexcept {
    const auto missing = [&] { return done_.load(std::memory_order_acquire) != parts; };
    for (int spin = 0; spin < kSpins && missing(); ++spin) relax();
    for (int yield = 0; yield < kYields && missing(); ++yield) std::this_thread::yield();
    if (!missing()) return;
    caller_sleeps_.store(true);
    const auto sleep = [&] {
      std::unique_lock lock(sleep_);
      return done_changed_.wait_for(lock, kLongestSleep, [&] { return done_.load() == parts; });
    };
    while (!sleep()) (void)is_cancelled();  // asks the caller's poll; workers then stop
    caller_sleeps_.store(false, std::memory_order_relaxed);
  }

  [[nodiscard]] std::exception_ptr take_error() noexcept { return error_.take(); }

 private:
  Task task_;
  FirstError error_;
  std::atomic<std::uint64_t> ticket_{0};  // number of the call, parts not taken: 32 bits each
  alignas(64) std::atomic<int> done_{0};  // parts that workers have finished
  std::atomic<bool> caller_sleeps_{false};
  std::mutex sleep_;
  std::condition_variable done_changed_;
};

// Workers take parts of any call under way. They spin for a while when there is none, which makes
// fork and join cost about a microsecond, then sleep.
class Pool {
 public:
  void run(const Task& task) {
    grow(task.parts - 1);
    const int claimed = claim();
    if (claimed < 0) return run_alone(task);
    Slot& slot = slots_[static_cast<std::size_t>(claimed)];
    slot.open(task);
    posted_.fetch_add(1);
    wake(task.parts - 1);
    slot.run(0);
    int own = 1;
    for (int part = slot.take(); part != 0; part = slot.take(), ++own) slot.run(part);
    slot.join(task.parts - own);
    std::exception_ptr error = slot.take_error();
    claimed_.fetch_and(~(std::uint64_t{1} << claimed), std::memory_order_release);
    rethrow(std::move(error));
  }

 private:
  static constexpr int kSlots = 64;  // calls at once; one more runs on its caller alone

  [[nodiscard]] int claim() noexcept {
    std::uint64_t claimed = claimed_.load(std::memory_order_relaxed);
    while (~claimed != 0) {
      const int slot = std::countr_one(claimed);
      if (claimed_.compare_exchange_weak(claimed, claimed | std::uint64_t{1} << slot,
                                         std::memory_order_acquire, std::memory_order_relaxed)) {
        return slot;
      }
    }
    return -1;
  }

  // A worker that is about to sleep sees that posted_ has changed, or is counted as sleeping.
  void wake(int wanted) noexcept {
    wanted -= spinning_.load();
    const int sleeping = sleeping_.load();
    if (wanted <= 0 || sleeping == 0) return;
    if (wanted >= sleeping) return posted_.notify_all();
    for (int i = 0; i < wanted; ++i) posted_.notify_one();
  }

  // Starts workers until there are `wanted`, but no more than CPUs; fewer when memory or the system
  // does not allow more.
  void grow(int wanted) noexcept {
    if (workers_.load(std::memory_order_relaxed) >= wanted) return;
    const std::unique_lock lock(growing_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    try {
      static const int most = count_cpus({});
      while (workers_.load(std::memory_order_relaxed) < std::min(wanted, most)) {
        // Detached and never ended: a worker must outlive every caller, static destructors
        // included.
        std::thread([this] { serve(); }).detach();
        workers_.fetch_add(1, std::memory_order_relaxed);
      }
    } catch (const std::bad_alloc&) {
    } catch (const std::system_error&) {
    }
  }

  [[noreturn]] void serve() noexcept {
    spinning_.fetch_add(1);
    int spins = 0;
    for (int first = 0;;) {
      // Read before the search: a call that the search misses changes it.
      const int posted = posted_.load();
      if (serve_one(first)) {
        spins = 0;
        continue;
      }
      // Calls that leave nothing to this worker do not keep it awake.
      while (spins < kSpins && posted_.load(std::memory_order_acquire) == posted) {
        relax();
        ++spins;
      }
      if (spins < kSpins) continue;
      sleeping_.fetch_add(1);
      spinning_.fetch_sub(1);
      posted_.wait(posted);
      spinning_.fetch_add(1);
      sleeping_.fetch_sub(1);
      spins = 0;
    }
  }

  // Runs a part of some call. The search begins after the slot served last, so that calls at the
  // same time get their share.
  bool serve_one(int& first) noexcept {
    const std::uint64_t claimed = claimed_.load(std::memory_order_acquire);
    for (std::uint64_t left = std::rotr(claimed, first); left != 0; left &= left - 1) {
      const int at = (std::countr_zero(left) + first) % kSlots;
      Slot& slot = slots_[static_cast<std::size_t>(at)];
      const int part = slot.take();
      if (part == 0) continue;
      spinning_.fetch_sub(1);
      slot.run(part);
      // Before finish() wakes the caller: its next call must find this worker spinning.
      spinning_.fetch_add(1);
      slot.finish();
      first = (at + 1) % kSlots;
      return true;
    }
    return false;
  }

  std::array<Slot, kSlots> slots_;
  alignas(64) std::atomic<std::uint64_t> claimed_{0};  // a bit for each slot
  alignas(64) std::atomic<int> posted_{0};             // calls so far
  alignas(64) std::atomic<int> spinning_{0};           // workers without a part, awake
  std::atomic<int> sleeping_{0};
  std::atomic<int> workers_{0};
  std::mutex growing_;
};

// Never destroyed: its threads may run until the process ends.
alignas(Pool) std::byte g_pool_memory[sizeof(Pool)];

Pool* make_pool() { return new (g_pool_memory) Pool; }

Pool& pool() {
  static Pool* const pool = [] {
    // After fork() the workers exist in the parent alone; the child begins with none.
    pthread_atfork(nullptr, nullptr, [] { make_pool(); });
    return make_pool();
  }();
  return *pool;
}

// One call handed to the program's parallel-for, which is not trusted to call each part once.
class HandedOut {
 public:
  static constexpr int kMostParts = 1024;

  // Parts [first, first + count) of the task. precondition  count <= kMostParts
  HandedOut(const Task& task, int first, int count, FirstError& error)
      : task_(task), first_(first), count_(count), error_(error) {}

  // throws   Error(internal): a part that was not called once
  void run(const ParallelFor& parallel_for) {
    parallel_for.run(parallel_for.user, count_, call, this);
    if (const int part = unexpected_.load(); part != kNone) refuse(part, "more than once");
    for (int part = 0; part < count_; ++part) {
      if ((word(part).load() & bit(part)) == 0) refuse(part, "never");
    }
  }

 private:
  static constexpr int kNone = -1;

  static void call(void* context, int part, int) {
    HandedOut& self = *static_cast<HandedOut*>(context);
    if (part < 0 || part >= self.count_ || (self.word(part).fetch_or(bit(part)) & bit(part)) != 0) {
      self.unexpected_.store(part == kNone ? self.count_ : part);
      return;
    }
    run_caught(self.task_, self.first_ + part, self.error_);
  }

  [[noreturn]] void refuse(int part, const char* how_often) const {
    phasor::refuse(ErrorCode::internal,
                   message("run_parts: the parallel-for must call each of ", count_,
                           " parts once; part ", part, " was called ", how_often));
  }

  std::atomic<std::uint64_t>& word(int part) {
    return called_[static_cast<std::size_t>(part / 64)];
  }
  static std::uint64_t bit(int part) { return std::uint64_t{1} << (part % 64); }

  const Task& task_;
  int first_, count_;
  FirstError& error_;
  std::array<std::atomic<std::uint64_t>, kMostParts / 64> called_{};
  std::atomic<int> unexpected_{kNone};  // called twice, or no part at all
};

void run_handed_out(const ParallelFor& parallel_for, const Task& task) {
  FirstError error;
  for (int first = 0; first < task.parts; first += HandedOut::kMostParts) {
    const int count = std::min(HandedOut::kMostParts, task.parts - first);
    HandedOut(task, first, count, error).run(parallel_for);
  }
  rethrow(error.take());
}

// Every parallel-for that was ever set: a call under way may still read one that was replaced.
struct Given {
  ParallelFor parallel_for;
  std::unique_ptr<Given> before;
};
std::atomic<const Given*> g_given{nullptr};  // null: the pool

const ParallelFor* given_parallel_for() noexcept {
  const Given* const given = g_given.load(std::memory_order_acquire);
  return given == nullptr ? nullptr : &given->parallel_for;
}

}  // namespace

int available_threads() noexcept {
  if (const ParallelFor* given = given_parallel_for(); given != nullptr && given->threads > 0)
    return given->threads;
  try {
    static const int count = count_cpus({});
    return count;
  } catch (const std::exception&) {  // out of memory; the next call tries again
    return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  }
}

void run_parts(int parts, void (*task)(void* context, int part, int parts), void* context) {
  throw_if_cancelled();
  if (parts <= 1) return task(context, 0, 1);
  const Task all{task, context, parts, AdoptedScope::current()};
  if (const ParallelFor* given = given_parallel_for()) return run_handed_out(*given, all);
  pool().run(all);
}

void set_parallel_for(const ParallelFor* parallel_for) {
  if (parallel_for == nullptr) return g_given.store(nullptr, std::memory_order_release);
  if (parallel_for->run == nullptr) {
    refuse("set_parallel_for: run must be a function, got null");
  }
  if (parallel_for->threads < 0) {
    refuse(message("set_parallel_for: threads must not be negative, got ", parallel_for->threads));
  }
  static std::mutex mutex;
  static auto* const all = new std::unique_ptr<Given>;  // calls of static destructors read it too
  const std::lock_guard lock(mutex);
  for (const Given* given = all->get(); given != nullptr; given = given->before.get()) {
    const ParallelFor& known = given->parallel_for;
    if (known.run == parallel_for->run && known.user == parallel_for->user &&
        known.threads == parallel_for->threads) {
      return g_given.store(given, std::memory_order_release);
    }
  }
  auto given = std::make_unique<Given>(Given{*parallel_for, nullptr});
  given->before = std::move(*all);
  *all = std::move(given);
  g_given.store(all->get(), std::memory_order_release);
}

}  // namespace phasor::core
