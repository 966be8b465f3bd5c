#include "phasor/core/cancellation.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include "phasor/core/cpu.hpp"
#include "phasor/core/rotate.hpp"
#include "support/cancellation.hpp"
#include "support/errors.hpp"

namespace phasor::core {
namespace {

using phasor::tests::expect_error;

constexpr ErrorCode kCancelled = ErrorCode::cancelled;

TEST(Cancellation, IsSeenInItsScopeOnly) {
  Cancellation request;
  EXPECT_FALSE(is_cancelled());
  request.request();
  EXPECT_FALSE(is_cancelled());
  {
    const CancellationScope scope(&request);
    EXPECT_TRUE(is_cancelled());
    expect_error(kCancelled, {}, [] { throw_if_cancelled(); });
    {
      const CancellationScope finishes(nullptr);
      EXPECT_FALSE(is_cancelled());
    }
    EXPECT_TRUE(is_cancelled());
    std::thread([] { EXPECT_FALSE(is_cancelled()); }).join();
  }
  EXPECT_FALSE(is_cancelled());
  throw_if_cancelled();
}

// A part that has ended early must fail its call, so the scope remembers.
TEST(Cancellation, ThatWasSeenIsNotTakenBack) {
  Cancellation request;
  const CancellationScope scope(&request);
  EXPECT_FALSE(is_cancelled());
  request.request();
  EXPECT_TRUE(is_cancelled());
  request.reset();
  EXPECT_FALSE(request.requested());
  EXPECT_TRUE(is_cancelled());
  const CancellationScope next(&request);
  EXPECT_FALSE(is_cancelled());
}

TEST(Cancellation, CanBeRequestedByASignalHandler) {
  static Cancellation request;
  const CancellationScope scope(&request);
  auto* const before = std::signal(SIGUSR1, [](int) { request.request(); });
  EXPECT_FALSE(is_cancelled());
  EXPECT_EQ(std::raise(SIGUSR1), 0);
  EXPECT_TRUE(is_cancelled());
  std::signal(SIGUSR1, before);
}

struct Parts {
  Cancellation request;
  int last = 0;  // the part that asks to stop
  std::atomic<int> called{0};

  static void run(void* context, int part, int) {
    auto& self = *static_cast<Parts*>(context);
    self.called.fetch_add(1);
    if (part == self.last) self.request.request();
  }
};

// One part after the other, on the calling thread.
void in_order(void*, int parts, void (*task)(void*, int, int), void* context) {
  for (int part = 0; part < parts; ++part) task(context, part, parts);
}

class CancelledParts : public ::testing::Test {
 protected:
  ~CancelledParts() override { set_parallel_for(nullptr); }
};

TEST_F(CancelledParts, AreNotCalledAfterTheRequest) {
  const ParallelFor sequential{&in_order, nullptr, 1};
  set_parallel_for(&sequential);
  for (const int last : {0, 3, 7}) {
    Parts parts;
    parts.last = last;
    const CancellationScope scope(&parts.request);
    if (last == 7) {
      run_parts(8, Parts::run, &parts);  // the last part: nothing was left to cancel
    } else {
      expect_error(kCancelled, {}, [&] { run_parts(8, Parts::run, &parts); });
    }
    EXPECT_EQ(parts.called.load(), last + 1);
    expect_error(kCancelled, {}, [&] { run_parts(1, Parts::run, &parts); });
    EXPECT_EQ(parts.called.load(), last + 1);
  }
}

// Only a request that reaches every thread ends this.
TEST_F(CancelledParts, SeeItOnEveryThread) {
  Cancellation request;
  std::atomic<int> begun{0};
  std::thread other([&] {
    while (begun.load() == 0) std::this_thread::yield();
    request.request();
  });
  const CancellationScope scope(&request);
  expect_error(kCancelled, {}, [&] {
    run_parts(
        4,
        [](void* context, int, int) {
          static_cast<std::atomic<int>*>(context)->fetch_add(1);
          while (!is_cancelled()) std::this_thread::yield();
          throw_if_cancelled();
        },
        &begun);
  });
  other.join();
}

struct Asked {
  std::vector<std::thread::id> by;
  int stop_at = 0;

  static bool stop(void* self) {
    auto& asked = *static_cast<Asked*>(self);
    asked.by.push_back(std::this_thread::get_id());
    return static_cast<int>(asked.by.size()) >= asked.stop_at;
  }
};

TEST_F(CancelledParts, ArePolledForByTheirCaller) {
  Asked asked;
  asked.stop_at = 100;
  const CancellationScope scope(nullptr, {&Asked::stop, &asked, std::chrono::milliseconds(0)});
  expect_error(kCancelled, {}, [&] {
    run_parts(
        2,
        [](void*, int, int) {
          while (!is_cancelled()) std::this_thread::yield();
          throw_if_cancelled();
        },
        nullptr);
  });
  EXPECT_EQ(asked.by, std::vector(100, std::this_thread::get_id()));
}

// The caller's own part is over at once. A worker has the other one, or the caller takes it.
TEST_F(CancelledParts, ArePolledForWhileTheCallerWaits) {
  Asked asked;
  asked.stop_at = 2;
  const CancellationScope scope(nullptr, {&Asked::stop, &asked});
  expect_error(kCancelled, {}, [&] {
    run_parts(
        2,
        [](void*, int part, int) {
          while (part == 1 && !is_cancelled()) std::this_thread::yield();
          throw_if_cancelled();
        },
        nullptr);
  });
  EXPECT_EQ(asked.by, std::vector(2, std::this_thread::get_id()));
}

// 1000 tokens: what follows the look that cancels is not rotated.
TEST(CancelledRotation, StopsWithinSomeTokens) {
  constexpr std::int64_t kTokens = 1000, kDim = 8;
  const Rotary rotary{Frequencies({1.0, 0.5, 0.25, 0.125}), PairLayout::half, kDim};
  const std::vector<float> in(static_cast<std::size_t>(kTokens * kDim), 1.0F);
  std::vector<float> out(in.size());
  const auto view = [](auto& x) { return heads_view(x.data(), 1, kTokens, 1, kDim); };
  std::int64_t written_before = -1;
  const std::int64_t looks = test::cancel_at_each_look(
      [&] {
        std::fill(out.begin(), out.end(), 0.0F);
        (void)test::runs_to_its_end(
            [&] { rotate(rotary, positions_from(0), view(in), view(out), {.threads = 1}); });
      },
      [&](std::int64_t index) {
        const auto untouched = std::find(out.begin(), out.end(), 0.0F);
        const std::int64_t written = (untouched - out.begin()) / kDim;
        EXPECT_LE(written, index * 64);
        EXPECT_GT(written, written_before) << index;
        EXPECT_TRUE(std::all_of(untouched, out.end(), [](float x) { return x == 0.0F; }));
        written_before = written;
      });
  EXPECT_EQ(looks, 1 + (kTokens - 1) / 64);
  EXPECT_EQ(std::count(out.begin(), out.end(), 0.0F), 0);
}

TEST(CancelledTable, IsNotMade) {
  const Frequencies frequencies({1.0, 0.5});
  EXPECT_GT(test::cancel_at_each_look(
                [&] {
                  (void)test::runs_to_its_end([&] {
                    (void)CosSinTable::build(frequencies, {0, 5000}, AngleMode::exact, 1);
                  });
                },
                [](std::int64_t) {}),
            4);
}

}  // namespace
}  // namespace phasor::core
