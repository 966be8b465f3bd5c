#include "phasor/core/threads.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "phasor/core/rotate.hpp"

namespace phasor::core {
namespace {

struct Counters {
  std::array<std::atomic<int>, 16> runs{};
  std::atomic<int> parts{0};
};
void count(void* context, int part, int parts) {
  auto& counters = *static_cast<Counters*>(context);
  counters.runs[static_cast<std::size_t>(part)].fetch_add(1);
  counters.parts.store(parts);
}

TEST(Threads, RunEachPartOnceAndWaitForAll) {
  for (int round = 0; round < 200; ++round) {
    for (const int parts : {1, 2, 3, 7}) {
      Counters counters;
      run_parts(parts, count, &counters);
      const int ran = counters.parts.load();
      EXPECT_GE(ran, 1);
      EXPECT_LE(ran, parts);
      for (int part = 0; part < 16; ++part) {
        ASSERT_EQ(counters.runs[static_cast<std::size_t>(part)].load(), part < ran ? 1 : 0);
      }
    }
  }
}

TEST(Threads, SeveralCallersGetTheirWorkDone) {
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&wrong] {
      for (int round = 0; round < 200; ++round) {
        Counters counters;
        run_parts(3, count, &counters);
        for (int part = 0; part < counters.parts.load(); ++part) {
          if (counters.runs[static_cast<std::size_t>(part)].load() != 1) wrong.fetch_add(1);
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong.load(), 0);
}

// Large enough for several threads.
constexpr std::int64_t kTokens = 600, kHeads = 8, kDim = 64;

std::vector<float> turned(const CosSinTable& table, const Rotary& rotary, int threads) {
  std::vector<float> x(static_cast<std::size_t>(kTokens * kHeads * kDim));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 97) - 48.0F;
  rotate(rotary, positions_from(3), heads_view(x.data(), 1, kTokens, kHeads, kDim),
         {.table = &table, .threads = threads});
  return x;
}

TEST(Threads, ATableIsSharedAndTheThreadCountDoesNotShowInTheResult) {
  const Frequencies frequencies = make_frequencies({kDim, 10000.0});
  const CosSinTable table = CosSinTable::build(frequencies, {0, 1000});
  const Rotary rotary{frequencies, PairLayout::half, kDim};
  const std::vector<float> expected = turned(table, rotary, 1);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 5; ++round) {
        if (turned(table, rotary, caller + 1) != expected) wrong.fetch_add(1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong.load(), 0);
}

#if !defined(__SANITIZE_THREAD__)
TEST(Threads, WorkAfterForkInTheChildToo) {
  Counters warm;
  run_parts(2, count, &warm);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Counters counters;
    run_parts(2, count, &counters);
    _exit(counters.runs[0].load() == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif

}  // namespace
}  // namespace phasor::core
