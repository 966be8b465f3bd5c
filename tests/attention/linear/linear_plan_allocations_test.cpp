// Runs of a LinearPlan allocate nothing. In a program that counts operator new.
#include <gtest/gtest.h>

#include "attention/linear/linear_support.hpp"
#include "support/allocations.hpp"

namespace phasor::attention::tests {
namespace {

TEST(LinearPlanAllocations, OfRunsAreNone) {
  for (const DType dtype : {DType::f32, DType::f16, DType::f64}) {
    for (const Rotating rotating : {Rotating::none, Rotating::half, Rotating::xpos}) {
      for (const Causality causality : kCausalities) {
        for (const int threads : {1, 2}) {
          // Enough work for two threads; 5000 tokens have more rows than a plan keeps.
          for (const std::int64_t tokens : {90, 5000}) {
            if (tokens == 5000 && (dtype != DType::f32 || rotating != Rotating::half)) continue;
            LinearProblem p({.rotating = rotating,
                             .causality = causality,
                             .heads = 4,
                             .key_heads = 2,
                             .queries = tokens,
                             .keys = tokens,
                             .head_dim = 160,
                             .value_dim = 40,
                             .dtype = dtype,
                             .key_dtype = dtype,
                             .ids = Ids::scattered});
            SCOPED_TRACE(testing::Message() << p.what << ", threads " << threads);
            p.options.threads = threads;
            LinearPlan plan(p.rotary, linear_sizes(p.q.view(), p.k.view(), p.v.view()), p.options,
                            LinearUse::training);
            Tensor out = p.new_out(), d_q = p.q, d_k = p.k, d_v = p.v;
            const auto run = [&] {
              plan.run(p.q.view(), p.k.view(), p.v.view(), out.view());
              plan.run_backward(p.q.view(), p.k.view(), p.v.view(), p.d_out.view(), d_q.view(),
                                d_k.view(), d_v.view());
            };
            if (threads > 1) run();  // starts the threads of the program
            const std::int64_t before = test::allocation_count();
            run();
            run();
            EXPECT_EQ(test::allocation_count(), before);
          }
        }
      }
    }
  }
}

TEST(LinearPlanAllocations, OfStepsAreNone) {
  for (const std::int64_t key_heads : {1, 4}) {
    for (const int threads : {1, 2}) {
      LinearProblem p({.features = FeatureMap::softmax_exp,
                       .heads = 4,
                       .key_heads = key_heads,
                       .queries = 90,
                       .keys = 90,
                       .head_dim = 64,
                       .value_dim = 64});
      p.options.threads = threads;
      LinearPlan plan(p.rotary, linear_sizes(p.q.view(), p.k.view(), p.v.view()), p.options,
                      LinearUse::stream);
      LinearState state(1, key_heads, 64, 64);
      Tensor out = p.new_out();
      const auto step = [&] { plan.run(p.q.view(), p.k.view(), p.v.view(), out.view(), state); };
      step();
      const std::int64_t before = test::allocation_count();
      step();
      step();
      EXPECT_EQ(test::allocation_count(), before);
      EXPECT_EQ(state.tokens(), 270);
    }
  }
}

}  // namespace
}  // namespace phasor::attention::tests
