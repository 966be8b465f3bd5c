// Attention over ranks against the reference of the whole sequence, with every encoding.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attention/softmax/attend_comparison.hpp"
#include "attention/softmax/attend_support.hpp"
#include "parallel/ranks.hpp"
#include "phasor/parallel/attention.hpp"

namespace phasor::parallel {
namespace {

using attention::AttentionPasses;
using attention::Causality;
using attention::tests::Case;
using attention::tests::Expectation;
using attention::tests::kAllTerms;
using attention::tests::Padded;
using attention::tests::PositionIds;
using attention::tests::Problem;
using attention::tests::Terms;
using core::DType;
using core::tests::Strides;
using core::tests::Tensor;
using tests::ranks;

constexpr std::array kRingOrders = {TokenOrder::contiguous, TokenOrder::zigzag, TokenOrder::striped};

// The rows of this rank's tokens.
Tensor local(const core::ConstHeadsView& whole, const Shards& shards, Strides strides) {
  const std::vector<std::int64_t> tokens = shards.tokens_of(ranks().rank());
  Tensor some(whole.dtype,
              {whole.batch, static_cast<std::int64_t>(tokens.size()), whole.heads, whole.head_dim},
              strides, 5);
  const core::HeadsView to = some.view();
  for (std::int64_t b = 0; b < whole.batch; ++b) {
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      for (std::int64_t h = 0; h < whole.heads; ++h) {
        for (std::int64_t e = 0; e < whole.head_dim; ++e) {
          const std::int64_t from =
              b * whole.batch_stride + tokens[row] * whole.token_stride + h * whole.head_stride + e;
          core::set_element(to,
                            b * to.batch_stride + static_cast<std::int64_t>(row) * to.token_stride +
                                h * to.head_stride + e,
                            core::element_of(whole, from));
        }
      }
    }
  }
  return some;
}

// The index in a dense [batch, tokens, heads, dim] of each element of local rows, in their order.
template <class Visit>
void for_each_local(const core::ConstHeadsView& rows, const Shards& shards, const Visit& visit) {
  const std::vector<std::int64_t> tokens = shards.tokens_of(ranks().rank());
  for (std::int64_t b = 0; b < rows.batch; ++b) {
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      for (std::int64_t h = 0; h < rows.heads; ++h) {
        for (std::int64_t e = 0; e < rows.head_dim; ++e) {
          const std::int64_t at =
              ((b * shards.tokens() + tokens[row]) * rows.heads + h) * rows.head_dim + e;
          const std::int64_t from = b * rows.batch_stride +
                                    static_cast<std::int64_t>(row) * rows.token_stride +
                                    h * rows.head_stride + e;
          visit(static_cast<std::size_t>(at), core::element_of(rows, from),
                static_cast<std::size_t>((b * rows.heads + h) * shards.tokens() + tokens[row]));
        }
      }
    }
  }
}

// The pieces that a query may meet: each rank has at most two runs of each sequence.
double most_pieces() { return 2.0 * ranks().size(); }

// A tolerance for the merge on top of that of attention.
double ring_tolerance(double log_sum, double largest) {
  if (!std::isfinite(log_sum)) return 0.0;
  return kRingError * most_pieces() * attention::tests::kEpsilon * (1.0 + std::fabs(log_sum)) *
         largest;
}

// Reports the first few differences.
class Report {
 public:
  explicit Report(const Problem& p, TokenOrder order) : problem_(p), order_(order) {}
  void check(const char* what, std::size_t index, double got, double expected, double tolerance) {
    if (attention::tests::near(got, expected, tolerance) || ++reported_ > 3) return;
    ADD_FAILURE() << what << "[" << index << "]: got " << got << ", expected " << expected
                  << ", off by " << got - expected << ", allowed " << tolerance << ", "
                  << attention::name_of(order_) << "\n"
                  << problem_.what;
  }

 private:
  const Problem& problem_;
  TokenOrder order_;
  int reported_ = 0;
};

void expect_forward(const Problem& p, TokenOrder order) {
  const Case& c = p.what;
  attention::AttentionOptions options = p.options;
  options.threads = 1;
  RingPlan plan(ranks(), p.terms, attention::tests::sizes_for(c), options, {.order = order});
  const Tensor q = local(p.q_view(), plan.queries(), c.strides);
  const Tensor k = local(p.k_view(), plan.keys(), c.strides);
  const Tensor v = local(p.v_view(), plan.keys(), c.strides);
  const std::int64_t count = plan.queries().count(ranks().rank());
  Tensor out(c.dtype, {c.batch, count, c.heads, c.value_dim}, c.strides, 99);
  std::vector<float> log_sums(static_cast<std::size_t>(c.batch * c.heads * count), -7.0F);
  const std::int64_t before = plan.bytes_sent();
  plan.run(q.view(), k.view(), v.view(), out.view(), log_sums.data());
  const RingBytes bytes = ring_bytes(attention::tests::sizes_for(c), options, {.order = order},
                                     ranks().size(), ranks().rank());
  EXPECT_EQ(plan.bytes_sent() - before, bytes.keys_and_values);

  const Expectation expected(p);
  Report report(p, order);
  for_each_local(
      std::as_const(out).view(), plan.queries(), [&](std::size_t at, double got, std::size_t row) {
        const double exact = expected.result.out[at];
        report.check(
            "out", at, got, exact,
            attention::tests::out_tolerance(p, expected.tolerances[row], expected.largest, exact) +
                ring_tolerance(expected.result.log_sum_exp[row], expected.largest));
      });
  const std::vector<std::int64_t> tokens = plan.queries().tokens_of(ranks().rank());
  for (std::size_t i = 0; i < log_sums.size(); ++i) {
    const auto n = tokens.size();
    const std::size_t row =
        i / n * static_cast<std::size_t>(c.queries) + static_cast<std::size_t>(tokens[i % n]);
    const double exact = expected.result.log_sum_exp[row];
    report.check("log_sum_exp", row, log_sums[i], exact,
                 expected.tolerances[row] +
                     attention::tests::kEpsilon *
                         (4.0 + std::sqrt(static_cast<double>(c.keys)) + std::fabs(exact)) +
                     ring_tolerance(exact, 1.0));
  }
}

Case case_of(Terms terms, std::int64_t tokens) {
  return {.terms = terms,
          .batch = 2,
          .heads = 4,
          .key_heads = 2,
          .queries = tokens,
          .keys = tokens,
          .head_dim = 16,
          .value_dim = 12};
}

class Ring : public ::testing::TestWithParam<Terms> {};
INSTANTIATE_TEST_SUITE_P(Every, Ring, ::testing::ValuesIn(kAllTerms),
                         [](const auto& info) { return attention::tests::name_of(info.param); });

TEST_P(Ring, IsAttentionOverTheWholeSequence) {
  for (const TokenOrder order : kRingOrders) {
    Case c = case_of(GetParam(), 53);
    expect_forward(Problem(c), order);
    c.causality = Causality::bottom_right;
    expect_forward(Problem(c), order);
    c.window = 9;
    expect_forward(Problem(c), order);
    if (order == TokenOrder::striped) continue;
    c.causality = Causality::none;
    expect_forward(Problem(c), order);
  }
}

}  // namespace
}  // namespace phasor::parallel
