#include "phasor/parallel/linear.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <vector>

#include "attention/linear/linear_support.hpp"
#include "parallel/ranks.hpp"
#include "phasor/parallel/traffic.hpp"
#include "support/errors.hpp"

namespace phasor::parallel {
namespace {

using attention::AttentionPasses;
using attention::Causality;
using attention::FeatureMap;
using attention::Rotates;
using attention::tests::Ids;
using attention::tests::LinearCase;
using attention::tests::LinearGradients;
using attention::tests::LinearProblem;
using attention::tests::Padding;
using attention::tests::Tensor;
using tests::ranks;

// The rows of a rank in views of the whole sequence: a contiguous shard is a part of them.
template <class View>
View mine(View view, const Shards& shards) {
  const std::int64_t count = shards.count(ranks().rank());
  return attention::tests::part_of(view, count == 0 ? 0 : shards.token(ranks().rank(), 0), count);
}

// The elements of this rank's tokens, from numbers of all tokens, `width` of them a token.
std::vector<double> mine(const std::vector<double>& all, const LinearCase& c, const Shards& shards,
                         std::int64_t width) {
  std::vector<double> part;
  const std::vector<std::int64_t> tokens = shards.tokens_of(ranks().rank());
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (const std::int64_t token : tokens) {
      const auto first = all.begin() + (b * shards.tokens() + token) * width;
      part.insert(part.end(), first, first + width);
    }
  }
  return part;
}

// A tensor of this rank's rows alone, to be compared.
Tensor rows_of(const Tensor& whole, const Shards& shards) {
  const core::ConstHeadsView part = mine(whole.view(), shards);
  Tensor copy(part.dtype, {part.batch, part.tokens, part.heads, part.head_dim},
              core::tests::Strides::dense, 1);
  const core::HeadsView to = copy.view();
  for (std::int64_t b = 0; b < part.batch; ++b) {
    for (std::int64_t t = 0; t < part.tokens; ++t) {
      for (std::int64_t h = 0; h < part.heads; ++h) {
        for (std::int64_t d = 0; d < part.head_dim; ++d) {
          core::set_element(to, b * to.batch_stride + t * to.token_stride + h * to.head_stride + d,
                            core::element_of(part, b * part.batch_stride + t * part.token_stride +
                                                       h * part.head_stride + d));
        }
      }
    }
  }
  return copy;
}

// Sharded equals exact to the bounds of one rank, forward and backward, and sends what the formula says.
void expect_sharded(const LinearProblem& p) {
  SCOPED_TRACE(testing::Message() << p.what << " on " << ranks().size() << " ranks");
  const LinearCase& c = p.what;
  const attention::LinearSizes sizes = attention::linear_sizes(p.q.view(), p.k.view(), p.v.view());
  ParallelLinearPlan plan(ranks(), p.rotary, sizes, p.options,
                          AttentionPasses::forward_and_backward);
  Tensor out = p.new_out();
  LinearGradients got = attention::tests::fresh_gradients(p);
  const RunBytes formula = linear_bytes(sizes, p.options, ranks().size(), ranks().rank());
  const auto q = mine(p.q.view(), plan.queries());
  const auto k = mine(p.k.view(), plan.keys()), v = mine(p.v.view(), plan.keys());
  plan.run(q, k, v, mine(out.view(), plan.queries()));
  EXPECT_EQ(plan.bytes_sent(), formula.forward);
  plan.run_backward(q, k, v, mine(p.d_out.view(), plan.queries()),
                    mine(got.d_q.view(), plan.queries()), mine(got.d_k.view(), plan.keys()),
                    mine(got.d_v.view(), plan.keys()));
  EXPECT_EQ(plan.bytes_sent(), formula.forward + formula.backward);
  EXPECT_EQ(plan.sum_bytes(), linear_memory(sizes, p.options, AttentionPasses::forward_and_backward,
                                            ranks().size(), ranks().rank()));

  attention::tests::LinearReference exact = p.reference();
  exact.out = mine(exact.out, c, plan.queries(), c.heads * c.value_dim);
  exact.magnitude = mine(exact.magnitude, c, plan.queries(), c.heads);
  const Tensor rows = rows_of(out, plan.queries());
  attention::tests::expect_within_bound(exact, rows, rows.wide());
  const attention::tests::LinearReferenceGradients expected =
      attention::tests::linear_attend_backward_reference(p.rotary, p.q.view(), p.k.view(),
                                                         p.v.view(), p.d_out.view(), p.options);
  const double error = attention::tests::kGradientError *
                       (1.0 + attention::tests::favor_exponent(p.q.view(), p.k.view(), p.options));
  const auto near = [&](const char* name, const std::vector<double>& all, const Tensor& x,
                        const Shards& shards) {
    attention::tests::expect_gradients_near(
        name, mine(all, c, shards, x.view().heads * x.view().head_dim), rows_of(x, shards), error);
  };
  near("d_q", expected.d_q, got.d_q, plan.queries());
  near("d_k", expected.d_k, got.d_k, plan.keys());
  near("d_v", expected.d_v, got.d_v, plan.keys());
}

LinearCase tokens_case(std::int64_t tokens) {
  return {.batch = 2,
          .heads = 4,
          .key_heads = 2,
          .queries = tokens,
          .keys = tokens,
          .head_dim = 8,
          .value_dim = 6};
}

TEST(ParallelLinear, EveryMapAndRotation) {
  for (const auto rotating : attention::tests::kRotations) {
    for (const Rotates rotates : attention::tests::kRotates) {
      LinearCase c = tokens_case(75);
      c.rotating = rotating;
      c.rotates = rotates;
      attention::tests::for_each_kind(c, [](LinearCase one) {
        if (one.features == FeatureMap::elu_plus_one) one.ids = Ids::scattered;
        expect_sharded(LinearProblem(one));
      });
    }
  }
}

// Fewer tokens than ranks: some shards are empty.
TEST(ParallelLinear, FewAndOddTokens) {
  for (const std::int64_t tokens : {0, 1, 2, 3, 5, 131}) {
    attention::tests::for_each_kind(tokens_case(tokens),
                                    [](const LinearCase& c) { expect_sharded(LinearProblem(c)); });
  }
}

TEST(ParallelLinear, QueriesOfAnotherNumber) {
  for (const auto& [queries, keys] : {std::pair(3, 70), std::pair(70, 2), std::pair(5, 0)}) {
    LinearCase c = tokens_case(0);
    c.causality = Causality::none;
    c.queries = queries;
    c.keys = keys;
    for (const FeatureMap features : attention::tests::kMaps) {
      c.features = features;
      expect_sharded(LinearProblem(c));
    }
  }
}

TEST(ParallelLinear, PaddingAndStorage) {
  for (const Padding padding : {Padding::scattered, Padding::left, Padding::all}) {
    LinearCase c = tokens_case(61);
    c.padding = padding;
    attention::tests::for_each_kind(
        c, [](const LinearCase& one) { expect_sharded(LinearProblem(one)); });
  }
  for (const core::DType dtype : {core::DType::f16, core::DType::bf16}) {
    for (const Causality causality : attention::tests::kCausalities) {
      expect_sharded(LinearProblem(
          attention::tests::half_precision_case(causality, dtype, core::DType::bf16)));
    }
  }
}

// The exponents of softmax_exp differ between ranks by more than float32 can hold.
TEST(ParallelLinear, LargeKeys) {
  for (const Causality causality : attention::tests::kCausalities) {
    for (const double step : {-30.0, 30.0}) {
      LinearProblem p(attention::tests::large_keys_case(causality));
      p.k.for_each([&](std::int64_t at) {
        const auto token = static_cast<double>(at / p.k.view().token_stride);
        core::set_element(
            p.k.view(), at,
            core::element_of(p.k.view(), at) + 200.0 + step * std::floor(token / 40.0));
      });
      expect_sharded(p);
    }
  }
}

TEST(ParallelLinear, RefusesOnEveryRank) {
  const attention::LinearSizes sizes{.queries = 8, .keys = 9, .head_dim = 4, .value_dim = 4};
  phasor::tests::expect_error(ErrorCode::shape_mismatch, {"8", "9"}, [&] {
    return ParallelLinearPlan(ranks(), std::nullopt, sizes, {.causality = Causality::bottom_right});
  });
  if (ranks().size() == 1) return;
  attention::LinearSizes other = sizes;
  other.keys = ranks().rank() == ranks().size() - 1 ? 11 : 9;
  phasor::tests::expect_error(ErrorCode::invalid_argument, {"rank 0", "keys 9", "keys 11"},
                              [&] { return ParallelLinearPlan(ranks(), std::nullopt, other); });
}

}  // namespace
}  // namespace phasor::parallel
