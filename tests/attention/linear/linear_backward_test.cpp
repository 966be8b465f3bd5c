#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "attention/linear/linear_support.hpp"
#include "support/golden_array.hpp"

namespace phasor::attention {
namespace {

using core::DType;
using core::InstructionSet;
using tests::expect_gaps_untouched;
using tests::Ids;
using tests::kCausalities;
using tests::kMaps;
using tests::LinearCase;
using tests::LinearProblem;
using tests::Padding;
using tests::Rotating;
using tests::Strides;
using tests::Tensor;

// Of the largest gradient of its tensor, or of 1: with a single key d_q and d_k are differences of
// equal terms of about d_out . v.
constexpr double kGradientError = 4e-6;

struct Gradients {
  Tensor d_q, d_k, d_v;
};
Gradients fresh_gradients(const LinearProblem& p) {
  const LinearCase& c = p.what;
  return {Tensor(c.dtype, {c.batch, c.queries, c.heads, c.head_dim}, c.strides, 51),
          Tensor(c.key_dtype, {c.batch, c.keys, c.key_heads, c.head_dim}, c.strides, 52),
          Tensor(c.key_dtype, {c.batch, c.keys, c.key_heads, c.value_dim}, c.strides, 53)};
}
Gradients backward(const LinearProblem& p, InstructionSet isa, int threads) {
  Gradients got = fresh_gradients(p);
  LinearOptions options = p.options;
  options.isa = isa;
  options.threads = threads;
  linear_attend_backward(p.rotary, p.q.view(), p.k.view(), p.v.view(), p.d_out.view(),
                         got.d_q.view(), got.d_k.view(), got.d_v.view(), options);
  return got;
}

void expect_gradients_near(const char* name, const std::vector<double>& expected,
                           const Tensor& got) {
  double largest = 1.0;
  for (const double value : expected) largest = std::max(largest, std::fabs(value));
  const std::vector<double> values = got.wide();
  ASSERT_EQ(values.size(), expected.size());
  int reported = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double room =
        kGradientError * largest + 1.01 * tests::storage_error(got.view().dtype, expected[i]);
    if (!(std::fabs(values[i] - expected[i]) <= room) && reported++ < 3) {
      ADD_FAILURE() << name << " " << i << ": got " << values[i] << ", expected " << expected[i]
                    << " within " << room;
    }
  }
}

void expect_reference_gradients(const LinearProblem& p, InstructionSet isa = InstructionSet::best,
                                int threads = 1) {
  SCOPED_TRACE(testing::Message() << p.what << " " << core::name_of(isa) << " threads " << threads);
  const Gradients got = backward(p, isa, threads);
  const tests::LinearReferenceGradients expected = tests::linear_attend_backward_reference(
      p.rotary, p.q.view(), p.k.view(), p.v.view(), p.d_out.view(), p.options);
  expect_gradients_near("d_q", expected.d_q, got.d_q);
  expect_gradients_near("d_k", expected.d_k, got.d_k);
  expect_gradients_near("d_v", expected.d_v, got.d_v);
  const Gradients fresh = fresh_gradients(p);
  expect_gaps_untouched(fresh.d_q, got.d_q);
  expect_gaps_untouched(fresh.d_k, got.d_k);
  expect_gaps_untouched(fresh.d_v, got.d_v);
}

class LinearBackwardAtEveryLevel : public testing::TestWithParam<InstructionSet> {};

TEST_P(LinearBackwardAtEveryLevel, ChunkedIsTheWholeMatrix) {
  std::uint64_t seed = 0;
  for (const int tokens : {1, 2, 63, 64, 65, 129, 300}) {
    for (const int dim : {2, 12, 16, 64}) {
      for (const int value_dim : {1, 10, 64}) {
        if (tokens == 300 && dim * value_dim > 1000) continue;  // the full matrix is slow
        for (const Causality causality : kCausalities) {
          ++seed;
          const LinearProblem p({.rotating = seed % 2 == 0 ? Rotating::half : Rotating::interleaved,
                                 .features = kMaps[seed / 2 % 2],
                                 .causality = causality,
                                 .queries = tokens,
                                 .keys = tokens,
                                 .head_dim = dim,
                                 .value_dim = value_dim,
                                 .strides = static_cast<Strides>(seed % 3),
                                 .seed = seed});
          expect_reference_gradients(p, GetParam());
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, LinearBackwardAtEveryLevel,
                         testing::ValuesIn(core::available_instruction_sets()),
                         [](const auto& info) {
                           std::string name(core::name_of(info.param));
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST(LinearBackward, EveryRotationAndNone) {
  for (const Rotating rotating :
       {Rotating::none, Rotating::interleaved, Rotating::half, Rotating::crossing,
        Rotating::partial, Rotating::blocks, Rotating::xpos, Rotating::axes}) {
    for (const Causality causality : kCausalities) {
      for (const FeatureMap features : kMaps) {
        const LinearProblem p({.rotating = rotating,
                               .features = features,
                               .causality = causality,
                               .batch = 2,
                               .heads = 4,
                               .key_heads = 2,
                               .queries = 70,
                               .keys = 70,
                               .head_dim = 24,
                               .value_dim = 20,
                               .ids = features == kMaps[0] ? Ids::scattered : Ids::by_default,
                               .seed = 5});
        expect_reference_gradients(p);
      }
    }
  }
}

TEST(LinearBackward, QueriesAndKeysOfOtherNumbers) {
  for (const auto& [queries, keys] : {std::pair(1, 300), std::pair(70, 133), std::pair(130, 70),
                                      std::pair(5, 0), std::pair(0, 5)}) {
    for (const Causality causality : kCausalities) {
      for (const FeatureMap features : kMaps) {
        expect_reference_gradients(LinearProblem({.features = features,
                                                  .causality = causality,
                                                  .batch = 2,
                                                  .heads = 2,
                                                  .key_heads = 1,
                                                  .queries = queries,
                                                  .keys = keys,
                                                  .head_dim = 8,
                                                  .value_dim = 5}));
      }
    }
  }
}

TEST(LinearBackward, PaddedKeysHaveNoGradientAndNoEffect) {
  for (const Padding padding : {Padding::scattered, Padding::left, Padding::all}) {
    for (const Causality causality : kCausalities) {
      for (const FeatureMap features : kMaps) {
        expect_reference_gradients(LinearProblem({.features = features,
                                                  .causality = causality,
                                                  .batch = 3,
                                                  .heads = 2,
                                                  .key_heads = 2,
                                                  .queries = 90,
                                                  .keys = 90,
                                                  .head_dim = 16,
                                                  .value_dim = 16,
                                                  .padding = padding}));
      }
    }
  }
}

TEST(LinearBackward, StoresHalfPrecision) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const Causality causality : kCausalities) {
      expect_reference_gradients(LinearProblem({.causality = causality,
                                                .heads = 2,
                                                .key_heads = 2,
                                                .queries = 67,
                                                .keys = 67,
                                                .head_dim = 18,
                                                .value_dim = 9,
                                                .dtype = dtype,
                                                .key_dtype = DType::f16,
                                                .strides = Strides::padded}));
    }
  }
}

TEST(LinearBackward, ThreadsShareTheWork) {
  for (const Causality causality : kCausalities) {
    const LinearProblem p({.causality = causality,
                           .batch = 3,
                           .heads = 6,
                           .key_heads = 3,
                           .queries = 150,
                           .keys = 150,
                           .head_dim = 32,
                           .value_dim = 40});
    const Gradients one = backward(p, InstructionSet::best, 1);
    expect_reference_gradients(p, InstructionSet::best, 2);
    for (const int threads : {2, 5, 9}) {
      const Gradients many = backward(p, InstructionSet::best, threads);
      EXPECT_EQ(many.d_q.bytes(), one.d_q.bytes());
      EXPECT_EQ(many.d_k.bytes(), one.d_k.bytes());
      EXPECT_EQ(many.d_v.bytes(), one.d_v.bytes());
    }
  }
}

// The exponent of the keys jumps, up in the first pass and down in the second.
TEST(LinearBackward, LargeKeys) {
  for (const Causality causality : kCausalities) {
    for (const double step : {0.0, 0.5, 30.0}) {
      LinearProblem p({.features = FeatureMap::softmax_exp,
                       .causality = causality,
                       .heads = 2,
                       .key_heads = 1,
                       .queries = 150,
                       .keys = 150,
                       .head_dim = 12,
                       .value_dim = 7});
      p.k.for_each([&](std::int64_t at) {
        const auto token = static_cast<double>(at / p.k.view().token_stride);
        const double rise = step == 30.0 ? 30.0 * std::floor(token / 40.0) : step * token;
        core::set_element(p.k.view(), at, core::element_of(p.k.view(), at) + 200.0 + rise);
      });
      expect_reference_gradients(p);
    }
  }
}

// The slope of the float32 forward pass along a random direction.
TEST(LinearBackward, IsTheSlopeOfTheForward) {
  for (const FeatureMap features : kMaps) {
    LinearProblem p({.features = features,
                     .heads = 2,
                     .key_heads = 1,
                     .queries = 80,
                     .keys = 80,
                     .head_dim = 8,
                     .value_dim = 8});
    const Gradients got = backward(p, InstructionSet::best, 1);
    const auto loss = [&] {
      const std::vector<double> out = p.attend().wide(), weights = p.d_out.wide();
      double sum = 0.0;
      for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * weights[i];
      return sum;
    };
    struct Input {
      Tensor* x;
      const Tensor* gradient;
    };
    for (const Input& input : {Input{&p.q, &got.d_q}, {&p.k, &got.d_k}, {&p.v, &got.d_v}}) {
      Tensor* const x = input.x;
      const Tensor* const gradient = input.gradient;
      const Tensor original = *x;
      const Tensor direction(DType::f32, {1, 80, original.view().heads, 8}, Strides::dense, 77);
      const auto moved = [&](double by) {
        x->for_each([&](std::int64_t at) {
          core::set_element(
              x->view(), at,
              core::element_of(original.view(), at) + by * core::element_of(direction.view(), at));
        });
        return loss();
      };
      constexpr double kStep = 4e-3;
      const double slope = (moved(kStep) - moved(-kStep)) / (2 * kStep);
      moved(0.0);
      double expected = 0.0;
      gradient->for_each([&](std::int64_t at) {
        expected += core::element_of(gradient->view(), at) * core::element_of(direction.view(), at);
      });
      EXPECT_NEAR(slope, expected, 2e-3 * std::max(1.0, std::fabs(expected)));
    }
  }
}

struct GoldenBackward {
  const char* name;
  FeatureMap features;
  Causality causality;
  std::int64_t heads, tokens, dim, value_dim;
};
constexpr GoldenBackward kGoldenBackward[] = {
    {"linear_attention_backward", FeatureMap::elu_plus_one, Causality::none, 2, 19, 8, 12},
    {"linear_attention_backward_causal_n70", FeatureMap::elu_plus_one, Causality::bottom_right, 2,
     70, 8, 8},
    {"linear_attention_backward_softmax_exp", FeatureMap::softmax_exp, Causality::bottom_right, 1,
     35, 16, 8},
};

TEST(LinearBackward, GoldenCases) {
  for (const GoldenBackward& g : kGoldenBackward) {
    SCOPED_TRACE(g.name);
    const std::string folder = std::string("gradients/") + g.name + "/";
    const auto q = phasor::tests::golden_array<float>(folder + "q.npy");
    const auto k = phasor::tests::golden_array<float>(folder + "k.npy");
    const auto v = phasor::tests::golden_array<float>(folder + "v.npy");
    const auto d_out = phasor::tests::golden_array<float>(folder + "d_output.npy");
    const core::Rotary rotary{core::make_frequencies({g.dim, 10000.0}),
                              core::PairLayout::interleaved, g.dim};
    const auto view = [&](auto& x, std::int64_t dim) {
      return core::heads_first_view(x.data(), 1, g.heads, g.tokens, dim);
    };
    std::vector<float> d_q(q.size()), d_k(k.size()), d_v(v.size());
    linear_attend_backward(rotary, view(q, g.dim), view(k, g.dim), view(v, g.value_dim),
                           view(d_out, g.value_dim), view(d_q, g.dim), view(d_k, g.dim),
                           view(d_v, g.value_dim),
                           {.causality = g.causality, .features = g.features});
    const auto expect = [&](const char* name, const std::vector<float>& got) {
      const auto truth = phasor::tests::golden_array<double>(folder + name + "_f64.npy");
      ASSERT_EQ(truth.size(), got.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], truth[i], 4e-6 + 2e-5 * std::fabs(truth[i])) << name << " " << i;
      }
    };
    expect("d_q", d_q);
    expect("d_k", d_k);
    expect("d_v", d_v);
  }
}

}  // namespace
}  // namespace phasor::attention
