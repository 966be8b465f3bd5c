// Linear attention over float64 views against the full matrix, and its gradients against dual numbers,
// at the precision of float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "attention/linear/linear_support.hpp"
#include "attention/softmax/wide_support.hpp"
#include "support/errors.hpp"

namespace phasor::attention::tests {
namespace {

using phasor::tests::expect_error;

void expect_wide_linear(LinearCase c) {
  c.dtype = c.key_dtype = DType::f64;
  SCOPED_TRACE(::testing::Message() << c);
  const LinearProblem p(c);
  const Tensor out = p.attend();
  expect_within_bound(p.reference(), out, out.wide(), kLinearErrorF64);
  expect_gaps_untouched(p.new_out(), out);
  const LinearGradients got = backward(p);
  const auto slope = [&](const Direction& direction) {
    return linear_attend_reference_slope(p.rotary, p.q.view(), p.k.view(), p.v.view(),
                                         p.d_out.wide(), p.options, direction);
  };
  expect_slope("d_q", p.q.view().data, got.d_q.wide(), slope, kLinearErrorF64);
  expect_slope("d_k", p.k.view().data, got.d_k.wide(), slope, kLinearErrorF64);
  expect_slope("d_v", p.v.view().data, got.d_v.wide(), slope, kLinearErrorF64);
}

TEST(WideLinear, IsTheFullMatrix) {
  std::uint64_t seed = 1;
  for (const Rotating rotating : kRotations) {
    LinearCase base = rotated_case(rotating);
    base.queries = 13;
    base.keys = 17;
    base.head_dim = 12;
    base.value_dim = 5;
    base.strides = Strides::padded;
    for_each_kind(base, [&](LinearCase c) {
      c.seed = ++seed;
      expect_wide_linear(c);
      c.rotates = Rotates::inputs;
      expect_wide_linear(c);
      c.queries = 20;  // the first see no key
      c.padding = Padding::left;
      c.ids = Ids::scattered;
      c.strides = Strides::heads_first;
      expect_wide_linear(c);
      c.padding = Padding::scattered;
      expect_wide_linear(c);
    });
  }
  expect_wide_linear({.queries = 4, .keys = 4, .padding = Padding::all});
  expect_wide_linear({.queries = 0, .keys = 4});
  expect_wide_linear({.queries = 4, .keys = 0});
}

TEST(WideLinear, IsTheFullMatrixOverAHundredThousandTokens) {
  for (const FeatureMap features : {FeatureMap::elu_plus_one, FeatureMap::softmax_exp}) {
    expect_wide_linear(
        {.features = features, .queries = 2, .keys = 100000, .head_dim = 4, .value_dim = 3});
  }
}

TEST(WideLinear, DoesNotDependOnTheThreads) {
  const LinearProblem p({.features = FeatureMap::softmax_exp,
                         .batch = 2,
                         .heads = 4,
                         .key_heads = 4,
                         .queries = 200,
                         .keys = 200,
                         .head_dim = 64,
                         .value_dim = 64,
                         .dtype = DType::f64,
                         .key_dtype = DType::f64});
  EXPECT_EQ(p.attend(core::InstructionSet::best, 1).bytes(),
            p.attend(core::InstructionSet::best, 3).bytes());
  expect_same_bytes(backward(p, core::InstructionSet::best, 3), backward(p));
}

// exp(1000) overflows a double; (19) does not change when every key moves by the same.
TEST(WideLinear, TakesKeysWhoseExponentialOverflows) {
  for (const Causality causality : kCausalities) {
    LinearProblem p({.features = FeatureMap::softmax_exp,
                     .causality = causality,
                     .heads = 2,
                     .key_heads = 2,
                     .queries = 9,
                     .keys = 9,
                     .dtype = DType::f64,
                     .key_dtype = DType::f64});
    const std::vector<double> expected = p.reference().out;
    const LinearReferenceGradients gradients = linear_attend_backward_reference(
        p.rotary, p.q.view(), p.k.view(), p.v.view(), p.d_out.view(), p.options);
    p.k.for_each([&](std::int64_t at) {
      core::set_element(p.k.view(), at, core::element_of(p.k.view(), at) + 1024.0);
    });
    // A key near 1024 is rounded by 2^-43.
    expect_wide("out", p.attend().wide(), expected, 1e-11);
    const LinearGradients got = backward(p);
    expect_wide("d_q", got.d_q.wide(), gradients.d_q, 1e-11);
    expect_wide("d_k", got.d_k.wide(), gradients.d_k, 1e-11);
    expect_wide("d_v", got.d_v.wide(), gradients.d_v, 1e-11);
  }
}

// Keys that rise by 100 a token: for each query the last key that it sees has nearly all the weight, and
// no later key may change it.
TEST(WideLinear, LaterKeysDoNotChangeAQuery) {
  LinearProblem p({.features = FeatureMap::softmax_exp,
                   .queries = 40,
                   .keys = 40,
                   .dtype = DType::f64,
                   .key_dtype = DType::f64});
  const core::HeadsView k = p.k.view();
  const auto at = [&](std::int64_t t, std::int64_t d) { return t * k.token_stride + d; };
  for (std::int64_t t = 0; t < 40; ++t) {
    for (std::int64_t d = 0; d < k.head_dim; ++d) {
      core::set_element(k, at(t, d),
                        core::element_of(k, at(t, d)) + 100.0 * static_cast<double>(t));
    }
  }
  const std::vector<double> out = p.attend().wide();
  for (const double x : out) EXPECT_TRUE(std::isfinite(x) && x != 0.0) << x;
  const LinearGradients got = backward(p);
  for (const Tensor* d : {&got.d_q, &got.d_k, &got.d_v}) {
    for (const double x : d->wide()) EXPECT_TRUE(std::isfinite(x)) << x;
  }
  core::set_element(k, at(39, 0), std::numeric_limits<double>::infinity());
  const std::vector<double> spoiled = p.attend().wide();
  EXPECT_TRUE(std::equal(out.begin(), out.end() - p.what.value_dim, spoiled.begin()));
  EXPECT_TRUE(std::isnan(spoiled.back()));
}

TEST(WideLinear, NaNInPaddingReachesNoQuery) {
  for (const FeatureMap features : {FeatureMap::elu_plus_one, FeatureMap::softmax_exp}) {
    LinearProblem p({.features = features,
                     .heads = 2,
                     .key_heads = 2,
                     .queries = 9,
                     .keys = 9,
                     .dtype = DType::f64,
                     .key_dtype = DType::f64,
                     .padding = Padding::scattered});
    const std::vector<double> out = p.attend().wide();
    const LinearGradients before = backward(p);
    ASSERT_NE(std::count(p.key_padding.begin(), p.key_padding.end(), 0), 0);
    for (Tensor* tensor : {&p.k, &p.v}) {
      const core::HeadsView view = tensor->view();
      for (std::int64_t n = 0; n < view.tokens; ++n) {
        if (p.key_padding[static_cast<std::size_t>(n)] == 0) {
          core::set_element(view, n * view.token_stride, std::numeric_limits<double>::quiet_NaN());
        }
      }
    }
    EXPECT_EQ(p.attend().wide(), out);
    const LinearGradients after = backward(p);
    EXPECT_EQ(after.d_q.wide(), before.d_q.wide());
    EXPECT_EQ(after.d_k.wide(), before.d_k.wide());
    EXPECT_EQ(after.d_v.wide(), before.d_v.wide());
  }
}

TEST(WideLinear, RefusesAMixOfTypesAndAState) {
  std::vector<double> wide(64, 7.0), out(16, 7.0);
  std::vector<float> narrow(64, 7.0F);
  const auto f64 = core::heads_view(wide.data(), 1, 2, 2, 4);
  const auto f32 = core::heads_view(narrow.data(), 1, 2, 2, 4);
  const auto o = core::heads_view(out.data(), 1, 2, 2, 4);
  expect_error(ErrorCode::unsupported, {"k", "f32"}, [&] { linear_attend({}, f64, f32, f64, o); });
  expect_error(ErrorCode::unsupported, {"v", "f64"}, [&] { linear_attend({}, f32, f32, f64, o); });
  expect_error(ErrorCode::unsupported, {"out", "f32"},
               [&] { linear_attend({}, f64, f64, f64, f32); });
  expect_error(ErrorCode::unsupported, {"d_out", "f32"},
               [&] { linear_attend_backward({}, f64, f64, f64, f32, o, o, o); });
  expect_error(ErrorCode::unsupported, {"state", "f64"}, [&] {
    LinearState state(1, 2, 4, 4);
    linear_attend({}, f64, f64, f64, o, {.causality = Causality::bottom_right}, &state);
  });
  EXPECT_EQ(out, std::vector<double>(16, 7.0)) << "written before it was refused";
}

}  // namespace
}  // namespace phasor::attention::tests
