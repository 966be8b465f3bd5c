// FeatureMap::favor: the random matrix, what the features approximate, and large inputs. The grids of
// the other files compare it with the full matrix.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "attention/linear/linear_support.hpp"
#include "phasor/attention/softmax.hpp"
#include "support/errors.hpp"

namespace phasor::attention::tests {
namespace {

// favor_weights(2, 3, 1)
constexpr float kFirst[] = {-0.9505533F, -1.0510817F,  0.09275753F,
                            1.0200508F,  -0.94446945F, -0.24905801F};

double dot_of(const float* a, const float* b, std::int64_t dim) {
  double sum = 0.0;
  for (std::int64_t e = 0; e < dim; ++e)
    sum += static_cast<double>(a[e]) * static_cast<double>(b[e]);
  return sum;
}

TEST(FavorWeights, HaveOrthogonalBlocks) {
  for (const auto& [count, dim] : {std::pair(40, 16), std::pair(5, 12), std::pair(3, 1),
                                   std::pair(96, 32), std::pair(64, 64)}) {
    const std::vector<float> w = favor_weights(count, dim, 11);
    ASSERT_EQ(w.size(), static_cast<std::size_t>(count * dim));
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t j = i / dim * dim; j < i; ++j) {
        const float *a = w.data() + i * dim, *b = w.data() + j * dim;
        const double lengths = std::sqrt(dot_of(a, a, dim) * dot_of(b, b, dim));
        EXPECT_NEAR(dot_of(a, b, dim) / lengths, 0.0, 2e-7) << i << " " << j << " of " << dim;
      }
    }
  }
}

// Lengths are those of Gaussian vectors: |w|^2 has the mean d and the variance 2 d. Elements have the
// mean 0 and the variance 1.
TEST(FavorWeights, AreGaussian) {
  constexpr std::int64_t kDim = 32, kRows = 3200;
  const std::vector<float> w = favor_weights(kRows, kDim, 5);
  double sum = 0.0, squares = 0.0, square_lengths = 0.0, spread = 0.0;
  for (std::int64_t i = 0; i < kRows; ++i) {
    const double length = dot_of(w.data() + i * kDim, w.data() + i * kDim, kDim);
    square_lengths += length;
    spread += (length - kDim) * (length - kDim);
    for (std::int64_t e = 0; e < kDim; ++e)
      sum += static_cast<double>(w[static_cast<std::size_t>(i * kDim + e)]);
  }
  squares = square_lengths / (kRows * kDim);
  // Five standard deviations of each mean.
  EXPECT_NEAR(sum / (kRows * kDim), 0.0, 5.0 / std::sqrt(kRows * kDim));
  EXPECT_NEAR(squares, 1.0, 5.0 * std::sqrt(2.0 / (kRows * kDim)));
  EXPECT_NEAR(spread / kRows, 2.0 * kDim, 5.0 * 2.0 * kDim * std::sqrt(3.0 / kRows));
}

// A seed is a matrix: the first numbers of one, on every machine.
TEST(FavorWeights, DependOnTheSeedAlone) {
  const std::vector<float> w = favor_weights(40, 16, 7);
  EXPECT_EQ(w, favor_weights(40, 16, 7));
  EXPECT_NE(w, favor_weights(40, 16, 8));
  std::vector<float> more = favor_weights(56, 16, 7);
  more.resize(w.size());
  EXPECT_EQ(w, more);
  const std::vector<float> first(favor_weights(2, 3, 1));
  for (std::size_t i = 0; i < first.size(); ++i)
    EXPECT_FLOAT_EQ(first[i], kFirst[i]) << i << " is " << first[i];
}

TEST(FavorWeights, RefuseSizes) {
  using phasor::tests::expect_error;
  expect_error(ErrorCode::out_of_range, {"feature_count", "0"},
               [] { return favor_weights(0, 8, 1); });
  expect_error(ErrorCode::out_of_range, {"feature_count", "65537"},
               [] { return favor_weights(kMaxFeatureCount + 1, 8, 1); });
  expect_error(ErrorCode::invalid_argument, {"head_dim", "-3"},
               [] { return favor_weights(8, -3, 1); });
}

// The mean square error of phi(q) . phi(k) against exp(q . k / sqrt(d)), relative, over many W.
double kernel_error(const std::vector<double>& w, std::int64_t dim, const Tensor& q,
                    const Tensor& k) {
  const std::vector<double> a = q.wide(), b = k.wide();
  const auto rows = static_cast<std::int64_t>(w.size()) / dim;
  const double root = std::pow(static_cast<double>(dim), -0.25);
  double error = 0.0;
  const std::int64_t pairs = q.size() / dim;
  for (std::int64_t n = 0; n < pairs; ++n) {
    double square = 0.0, product = 0.0, mean = 0.0;
    for (std::int64_t e = 0; e < dim; ++e) {
      const double x = root * a[static_cast<std::size_t>(n * dim + e)];
      const double y = root * b[static_cast<std::size_t>(n * dim + e)];
      square += x * x + y * y;
      product += x * y;
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      double sum = 0.0;
      for (std::int64_t e = 0; e < dim; ++e) {
        sum +=
            w[static_cast<std::size_t>(i * dim + e)] * root *
            (a[static_cast<std::size_t>(n * dim + e)] + b[static_cast<std::size_t>(n * dim + e)]);
      }
      mean += std::exp(sum - square / 2.0 - product) / static_cast<double>(rows);
    }
    error += (mean - 1.0) * (mean - 1.0);
  }
  return error / static_cast<double>(pairs);
}

TEST(Favor, OrthogonalRowsAreBetterThanIndependentOnes) {
  constexpr std::int64_t kDim = 16, kSeeds = 200;
  Tensor q(DType::f32, {1, 40, 1, kDim}, Strides::dense, 3);
  Tensor k(DType::f32, {1, 40, 1, kDim}, Strides::dense, 4);
  for (Tensor* x : {&q, &k}) {
    x->for_each([&](std::int64_t at) {
      core::set_element(x->view(), at, 0.5 * core::element_of(x->view(), at));
    });
  }
  std::mt19937_64 random(9);
  std::normal_distribution<double> normal;
  double orthogonal = 0.0, independent = 0.0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::vector<float> w = favor_weights(kDim, kDim, seed);
    orthogonal += kernel_error({w.begin(), w.end()}, kDim, q, k);
    std::vector<double> plain(w.size());
    for (double& x : plain) x = normal(random);
    independent += kernel_error(plain, kDim, q, k);
  }
  EXPECT_LT(orthogonal, 0.9 * independent);
}

// The root of the mean square difference from softmax attention, over seeds.
double distance_from_softmax(const LinearProblem& p, const std::vector<double>& softmax,
                             std::int64_t count, std::int64_t seeds) {
  double error = 0.0;
  LinearOptions options = p.options;
  options.feature_count = count;
  for (std::int64_t seed = 0; seed < seeds; ++seed) {
    options.seed = static_cast<std::uint64_t>(seed);
    Tensor out = p.new_out();
    linear_attend(p.rotary, p.q.view(), p.k.view(), p.v.view(), out.view(), options);
    const std::vector<double> got = out.wide();
    for (std::size_t i = 0; i < got.size(); ++i)
      error += (got[i] - softmax[i]) * (got[i] - softmax[i]);
  }
  return std::sqrt(error / static_cast<double>(seeds * p.new_out().size()));
}

// Rotated inputs approximate softmax attention with RoPE: four times the features, half the error.
TEST(Favor, ApproachesSoftmaxAttentionAsFeaturesGrow) {
  for (const Causality causality : kCausalities) {
    for (const Rotating rotating : {Rotating::none, Rotating::half}) {
      LinearProblem p({.rotating = rotating,
                       .features = FeatureMap::favor,
                       .causality = causality,
                       .heads = 2,
                       .key_heads = 1,
                       .queries = 48,
                       .keys = 48,
                       .head_dim = 16,
                       .value_dim = 8,
                       .rotates = Rotates::inputs});
      for (Tensor* x : {&p.q, &p.k}) {
        x->for_each([&](std::int64_t at) {
          core::set_element(x->view(), at, 0.3 * core::element_of(x->view(), at));
        });
      }
      encodings::ScoreTerms terms;
      terms.scale = 0.25;
      terms.rotation = p.rotary;
      Tensor exact = p.new_out();
      attend(terms, p.q.view(), p.k.view(), p.v.view(), exact.view(), {.causality = causality});
      const std::vector<double> softmax = exact.wide();
      double before = distance_from_softmax(p, softmax, 64, 24);
      for (const std::int64_t count : {256, 1024, 4096}) {
        const double now = distance_from_softmax(p, softmax, count, 24);
        EXPECT_GT(now, 0.38 * before) << count << p.what;
        EXPECT_LT(now, 0.62 * before) << count << p.what;
        before = now;
      }
      EXPECT_LT(before, 0.01);
    }
  }
}

// (19) with a rotation of the features is another function: it does not approach softmax attention.
TEST(Favor, RotatedFeaturesAreNotRotatedInputs) {
  LinearCase c{.features = FeatureMap::favor,
               .queries = 20,
               .keys = 20,
               .head_dim = 16,
               .value_dim = 8,
               .feature_count = 16};
  const std::vector<double> of_features = LinearProblem(c).attend().wide();
  c.rotates = Rotates::inputs;
  EXPECT_NE(of_features, LinearProblem(c).attend().wide());
}

// Every exponential overflows float32, and exp(|k'|^2 / 2) a double. float64 has the range to compare
// with; what is left of float32 is finite.
TEST(Favor, TakesLargeInputs) {
  for (const Causality causality : kCausalities) {
    for (const double size : {10.0, 100.0, 700.0}) {
      LinearProblem p({.features = FeatureMap::favor,
                       .causality = causality,
                       .heads = 2,
                       .key_heads = 1,
                       .queries = 70,
                       .keys = 70,
                       .head_dim = 16,
                       .value_dim = 5});
      for (Tensor* x : {&p.q, &p.k}) {
        x->for_each([&](std::int64_t at) {
          core::set_element(x->view(), at, size * core::element_of(x->view(), at));
        });
      }
      for (const double x : p.attend().wide()) EXPECT_TRUE(std::isfinite(x)) << size;
      const LinearGradients got = backward(p);
      for (const Tensor* gradient : {&got.d_q, &got.d_k, &got.d_v})
        for (const double x : gradient->wide()) EXPECT_TRUE(std::isfinite(x)) << size;
    }
  }
}

// Keys at one large vector, and queries there: |k'|^2 / 2 is about 1200, and cancels.
TEST(Favor, KeepsWhatLargeKeysShare) {
  for (const Causality causality : kCausalities) {
    LinearProblem p({.rotating = Rotating::none,
                     .features = FeatureMap::favor,
                     .causality = causality,
                     .heads = 2,
                     .key_heads = 1,
                     .queries = 70,
                     .keys = 70,
                     .head_dim = 16,
                     .value_dim = 5});
    for (Tensor* x : {&p.q, &p.k}) {
      x->for_each([&](std::int64_t at) {
        const double base = at % 16 % 2 == 0 ? 24.0 : -25.0;
        core::set_element(x->view(), at, base + 0.1 * core::element_of(x->view(), at));
      });
    }
    LinearProblem wide({.rotating = Rotating::none,
                        .features = FeatureMap::favor,
                        .causality = causality,
                        .heads = 2,
                        .key_heads = 1,
                        .queries = 70,
                        .keys = 70,
                        .head_dim = 16,
                        .value_dim = 5,
                        .dtype = DType::f64,
                        .key_dtype = DType::f64});
    for (const auto& [from, to] :
         {std::pair(&p.q, &wide.q), std::pair(&p.k, &wide.k), std::pair(&p.v, &wide.v)}) {
      const std::vector<double> values = from->wide();
      std::size_t at = 0;
      to->for_each([&](std::int64_t i) { core::set_element(to->view(), i, values[at++]); });
    }
    const std::vector<double> got = p.attend().wide(), expected = wide.attend().wide();
    // The exponents reach 1400 in float32.
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-3) << i;
    EXPECT_NE(got, std::vector<double>(got.size()));
  }
}

// NaN and infinity in a key reach the queries that see it, and no others.
TEST(Favor, KeysThatAreNotFiniteReachTheQueriesThatSeeThem) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    LinearProblem p(
        {.rotating = Rotating::none, .features = FeatureMap::favor, .queries = 40, .keys = 40});
    const std::vector<double> before = p.attend().wide();
    core::set_element(p.k.view(), 20 * p.k.view().token_stride + 3, bad);
    const std::vector<double> after = p.attend().wide();
    for (std::size_t i = 0; i < after.size(); ++i) {
      if (i / 16 < 20) {
        EXPECT_NEAR(after[i], before[i], 1e-5);
      } else {
        EXPECT_TRUE(std::isnan(after[i])) << i;
      }
    }
  }
}

}  // namespace
}  // namespace phasor::attention::tests
