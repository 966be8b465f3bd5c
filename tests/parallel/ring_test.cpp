// Attention over ranks against the reference of the whole sequence, with every encoding.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
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

constexpr std::array kRingOrders = {TokenOrder::contiguous, TokenOrder::zigzag,
                                    TokenOrder::striped};

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

// One rank's part of a problem, over a plan.
struct Share {
  Share(const Problem& p, const ParallelOptions& parallel, AttentionPasses passes)
      : problem(p),
        options(with_one_thread(p.options)),
        sizes(attention::tests::sizes_for(p.what)),
        plan(ranks(), p.terms, sizes, options, parallel, passes),
        q(local(p.q_view(), plan.queries(), p.what.strides)),
        k(local(p.k_view(), plan.keys(), p.what.strides)),
        v(local(p.v_view(), plan.keys(), p.what.strides)),
        d_out(local(p.d_out_view(), plan.queries(), p.what.strides)),
        queries(plan.queries().count(ranks().rank())),
        keys(plan.keys().count(ranks().rank())),
        out(p.what.dtype, {p.what.batch, queries, p.what.heads, p.what.value_dim}, p.what.strides,
            99),
        log_sums(static_cast<std::size_t>(p.what.batch * p.what.heads * queries), -7.0F),
        bytes(ring_bytes(sizes, options, parallel, ranks().size(), ranks().rank())) {
    const std::int64_t before = plan.bytes_sent();
    plan.run(q.view(), k.view(), v.view(), out.view(), log_sums.data());
    EXPECT_EQ(plan.bytes_sent() - before, bytes.keys_and_values) << p.what;
  }
  static attention::AttentionOptions with_one_thread(attention::AttentionOptions options) {
    options.threads = 1;
    return options;
  }

  const Problem& problem;
  attention::AttentionOptions options;
  attention::AttentionSizes sizes;
  RingPlan plan;
  Tensor q, k, v, d_out;
  std::int64_t queries, keys;
  Tensor out;
  std::vector<float> log_sums;
  RingBytes bytes;
};

void expect_forward(Share& share, TokenOrder order, double wire_error = 0.0) {
  const Problem& p = share.problem;
  const Case& c = p.what;
  const Expectation expected(p);
  Report report(p, order);
  for_each_local(
      std::as_const(share.out).view(), share.plan.queries(),
      [&](std::size_t at, double got, std::size_t row) {
        const double exact = expected.result.out[at];
        report.check(
            "out", at, got, exact,
            attention::tests::out_tolerance(p, expected.tolerances[row], expected.largest, exact) +
                ring_tolerance(expected.result.log_sum_exp[row], expected.largest) +
                wire_error * expected.largest);
      });
  const std::vector<std::int64_t> tokens = share.plan.queries().tokens_of(ranks().rank());
  for (std::size_t i = 0; i < share.log_sums.size(); ++i) {
    const std::size_t n = tokens.size();
    const std::size_t row =
        i / n * static_cast<std::size_t>(c.queries) + static_cast<std::size_t>(tokens[i % n]);
    const double exact = expected.result.log_sum_exp[row];
    report.check("log_sum_exp", row, share.log_sums[i], exact,
                 expected.tolerances[row] + wire_error +
                     attention::tests::kEpsilon *
                         (4.0 + std::sqrt(static_cast<double>(c.keys)) + std::fabs(exact)) +
                     ring_tolerance(exact, 1.0));
  }
}

constexpr float kBefore = 0.5F;  // in each table's gradient before the call, which adds to it

void expect_backward(Share& share, TokenOrder order, double wire_error = 0.0) {
  const Problem& p = share.problem;
  const Case& c = p.what;
  const attention::tests::ReferenceResult forward = p.reference();
  const attention::tests::ReferenceGradients expected = p.reference_gradients();
  const std::vector<attention::tests::TableSlot> slots =
      attention::tests::tables_of(p.terms, expected);
  Tensor d_q(DType::f32, {c.batch, share.queries, c.heads, c.head_dim}, c.strides, 1);
  Tensor d_k(DType::f32, {c.batch, share.keys, c.key_heads, c.head_dim}, c.strides, 2);
  Tensor d_v(DType::f32, {c.batch, share.keys, c.key_heads, c.value_dim}, c.strides, 3);
  attention::AttentionGradients gradients{d_q.view(), d_k.view(), d_v.view(), {}};
  std::deque<std::vector<float>> tables;
  for (const auto& slot : slots) {
    const auto& t = slot.table;
    auto& values = tables.emplace_back(static_cast<std::size_t>(t.heads * t.rows * t.dim), kBefore);
    gradients.terms.*slot.gradient =
        encodings::heads_then_rows(values.data(), t.heads, t.rows, t.dim);
  }
  const std::int64_t before = share.plan.bytes_sent();
  share.plan.run_backward(share.q.view(), share.k.view(), share.v.view(),
                          {share.out.view(), share.log_sums.data(), share.d_out.view()}, gradients);
  EXPECT_EQ(share.plan.bytes_sent() - before, share.bytes.keys_and_values + share.bytes.gradients)
      << c;

  double largest_log = 0.0;
  for (const double log : forward.log_sum_exp)
    if (std::isfinite(log)) largest_log = std::fmax(largest_log, std::fabs(log));
  const double relative =
      attention::tests::relative_error(p, forward) + ring_tolerance(largest_log, 1.0) + wire_error;
  const double product = std::sqrt(static_cast<double>(c.value_dim));
  Report report(p, order);
  const auto compare = [&](const char* name, const Tensor& got, const Shards& shards,
                           const std::vector<double>& exact) {
    const double tolerance = relative * (attention::tests::largest_of(exact) + product);
    for_each_local(got.view(), shards, [&](std::size_t at, double value, std::size_t) {
      report.check(name, at, value, exact[at], tolerance);
    });
  };
  compare("d_q", d_q, share.plan.queries(), expected.d_q);
  compare("d_k", d_k, share.plan.keys(), expected.d_k);
  compare("d_v", d_v, share.plan.keys(), expected.d_v);
  const double rows = std::sqrt(static_cast<double>(c.batch * c.queries));
  for (std::size_t s = 0; s < tables.size(); ++s) {
    const std::vector<double>& exact = *slots[s].expected;
    const double tolerance =
        relative * (kBefore + attention::tests::largest_of(exact) + product * rows);
    for (std::size_t i = 0; i < exact.size(); ++i)
      report.check(slots[s].name, i, tables[s][i], kBefore + exact[i], tolerance);
  }
}

void expect_ring(const Case& c, TokenOrder order) {
  const Problem p(c);
  Share share(p, {.order = order}, AttentionPasses::forward_and_backward);
  expect_forward(share, order);
  expect_backward(share, order);
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
    expect_ring(c, order);
    c.causality = Causality::bottom_right;
    expect_ring(c, order);
    c.window = 9;
    expect_ring(c, order);
    if (order == TokenOrder::striped) continue;
    c.causality = Causality::none;
    expect_ring(c, order);
  }
}

}  // namespace
}  // namespace phasor::parallel
