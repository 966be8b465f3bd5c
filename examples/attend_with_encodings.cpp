// One attention, several encodings: the same q, k and v with RoPE, ALiBi and a trained T5 bias, and
// the gradient of the bias checked against a finite difference.
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "phasor/attention.hpp"
#include "phasor/encodings/score_terms.hpp"

namespace {

constexpr std::int64_t kTokens = 48, kHeads = 2, kDim = 16, kBuckets = 8;

std::vector<float> numbers(std::int64_t count, double step) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(std::sin(step * static_cast<double>(i + 1)));
  return values;
}

struct Problem {
  std::vector<float> q = numbers(kTokens * kHeads * kDim, 0.7);
  std::vector<float> k = numbers(kTokens * kHeads * kDim, 1.1);
  std::vector<float> v = numbers(kTokens * kHeads * kDim, 1.9);
  std::vector<float> out = std::vector<float>(q.size());
  std::vector<float> log_sum_exp = std::vector<float>(kHeads * kTokens);

  static phasor::ConstHeadsView view(const std::vector<float>& x) {
    return phasor::heads_view(x.data(), 1, kTokens, kHeads, kDim);
  }
  static phasor::HeadsView view(std::vector<float>& x) {
    return phasor::heads_view(x.data(), 1, kTokens, kHeads, kDim);
  }
  // The sum of the output: the loss of this example.
  double run(const phasor::ScoreTerms& terms) {
    const phasor::AttentionOptions causal{.causality = phasor::Causality::bottom_right};
    phasor::attend(terms, view(std::as_const(q)), view(std::as_const(k)), view(std::as_const(v)),
                   view(out), causal, {.log_sum_exp = log_sum_exp.data()});
    double sum = 0.0;
    for (const float x : out) sum += static_cast<double>(x);
    return sum;
  }
};

}  // namespace

int main() {
  const phasor::AttentionShape shape{.heads = kHeads,
                                     .key_heads = kHeads,
                                     .head_dim = kDim,
                                     .value_dim = kDim,
                                     .query_tokens = kTokens,
                                     .key_tokens = kTokens};
  Problem problem;
  const phasor::RopeSpec rope{
      .head_dim = kDim, .rotary_dim = kDim, .layout = phasor::PairLayout::half};
  std::printf("rope   %+.6f\n", problem.run(phasor::encodings::resolve(rope, shape)));
  std::printf("alibi  %+.6f\n", problem.run(phasor::encodings::resolve(phasor::Alibi{}, shape)));

  // [buckets, heads], as T5 keeps it; read in place, never copied.
  std::vector<float> bias = numbers(kBuckets * kHeads, 0.3);
  const phasor::T5 t5{
      .bias = phasor::encodings::rows_then_heads(std::as_const(bias).data(), kBuckets, kHeads, 1),
      .max_distance = 32,
      .range = phasor::encodings::BucketRange::past_only};
  const phasor::ScoreTerms terms = phasor::encodings::resolve(t5, shape);
  std::printf("t5     %+.6f\n", problem.run(terms));

  std::vector<float> ones(problem.out.size(), 1.0F), d_q(ones), d_k(ones), d_v(ones);
  std::vector<float> d_bias(bias.size(), 0.0F);  // gradients of tables are added to what is there
  phasor::AttentionGradients gradients{
      Problem::view(d_q), Problem::view(d_k), Problem::view(d_v), {}};
  gradients.terms.bias = phasor::encodings::rows_then_heads(d_bias.data(), kBuckets, kHeads, 1);
  phasor::attend_backward(terms, Problem::view(std::as_const(problem.q)),
                          Problem::view(std::as_const(problem.k)),
                          Problem::view(std::as_const(problem.v)),
                          {Problem::view(std::as_const(problem.out)), problem.log_sum_exp.data(),
                           Problem::view(std::as_const(ones))},
                          gradients, {.causality = phasor::Causality::bottom_right});

  constexpr std::size_t kWatched = 3;
  constexpr float kStep = 1e-2F;
  bias[kWatched] += kStep;
  const double above = problem.run(terms);
  bias[kWatched] -= 2 * kStep;
  const double below = problem.run(terms);
  const double slope = (above - below) / (2.0 * static_cast<double>(kStep));
  std::printf("gradient of the bias %+.5f, by finite differences %+.5f\n",
              static_cast<double>(d_bias[kWatched]), slope);
  return std::fabs(slope - static_cast<double>(d_bias[kWatched])) < 1e-2 ? 0 : 1;
}
