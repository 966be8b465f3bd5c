#include "phasor/attention/linear.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attention/linear/linear_support.hpp"
#include "support/golden_array.hpp"

namespace phasor::attention {
namespace {

using core::InstructionSet;
using tests::expect_gaps_untouched;
using tests::expect_within_bound;
using tests::Ids;
using tests::kCausalities;
using tests::kMaps;
using tests::LinearCase;
using tests::LinearGolden;
using tests::LinearProblem;
using tests::Padding;
using tests::Rotating;
using tests::Strides;
using tests::Tensor;

void expect_reference(const LinearCase& c, InstructionSet isa = InstructionSet::best,
                      int threads = 1) {
  SCOPED_TRACE(testing::Message() << c << " " << core::name_of(isa) << " threads " << threads);
  const LinearProblem p(c);
  const Tensor out = p.attend(isa, threads);
  expect_within_bound(p.reference(), out, out.wide());
  expect_gaps_untouched(p.new_out(), out);
}

constexpr std::array kLinearTokens = {1, 2, 63, 64, 65, 129, 300};
constexpr std::array kHeadDims = {2, 8, 12, 16, 64};
constexpr std::array kLinearValueDims = {1, 10, 64};

class LinearAtEveryLevel : public testing::TestWithParam<InstructionSet> {};

TEST_P(LinearAtEveryLevel, ChunkedIsTheWholeMatrix) {
  std::uint64_t seed = 0;
  for (const int tokens : kLinearTokens) {
    for (const int dim : kHeadDims) {
      for (const int value_dim : kLinearValueDims) {
        for (const Causality causality : kCausalities) {
          ++seed;
          expect_reference(tests::chunked_case(seed, causality, tokens, dim, value_dim),
                           GetParam());
        }
      }
    }
  }
}

TEST_P(LinearAtEveryLevel, EveryRotationAndNone) {
  for (const Rotating rotating : tests::kRotations) {
    tests::for_each_kind(tests::rotated_case(rotating), [&](LinearCase c) {
      for (const Ids ids : {Ids::by_default, Ids::scattered}) {
        for (const Rotates rotates : tests::kRotates) {
          c.ids = ids;
          c.rotates = rotates;
          expect_reference(c, GetParam());
        }
      }
    });
  }
}

TEST_P(LinearAtEveryLevel, StoresHalfPrecision) {
  for (const core::DType dtype : {core::DType::f16, core::DType::bf16}) {
    for (const core::DType key_dtype : {core::DType::f32, core::DType::f16, core::DType::bf16}) {
      for (const Causality causality : kCausalities) {
        expect_reference(tests::half_precision_case(causality, dtype, key_dtype), GetParam());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, LinearAtEveryLevel,
                         testing::ValuesIn(core::available_instruction_sets()), tests::level_name);

TEST(LinearAttend, QueriesAndKeysOfOtherNumbers) {
  for (const auto& [queries, keys] : {std::pair(1, 300), std::pair(70, 133), std::pair(64, 65),
                                      std::pair(130, 70), std::pair(300, 1), std::pair(5, 0)}) {
    tests::for_each_kind(tests::uneven_case(queries, keys),
                         [](const LinearCase& c) { expect_reference(c); });
  }
}

TEST(LinearAttend, PaddedKeysCountForNothing) {
  for (const Padding padding : {Padding::scattered, Padding::left, Padding::all}) {
    tests::for_each_kind(tests::padded_case(padding), [](const LinearCase& c) {
      expect_reference(c);
      // NaN in padding has no effect.
      LinearProblem p(c);
      const Tensor before = p.attend();
      for (std::int64_t b = 0; b < c.batch; ++b) {
        for (std::int64_t n = 0; n < c.keys; ++n) {
          if (p.key_padding[static_cast<std::size_t>(b * c.keys + n)] != 0) continue;
          for (Tensor* x : {&p.k, &p.v}) {
            for (std::int64_t i = 0; i < 2 * 16; ++i) {
              core::set_element(x->view(),
                                b * x->view().batch_stride + n * x->view().token_stride + i,
                                std::nan(""));
            }
          }
        }
      }
      EXPECT_EQ(p.attend().bytes(), before.bytes());
      if (c.padding == Padding::all) {
        EXPECT_EQ(before.wide(), std::vector<double>(3 * 90 * 2 * 16));
      }
    });
  }
}

TEST(LinearAttend, ThreadsAndGroupsShareTheWork) {
  for (const std::int64_t key_heads : {1, 2, 3, 6}) {
    for (const std::int64_t batch : {1, 3}) {
      for (const Causality causality : kCausalities) {
        const LinearCase c{.causality = causality,
                           .batch = batch,
                           .heads = 6,
                           .key_heads = key_heads,
                           .queries = 140,
                           .keys = 140,
                           .head_dim = 32,
                           .value_dim = 40,
                           .strides = Strides::heads_first};
        if (batch == 1) expect_reference(c);
        const LinearProblem p(c);
        const Tensor one = p.attend(InstructionSet::best, 1);
        for (const int threads : {2, 3, 5}) {
          EXPECT_EQ(p.attend(InstructionSet::best, threads).bytes(), one.bytes()) << c << threads;
        }
      }
    }
  }
}

// One sequence in calls of `piece` tokens each.
std::vector<double> in_pieces(const LinearProblem& p, const std::vector<std::int64_t>& pieces,
                              int threads, LinearState& state) {
  Tensor out = p.new_out();
  std::int64_t first = 0;
  for (std::size_t i = 0; first < p.what.keys; ++i) {
    const std::int64_t count = std::min(pieces[i % pieces.size()], p.what.keys - first);
    const auto piece = [&](auto view) {
      using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(view.data)>>,
                                      const char, char>;
      view.data = static_cast<Byte*>(view.data) +
                  first * view.token_stride * static_cast<std::int64_t>(core::size_of(view.dtype));
      view.tokens = count;
      return view;
    };
    std::vector<std::uint8_t> padding;
    for (std::int64_t b = 0; b < p.what.batch && !p.key_padding.empty(); ++b) {
      const auto row = p.key_padding.begin() + b * p.what.keys + first;
      padding.insert(padding.end(), row, row + count);
    }
    LinearOptions options = p.options;
    options.key_padding = padding;
    options.threads = threads;
    EXPECT_EQ(state.tokens(), first);
    linear_attend(p.rotary, piece(p.q.view()), piece(p.k.view()), piece(p.v.view()),
                  piece(out.view()), options, &state);
    first += count;
  }
  EXPECT_EQ(state.tokens(), p.what.keys);
  expect_gaps_untouched(p.new_out(), out);
  return out.wide();
}

TEST(LinearState, StreamingIsTheBatch) {
  for (const FeatureMap features : kMaps) {
    for (const Padding padding : {Padding::none, Padding::left}) {
      const LinearCase c{.rotating = Rotating::partial,
                         .features = features,
                         .batch = 2,
                         .heads = 4,
                         .key_heads = 2,
                         .queries = 210,
                         .keys = 210,
                         .head_dim = 20,
                         .value_dim = 24,
                         .strides = Strides::heads_first,
                         .padding = padding};
      const LinearProblem p(c);
      const tests::LinearReference expected = p.reference();
      for (const std::vector<std::int64_t>& pieces :
           std::vector<std::vector<std::int64_t>>{{1}, {210}, {64}, {65, 1, 2, 63}, {150, 60}}) {
        for (const int threads : {1, 3}) {
          LinearState state(c.batch, c.key_heads, c.features_wide(), c.value_dim);
          const std::vector<double> got = in_pieces(p, pieces, threads, state);
          expect_within_bound(expected, p.new_out(), got);
        }
      }
    }
  }
}

// Query heads of one key head on several threads: all read the state, one updates it.
TEST(LinearState, SharedKeyHeadsUpdateItOnce) {
  const LinearCase c{.heads = 8,
                     .key_heads = 1,
                     .queries = 300,
                     .keys = 300,
                     .head_dim = 48,
                     .value_dim = 64,
                     .strides = Strides::heads_first};
  const LinearProblem p(c);
  LinearState state(1, 1, 48, 64);
  expect_within_bound(p.reference(), p.new_out(), in_pieces(p, {150}, 4, state));
}

TEST(LinearState, ForksAndResets) {
  const LinearProblem p({.features = FeatureMap::softmax_exp, .queries = 30, .keys = 30});
  LinearState state(1, 1, 16, 16);
  const std::int64_t bytes = state.bytes();
  EXPECT_FALSE(state.features().has_value());
  const std::vector<double> first = in_pieces(p, {7}, 1, state);
  EXPECT_EQ(state.features(), FeatureMap::softmax_exp);
  EXPECT_EQ(state.bytes(), bytes);

  const LinearProblem next(
      {.features = FeatureMap::softmax_exp, .queries = 1, .keys = 1, .seed = 9});
  const auto step = [&](LinearState& from) {
    Tensor out = next.new_out();
    linear_attend(next.rotary, next.q.view(), next.k.view(), next.v.view(), out.view(),
                  next.options, &from);
    return out.wide();
  };
  LinearState fork = state;
  const std::vector<double> once = step(fork);
  EXPECT_NE(step(fork), once);
  EXPECT_EQ(step(state), once) << "the fork changed the original";
  state.reset();
  EXPECT_EQ(state.tokens(), 0);
  EXPECT_FALSE(state.features().has_value());
  EXPECT_EQ(in_pieces(p, {7}, 1, state), first);
}

// Equal terms are the worst case of a plain float32 sum: it stops growing at 2^24 of them, and long
// before that its relative error is 1e-4.
TEST(LinearState, AHundredThousandStepsStayWithinTheBound) {
  constexpr int kSteps = 100000;
  LinearState state(1, 1, 2, 1);
  const std::vector<float> query = {0.3F, -0.2F}, key = {0.7F, 0.1F}, value = {0.3333333F};
  const LinearOptions options{.causality = Causality::bottom_right, .threads = 1};
  float out = 0.0F;
  for (int i = 0; i < kSteps; ++i) {
    linear_attend(std::nullopt, core::heads_view(query.data(), 1, 1, 1, 2),
                  core::heads_view(key.data(), 1, 1, 1, 2),
                  core::heads_view(value.data(), 1, 1, 1, 1), core::heads_view(&out, 1, 1, 1, 1),
                  options, &state);
  }
  EXPECT_NEAR(out, value[0], kLinearError * value[0]);
}

// exp(200) overflows float32; the ratio of (19) does not.
TEST(LinearAttend, LargeKeysDoNotOverflow) {
  const auto shifted = [](double by, Causality causality) {
    LinearProblem p(tests::large_keys_case(causality));
    p.k.for_each([&](std::int64_t at) {
      core::set_element(p.k.view(), at, core::element_of(p.k.view(), at) + by);
    });
    p.q.for_each([&](std::int64_t at) {
      core::set_element(p.q.view(), at, core::element_of(p.q.view(), at) - by);
    });
    const Tensor out = p.attend();
    SCOPED_TRACE(by);
    expect_within_bound(p.reference(), out, out.wide());
  };
  for (const Causality causality : kCausalities) {
    for (const double by : {200.0, -200.0, 500.0}) shifted(by, causality);
  }
}

TEST(LinearAttend, ALaterLargeKeyDoesNotChangeEarlierQueries) {
  for (const std::int64_t at : {0, 1, 20, 63, 64, 99}) {
    LinearProblem p({.features = FeatureMap::softmax_exp,
                     .queries = 100,
                     .keys = 100,
                     .head_dim = 8,
                     .value_dim = 8});
    for (std::int64_t i = 0; i < 8; ++i) {
      core::set_element(p.k.view(), at * p.k.view().token_stride + i, 200.0 + 0.1 * i);
    }
    const Tensor out = p.attend();
    SCOPED_TRACE(at);
    expect_within_bound(p.reference(), out, out.wide());
    LinearState state(1, 1, 8, 8);
    expect_within_bound(p.reference(), out, in_pieces(p, {3, 1}, 1, state));
  }
}

TEST(LinearAttend, NaNReachesTheQueriesThatSeeIt) {
  constexpr std::int64_t kTokensHere = 90, kAt = 40;
  const LinearCase c{.queries = kTokensHere, .keys = kTokensHere, .value_dim = 3};
  const LinearProblem clean(c);
  const std::vector<double> expected = clean.attend().wide();
  for (const char which : {'q', 'k', 'v'}) {
    LinearProblem p(c);
    Tensor& x = which == 'q' ? p.q : which == 'k' ? p.k : p.v;
    core::set_element(x.view(), kAt * x.view().token_stride + 1, std::nan(""));
    const std::vector<double> out = p.attend().wide();
    for (std::int64_t m = 0; m < kTokensHere; ++m) {
      for (std::int64_t j = 0; j < 3; ++j) {
        const bool reached = which == 'q' ? m == kAt : which == 'k' ? m >= kAt : m >= kAt && j == 1;
        const auto i = static_cast<std::size_t>(3 * m + j);
        if (reached) {
          EXPECT_TRUE(std::isnan(out[i])) << which << " " << m << " " << j;
        } else {
          EXPECT_NEAR(out[i], expected[i], 1e-5) << which << " " << m << " " << j;
        }
      }
    }
  }
}

// A large output is written past the caches if it is aligned, otherwise through them.
TEST(LinearAttend, LargeOutputsAreTheSameNumbers) {
  constexpr std::int64_t kLong = 8200, kDim = 64;
  const LinearProblem p({.heads = 2,
                         .key_heads = 1,
                         .queries = kLong,
                         .keys = kLong,
                         .head_dim = 2,
                         .value_dim = kDim});
  std::vector<float> memory(2 * kLong * kDim + 32);
  const auto to_line = (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64 / 4;
  for (const Causality causality : kCausalities) {
    LinearOptions options = p.options;
    options.causality = causality;
    options.threads = 2;
    std::vector<float> results[2];
    for (const std::size_t shift : {0, 1}) {
      float* out = memory.data() + to_line + shift;
      linear_attend(p.rotary, p.q.view(), p.k.view(), p.v.view(),
                    core::heads_view(out, 1, kLong, 2, kDim), options);
      results[shift].assign(out, out + 2 * kLong * kDim);
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

TEST(LinearAttend, NothingToDo) {
  expect_reference({.batch = 0, .queries = 3, .keys = 3});
  expect_reference({.queries = 0, .keys = 0});
  expect_reference({.queries = 0, .keys = 70});
  LinearState state(1, 1, 16, 16);
  const LinearProblem p({.queries = 0, .keys = 0});
  Tensor out = p.new_out();
  linear_attend(p.rotary, p.q.view(), p.k.view(), p.v.view(), out.view(), p.options, &state);
  EXPECT_EQ(state.tokens(), 0);
}

constexpr LinearGolden kGolden[] = {
    {"linear_attention_causal", FeatureMap::elu_plus_one, Causality::bottom_right, 1, 2, 17, 16,
     12},
    {"linear_attention_causal_long", FeatureMap::elu_plus_one, Causality::bottom_right, 1, 1, 96,
     32, 32},
    {"linear_attention_causal_n300", FeatureMap::elu_plus_one, Causality::bottom_right, 1, 1, 300,
     16, 12},
    {"linear_attention_noncausal", FeatureMap::elu_plus_one, Causality::none, 1, 2, 17, 16, 12},
    {"linear_attention_softmax_exp", FeatureMap::softmax_exp, Causality::none, 1, 2, 21, 16, 10},
    {"linear_attention_softmax_exp_causal", FeatureMap::softmax_exp, Causality::bottom_right, 2, 1,
     26, 12, 16},
};

TEST(LinearAttend, GoldenCases) {
  for (const LinearGolden& g : kGolden) {
    SCOPED_TRACE(g.name);
    const std::string folder = std::string("linear_attention/") + g.name + "/";
    const auto q = phasor::tests::golden_array<float>(folder + "q.npy");
    const auto k = phasor::tests::golden_array<float>(folder + "k.npy");
    const auto v = phasor::tests::golden_array<float>(folder + "v.npy");
    const auto truth = phasor::tests::golden_array<double>(folder + "output_f64.npy");
    std::vector<float> out(truth.size());
    linear_attend(g.rotary(), g.view(q, g.dim), g.view(k, g.dim), g.view(v, g.value_dim),
                  g.view(out, g.value_dim), g.options());
    const tests::LinearReference reference = tests::linear_attend_reference(
        g.rotary(), g.view(q, g.dim), g.view(k, g.dim), g.view(v, g.value_dim), g.options());
    for (std::int64_t b = 0; b < g.batch; ++b) {
      for (std::int64_t h = 0; h < g.heads; ++h) {
        for (std::int64_t i = 0; i < g.tokens * g.value_dim; ++i) {
          const std::int64_t t = i / g.value_dim, j = i % g.value_dim;
          const auto here =
              static_cast<std::size_t>((b * g.heads + h) * g.tokens * g.value_dim + i);
          const auto there =
              static_cast<std::size_t>(((b * g.tokens + t) * g.heads + h) * g.value_dim + j);
          ASSERT_NEAR(out[here], truth[here], 5e-6 + 1e-5 * std::fabs(truth[here])) << i;
          ASSERT_NEAR(reference.out[there], truth[here], 1e-12) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace phasor::attention
