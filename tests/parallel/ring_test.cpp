// Attention over ranks against the reference of the whole sequence, with every encoding.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/softmax/attend_comparison.hpp"
#include "attention/softmax/attend_support.hpp"
#include "parallel/ranks.hpp"
#include "phasor/parallel/attention.hpp"
#include "support/errors.hpp"

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
    Case c = case_of(GetParam(), 29);
    c.batch = order == TokenOrder::striped ? 2 : 1;
    expect_ring(c, order);
    c.causality = Causality::bottom_right;
    expect_ring(c, order);
    c.window = 6;
    expect_ring(c, order);
    if (order == TokenOrder::striped) continue;
    c.causality = Causality::none;
    expect_ring(c, order);
  }
}

// Over tiles: a shard of more than 192 keys and 96 queries.
TEST(RingLong, CrossesTheEdgesOfTiles) {
  Case c = case_of(Terms::shaw, 411);
  c.batch = 1;
  c.heads = c.key_heads = 1;
  c.causality = Causality::bottom_right;
  expect_ring(c, TokenOrder::zigzag);
}

TEST(RingShapes, FewerTokensThanRanks) {
  for (const Terms terms : {Terms::rope, Terms::tupe_first, Terms::everything}) {
    for (const std::int64_t tokens : {0, 1, 2, 3, 5}) {
      for (const TokenOrder order : kRingOrders) {
        Case c = case_of(terms, tokens);
        c.causality = Causality::bottom_right;
        expect_ring(c, order);
      }
    }
  }
}

TEST(RingShapes, OtherQueriesThanKeys) {
  for (const Terms terms : {Terms::rope, Terms::deberta, Terms::xlnet}) {
    for (const auto& [queries, keys] : {std::pair<std::int64_t, std::int64_t>{7, 26}, {26, 7}}) {
      for (const TokenOrder order : kRingOrders) {
        Case c = case_of(terms, keys);
        c.queries = queries;
        c.causality = Causality::bottom_right;
        expect_ring(c, order);
      }
    }
  }
}

TEST(RingOptions, PackedSequencesCrossShards) {
  for (const Terms terms : {Terms::rope, Terms::xlnet, Terms::t5, Terms::shaw}) {
    for (const TokenOrder order : kRingOrders) {
      Case c = case_of(terms, 31);
      c.batch = 1;
      c.packed = 4;
      expect_ring(c, order);
      c.causality = Causality::bottom_right;
      c.window = 5;
      c.seed = 3;
      expect_ring(c, order);
    }
  }
}

TEST(RingOptions, PaddingPositionsAndTheSoftCap) {
  for (const Terms terms : {Terms::rope, Terms::t5, Terms::everything}) {
    for (const TokenOrder order : kRingOrders) {
      Case c = case_of(terms, 23);
      c.padded = Padded::flags;
      c.soft_cap = 2.0;
      c.causality = Causality::bottom_right;
      expect_ring(c, order);
      for (const PositionIds positions :
           {PositionIds::gaps, PositionIds::left_padded, PositionIds::reordered}) {
        c = case_of(terms, 23);
        c.positions = positions;
        expect_ring(c, order);
      }
    }
  }
}

TEST(RingTypes, ReadsAndWritesSixteenBits) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Case c = case_of(Terms::rope, 23);
    c.dtype = c.key_dtype = dtype;
    expect_ring(c, TokenOrder::zigzag);
  }
}

// Keys and values that bf16 holds exactly, and no rotation: the wire changes nothing in the output.
TEST(RingTypes, OfBFloat16OnTheWire) {
  constexpr double kRounding = 0x1p-9;
  for (const TokenOrder order : kRingOrders) {
    Case c = case_of(Terms::alibi, 23);
    c.key_dtype = DType::bf16;
    c.causality = Causality::bottom_right;
    const Problem p(c);
    Share share(p, {order, WireType::bf16}, AttentionPasses::forward_and_backward);
    expect_forward(share, order);
    // A sum of gradients is rounded for each rank that it passes.
    expect_backward(share, order, ranks().size() * kRounding);
  }
  // Rounded after the rotation: a value by 2^-9 of itself, a score by 2^-9 of sum |q k| scale, which is about
  // 2.5 for 16 normal features.
  const Problem p(case_of(Terms::rope, 23));
  Share share(p, {TokenOrder::zigzag, WireType::bf16}, AttentionPasses::forward_and_backward);
  expect_forward(share, TokenOrder::zigzag, 4.0 * kRounding);
  expect_backward(share, TokenOrder::zigzag, (4.0 + ranks().size()) * kRounding);
}

// Whoever holds the keys, and however many ranks there are.
TEST(RingTypes, BFloat16OnTheWireIsRoundedOnceForAllRanks) {
  const Problem p(case_of(Terms::none, 23));
  Share share(p, {TokenOrder::contiguous, WireType::bf16}, AttentionPasses::forward);
  Case rounded_case = case_of(Terms::none, 23);
  rounded_case.key_dtype = DType::bf16;
  Problem rounded(rounded_case);
  const auto copy = [](const Tensor& from, Tensor& to) {
    const std::vector<double> values = from.wide();
    std::size_t i = 0;
    to.for_each([&](std::int64_t at) { core::set_element(to.view(), at, values[i++]); });
  };
  copy(p.q, rounded.q);
  copy(p.k, rounded.k);
  copy(p.v, rounded.v);
  Share expected(rounded, {TokenOrder::contiguous, WireType::f32}, AttentionPasses::forward);
  EXPECT_EQ(share.out.bytes(), expected.out.bytes());
  EXPECT_EQ(share.log_sums, expected.log_sums);
}

TEST(RingTypes, ComputesInFloat64) {
  for (const Terms terms : {Terms::rope, Terms::everything}) {
    Case c = case_of(terms, 19);
    c.dtype = c.key_dtype = DType::f64;
    c.causality = Causality::bottom_right;
    const Problem p(c);
    RingPlan plan(ranks(), p.terms, attention::tests::sizes_for(c), p.options,
                  {.order = TokenOrder::zigzag}, AttentionPasses::forward_and_backward);
    const Tensor q = local(p.q_view(), plan.queries(), c.strides);
    const Tensor k = local(p.k_view(), plan.keys(), c.strides);
    const Tensor v = local(p.v_view(), plan.keys(), c.strides);
    const Tensor d_out = local(p.d_out_view(), plan.queries(), c.strides);
    Tensor out = local(p.d_out_view(), plan.queries(), c.strides);
    Tensor d_q(q), d_k(k), d_v(v);
    std::vector<double> logs(
        static_cast<std::size_t>(c.batch * c.heads * plan.queries().count(ranks().rank())));
    plan.run(q.view(), k.view(), v.view(), out.view(), nullptr, logs.data());
    plan.run_backward(q.view(), k.view(), v.view(),
                      {out.view(), nullptr, d_out.view(), logs.data()},
                      {d_q.view(), d_k.view(), d_v.view(), {}});
    const auto forward = p.reference();
    const auto gradients = p.reference_gradients();
    // As attention in float64, for numbers up to some tens and a few merges.
    constexpr double kWideError = 1e-11;
    Report report(p, TokenOrder::zigzag);
    const auto compare = [&](const char* name, const Tensor& got, const Shards& shards,
                             const std::vector<double>& exact) {
      for_each_local(got.view(), shards, [&](std::size_t at, double value, std::size_t) {
        report.check(name, at, value, exact[at], kWideError);
      });
    };
    compare("out", out, plan.queries(), forward.out);
    compare("d_q", d_q, plan.queries(), gradients.d_q);
    compare("d_k", d_k, plan.keys(), gradients.d_k);
    compare("d_v", d_v, plan.keys(), gradients.d_v);
  }
}

TEST(RingPlans, GiveTheSameBitsInEachRun) {
  const Problem p(case_of(Terms::t5, 29));
  Share share(p, {.order = TokenOrder::zigzag}, AttentionPasses::forward_and_backward);
  const Tensor first = share.out;
  expect_backward(share, TokenOrder::zigzag);
  share.plan.run(share.q.view(), share.k.view(), share.v.view(), share.out.view());
  EXPECT_EQ(share.out.bytes(), first.bytes());
}

// A rank holds its own shard and two under way: q, k, v and the output of one rank are 4 shards of its own.
TEST(RingPlans, HoldMemoryThatFallsWithTheRanks) {
  constexpr double kMost = 3.0;
  const std::unique_ptr<Communicator> one = ranks().split(ranks().rank(), 0);
  encodings::ScoreTerms terms;
  for (const bool has_slopes : {false, true}) {
    if (has_slopes) terms.slopes.assign(8, 0.25);
    const attention::AttentionSizes sizes{
        .queries = 2048, .keys = 2048, .heads = 8, .key_heads = 8, .head_dim = 32, .value_dim = 32};
    const attention::AttentionOptions options{.causality = Causality::bottom_right, .threads = 1};
    for (const TokenOrder order : {TokenOrder::contiguous, TokenOrder::zigzag}) {
      const RingPlan alone(*one, terms, sizes, options, {.order = order});
      const RingPlan shared(ranks(), terms, sizes, options, {.order = order});
      EXPECT_LE(static_cast<double>(shared.bytes()) * ranks().size(),
                kMost * static_cast<double>(alone.bytes()))
          << attention::name_of(order) << (has_slopes ? ", slopes" : "");
    }
  }
}

TEST(RingRefuses, WhatItCannotDoBeforeAnythingIsSent) {
  const attention::AttentionSizes sizes{.batch = 2,
                                        .queries = 9,
                                        .keys = 9,
                                        .heads = 2,
                                        .key_heads = 2,
                                        .head_dim = 4,
                                        .value_dim = 4};
  const auto expect = [&](ErrorCode code, std::initializer_list<std::string_view> values,
                          const attention::AttentionOptions& options,
                          const ParallelOptions& parallel = {},
                          std::optional<attention::AttentionSizes> other = std::nullopt) {
    phasor::tests::expect_error(
        code, values, [&] { RingPlan(ranks(), {}, other.value_or(sizes), options, parallel); });
  };
  const std::vector<std::uint8_t> bytes(81, 1);
  const std::vector<std::int64_t> lengths = {3, 4}, bounds = {0, 9};
  attention::AttentionOptions masked;
  masked.mask = attention::boolean_mask(bytes.data(), std::vector<std::int64_t>{9, 9}, 2, 2, 9, 9);
  expect(ErrorCode::unsupported, {"mask"}, masked);
  expect(ErrorCode::unsupported, {"key_lengths", "2"}, {.key_lengths = lengths});
  expect(ErrorCode::unsupported, {"query_offset", "5"}, {.query_offset = 5});
  expect(ErrorCode::unsupported, {"batch", "2"},
         {.query_boundaries = bounds, .key_boundaries = bounds});
  expect(ErrorCode::shape_mismatch, {"key_padding", "18", "81"}, {.key_padding = bytes});
  expect(ErrorCode::invalid_argument, {"window", "0"}, {.window = 0});
  attention::AttentionSizes wide = sizes, odd = sizes;
  wide.arithmetic = DType::f64;
  odd.heads = 3;
  expect(ErrorCode::unsupported, {"bf16", "f64"}, {}, {.wire = WireType::bf16}, wide);
  expect(ErrorCode::shape_mismatch, {"3", "2"}, {}, {}, odd);
  if (ranks().size() == 1) return;
  expect(ErrorCode::unsupported, {"window 3", "striped"}, {.window = 3},
         {.order = TokenOrder::striped});
  attention::AttentionSizes longer = sizes;
  longer.keys = ranks().rank() == ranks().size() - 1 ? 10 : 9;
  expect(ErrorCode::invalid_argument, {"keys 9", "keys 10"}, {}, {}, longer);
  // One rank alone: the others are told which.
  const std::int64_t threads = ranks().rank() == 1 ? -1 : 1;
  expect(ErrorCode::invalid_argument, {"threads", "-1"}, {.threads = static_cast<int>(threads)});
}

TEST(RingRefuses, ViewsOfOtherSizesOnEveryRank) {
  Communicator group(ranks().handle(), ranks().options());
  RingPlan plan(
      group, {},
      {.queries = 8, .keys = 8, .heads = 1, .key_heads = 1, .head_dim = 4, .value_dim = 4});
  std::vector<float> numbers(64), written(64);
  const std::int64_t count = plan.keys().count(group.rank());
  const std::int64_t wrong = group.rank() == group.size() - 1 ? count + 1 : count;
  const auto view = core::heads_view(numbers.data(), 1, count, 1, 4);
  const auto error = [&](ErrorCode code, std::initializer_list<std::string_view> values) {
    phasor::tests::expect_error(code, values, [&] {
      plan.run(core::heads_view(numbers.data(), 1, wrong, 1, 4), view, view,
               core::heads_view(written.data(), 1, count, 1, 4));
    });
  };
  if (group.rank() == group.size() - 1) {
    error(ErrorCode::shape_mismatch, {"q of rank"});
  } else {
    error(ErrorCode::io, {"stopped", "q of rank"});
  }
  ranks().barrier();
}

}  // namespace
}  // namespace phasor::parallel
