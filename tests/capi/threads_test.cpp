// Threads in phasor.h, cancellation across them, and memory that runs out on any of them: a status, never the end of the
// process. A program of its own, since it replaces operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "phasor/phasor.h"
#include "support/allocations.hpp"

namespace {

constexpr std::int64_t kTokens = 100, kHeads = 4, kDim = 16;

// Attention with a rope, by two threads.
class CapiThreads : public ::testing::Test {
 protected:
  CapiThreads()
      : q_(numbers(1)), k_(numbers(2)), v_(numbers(3)), out_(q_.size()), expected_(q_.size()) {
    EXPECT_EQ(phasor_encoding_parse(R"({"encoding": "rope", "head_dim": 16, "layout": "half"})",
                                    nullptr, &encoding_),
              PHASOR_OK)
        << phasor_last_error();
    EXPECT_EQ(attend(expected_, 1), PHASOR_OK) << phasor_last_error();
  }
  ~CapiThreads() override {
    phasor_set_parallel_for(nullptr);
    phasor_encoding_destroy(encoding_);
  }

  phasor_status attend(std::vector<float>& out, std::int32_t threads) {
    const auto view = [](std::vector<float>& x) {
      return phasor_dense_heads(x.data(), PHASOR_F32, 1, kTokens, kHeads, kDim);
    };
    const phasor_heads q = view(q_), k = view(k_), v = view(v_), to = view(out);
    phasor_attend_options options{};
    options.struct_size = sizeof(options);
    options.threads = threads;
    return phasor_attend(encoding_, &q, &k, &v, &to, &options);
  }

  std::vector<float> q_, k_, v_, out_, expected_;

 private:
  static std::vector<float> numbers(int seed) {
    std::vector<float> x(static_cast<std::size_t>(kTokens * kHeads * kDim));
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] =
          static_cast<float>((i * 37 + static_cast<std::size_t>(seed) * 11) % 101) / 50.0F - 1.0F;
    return x;
  }
  phasor_encoding* encoding_ = nullptr;
};

TEST_F(CapiThreads, MemoryThatRunsOutIsAStatus) {
  phasor_status status = PHASOR_OK;
  const std::int64_t refused = phasor::test::fail_each_allocation(
      [&] { status = attend(out_, 2); },
      [&](std::int64_t index) {
        if (status == PHASOR_OK) {
          EXPECT_EQ(out_, expected_) << "allocation " << index << " was refused";
        } else {
          EXPECT_EQ(status, PHASOR_INTERNAL);
          EXPECT_NE(std::string_view(phasor_last_error()).find("memory"), std::string_view::npos)
              << phasor_last_error();
        }
        EXPECT_EQ(attend(out_, 2), PHASOR_OK) << "after allocation " << index;
        EXPECT_EQ(out_, expected_) << "after allocation " << index;
      });
  EXPECT_GT(refused, 0);
}

using Task = void (*)(void*, std::int32_t, std::int32_t);

TEST_F(CapiThreads, AParallelForOfTheProgramRunsTheParts) {
  std::atomic<int> calls{0};
  phasor_parallel_for parallel_for{};
  parallel_for.struct_size = sizeof(parallel_for);
  parallel_for.threads = 2;
  parallel_for.user = &calls;
  parallel_for.run = [](void* user, std::int32_t parts, Task task, void* context) {
    static_cast<std::atomic<int>*>(user)->fetch_add(1);
    for (std::int32_t part = parts; part-- > 0;) task(context, part, parts);
  };
  const std::int32_t own = phasor_available_threads();
  EXPECT_GE(own, 1);
  ASSERT_EQ(phasor_set_parallel_for(&parallel_for), PHASOR_OK) << phasor_last_error();
  EXPECT_EQ(phasor_available_threads(), 2);
  EXPECT_EQ(attend(out_, 0), PHASOR_OK) << phasor_last_error();
  EXPECT_EQ(out_, expected_);
  EXPECT_GT(calls.load(), 0);

  parallel_for.run = [](void*, std::int32_t parts, Task task, void* context) {
    task(context, 0, parts);
  };
  ASSERT_EQ(phasor_set_parallel_for(&parallel_for), PHASOR_OK) << phasor_last_error();
  EXPECT_EQ(attend(out_, 0), PHASOR_INTERNAL);
  EXPECT_NE(std::string_view(phasor_last_error()).find("part 1"), std::string_view::npos)
      << phasor_last_error();

  ASSERT_EQ(phasor_set_parallel_for(nullptr), PHASOR_OK);
  EXPECT_EQ(phasor_available_threads(), own);
  EXPECT_EQ(attend(out_, 2), PHASOR_OK);
  EXPECT_EQ(out_, expected_);
}

// The request comes between two parts: those after it are not computed.
TEST_F(CapiThreads, ACancelledCallStopsBetweenItsParts) {
  phasor_cancellation* stop = nullptr;
  ASSERT_EQ(phasor_cancellation_create(&stop), PHASOR_OK);
  phasor_parallel_for parallel_for{};
  parallel_for.struct_size = sizeof(parallel_for);
  parallel_for.threads = 4;
  parallel_for.user = stop;
  parallel_for.run = [](void* user, std::int32_t parts, Task task, void* context) {
    for (std::int32_t part = 0; part < parts; ++part) {
      task(context, part, parts);
      phasor_cancellation_request(static_cast<phasor_cancellation*>(user));
    }
  };
  ASSERT_EQ(phasor_set_parallel_for(&parallel_for), PHASOR_OK) << phasor_last_error();
  EXPECT_EQ(attend(out_, 0), PHASOR_OK) << "it is not watched";
  EXPECT_EQ(out_, expected_);
  phasor_cancellation_reset(stop);
  phasor_set_cancellation(stop);
  EXPECT_EQ(attend(out_, 0), PHASOR_CANCELLED);
  EXPECT_EQ(attend(out_, 0), PHASOR_CANCELLED) << "until it is reset";
  ASSERT_EQ(phasor_set_parallel_for(nullptr), PHASOR_OK) << phasor_last_error();
  phasor_cancellation_reset(stop);
  EXPECT_EQ(attend(out_, 2), PHASOR_OK) << phasor_last_error();
  EXPECT_EQ(out_, expected_);
  phasor_cancellation_destroy(stop);
}

TEST_F(CapiThreads, AParallelForIsChecked) {
  phasor_parallel_for parallel_for{};
  EXPECT_EQ(phasor_set_parallel_for(&parallel_for), PHASOR_INVALID_ARGUMENT) << "struct_size 0";
  parallel_for.struct_size = sizeof(parallel_for);
  EXPECT_EQ(phasor_set_parallel_for(&parallel_for), PHASOR_INVALID_ARGUMENT) << "run is NULL";
  parallel_for.run = [](void*, std::int32_t, Task, void*) {};
  parallel_for.threads = -1;
  EXPECT_EQ(phasor_set_parallel_for(&parallel_for), PHASOR_INVALID_ARGUMENT) << "threads -1";
}

}  // namespace
