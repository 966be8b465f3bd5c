// What a call must not do: allocate, or start threads for small work. A program of its own, since
// it counts every allocation and thread of the process.
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <vector>

#include "phasor/core/cpu.hpp"
#include "phasor/core/rotate.hpp"
#include "support/allocations.hpp"

namespace phasor::core {
namespace {

std::ptrdiff_t threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

Rotary plain() { return {make_frequencies({128, 10000.0}), PairLayout::half, 128}; }
CosSinTable table_of(const Rotary& rotary) {
  return CosSinTable::build(rotary.frequencies, {0, 4096}, AngleMode::exact, 1);
}

TEST(Calls, SmallWorkStartsNoThread) {
  const Rotary half = plain();
  const CosSinTable table = table_of(half);
  std::vector<float> q(32 * 128), k(8 * 128);
  ASSERT_EQ(threads_of_this_process(), 1);
  rotate_qk(half, positions_from(7), heads_view(q.data(), 1, 1, 32, 128),
            heads_view(k.data(), 1, 1, 8, 128));
  rotate_qk(half, positions_from(7), heads_view(q.data(), 1, 1, 32, 128),
            heads_view(k.data(), 1, 1, 8, 128), {.table = &table, .threads = 16});
  EXPECT_EQ(threads_of_this_process(), 1);
}

TEST(Calls, LargeWorkKeepsToTheThreadsItIsGiven) {
  const Rotary half = plain();
  std::vector<float> x(static_cast<std::size_t>(1024) * 32 * 128);
  const HeadsView view = heads_view(x.data(), 1, 1024, 32, 128);
  rotate(half, positions_from(0), view, {.threads = 1});
  EXPECT_EQ(threads_of_this_process(), 1);
  rotate(half, positions_from(0), view, {.threads = 2});
  EXPECT_EQ(threads_of_this_process(), 2) << "the caller is one of them";
  rotate(half, positions_from(0), view, {.threads = 1});
  EXPECT_EQ(threads_of_this_process(), 2) << "threads are kept for the next call";
  rotate(half, positions_from(0), view, {.threads = 1000});
  EXPECT_LE(threads_of_this_process(), 1 + available_threads()) << "no more than there are CPUs";
}

TEST(Calls, DoNotAllocate) {
  const Rotary half = plain();
  const CosSinTable table = table_of(half);
  Rotary growing = half;
  growing.growth = Growth{std::vector<double>(64, 1e-3), 0.0};
  Rotary across = half;
  across.layout = PairLayout::interleaved_to_half;
  std::vector<float> x(static_cast<std::size_t>(1024) * 32 * 128), y(x.size());
  std::vector<double> wide(static_cast<std::size_t>(8) * 32 * 128);
  std::vector<std::int64_t> ids(1024, 5);
  const HeadsView large = heads_view(x.data(), 1, 1024, 32, 128),
                  out = heads_view(y.data(), 1, 1024, 32, 128);
  const auto calls = [&] {
    for (const Direction direction :
         {Direction::forward, Direction::transpose, Direction::inverse}) {
      rotate(half, positions_from(0), large, {.direction = direction, .table = &table});
      rotate(half, positions_per_token(ids), large, out, {.direction = direction});
      rotate(across, positions_from(0), large, {.direction = direction});
      rotate(growing, positions_from(0), large, {.direction = direction});
      rotate(half, positions_from(0), large,
             {.direction = direction, .angles = AngleMode::float32});
      rotate(half, positions_from(0), heads_view(wide.data(), 1, 8, 32, 128),
             {.direction = direction});
      if (direction == Direction::inverse) continue;
      const Rotation in_place{large, large};
      rotate_by({.cos = table.cos(0).data(),
                 .sin = table.sin(0).data(),
                 .pairs = 64,
                 .token_stride = 128},
                PairLayout::half, 0, {&in_place, 1}, {.direction = direction});
    }
    rotate(half, positions_from(0), heads_first_view(x.data(), 1, 32, 1024, 128));
  };
  // The first rounds start the threads, and each thread takes memory of its own in the first call
  // that it has a part of, which need not be the first round.
  std::int64_t allocations = 1;
  for (int round = 0; round < 50 && allocations != 0; ++round) {
    const std::int64_t before = test::allocation_count();
    calls();
    allocations = test::allocation_count() - before;
  }
  EXPECT_EQ(allocations, 0);
}

TEST(Calls, ForkAndJoinDoesNotAllocate) {
  const auto nothing = [](void*, int, int) {};
  run_parts(4, nothing, nullptr);  // starts the threads
  const std::int64_t before = test::allocation_count();
  for (int round = 0; round < 100; ++round) run_parts(4, nothing, nullptr);
  EXPECT_EQ(test::allocation_count(), before);
}

}  // namespace
}  // namespace phasor::core
