// Attention whose heads are divided between ranks, alone and with a ring, against one rank.
#include "phasor/parallel/heads.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <utility>
#include <vector>

#include "attention/softmax/attend_comparison.hpp"
#include "attention/softmax/attend_support.hpp"
#include "parallel/ranks.hpp"
#include "phasor/parallel/attention.hpp"
#include "phasor/parallel/traffic.hpp"
#include "support/errors.hpp"

namespace phasor::parallel {
namespace {

using attention::AttentionPasses;
using attention::Causality;
using attention::tests::Case;
using attention::tests::Masked;
using attention::tests::Padded;
using attention::tests::PositionIds;
using attention::tests::Problem;
using attention::tests::Terms;
using core::DType;
using core::tests::Tensor;
using tests::ranks;
using Tokens = std::vector<std::int64_t>;

// visit(index in x, index in y) of the elements of `tokens` of y, x having them as its rows.
template <class Visit>
void for_each_of(const core::ConstHeadsView& x, const core::ConstHeadsView& y, const Tokens& tokens,
                 const Visit& visit) {
  for (std::int64_t b = 0; b < y.batch; ++b) {
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      for (std::int64_t h = 0; h < y.heads; ++h) {
        for (std::int64_t e = 0; e < y.head_dim; ++e) {
          visit(b * x.batch_stride + static_cast<std::int64_t>(row) * x.token_stride +
                    h * x.head_stride + e,
                b * y.batch_stride + tokens[row] * y.token_stride + h * y.head_stride + e);
        }
      }
    }
  }
}

// The rows of some tokens, as another type.
Tensor rows_of(const core::ConstHeadsView& whole, const Tokens& tokens, DType dtype,
               core::tests::Strides strides) {
  Tensor some(dtype,
              {whole.batch, static_cast<std::int64_t>(tokens.size()), whole.heads, whole.head_dim},
              strides, 5);
  const core::HeadsView to = some.view();
  for_each_of(to, whole, tokens, [&](std::int64_t at, std::int64_t from) {
    core::set_element(to, at, core::element_of(whole, from));
  });
  return some;
}

Tokens all_of(std::int64_t tokens) {
  Tokens all(static_cast<std::size_t>(tokens));
  for (std::size_t t = 0; t < all.size(); ++t) all[t] = static_cast<std::int64_t>(t);
  return all;
}

constexpr float kAddedTo = 0.5F;  // in each table's gradient before the call

// Inputs and results of one call, forward and backward, of the rows of some tokens.
struct Call {
  Call(const Problem& p, const Tokens& queries, const Tokens& keys, DType dtype, DType key_dtype)
      : q(rows_of(p.q_view(), queries, dtype, p.what.strides)),
        k(rows_of(p.k_view(), keys, key_dtype, p.what.strides)),
        v(rows_of(p.v_view(), keys, key_dtype, p.what.strides)),
        d_out(rows_of(p.d_out_view(), queries, dtype, p.what.strides)),
        out(d_out),
        d_q(q),
        d_k(k),
        d_v(v),
        log_sums(static_cast<std::size_t>(p.what.batch * p.what.heads) * queries.size() + 1) {
    gradients = {d_q.view(), d_k.view(), d_v.view(), {}};
    for (const auto& slot : attention::tests::tables_of(p.terms, none)) {
      const auto& t = slot.table;
      auto& values =
          tables.emplace_back(static_cast<std::size_t>(t.heads * t.rows * t.dim), kAddedTo);
      gradients.terms.*slot.gradient =
          encodings::heads_then_rows(values.data(), t.heads, t.rows, t.dim);
    }
  }
  [[nodiscard]] attention::AttentionForward forward() {
    return {out.view(), log_sums.data(), d_out.view()};
  }

  attention::tests::ReferenceGradients none;
  Tensor q, k, v, d_out, out, d_q, d_k, d_v;
  std::vector<float> log_sums;
  std::deque<std::vector<float>> tables;
  attention::AttentionGradients gradients;
};

// How far results may be from those of one rank; all 0: the same bits.
struct Bounds {
  double relative = 0.0;       // of out and gradients
  double key_gradients = 0.0;  // of d_k and d_v
};

void expect_near(const char* name, const Tensor& got, const Tensor& whole, const Tokens& tokens,
                 double relative, double scale) {
  double largest = scale;
  whole.for_each([&](std::int64_t at) {
    largest = std::max(largest, std::fabs(core::element_of(whole.view(), at)));
  });
  int reported = 0;
  for_each_of(got.view(), whole.view(), tokens, [&](std::int64_t at, std::int64_t from) {
    const double value = core::element_of(got.view(), at);
    const double expected = core::element_of(whole.view(), from);
    if (std::fabs(value - expected) <= relative * largest || ++reported > 3) return;
    ADD_FAILURE() << name << ": got " << value << ", one rank has " << expected << ", off by "
                  << value - expected << ", allowed " << relative * largest;
  });
}

// What one rank computes, over tensors of the type that travels.
Call on_one_rank(const Problem& p, const ParallelOptions& parallel) {
  const bool rounds = parallel.wire == WireType::bf16;
  Call whole(p, all_of(p.what.queries), all_of(p.what.keys), rounds ? DType::bf16 : p.what.dtype,
             rounds ? DType::bf16 : p.what.key_dtype);
  attention::AttentionOptions options = p.options;
  options.threads = 1;
  attention::AttentionPlan plan(p.terms, attention::tests::sizes_for(p.what), options,
                                AttentionPasses::forward_and_backward);
  attention::AttentionExtras extras;
  extras.log_sum_exp = whole.log_sums.data();
  plan.run(whole.q.view(), whole.k.view(), whole.v.view(), whole.out.view(), extras);
  plan.run_backward(whole.q.view(), whole.k.view(), whole.v.view(), whole.forward(),
                    whole.gradients);
  return whole;
}

template <class Plan>
void expect_one_rank(const Problem& p, Plan& plan, const Tokens& queries, const Tokens& keys,
                     const ParallelOptions& parallel, const RunBytes& bytes, const Bounds& bounds) {
  const Case& c = p.what;
  SCOPED_TRACE(testing::Message() << c << ", " << attention::name_of(parallel.order) << ", on "
                                  << ranks().size() << " ranks");
  Call whole = on_one_rank(p, parallel);
  Call own(p, queries, keys, c.dtype, c.key_dtype);
  plan.run(own.q.view(), own.k.view(), own.v.view(), own.out.view());
  EXPECT_EQ(plan.bytes_sent(), bytes.forward);
  plan.run(own.q.view(), own.k.view(), own.v.view(), own.out.view(), own.log_sums.data());
  EXPECT_EQ(plan.bytes_sent(), 2 * bytes.forward + bytes.log_sum_exp);
  plan.run_backward(own.q.view(), own.k.view(), own.v.view(), own.forward(), own.gradients);
  EXPECT_EQ(plan.bytes_sent(), 2 * bytes.forward + bytes.log_sum_exp + bytes.backward);

  const double product = std::sqrt(static_cast<double>(c.value_dim));
  expect_near("out", own.out, whole.out, queries, bounds.relative, 1.0);
  expect_near("d_q", own.d_q, whole.d_q, queries, bounds.relative, product);
  expect_near("d_k", own.d_k, whole.d_k, keys, bounds.key_gradients, product);
  expect_near("d_v", own.d_v, whole.d_v, keys, bounds.key_gradients, product);
  for (std::int64_t line = 0; line < c.batch * c.heads; ++line) {
    for (std::size_t row = 0; row < queries.size(); ++row) {
      const float got = own.log_sums[static_cast<std::size_t>(line) * queries.size() + row];
      const float expected = whole.log_sums[static_cast<std::size_t>(line * c.queries) +
                                            static_cast<std::size_t>(queries[row])];
      ASSERT_TRUE(got == expected ||
                  std::fabs(got - expected) <= bounds.relative * std::fabs(expected))
          << "log_sum_exp of head " << line << ", row " << row << ": " << got << ", " << expected;
    }
  }
  // Sums over heads, or over rows, in another order.
  const double rows = std::sqrt(static_cast<double>(c.batch * c.queries * c.heads));
  for (std::size_t s = 0; s < whole.tables.size(); ++s) {
    double largest = 0.0;
    for (const float x : whole.tables[s]) largest = std::max(largest, std::fabs(double{x}));
    const double allowed =
        (bounds.relative + 8 * attention::tests::kEpsilon) * (largest + product * rows);
    for (std::size_t i = 0; i < whole.tables[s].size(); ++i) {
      ASSERT_NEAR(own.tables[s][i], whole.tables[s][i], allowed) << "table " << s << ", " << i;
    }
  }
}

// The gradients of key heads that several ranks have are sums of rounded parts.
double shared_error(const Case& c, int heads_ranks, WireType wire) {
  if (c.key_heads >= heads_ranks) return 0.0;
  return wire == WireType::bf16 ? 0x1p-7 : 8 * attention::tests::kEpsilon;
}

// Messages begin at multiples of 64 bytes, and no tensor is null.
template <class Plan>
void expect_memory(const Plan& plan, std::int64_t formula, int heads_ranks) {
  EXPECT_GE(static_cast<std::int64_t>(plan.exchange_bytes()), formula);
  EXPECT_LE(static_cast<std::int64_t>(plan.exchange_bytes()), formula + 128 * heads_ranks + 16);
}

void expect_heads(const Case& c, const ParallelOptions& parallel) {
  const Problem p(c);
  attention::AttentionOptions options = p.options;
  options.threads = 1;
  const attention::AttentionSizes sizes = attention::tests::sizes_for(c);
  HeadsPlan plan(ranks(), p.terms, sizes, options, parallel, AttentionPasses::forward_and_backward);
  const int rank = ranks().rank(), size = ranks().size();
  expect_one_rank(p, plan, plan.queries().tokens_of(rank), plan.keys().tokens_of(rank), parallel,
                  heads_bytes(sizes, parallel, size, rank),
                  {0.0, shared_error(c, size, parallel.wire)});
  expect_memory(
      plan, heads_memory(sizes, parallel, AttentionPasses::forward_and_backward, size, rank), size);
}

Case heads_case(Terms terms, std::int64_t tokens, std::int64_t key_heads = 12) {
  return {.terms = terms,
          .batch = 2,
          .heads = 12,
          .key_heads = key_heads,
          .queries = tokens,
          .keys = tokens,
          .head_dim = 8,
          .value_dim = 6};
}

class Heads : public ::testing::TestWithParam<Terms> {};
INSTANTIATE_TEST_SUITE_P(Every, Heads, ::testing::ValuesIn(attention::tests::kAllTerms),
                         [](const auto& info) { return attention::tests::name_of(info.param); });

TEST_P(Heads, HaveTheBitsOfOneRank) {
  for (const TokenOrder order : {TokenOrder::contiguous, TokenOrder::zigzag, TokenOrder::striped}) {
    Case c = heads_case(GetParam(), 19);
    c.causality = order == TokenOrder::striped ? Causality::none : Causality::bottom_right;
    expect_heads(c, {.order = order});
  }
}

TEST(HeadsGrouped, OneKeyHeadForSeveralRanks) {
  for (const std::int64_t key_heads : {1, 2, ranks().size(), 12}) {
    if (key_heads % ranks().size() != 0 && ranks().size() % key_heads != 0) continue;
    for (const Terms terms : {Terms::rope, Terms::deberta}) {
      Case c = heads_case(terms, 23, key_heads);
      c.causality = Causality::bottom_right;
      expect_heads(c, {.order = TokenOrder::zigzag});
      expect_heads(c, {.order = TokenOrder::zigzag, .wire = WireType::bf16});
    }
  }
}

// Empty shards, more or fewer queries than keys, and all that only a plan over the whole sequence has.
TEST(HeadsOptions, OfTheWholeSequence) {
  for (const auto& [queries, keys] : {std::pair(1, 1), std::pair(2, 7), std::pair(9, 3)}) {
    Case c = heads_case(Terms::rope, queries);
    c.keys = keys;
    expect_heads(c, {.order = TokenOrder::zigzag});
  }
  for (const Masked masked : {Masked::boolean_rank_3, Masked::additive_rank_4}) {
    Case c = heads_case(Terms::alibi, 17);
    c.masked = masked;
    expect_heads(c, {.order = TokenOrder::striped});
  }
  for (const Padded padded : {Padded::lengths, Padded::flags}) {
    Case c = heads_case(Terms::t5, 17);
    c.padded = padded;
    c.window = 5;
    expect_heads(c, {});
  }
  Case packed = heads_case(Terms::xlnet, 29);
  packed.batch = 1;
  packed.packed = 3;
  expect_heads(packed, {.order = TokenOrder::zigzag});
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Case c = heads_case(Terms::rope, 13);
    c.dtype = dtype;
    c.key_dtype = DType::f16;
    expect_heads(c, {});
  }
}

TEST(HeadsOptions, Float64HasTheBitsOfOneRank) {
  Case c = heads_case(Terms::everything, 11, ranks().size());
  c.dtype = c.key_dtype = DType::f64;
  c.causality = Causality::bottom_right;
  const Problem p(c);
  attention::AttentionSizes sizes = attention::tests::sizes_for(c);
  sizes.arithmetic = DType::f64;
  attention::AttentionOptions options = p.options;
  options.threads = 1;
  attention::AttentionPlan one(p.terms, sizes, options, AttentionPasses::forward_and_backward);
  HeadsPlan plan(ranks(), p.terms, sizes, options, {.order = TokenOrder::zigzag},
                 AttentionPasses::forward_and_backward);
  const Tokens queries = plan.queries().tokens_of(ranks().rank());
  const Tokens keys = plan.keys().tokens_of(ranks().rank());
  Call whole(p, all_of(c.queries), all_of(c.keys), DType::f64, DType::f64);
  Call own(p, queries, keys, DType::f64, DType::f64);
  std::vector<double> whole_logs(whole.log_sums.size()), own_logs(own.log_sums.size());
  attention::AttentionExtras extras;
  extras.wide_log_sum_exp = whole_logs.data();
  one.run(whole.q.view(), whole.k.view(), whole.v.view(), whole.out.view(), extras);
  one.run_backward(whole.q.view(), whole.k.view(), whole.v.view(),
                   {whole.out.view(), nullptr, whole.d_out.view(), whole_logs.data()},
                   whole.gradients);
  plan.run(own.q.view(), own.k.view(), own.v.view(), own.out.view(), nullptr, own_logs.data());
  plan.run_backward(own.q.view(), own.k.view(), own.v.view(),
                    {own.out.view(), nullptr, own.d_out.view(), own_logs.data()}, own.gradients);
  expect_near("out", own.out, whole.out, queries, 0.0, 0.0);
  expect_near("d_q", own.d_q, whole.d_q, queries, 0.0, 0.0);
  expect_near("d_k", own.d_k, whole.d_k, keys, 0.0, 0.0);
  expect_near("d_v", own.d_v, whole.d_v, keys, 0.0, 0.0);
  for (std::size_t s = 0; s < whole.tables.size(); ++s) {
    for (std::size_t i = 0; i < whole.tables[s].size(); ++i) {
      ASSERT_NEAR(own.tables[s][i], whole.tables[s][i], 1e-5) << "table " << s << ", " << i;
    }
  }
}

TEST(HeadsOptions, RefusesOnEveryRank) {
  if (ranks().size() == 1) return;
  attention::AttentionSizes sizes = attention::tests::sizes_for(heads_case(Terms::none, 8));
  sizes.heads = sizes.key_heads = ranks().size() + 1;
  phasor::tests::expect_error(ErrorCode::shape_mismatch,
                              {message(ranks().size(), " ranks"), message(ranks().size() + 1)},
                              [&] { return HeadsPlan(ranks(), {}, sizes); });
  sizes.heads = sizes.key_heads = 12;
  sizes.head_dim = ranks().rank() == 0 ? 8 : 4;
  phasor::tests::expect_error(ErrorCode::invalid_argument, {"head_dim 8", "rank 1", "head_dim 4"},
                              [&] { return HeadsPlan(ranks(), {}, sizes); });
  phasor::tests::expect_error(ErrorCode::invalid_argument,
                              {message(ranks().size(), " ranks"), "7 x 2"}, [&] {
                                return GridPlan(ranks(), {7, 2}, {}, sizes);
                              });
}

void expect_grid(const Case& c, const GridSize& grid, const ParallelOptions& parallel) {
  const Problem p(c);
  attention::AttentionOptions options = p.options;
  options.threads = 1;
  const attention::AttentionSizes sizes = attention::tests::sizes_for(c);
  GridPlan plan(ranks(), grid, p.terms, sizes, options, parallel,
                AttentionPasses::forward_and_backward);
  const int rank = ranks().rank();
  // The merge of the pieces; scores of these problems are below 20.
  const double merge = kRingError * 2 * grid.ring * attention::tests::kEpsilon * 21.0 +
                       (parallel.wire == WireType::bf16 ? 0x1p-5 : 0.0);
  expect_one_rank(p, plan, grid_tokens(parallel.order, c.queries, grid, rank),
                  grid_tokens(parallel.order, c.keys, grid, rank), parallel,
                  grid_bytes(sizes, options, parallel, grid.ring, grid.heads, rank),
                  {merge, merge + shared_error(c, grid.heads, parallel.wire)});
  expect_memory(plan,
                grid_memory(sizes, parallel, AttentionPasses::forward_and_backward, grid.ring,
                            grid.heads, rank),
                grid.heads);
}

TEST(Grid, IsOneRank) {
  const int size = ranks().size();
  for (int heads = 1; heads <= size; ++heads) {
    if (size % heads != 0) continue;
    for (const Terms terms : attention::tests::kAllTerms) {
      Case c = heads_case(terms, 21);
      c.causality = Causality::bottom_right;
      expect_grid(c, {size / heads, heads}, {.order = TokenOrder::zigzag});
    }
    for (const TokenOrder order :
         {TokenOrder::contiguous, TokenOrder::zigzag, TokenOrder::striped}) {
      for (const WireType wire : {WireType::f32, WireType::bf16}) {
        Case c = heads_case(Terms::rope, 7, 1);
        expect_grid(c, {size / heads, heads}, {.order = order, .wire = wire});
      }
    }
  }
}

// Every token is on one rank.
TEST(Grid, TokensArePartitioned) {
  for (const GridSize grid : {GridSize{3, 2}, {1, 4}, {4, 1}, {2, 5}}) {
    for (const std::int64_t tokens : {0, 1, 5, 31}) {
      Tokens all;
      for (int rank = 0; rank < grid.ring * grid.heads; ++rank) {
        const Tokens own = grid_tokens(TokenOrder::zigzag, tokens, grid, rank);
        all.insert(all.end(), own.begin(), own.end());
      }
      std::sort(all.begin(), all.end());
      EXPECT_EQ(all, all_of(tokens));
    }
  }
}

}  // namespace
}  // namespace phasor::parallel
