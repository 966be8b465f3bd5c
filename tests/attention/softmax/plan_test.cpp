// A plan that is run many times gives the bits of one call each time.
#include "phasor/attention/softmax.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attention/softmax/attend_support.hpp"
#include "support/errors.hpp"

namespace phasor::attention::tests {
namespace {

using phasor::tests::expect_error;

// The tensors of one run, and its results.
struct PlannedRun {
  PlannedRun(const Case& c, std::uint64_t seed)
      : q(c.dtype, {c.batch, c.queries, c.heads, c.head_dim}, c.strides, seed),
        k(c.key_dtype, {c.batch, c.keys, c.key_heads, c.head_dim}, c.strides, seed + 1),
        v(c.key_dtype, {c.batch, c.keys, c.key_heads, c.value_dim}, c.strides, seed + 2),
        d_out(c.dtype, {c.batch, c.queries, c.heads, c.value_dim}, c.strides, seed + 3),
        out(c.dtype, {c.batch, c.queries, c.heads, c.value_dim}, c.strides, 99),
        d_q(c.dtype, {c.batch, c.queries, c.heads, c.head_dim}, c.strides, 99),
        d_k(c.key_dtype, {c.batch, c.keys, c.key_heads, c.head_dim}, c.strides, 99),
        d_v(c.key_dtype, {c.batch, c.keys, c.key_heads, c.value_dim}, c.strides, 99),
        log_sum_exp(static_cast<std::size_t>(c.batch * c.heads * c.queries)),
        wide_log_sum_exp(log_sum_exp.size()),
        is_wide(c.dtype == DType::f64) {}

  [[nodiscard]] AttentionExtras extras() {
    return {.log_sum_exp = is_wide ? nullptr : log_sum_exp.data(),
            .wide_log_sum_exp = is_wide ? wide_log_sum_exp.data() : nullptr};
  }
  [[nodiscard]] AttentionForward forward() const {
    return {std::as_const(out).view(), log_sum_exp.data(), d_out.view(), wide_log_sum_exp.data()};
  }
  [[nodiscard]] core::ConstHeadsView queries() const { return q.view(); }
  [[nodiscard]] core::ConstHeadsView keys() const { return k.view(); }
  [[nodiscard]] core::ConstHeadsView values() const { return v.view(); }

  Tensor q, k, v, d_out, out, d_q, d_k, d_v;
  std::vector<float> log_sum_exp;
  std::vector<double> wide_log_sum_exp;
  bool is_wide;
};

// Gradients for every table of the terms, zero at first.
struct PlanGradients {
  explicit PlanGradients(const ScoreTerms& terms) {
    const ReferenceGradients none;
    for (const TableSlot& slot : tables_of(terms, none)) {
      const Table& t = slot.table;
      std::vector<float>& values =
          tables.emplace_back(static_cast<std::size_t>(t.heads * t.rows * t.dim));
      to.*slot.gradient =
          t.heads == 1 ? encodings::shared_rows<float>(values.data(), t.rows, t.dim)
                       : encodings::heads_then_rows<float>(values.data(), t.heads, t.rows, t.dim);
    }
  }
  std::deque<std::vector<float>> tables;
  encodings::ScoreTermGradients to;
};

void expect_plan_like_one_call(const Case& c) {
  SCOPED_TRACE(testing::Message() << c);
  Problem p(c);
  for (const int threads : {1, 2}) {
    p.options.threads = threads;
    AttentionPlan plan(p.terms, sizes_for(c), p.options, AttentionPasses::forward_and_backward);
    for (const std::uint64_t seed : {10U, 20U, 10U}) {
      PlannedRun planned(c, seed), called(c, seed);
      plan.run(planned.queries(), planned.keys(), planned.values(), planned.out.view(),
               planned.extras());
      attend(p.terms, called.queries(), called.keys(), called.values(), called.out.view(),
             p.options, called.extras());
      EXPECT_EQ(planned.out.bytes(), called.out.bytes());
      EXPECT_EQ(planned.log_sum_exp, called.log_sum_exp);
      EXPECT_EQ(planned.wide_log_sum_exp, called.wide_log_sum_exp);
      PlanGradients by_plan(p.terms), by_call(p.terms);
      plan.run_backward(planned.queries(), planned.keys(), planned.values(), planned.forward(),
                        {planned.d_q.view(), planned.d_k.view(), planned.d_v.view(), by_plan.to});
      attend_backward(p.terms, called.queries(), called.keys(), called.values(), called.forward(),
                      {called.d_q.view(), called.d_k.view(), called.d_v.view(), by_call.to},
                      p.options);
      EXPECT_EQ(planned.d_q.bytes(), called.d_q.bytes());
      EXPECT_EQ(planned.d_k.bytes(), called.d_k.bytes());
      EXPECT_EQ(planned.d_v.bytes(), called.d_v.bytes());
      EXPECT_EQ(by_plan.tables, by_call.tables);
    }
  }
}

TEST(AttentionPlan, LikeOneCallWithEachEncoding) {
  for (const Terms terms : kAllTerms) {
    expect_plan_like_one_call({.terms = terms,
                               .batch = 2,
                               .heads = 4,
                               .key_heads = 2,
                               .queries = 97,
                               .keys = 193,
                               .value_dim = 12,
                               .causality = Causality::bottom_right});
  }
}

TEST(AttentionPlan, LikeOneCallWithOptions) {
  for (const Terms terms : {Terms::rope, Terms::xlnet, Terms::everything}) {
    const Case c{.terms = terms, .batch = 2, .queries = 30, .keys = 45};
    Case window = c, lengths = c, flags = c, packed = c, masked = c, capped = c;
    window.window = 7;
    lengths.padded = Padded::lengths;
    flags.padded = Padded::flags;
    packed.batch = 1;
    packed.packed = 4;
    masked.masked = Masked::additive_rank_4;
    capped.soft_cap = 5.0;
    for (const Case& one : {window, lengths, flags, packed, masked, capped})
      expect_plan_like_one_call(one);
    for (const PositionIds positions : kGivenPositions) {
      Case moved = c;
      moved.positions = positions;
      expect_plan_like_one_call(moved);
    }
  }
}

// What one plan leaves in the scratch does not reach the other, not even a NaN.
TEST(AttentionPlan, LikeOneCallWithScratchOfOtherPlans) {
  for (const Terms terms : kAllTerms) {
    Case small = around_tile_edges(terms), large = small;
    large.queries = large.keys = 300;
    large.head_dim = large.value_dim = 24;
    Problem p(small), other(large);
    AttentionWorkspace scratch;
    other.options.workspace = p.options.workspace = &scratch;
    other.options.threads = p.options.threads = 1;
    AttentionPlan first(other.terms, sizes_for(large), other.options,
                        AttentionPasses::forward_and_backward);
    const std::size_t held = scratch.bytes();
    AttentionPlan second(p.terms, sizes_for(small), p.options,
                         AttentionPasses::forward_and_backward);
    EXPECT_EQ(scratch.bytes(), held) << small;
    PlannedRun dirty(large, 3);
    auto* const q = static_cast<float*>(dirty.q.view().data);
    for (std::size_t i = 0; i < dirty.q.bytes().size() / sizeof(float); ++i)
      q[i] = std::numeric_limits<float>::quiet_NaN();
    PlannedRun planned(small, 10), called(small, 10);
    const auto soil = [&] {
      first.run(dirty.queries(), dirty.keys(), dirty.values(), dirty.out.view(), dirty.extras());
      first.run_backward(dirty.queries(), dirty.keys(), dirty.values(), dirty.forward(),
                         {dirty.d_q.view(), dirty.d_k.view(), dirty.d_v.view(), {}});
    };
    soil();
    second.run(planned.queries(), planned.keys(), planned.values(), planned.out.view(),
               planned.extras());
    soil();
    second.run_backward(planned.queries(), planned.keys(), planned.values(), planned.forward(),
                        {planned.d_q.view(), planned.d_k.view(), planned.d_v.view(), {}});
    p.options.workspace = nullptr;
    attend(p.terms, called.queries(), called.keys(), called.values(), called.out.view(), p.options,
           called.extras());
    attend_backward(p.terms, called.queries(), called.keys(), called.values(), called.forward(),
                    {called.d_q.view(), called.d_k.view(), called.d_v.view(), {}}, p.options);
    EXPECT_EQ(planned.out.bytes(), called.out.bytes()) << small;
    EXPECT_EQ(planned.d_q.bytes(), called.d_q.bytes()) << small;
    EXPECT_EQ(planned.d_k.bytes(), called.d_k.bytes()) << small;
    EXPECT_EQ(planned.d_v.bytes(), called.d_v.bytes()) << small;
  }
}

TEST(AttentionPlan, LikeOneCallInEachType) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f64}) {
    for (const Terms terms : {Terms::rope, Terms::t5, Terms::transformer_xl}) {
      expect_plan_like_one_call(
          {.terms = terms, .queries = 20, .keys = 33, .dtype = dtype, .key_dtype = dtype});
    }
  }
}

TEST(AttentionPlan, LikeOneCallWithFewQueriesOrNone) {
  for (const std::int64_t queries : {0, 1, 4}) {
    for (const std::int64_t keys : {0, 1, 700}) {
      expect_plan_like_one_call({.terms = Terms::alibi, .queries = queries, .keys = keys});
    }
  }
}

// A few queries take another path, unless the scores are asked for.
TEST(AttentionPlan, ScoresOfFewQueries) {
  const Case c{.terms = Terms::alibi, .queries = 2, .keys = 50};
  const Problem p(c);
  AttentionPlan plan(p.terms, sizes_for(c), p.options);
  PlannedRun run(c, 10);
  std::vector<float> planned(200), called(200);
  plan.run(run.queries(), run.keys(), run.values(), run.out.view(), {.scores = planned.data()});
  attend(p.terms, run.queries(), run.keys(), run.values(), run.out.view(), p.options,
         {.scores = called.data()});
  EXPECT_EQ(planned, called);
}

TEST(AttentionPlan, NaNOfOneRunIsGoneInTheNext) {
  const Case c{.terms = Terms::everything, .queries = 50, .keys = 70, .strides = Strides::dense};
  const Problem p(c);
  AttentionPlan plan(p.terms, sizes_for(c), p.options);
  PlannedRun spoilt(c, 10), planned(c, 20), called(c, 20);
  for (Tensor* tensor : {&spoilt.q, &spoilt.k, &spoilt.v}) {
    tensor->for_each([&](std::int64_t at) { core::set_element(tensor->view(), at, std::nan("")); });
  }
  plan.run(spoilt.queries(), spoilt.keys(), spoilt.values(), spoilt.out.view());
  plan.run(planned.queries(), planned.keys(), planned.values(), planned.out.view());
  attend(p.terms, called.queries(), called.keys(), called.values(), called.out.view(), p.options);
  EXPECT_EQ(planned.out.bytes(), called.out.bytes());
}

TEST(AttentionPlan, ReadsMasksInEachRunAndTablesOnRequest) {
  const Case c{.terms = Terms::t5, .queries = 30, .keys = 40, .masked = Masked::boolean_rank_2};
  Problem p(c);
  AttentionPlan plan(p.terms, sizes_for(c), p.options);
  PlannedRun run(c, 10), expected(c, 10);
  const auto expect_same = [&] {
    plan.run(run.queries(), run.keys(), run.values(), run.out.view());
    attend(p.terms, run.queries(), run.keys(), run.values(), expected.out.view(), p.options);
    EXPECT_EQ(run.out.bytes(), expected.out.bytes());
  };
  expect_same();
  for (std::uint8_t& value : p.boolean_mask_values) value = value == 0 ? 1 : 0;
  expect_same();
  for (float& value : p.values_of(p.terms.bias->table)) value += 1.5F;
  plan.update_tables();
  expect_same();
}

// One sequence or eight, one head or eight: a table that heads share is packed once.
TEST(AttentionPlan, PacksASharedTableOnce) {
  const auto plan_bytes = [](std::int64_t heads, std::int64_t batch, std::int64_t table_heads) {
    std::vector<float> numbers(static_cast<std::size_t>(table_heads * 4001 * 16), 0.5F);
    ScoreTerms terms;
    RelativeMap map{-2000, {}, RelativeMap::Outside::refuse};
    for (std::int32_t row = 0; row <= 4000; ++row) map.rows.push_back(row);
    terms.query_rows = {
        encodings::heads_then_rows<const float>(numbers.data(), table_heads, 4001, 16), map};
    const AttentionPlan plan(terms,
                             {.batch = batch,
                              .queries = 1000,
                              .keys = 1000,
                              .heads = heads,
                              .key_heads = heads,
                              .head_dim = 16,
                              .value_dim = 16},
                             {.threads = 1});
    return static_cast<std::int64_t>(plan.bytes());
  };
  const std::int64_t table = 1999 * 16 * 4, other = 64 * 1024;
  const std::int64_t one = plan_bytes(1, 1, 1);
  EXPECT_LT(plan_bytes(8, 8, 1), one + other);
  EXPECT_GT(plan_bytes(8, 8, 8), one + 7 * table);
  EXPECT_LT(plan_bytes(8, 8, 8), one + 7 * table + other);
}

TEST(AttentionPlan, Refuses) {
  const Case c{
      .terms = Terms::rope, .batch = 2, .queries = 6, .keys = 9, .strides = Strides::dense};
  const Problem p(c);
  const AttentionSizes sizes = sizes_for(c);
  const auto make = [&](AttentionSizes wrong) { return AttentionPlan(p.terms, wrong, p.options); };
  const auto with = [&](std::int64_t AttentionSizes::*member, std::int64_t value) {
    AttentionSizes wrong = sizes;
    wrong.*member = value;
    return wrong;
  };
  expect_error(ErrorCode::invalid_argument, {"batch", "-1"},
               [&] { make(with(&AttentionSizes::batch, -1)); });
  expect_error(ErrorCode::invalid_argument, {"queries", "-7"},
               [&] { make(with(&AttentionSizes::queries, -7)); });
  expect_error(ErrorCode::invalid_argument, {"key_heads", "0"},
               [&] { make(with(&AttentionSizes::key_heads, 0)); });
  expect_error(ErrorCode::shape_mismatch, {"heads", "3", "2"},
               [&] { make(with(&AttentionSizes::heads, 3)); });
  expect_error(ErrorCode::shape_mismatch, {"head_dim", "18", "16"},
               [&] { make(with(&AttentionSizes::head_dim, 18)); });
  AttentionSizes half = sizes;
  half.arithmetic = DType::f16;
  expect_error(ErrorCode::unsupported, {"arithmetic", "f16"}, [&] { make(half); });

  AttentionPlan plan = make(sizes);
  PlannedRun run(c, 10);
  const std::vector<std::byte> before = run.out.bytes();
  const auto runs = [&](core::ConstHeadsView q, core::ConstHeadsView k, core::HeadsView out) {
    return [&plan, &run, q, k, out] { plan.run(q, k, run.values(), out); };
  };
  core::ConstHeadsView short_q = run.queries(), null_k = run.keys(), wide_k = run.keys();
  short_q.tokens = 5;
  null_k.data = nullptr;
  wide_k.dtype = DType::f64;
  core::HeadsView small = run.out.view();
  small.head_dim = 15;
  const core::HeadsView out = run.out.view();
  expect_error(ErrorCode::shape_mismatch, {"q", "[2, 6, 2, 16]", "[2, 5, 2, 16]"},
               runs(short_q, run.keys(), out));
  expect_error(ErrorCode::invalid_argument, {"k", "null"}, runs(run.queries(), null_k, out));
  expect_error(ErrorCode::unsupported, {"k", "f64"}, runs(run.queries(), wide_k, out));
  expect_error(ErrorCode::shape_mismatch, {"out", "[2, 6, 2, 15]"},
               runs(run.queries(), run.keys(), small));
  expect_error(ErrorCode::invalid_argument, {"out", "q"},
               runs(std::as_const(run.out).view(), run.keys(), out));
  expect_error(ErrorCode::invalid_argument, {"forward_and_backward"}, [&] {
    plan.run_backward(run.queries(), run.keys(), run.values(), run.forward(),
                      {run.d_q.view(), run.d_k.view(), run.d_v.view(), {}});
  });
  EXPECT_EQ(run.out.bytes(), before);
  plan.run(run.queries(), run.keys(), run.values(), out);  // a refusal leaves the plan usable
  EXPECT_NE(run.out.bytes(), before);
}

}  // namespace
}  // namespace phasor::attention::tests
