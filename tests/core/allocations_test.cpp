// Memory that runs out in the n-th allocation of a call, for every n, on whichever thread: the
// caller gets std::bad_alloc or the right result, and the next call works. A program of its own,
// since it replaces operator new.
#include <gtest/gtest.h>

#include <cstddef>
#include <new>
#include <vector>

#include "core/rotate/rotate_support.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/rotate.hpp"
#include "support/allocations.hpp"

namespace phasor::core {
namespace {

using tests::Shape;
using tests::Strides;
using tests::Tensor;

// Refuses each allocation of call(out) one by one. `out` holds the expected bytes afterwards, and
// whenever the call did not throw; then a call that nothing is refused to does, too.
template <class Call>
void expect_to_live_on(const Tensor& fresh, const std::vector<std::byte>& expected,
                       const Call& call) {
  Tensor out = fresh;
  bool has_result = false;
  test::fail_each_allocation(
      [&] {
        try {
          call(out);
          has_result = true;
        } catch (const std::bad_alloc&) {
          has_result = false;
        }
      },
      [&](std::int64_t index) {
        if (has_result) {
          EXPECT_EQ(out.bytes(), expected) << "allocation " << index << " was refused";
        }
        Tensor again = fresh;
        call(again);
        EXPECT_EQ(again.bytes(), expected) << "after allocation " << index << " was refused";
      });
}

// Enough for two threads in every type.
constexpr Shape kShape{2, 300, 8, 64};

Rotary rotary_of(PairLayout layout) {
  return {make_frequencies({kShape.head_dim, 10000.0}), layout, kShape.head_dim};
}

// Before anything else has started the threads: they cannot be started for lack of memory.
TEST(Allocations, WithoutMemoryForThreadsTheCallerRunsAllParts) {
  struct Counts {
    int runs[3] = {};
  };
  const test::FailingAllocation failing(0);
  Counts counts;
  run_parts(
      3,
      [](void* context, int part, int parts) {
        if (parts == 3) ++static_cast<Counts*>(context)->runs[part];
      },
      &counts);
  EXPECT_TRUE(test::FailingAllocation::has_failed()) << "no thread was to be started";
  for (const int runs : counts.runs) EXPECT_EQ(runs, 1);
}

TEST(Allocations, OfRotate) {
  const std::vector<std::int64_t> ids(static_cast<std::size_t>(kShape.tokens), 17);
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    for (const Strides strides : {Strides::dense, Strides::heads_first}) {
      for (const PairLayout layout : {PairLayout::half, PairLayout::interleaved}) {
        const Rotary rotary = rotary_of(layout);
        const Tensor fresh(dtype, kShape, strides, 5);
        const auto call = [&](Tensor& x, int threads) {
          rotate(rotary, positions_per_token(ids), fresh.view(), x.view(), {.threads = threads});
        };
        Tensor expected = fresh;
        call(expected, 1);
        for (const int threads : {1, 2})
          expect_to_live_on(fresh, expected.bytes(), [&](Tensor& x) { call(x, threads); });
      }
    }
  }
}

TEST(Allocations, OfATable) {
  const Rotary rotary = rotary_of(PairLayout::half);
  const Tensor fresh(DType::f32, kShape, Strides::dense, 6);
  Tensor expected = fresh;
  rotate(rotary, positions_from(3), expected.view(), {.threads = 1});
  for (const int threads : {1, 2}) {
    expect_to_live_on(fresh, expected.bytes(), [&](Tensor& x) {
      const CosSinTable table =
          CosSinTable::build(rotary.frequencies, {0, 4096}, AngleMode::exact, threads);
      rotate(rotary, positions_from(3), fresh.view(), x.view(),
             {.table = &table, .threads = threads});
    });
  }
}

TEST(Allocations, OfRotateBy) {
  const std::size_t pairs = static_cast<std::size_t>(kShape.head_dim / 2);
  const std::vector<float> cos(pairs, 0.6F), sin(pairs, 0.8F);
  const CosSinRows rows{
      .cos = cos.data(), .sin = sin.data(), .dtype = DType::f32, .pairs = kShape.head_dim / 2};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor fresh(dtype, kShape, Strides::dense, 7);
    const auto call = [&](Tensor& x, int threads) {
      const Rotation rotation{fresh.view(), x.view()};
      rotate_by(rows, PairLayout::half, 0, {&rotation, 1}, {.threads = threads});
    };
    Tensor expected = fresh;
    call(expected, 1);
    for (const int threads : {1, 2})
      expect_to_live_on(fresh, expected.bytes(), [&](Tensor& x) { call(x, threads); });
  }
}

}  // namespace
}  // namespace phasor::core
