// Values that a thread keeps.
#include "phasor/core/internal/per_thread.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace phasor::core {
namespace {

std::atomic<int> g_alive{0};

struct First {
  First() noexcept { ++g_alive; }
  ~First() { --g_alive; }
  int number = 0;
};
struct Second : First {};

TEST(PerThread, KeepsAValueForEachThreadAndType) {
  per_thread<First>()->number = 1;
  per_thread<Second>()->number = 2;
  EXPECT_EQ(g_alive, 2);
  std::thread([] {
    EXPECT_EQ(per_thread<First>()->number, 0);
    EXPECT_EQ(per_thread<Second>()->number, 0);
    per_thread<First>()->number = 3;
    EXPECT_EQ(per_thread<First>()->number, 3);
    EXPECT_EQ(g_alive, 4);
  }).join();
  EXPECT_EQ(g_alive, 2);  // those of the thread ended with it
  EXPECT_EQ(per_thread<First>()->number, 1);
  EXPECT_EQ(per_thread<Second>()->number, 2);
}

}  // namespace
}  // namespace phasor::core
