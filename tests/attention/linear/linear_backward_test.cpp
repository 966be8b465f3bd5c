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
using tests::backward;
using tests::expect_gaps_untouched;
using tests::expect_gradients_near;
using tests::fresh_gradients;
using tests::Ids;
using tests::kCausalities;
using tests::kMaps;
using tests::LinearCase;
using tests::LinearGolden;
using tests::LinearGradients;
using tests::LinearProblem;
using tests::Padding;
using tests::Rotating;
using tests::Strides;
using tests::Tensor;

void expect_reference_gradients(const LinearProblem& p, InstructionSet isa = InstructionSet::best,
                                int threads = 1) {
  SCOPED_TRACE(testing::Message() << p.what << " " << core::name_of(isa) << " threads " << threads);
  const LinearGradients got = backward(p, isa, threads);
  const tests::LinearReferenceGradients expected = tests::linear_attend_backward_reference(
      p.rotary, p.q.view(), p.k.view(), p.v.view(), p.d_out.view(), p.options);
  const double error =
      tests::kGradientError * (1.0 + tests::favor_exponent(p.q.view(), p.k.view(), p.options));
  expect_gradients_near("d_q", expected.d_q, got.d_q, error);
  expect_gradients_near("d_k", expected.d_k, got.d_k, error);
  expect_gradients_near("d_v", expected.d_v, got.d_v, error);
  const LinearGradients fresh = fresh_gradients(p);
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
          expect_reference_gradients(
              LinearProblem(tests::chunked_case(seed, causality, tokens, dim, value_dim)),
              GetParam());
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, LinearBackwardAtEveryLevel,
                         testing::ValuesIn(core::available_instruction_sets()), tests::level_name);

TEST(LinearBackward, EveryRotationAndNone) {
  for (const Rotating rotating : tests::kRotations) {
    tests::for_each_kind(tests::rotated_case(rotating), [](LinearCase c) {
      for (const Rotates rotates : tests::kRotates) {
        c.rotates = rotates;
        if (c.features == kMaps[0]) c.ids = Ids::scattered;
        expect_reference_gradients(LinearProblem(c));
      }
    });
  }
}

TEST(LinearBackward, QueriesAndKeysOfOtherNumbers) {
  for (const auto& [queries, keys] : {std::pair(1, 300), std::pair(70, 133), std::pair(130, 70),
                                      std::pair(5, 0), std::pair(0, 5)}) {
    tests::for_each_kind(tests::uneven_case(queries, keys),
                         [](const LinearCase& c) { expect_reference_gradients(LinearProblem(c)); });
  }
}

TEST(LinearBackward, PaddedKeysHaveNoGradientAndNoEffect) {
  for (const Padding padding : {Padding::scattered, Padding::left, Padding::all}) {
    tests::for_each_kind(tests::padded_case(padding),
                         [](const LinearCase& c) { expect_reference_gradients(LinearProblem(c)); });
  }
}

TEST(LinearBackward, StoresHalfPrecision) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const Causality causality : kCausalities) {
      expect_reference_gradients(
          LinearProblem(tests::half_precision_case(causality, dtype, DType::f16)));
    }
  }
}

TEST(LinearBackward, ThreadsShareTheWork) {
  tests::for_each_kind({.batch = 3,
                        .heads = 6,
                        .key_heads = 3,
                        .queries = 150,
                        .keys = 150,
                        .head_dim = 32,
                        .value_dim = 40},
                       [](const LinearCase& c) {
                         const LinearProblem p(c);
                         const LinearGradients one = backward(p);
                         expect_reference_gradients(p, InstructionSet::best, 2);
                         for (const int threads : {2, 3, 5, 9}) {
                           tests::expect_same_bytes(backward(p, InstructionSet::best, threads),
                                                    one);
                         }
                       });
}

// The exponent of the keys jumps, up in the first pass and down in the second.
TEST(LinearBackward, LargeKeys) {
  for (const Causality causality : kCausalities) {
    for (const double step : {0.0, 0.5, 30.0}) {
      LinearProblem p(tests::large_keys_case(causality));
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
    const LinearGradients got = backward(p);
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

constexpr LinearGolden kGoldenBackward[] = {
    {"linear_attention_backward", FeatureMap::elu_plus_one, Causality::none, 1, 2, 19, 8, 12},
    {"linear_attention_backward_causal_n70", FeatureMap::elu_plus_one, Causality::bottom_right, 1,
     2, 70, 8, 8},
    {"linear_attention_backward_softmax_exp", FeatureMap::softmax_exp, Causality::bottom_right, 1,
     1, 35, 16, 8},
};

TEST(LinearBackward, GoldenCases) {
  for (const LinearGolden& g : kGoldenBackward) {
    SCOPED_TRACE(g.name);
    const std::string folder = std::string("gradients/") + g.name + "/";
    const auto q = phasor::tests::golden_array<float>(folder + "q.npy");
    const auto k = phasor::tests::golden_array<float>(folder + "k.npy");
    const auto v = phasor::tests::golden_array<float>(folder + "v.npy");
    const auto d_out = phasor::tests::golden_array<float>(folder + "d_output.npy");
    std::vector<float> d_q(q.size()), d_k(k.size()), d_v(v.size());
    linear_attend_backward(g.rotary(), g.view(q, g.dim), g.view(k, g.dim), g.view(v, g.value_dim),
                           g.view(d_out, g.value_dim), g.view(d_q, g.dim), g.view(d_k, g.dim),
                           g.view(d_v, g.value_dim), g.options());
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
