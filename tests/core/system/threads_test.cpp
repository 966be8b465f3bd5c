#include "phasor/core/cpu.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <bit>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "phasor/core/error.hpp"
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
      ASSERT_EQ(counters.parts.load(), parts);
      for (int part = 0; part < 16; ++part) {
        ASSERT_EQ(counters.runs[static_cast<std::size_t>(part)].load(), part < parts ? 1 : 0);
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
        for (int part = 0; part < 3; ++part) {
          if (counters.runs[static_cast<std::size_t>(part)].load() != 1) wrong.fetch_add(1);
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong.load(), 0);
}

// Two callers stay in part 0 until the other parts of both have begun, which only other threads can
// do: neither runs all its parts alone.
TEST(Threads, TwoCallersAtOnceBothGetHelp) {
  struct Shared {
    std::atomic<int> begun{0};
    std::barrier<> both_inside{2};
  };
  for (int round = 0; round < 50; ++round) {
    Shared shared;
    const auto call = [&shared] {
      run_parts(
          2,
          [](void* context, int part, int) {
            auto& s = *static_cast<Shared*>(context);
            if (part == 1) {
              s.begun.fetch_add(1);
              s.begun.notify_all();
              return;
            }
            s.both_inside.arrive_and_wait();
            for (int begun = s.begun.load(); begun != 2; begun = s.begun.load())
              s.begun.wait(begun);
          },
          &shared);
    };
    std::thread other(call);
    call();
    other.join();
    EXPECT_EQ(shared.begun.load(), 2);
  }
}

// What each part of a task that fails does, and what was seen of it.
struct Failing {
  std::uint32_t throws = 0;  // a bit for each part
  std::atomic<std::uint32_t> ran{0};
};
void fail_some(void* context, int part, int) {
  auto& failing = *static_cast<Failing*>(context);
  failing.ran.fetch_or(1U << part);
  if ((failing.throws >> part & 1U) != 0) throw std::runtime_error(std::to_string(part));
}
std::string what_is_thrown(Failing& failing, int parts) {
  try {
    run_parts(parts, fail_some, &failing);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(Threads, TheExceptionOfTheLowestPartReachesTheCallerAfterAllParts) {
  for (const int parts : {1, 2, 4}) {
    for (std::uint32_t throws = 0; throws < 1U << parts; ++throws) {
      for (int round = 0; round < 20; ++round) {
        Failing failing{throws, {}};
        const std::string expected = throws == 0 ? "" : std::to_string(std::countr_zero(throws));
        ASSERT_EQ(what_is_thrown(failing, parts), expected) << parts << " parts, " << throws;
        ASSERT_EQ(failing.ran.load(), (1U << parts) - 1) << parts << " parts, " << throws;
      }
    }
  }
  Counters counters;
  run_parts(3, count, &counters);
  EXPECT_EQ(counters.runs[2].load(), 1) << "a call after failed ones";
}

TEST(Threads, CallersWithFailingPartsGetTheirOwnException) {
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (std::uint32_t caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&wrong, caller] {
      for (int round = 0; round < 200; ++round) {
        Failing failing{1U << caller, {}};
        if (what_is_thrown(failing, 5) != std::to_string(caller)) wrong.fetch_add(1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong.load(), 0);
}

// A task that calls run_parts, `depth` times over.
struct Nested {
  int depth = 0;
  int parts = 0;
  std::atomic<int>* leaves = nullptr;
};
void nest(void* context, int part, int) {
  const auto& outer = *static_cast<const Nested*>(context);
  if (outer.depth == 0) {
    outer.leaves->fetch_add(1);
    return;
  }
  // Only part 0 recurses: with every part there would be too many calls.
  if (outer.parts == 2 && part != 0) return;
  Nested inner{outer.depth - 1, outer.parts, outer.leaves};
  run_parts(outer.parts, nest, &inner);
}

TEST(Threads, ATaskMayCallRunParts) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> leaves{0};
    Nested nested{3, 3, &leaves};
    run_parts(3, nest, &nested);
    ASSERT_EQ(leaves.load(), 81);
  }
}

TEST(Threads, MoreCallsAtOnceThanThePoolHasPlacesFor) {
  std::atomic<int> leaves{0};
  Nested nested{100, 2, &leaves};
  run_parts(2, nest, &nested);
  EXPECT_EQ(leaves.load(), 2);
}

TEST(Threads, AnExceptionPassesThroughNestedCalls) {
  const auto outer = [](void* context, int part, int) {
    Failing& failing = *static_cast<Failing*>(context);
    if (part == 1) run_parts(3, fail_some, &failing);
  };
  Failing failing{0b110, {}};
  EXPECT_THROW(run_parts(2, outer, &failing), std::runtime_error);
  EXPECT_EQ(failing.ran.load(), 0b111U);
}

// Large enough for several threads.
constexpr std::int64_t kTokens = 600, kHeads = 8, kDim = 64;

std::vector<float> rotated(const CosSinTable& table, const Rotary& rotary, int threads) {
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
  const std::vector<float> expected = rotated(table, rotary, 1);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 5; ++round) {
        if (rotated(table, rotary, caller + 1) != expected) wrong.fetch_add(1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong.load(), 0);
}

// A parallel-for of the program, while it lives.
class Handed {
 public:
  using Run = decltype(ParallelFor::run);
  explicit Handed(Run run, int threads = 0) {
    const ParallelFor parallel_for{run, &calls_, threads};
    set_parallel_for(&parallel_for);
  }
  ~Handed() { set_parallel_for(nullptr); }
  Handed(const Handed&) = delete;
  Handed& operator=(const Handed&) = delete;
  [[nodiscard]] int calls() const { return calls_.load(); }
  static void count(void* user) { static_cast<std::atomic<int>*>(user)->fetch_add(1); }

 private:
  std::atomic<int> calls_{0};
};
using PartTask = void (*)(void*, int, int);

void run_in_order(void* user, int parts, PartTask task, void* context) {
  Handed::count(user);
  for (int part = 0; part < parts; ++part) task(context, part, parts);
}
void run_in_reverse(void* user, int parts, PartTask task, void* context) {
  Handed::count(user);
  for (int part = parts; part-- > 0;) task(context, part, parts);
}
void run_on_own_threads(void* user, int parts, PartTask task, void* context) {
  Handed::count(user);
  std::vector<std::thread> threads;
  for (int part = 0; part < parts; ++part) threads.emplace_back(task, context, part, parts);
  for (std::thread& thread : threads) thread.join();
}

TEST(Threads, AParallelForOfTheProgramRunsTheParts) {
  for (const Handed::Run run : {run_in_order, run_in_reverse, run_on_own_threads}) {
    const Handed handed(run);
    Counters counters;
    run_parts(7, count, &counters);
    EXPECT_EQ(handed.calls(), 1);
    EXPECT_EQ(counters.parts.load(), 7);
    for (std::size_t part = 0; part < 16; ++part)
      EXPECT_EQ(counters.runs[part].load(), part < 7 ? 1 : 0);
    run_parts(1, count, &counters);
    EXPECT_EQ(handed.calls(), 1) << "one part needs no parallel-for";
    Failing failing{0b1010, {}};
    EXPECT_EQ(what_is_thrown(failing, 4), "1");
    EXPECT_EQ(failing.ran.load(), 0b1111U);
    std::atomic<int> leaves{0};
    Nested nested{2, 3, &leaves};
    run_parts(3, nest, &nested);
    EXPECT_EQ(leaves.load(), 27);
  }
}

TEST(Threads, AParallelForGetsManyPartsInSeveralCalls) {
  const Handed handed(run_in_reverse);
  struct Many {
    std::vector<int> runs = std::vector<int>(3000);
    bool told_all = true;
  } many;
  run_parts(
      3000,
      [](void* context, int part, int parts) {
        Many& m = *static_cast<Many*>(context);
        ++m.runs[static_cast<std::size_t>(part)];
        m.told_all = m.told_all && parts == 3000;
      },
      &many);
  EXPECT_EQ(many.runs, std::vector<int>(3000, 1));
  EXPECT_TRUE(many.told_all);
}

TEST(Threads, AParallelForThatMissesOrRepeatsAPartIsAnInternalError) {
  const auto expect_refused = [](Handed::Run run, const char* part) {
    const Handed handed(run);
    Counters counters;
    try {
      run_parts(3, count, &counters);
      ADD_FAILURE() << "expected an Error for " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::internal);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
    for (const auto& runs : counters.runs) EXPECT_LE(runs.load(), 1);
  };
  expect_refused([](void*, int, PartTask, void*) {}, "part 0");
  expect_refused(
      [](void*, int parts, PartTask task, void* context) {
        for (int part = 0; part < parts - 1; ++part) task(context, part, parts);
      },
      "part 2");
  expect_refused(
      [](void*, int parts, PartTask task, void* context) {
        for (const int part : {0, 1, 1, 2}) task(context, part, parts);
      },
      "part 1");
  expect_refused(
      [](void*, int parts, PartTask task, void* context) {
        for (int part = 0; part <= parts; ++part) task(context, part, parts);
      },
      "part 3");
  Counters counters;
  run_parts(3, count, &counters);
  EXPECT_EQ(counters.runs[2].load(), 1) << "the own threads again";
}

TEST(Threads, AParallelForSaysHowManyThreadsThereAre) {
  const int own = available_threads();
  {
    const Handed handed(run_in_order, own + 5);
    EXPECT_EQ(available_threads(), own + 5);
  }
  {
    const Handed handed(run_in_order);
    EXPECT_EQ(available_threads(), own);
  }
  EXPECT_EQ(available_threads(), own);
}

TEST(Threads, AParallelForMustBeAFunctionWithThreads) {
  const auto code_of = [](const ParallelFor& parallel_for) {
    try {
      set_parallel_for(&parallel_for);
    } catch (const Error& error) {
      return error.code();
    }
    ADD_FAILURE() << "expected an Error";
    return ErrorCode::internal;
  };
  EXPECT_EQ(code_of({nullptr, nullptr, 2}), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of({run_in_order, nullptr, -1}), ErrorCode::invalid_argument);
}

// ThreadSanitizer and QEMU break off in the child of a process with threads.
#if !defined(__SANITIZE_THREAD__) && !defined(PHASOR_EMULATED)
TEST(Threads, WorkAfterForkInTheChildToo) {
  Counters warm;
  run_parts(2, count, &warm);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Counters counters;
    run_parts(2, count, &counters);
    _exit(counters.runs[0].load() == 1 && counters.runs[1].load() == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif

}  // namespace
}  // namespace phasor::core
