#include "phasor/core/threads.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace phasor::core {
namespace {

constexpr int kSpins = 2000;  // a few microseconds: longer would take time from other programs

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

struct Job {
  void (*task)(void*, int, int) = nullptr;
  void* context = nullptr;
  int part = 0;
  int parts = 0;
  std::atomic<int>* pending = nullptr;
};

// A thread with a slot for one job. It spins for the next job, which makes fork and join cost about
// a microsecond, then sleeps.
class Worker {
 public:
  Worker() {
    // Detached and never destroyed: it must outlive every caller, static destructors included.
    std::thread([this] { serve(); }).detach();
  }
  void give(const Job& job) {
    job_ = job;
    {
      const std::lock_guard lock(
          mutex_);  // a worker about to sleep sees the count or gets the wake-up
      given_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_one();
  }

 private:
  [[noreturn]] void serve() {
    for (std::uint64_t done = 0;; ++done) {
      const auto waiting = [&] { return given_.load(std::memory_order_acquire) == done; };
      for (int spin = 0; spin < kSpins && waiting(); ++spin) relax();
      if (waiting()) {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return !waiting(); });
      }
      const Job job = job_;
      job.task(job.context, job.part, job.parts);
      job.pending->fetch_sub(1, std::memory_order_release);
    }
  }

  Job job_;
  std::atomic<std::uint64_t> given_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
};

class Pool {
 public:
  [[nodiscard]] bool belongs_to_this_process() const { return process_ == getpid(); }

  void run(int parts, void (*task)(void*, int, int), void* context) {
    parts = 1 + grow(parts - 1);
    std::atomic<int> pending{parts - 1};
    for (int part = 1; part < parts; ++part)
      workers_[part - 1]->give({task, context, part, parts, &pending});
    task(context, 0, parts);
    for (int spin = 0; pending.load(std::memory_order_acquire) != 0; ++spin) {
      spin < kSpins ? relax() : std::this_thread::yield();
    }
  }

 private:
  // Starts workers until there are `wanted`; fewer when the machine will not start more.
  int grow(int wanted) {
    while (static_cast<int>(workers_.size()) < wanted) {
      try {
        workers_.push_back(std::make_unique<Worker>());
      } catch (const std::system_error&) {
        break;
      }
    }
    return std::min(wanted, static_cast<int>(workers_.size()));
  }

  const pid_t process_ = getpid();
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace

int available_threads() noexcept {
  static const int count = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return count;
}

void run_parts(int parts, void (*task)(void* context, int part, int parts), void* context) {
  if (parts > 1) {
    static std::mutex one_caller;
    static Pool* pool = nullptr;  // never deleted: its threads may run until the process ends
    const std::unique_lock lock(one_caller, std::try_to_lock);
    if (lock.owns_lock()) {
      // After fork() the workers exist in the parent alone.
      if (pool == nullptr || !pool->belongs_to_this_process()) pool = new Pool;
      pool->run(parts, task, context);
      return;
    }
  }
  task(context, 0, 1);
}

}  // namespace phasor::core
