// A plan that runs many times gives the bits of one call, checks each run, and reports its memory.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "attention/linear/linear_support.hpp"
#include "support/errors.hpp"

namespace phasor::attention::tests {
namespace {

using phasor::tests::expect_error;

LinearPlan plan_of(const LinearProblem& p, LinearUse use, int threads = 1) {
  LinearOptions options = p.options;
  options.threads = threads;
  return LinearPlan(p.rotary, linear_sizes(p.q.view(), p.k.view(), p.v.view()), options, use);
}
Tensor run(LinearPlan& plan, const LinearProblem& p) {
  Tensor out = p.new_out();
  plan.run(p.q.view(), p.k.view(), p.v.view(), out.view());
  return out;
}

// `p` and `other` have the same shape.
void expect_runs_are_calls(const LinearProblem& p, const LinearProblem& other, int threads) {
  SCOPED_TRACE(testing::Message() << p.what << ", threads " << threads);
  LinearPlan plan = plan_of(p, LinearUse::training, threads);
  for (const LinearProblem* now : {&p, &other, &p}) {
    LinearOptions options = p.options;
    options.threads = threads;
    Tensor expected = now->new_out();
    linear_attend(p.rotary, now->q.view(), now->k.view(), now->v.view(), expected.view(), options);
    EXPECT_EQ(run(plan, *now).bytes(), expected.bytes());
    LinearGradients wanted = fresh_gradients(*now), got = wanted;
    linear_attend_backward(p.rotary, now->q.view(), now->k.view(), now->v.view(), now->d_out.view(),
                           wanted.d_q.view(), wanted.d_k.view(), wanted.d_v.view(), options);
    plan.run_backward(now->q.view(), now->k.view(), now->v.view(), now->d_out.view(),
                      got.d_q.view(), got.d_k.view(), got.d_v.view());
    expect_same_bytes(got, wanted);
  }
}

TEST(LinearPlan, RunsLikeOneCallManyTimes) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const Rotating rotating :
         {Rotating::none, Rotating::half, Rotating::xpos, Rotating::axes}) {
      LinearCase base = rotated_case(rotating);
      base.keys = 90;
      base.dtype = base.key_dtype = dtype;
      base.padding = Padding::scattered;
      for_each_kind(base, [](LinearCase c) {
        if (c.features == kMaps[0]) c.ids = Ids::scattered;
        const LinearProblem p(c);
        c.seed = 2;
        expect_runs_are_calls(p, LinearProblem(c), c.causality == Causality::none ? 1 : 3);
      });
    }
  }
}

// More rows than a plan keeps: they are computed chunk by chunk.
TEST(LinearPlan, RunsLikeOneCallOverLongSequences) {
  LinearCase c{.queries = 70000, .keys = 70000, .head_dim = 64, .value_dim = 2};
  const LinearProblem p(c);
  LinearPlan plan = plan_of(p, LinearUse::forward);
  EXPECT_LT(plan.bytes(), std::int64_t{1} << 20) << "workspace grows with the tokens";
  const Tensor first = run(plan, p);
  EXPECT_EQ(first.bytes(), p.attend().bytes());
  EXPECT_EQ(run(plan, p).bytes(), first.bytes());
}

TEST(LinearPlan, IsNotAffectedByNaNOfAnEarlierRun) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const Causality causality : kCausalities) {
      const LinearCase c{.causality = causality,
                         .queries = 130,
                         .keys = 130,
                         .head_dim = 6,
                         .value_dim = 5,
                         .dtype = dtype,
                         .key_dtype = dtype};
      const LinearProblem p(c);
      LinearProblem bad(c);
      for (Tensor* x : {&bad.q, &bad.k, &bad.v, &bad.d_out}) {
        x->for_each([&](std::int64_t at) { core::set_element(x->view(), at, std::nan("")); });
      }
      LinearPlan plan = plan_of(p, LinearUse::training);
      LinearGradients expected = fresh_gradients(p), got = expected;
      const auto backward = [&](const LinearProblem& now, LinearGradients& to) {
        plan.run_backward(now.q.view(), now.k.view(), now.v.view(), now.d_out.view(), to.d_q.view(),
                          to.d_k.view(), to.d_v.view());
      };
      const Tensor before = run(plan, p);
      backward(p, expected);
      static_cast<void>(run(plan, bad));
      backward(bad, got);
      EXPECT_EQ(run(plan, p).bytes(), before.bytes());
      backward(p, got);
      expect_same_bytes(got, expected);
    }
  }
}

// A step at a time, by a plan and by calls: the same bits, threads that share a key head included.
TEST(LinearPlan, StepsAStateLikeCalls) {
  for (const std::int64_t tokens : {1, 40}) {
    for (const FeatureMap features : kMaps) {
      const LinearCase c{.features = features,
                         .batch = 2,
                         .heads = 8,
                         .key_heads = 1,
                         .queries = tokens,
                         .keys = tokens,
                         .head_dim = 48,
                         .value_dim = 64};
      LinearOptions options;
      LinearState planned(2, 1, c.features_wide(), 64), called = planned;
      std::optional<LinearPlan> plan;
      for (std::uint64_t step = 1; step <= 5; ++step) {
        LinearCase now = c;
        now.seed = step;
        const LinearProblem p(now);
        if (!plan) plan.emplace(plan_of(p, LinearUse::stream, 4));
        options = p.options;
        options.threads = 4;
        Tensor got = p.new_out(), expected = p.new_out();
        plan->run(p.q.view(), p.k.view(), p.v.view(), got.view(), planned);
        linear_attend(p.rotary, p.q.view(), p.k.view(), p.v.view(), expected.view(), options,
                      &called);
        EXPECT_EQ(got.bytes(), expected.bytes()) << step;
        EXPECT_EQ(planned.tokens(), static_cast<std::int64_t>(step) * tokens);
      }
    }
  }
}

// Positions are copied; padding is read by every run.
TEST(LinearPlan, CopiesPositionsAndReadsPadding) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    LinearProblem p({.queries = 20,
                     .keys = 20,
                     .dtype = dtype,
                     .key_dtype = dtype,
                     .padding = Padding::scattered,
                     .ids = Ids::scattered});
    LinearPlan plan = plan_of(p, LinearUse::forward);
    const Tensor before = run(plan, p);
    for (auto* ids : {&p.query_ids, &p.key_ids}) {
      for (std::int64_t& id : *ids) id = 7;
    }
    EXPECT_EQ(run(plan, p).bytes(), before.bytes());
    for (std::uint8_t& counts : p.key_padding) counts = 0;
    EXPECT_EQ(run(plan, p).wide(), std::vector<double>(20 * 16));
  }
}

TEST(LinearPlan, RefusesOtherShapesAndUses) {
  const LinearProblem p({.batch = 2, .heads = 2, .key_heads = 2, .queries = 6, .keys = 6});
  LinearPlan plan = plan_of(p, LinearUse::forward);
  Tensor out = p.new_out();
  const std::vector<std::byte> untouched = out.bytes();
  const core::ConstHeadsView q = p.q.view(), k = p.k.view(), v = p.v.view();
  const auto other = [](auto view, std::int64_t tokens) {
    view.tokens = tokens;
    return view;
  };
  const auto with = [&](const core::ConstHeadsView& some_q, const core::ConstHeadsView& some_k,
                        const core::ConstHeadsView& some_v, const core::HeadsView& some_out) {
    return [=, &plan] { plan.run(some_q, some_k, some_v, some_out); };
  };
  const ErrorCode shape = ErrorCode::shape_mismatch;
  expect_error(shape, {"q", "[2, 5, 2, 16]", "[2, 6, 2, 16]"}, with(other(q, 5), k, v, out.view()));
  expect_error(shape, {"k", "[2, 5, 2, 16]"}, with(q, other(k, 5), v, out.view()));
  expect_error(shape, {"v", "[2, 5, 2, 16]"}, with(q, k, other(v, 5), out.view()));
  expect_error(shape, {"out", "[2, 5, 2, 16]"}, with(q, k, v, other(out.view(), 5)));
  core::ConstHeadsView wide = v;
  wide.dtype = DType::f64;
  expect_error(ErrorCode::unsupported, {"v", "f64"}, with(q, k, wide, out.view()));
  core::ConstHeadsView null = k;
  null.data = nullptr;
  expect_error(ErrorCode::invalid_argument, {"k", "null"}, with(q, null, v, out.view()));
  LinearState state(2, 2, 16, 16);
  expect_error(ErrorCode::invalid_argument, {"state", "forward"},
               [&] { plan.run(q, k, v, out.view(), state); });
  LinearGradients d = fresh_gradients(p);
  expect_error(ErrorCode::invalid_argument, {"backward", "forward"}, [&] {
    plan.run_backward(q, k, v, p.d_out.view(), d.d_q.view(), d.d_k.view(), d.d_v.view());
  });
  LinearPlan stream = plan_of(p, LinearUse::stream);
  expect_error(ErrorCode::invalid_argument, {"state", "stream"},
               [&] { stream.run(q, k, v, out.view()); });
  LinearState narrow(2, 2, 16, 8);
  expect_error(shape, {"value_dim 16", "8"}, [&] { stream.run(q, k, v, out.view(), narrow); });
  EXPECT_EQ(out.bytes(), untouched);
  // After all of these the plan still runs.
  EXPECT_EQ(run(plan, p).bytes(), p.attend().bytes());

  LinearSizes sizes = plan.sizes();
  sizes.heads = 3;
  expect_error(shape, {"3", "2"}, [&] { return LinearPlan(p.rotary, sizes); });
  sizes.heads = 0;
  expect_error(shape, {"heads 0"}, [&] { return LinearPlan(p.rotary, sizes); });
  sizes = plan.sizes();
  sizes.dtype = DType::f64;
  expect_error(ErrorCode::unsupported, {"f64"},
               [&] { return LinearPlan(p.rotary, sizes, p.options, LinearUse::stream); });
}

TEST(LinearPlan, SaysWhatItHolds) {
  const LinearProblem small({.queries = 64, .keys = 64, .head_dim = 64, .value_dim = 64});
  const LinearProblem large({.queries = 4096, .keys = 4096, .head_dim = 64, .value_dim = 64});
  const std::int64_t rows = 4 * 64;  // bytes of cos and sin of a token
  const std::int64_t forward = plan_of(small, LinearUse::forward).bytes();
  EXPECT_GT(forward, 64 * rows);
  // The rows of more tokens, and nothing else.
  EXPECT_EQ(plan_of(large, LinearUse::forward).bytes(), forward + (4096 - 64) * rows);
  EXPECT_GT(plan_of(small, LinearUse::training).bytes(), forward);
  EXPECT_LT(plan_of(small, LinearUse::stream).bytes(), forward);
  LinearPlan plan = plan_of(small, LinearUse::forward);
  EXPECT_EQ(plan.sizes().queries, 64);
  EXPECT_EQ(plan.use(), LinearUse::forward);
  LinearPlan moved = std::move(plan);
  EXPECT_EQ(run(moved, small).bytes(), small.attend().bytes());
}

}  // namespace
}  // namespace phasor::attention::tests
