// Attention over float64 views against the full matrix, and its gradients against dual numbers, at the
// precision of float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "attention/linear/linear_support.hpp"
#include "attention/softmax/attend_support.hpp"
#include "attention/softmax/random_case.hpp"
#include "attention/softmax/wide_support.hpp"
#include "support/errors.hpp"

namespace phasor::attention::tests {
namespace {

using encodings::TableGradient;
using phasor::tests::expect_error;

// A problem in float64, its tables too: float32 holds none of their numbers exactly.
class WideProblem {
 public:
  explicit WideProblem(Case c) : problem(as_wide(c)) {
    std::mt19937_64 random(c.seed + 1000);
    std::uniform_real_distribution<double> below_float(-1e-9, 1e-9);
    for (Table* table : tables()) {
      const std::int64_t count = table->heads * table->rows * table->dim;
      std::vector<double>& wide = wide_.emplace_back(table->data, table->data + count);
      for (double& x : wide) x += below_float(random);
      table->wide = wide.data();
    }
  }

  [[nodiscard]] std::vector<Table*> tables() {
    ScoreTerms& t = problem.terms;
    std::vector<Table*> all = {&t.content_bias, &t.position_bias, &t.extra_query,  &t.extra_key,
                               &t.first_row,    &t.first_column,  &t.segment_rows, &t.segment_bias};
    for (auto* rows : {&t.query_rows, &t.key_rows, &t.bias, &t.value_rows}) {
      if (*rows) all.push_back(&(*rows)->table);
    }
    std::erase_if(all, [](const Table* table) { return !table->given(); });
    return all;
  }
  [[nodiscard]] std::vector<double>& wide_of(const Table& table) {
    return *std::find_if(wide_.begin(), wide_.end(), [&](const std::vector<double>& values) {
      return values.data() == table.wide;
    });
  }

  Problem problem;

 private:
  static Case as_wide(Case c) {
    c.dtype = c.key_dtype = DType::f64;
    return c;
  }
  std::deque<std::vector<double>> wide_;
};

struct WideAttended {
  Tensor out;
  std::vector<double> log_sum_exp;
};
WideAttended run_wide(const Problem& p, int threads = 1, AttentionExtras extras = {}) {
  const Case& c = p.what;
  WideAttended got{Tensor(DType::f64, {c.batch, c.queries, c.heads, c.value_dim}, c.strides, 99),
                   std::vector<double>(static_cast<std::size_t>(c.batch * c.heads * c.queries))};
  extras.wide_log_sum_exp = got.log_sum_exp.data();
  AttentionOptions options = p.options;
  options.threads = threads;
  attend(p.terms, p.q_view(), p.k_view(), p.v_view(), got.out.view(), options, extras);
  return got;
}

// Where gradients begin: they are added to what is there.
constexpr double kBefore = 0.25;

struct WideGradients {
  Tensor d_q, d_k, d_v;
  std::vector<std::vector<double>> tables;  // in the order of tables_of
  std::vector<std::vector<float>> narrow;
};
enum class TableTarget : std::uint8_t { wide, narrow };
WideGradients run_wide_backward(const Problem& p, const std::vector<TableSlot>& slots,
                                int threads = 1, TableTarget target = TableTarget::wide) {
  const Case& c = p.what;
  const WideAttended forward = run_wide(p, threads);
  WideGradients got{Tensor(DType::f64, {c.batch, c.queries, c.heads, c.head_dim}, c.strides, 99),
                    Tensor(DType::f64, {c.batch, c.keys, c.key_heads, c.head_dim}, c.strides, 99),
                    Tensor(DType::f64, {c.batch, c.keys, c.key_heads, c.value_dim}, c.strides, 99),
                    {},
                    {}};
  AttentionGradients gradients{got.d_q.view(), got.d_k.view(), got.d_v.view(), {}};
  for (const TableSlot& slot : slots) {
    const auto count =
        static_cast<std::size_t>(slot.table.heads * slot.table.rows * slot.table.dim);
    got.tables.emplace_back(count, kBefore);
    got.narrow.emplace_back(count, static_cast<float>(kBefore));
  }
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Table& table = slots[i].table;
    gradients.terms.*
        slots[i].gradient = {got.narrow[i].data(),
                             table.heads,
                             table.rows,
                             table.dim,
                             table.head_stride,
                             table.row_stride,
                             target == TableTarget::wide ? got.tables[i].data() : nullptr};
  }
  AttentionOptions options = p.options;
  options.threads = threads;
  attend_backward(p.terms, p.q_view(), p.k_view(), p.v_view(),
                  {forward.out.view(), nullptr, p.d_out_view(), forward.log_sum_exp.data()},
                  gradients, options);
  return got;
}

// Dense [heads, rows, dim] from where the table has them in memory, without what was there before.
template <class T>
std::vector<double> dense_gradient(const Table& t, const std::vector<T>& values) {
  std::vector<double> dense;
  for (std::int64_t h = 0; h < t.heads; ++h) {
    for (std::int64_t r = 0; r < t.rows; ++r) {
      for (std::int64_t d = 0; d < t.dim; ++d) {
        dense.push_back(double{values[static_cast<std::size_t>(t.offset(h, r) + d)]} - kBefore);
      }
    }
  }
  return dense;
}

void expect_wide_gradients(const Problem& p) {
  const std::vector<TableSlot> slots = tables_of(p.terms, {});
  const WideGradients d = run_wide_backward(p, slots);
  const std::vector<double> d_out = Tokens<double>(p.d_out_view(), {}).values;
  const auto slope = [&](const Direction& direction) {
    return attend_reference_slope(p.terms, p.q_view(), p.k_view(), p.v_view(), d_out, p.options,
                                  direction);
  };
  expect_slope("d_q", p.q_view().data, d.d_q.wide(), slope);
  expect_slope("d_k", p.k_view().data, d.d_k.wide(), slope);
  expect_slope("d_v", p.v_view().data, d.d_v.wide(), slope);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    expect_slope(slots[i].name, slots[i].table.data, dense_gradient(slots[i].table, d.tables[i]),
                 slope);
    EXPECT_EQ(d.narrow[i], std::vector<float>(d.narrow[i].size(), static_cast<float>(kBefore)))
        << slots[i].name << " went to float32 as well";
  }
}

void expect_wide_attention(const Case& c) {
  SCOPED_TRACE(::testing::Message() << c);
  WideProblem wide(c);
  const Problem& p = wide.problem;
  const WideAttended got = run_wide(p);
  const ReferenceResult expected = p.reference();
  expect_wide("out", got.out.wide(), expected.out);
  expect_wide("log_sum_exp", got.log_sum_exp, expected.log_sum_exp);
  expect_gaps_untouched(
      Tensor(DType::f64, {c.batch, c.queries, c.heads, c.value_dim}, c.strides, 99), got.out);

  expect_wide_gradients(p);
}

class WideAttention : public ::testing::TestWithParam<Terms> {
 protected:
  // Grouped heads, and values of another width.
  [[nodiscard]] static Case base() {
    return {.terms = GetParam(),
            .batch = 2,
            .heads = 4,
            .key_heads = 2,
            .queries = 11,
            .keys = 14,
            .head_dim = 10,
            .value_dim = 7,
            .strides = Strides::padded};
  }
};

TEST_P(WideAttention, IsTheFullMatrixWithEveryOption) {
  expect_wide_attention(base());
  Case c = base();
  c.causality = Causality::bottom_right;
  c.strides = Strides::heads_first;
  expect_wide_attention(c);
  c.window = 4;
  c.soft_cap = 1.5;
  expect_wide_attention(c);
  c.queries = 17;  // the first see no key
  expect_wide_attention(c);
  c = base();
  c.padded = Padded::lengths;
  c.positions = PositionIds::scattered;
  expect_wide_attention(c);
  c.padded = Padded::flags;
  c.masked = Masked::additive_rank_4;
  c.window = 6;
  expect_wide_attention(c);
  c = base();
  c.batch = 1;
  c.packed = 3;
  c.causality = Causality::bottom_right;
  expect_wide_attention(c);
}

TEST_P(WideAttention, IsTheFullMatrixAtThePositionsItIsGiven) {
  for (const PositionIds positions : kGivenPositions) {
    Case c = base();
    c.positions = positions;
    // A table with a row for each of thousands of distances is the same code, and slow here.
    if (positions == PositionIds::far_apart) c.heads = c.key_heads = c.batch = 1;
    expect_wide_attention(c);
  }
}

TEST_P(WideAttention, BeginsAtTheTokenItIsGiven) {
  for (Case c : at_offsets(GetParam(), 9)) {
    c.keys = 20;
    c.offset = *c.offset / 8;
    c.window /= 8;
    expect_wide_attention(c);
  }
}

TEST_P(WideAttention, IsTheFullMatrixUnderEveryMask) {
  for (int masked = 0; masked <= static_cast<int>(Masked::additive_short); ++masked) {
    Case c = base();
    c.masked = static_cast<Masked>(masked);
    expect_wide_attention(c);
  }
}

TEST_P(WideAttention, DoesNotDependOnTheThreads) {
  Case c = base();
  c.queries = 40;
  c.keys = 40;
  WideProblem wide(c);
  const Problem& p = wide.problem;
  const WideAttended one = run_wide(p, 1), three = run_wide(p, 3);
  EXPECT_EQ(one.out.bytes(), three.out.bytes());
  EXPECT_EQ(one.log_sum_exp, three.log_sum_exp);
  const std::vector<TableSlot> slots = tables_of(p.terms, {});
  const WideGradients alone = run_wide_backward(p, slots, 1);
  const WideGradients shared = run_wide_backward(p, slots, 3);
  EXPECT_EQ(alone.d_q.bytes(), shared.d_q.bytes());
  EXPECT_EQ(alone.d_k.bytes(), shared.d_k.bytes());
  EXPECT_EQ(alone.d_v.bytes(), shared.d_v.bytes());
  EXPECT_EQ(alone.tables, shared.tables);
}

// Without wide numbers the float32 ones count, for tables and for their gradients.
TEST_P(WideAttention, ReadsAndWritesFloat32TablesWhereThereAreNoOthers) {
  Case c = base();
  c.dtype = c.key_dtype = DType::f64;
  const Problem p(c);
  expect_wide("out", run_wide(p).out.wide(), p.reference().out);
  const ReferenceGradients expected = p.reference_gradients();
  const std::vector<TableSlot> slots = tables_of(p.terms, expected);
  const WideGradients got = run_wide_backward(p, slots, 1, TableTarget::narrow);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    expect_wide(slots[i].name, dense_gradient(slots[i].table, got.narrow[i]), *slots[i].expected,
                1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, WideAttention, ::testing::ValuesIn(kAllTerms),
                         [](const auto& info) { return name_of(info.param); });

TEST(WideAttentionTerms, RandomCombinations) {
  constexpr std::array<std::int64_t, 4> kQueries = {1, 2, 7, 30}, kKeys = {1, 3, 8, 33};
  constexpr std::array<std::int64_t, 5> kWideDims = {1, 2, 7, 16, 20};
  constexpr std::array<std::int64_t, 3> kWideValueDims = {1, 5, 16};
  for_random_cases(60,
                   {.queries = kQueries,
                    .keys = kKeys,
                    .head_dims = kWideDims,
                    .value_dims = kWideValueDims,
                    .windows = kRandomWindows},
                   [](const Case& c, std::mt19937_64& /*random*/) { expect_wide_attention(c); });
}

TEST(WideAttentionTerms, LongRows) {
  for (const Terms terms : {Terms::rope, Terms::t5}) {
    expect_wide_attention({.terms = terms, .queries = 2, .keys = 20000});
  }
}

TEST(WideAttentionOptions, TakeRotatedKeysAndFloat32Angles) {
  for (const Terms terms : {Terms::rope, Terms::xpos}) {
    WideProblem wide({.terms = terms, .batch = 2, .queries = 6, .keys = 9});
    wide.problem.options.keys = KeyState::rotated;
    expect_wide("out", run_wide(wide.problem).out.wide(), wide.problem.reference().out);
  }
  WideProblem wide({.terms = Terms::rope, .batch = 2, .queries = 6, .keys = 9});
  Problem& p = wide.problem;
  const std::vector<double> exact = run_wide(p).out.wide();
  p.options.angles = core::AngleMode::float32;
  const std::vector<double> engine = run_wide(p).out.wide();
  EXPECT_NE(engine, exact);
  // Queries and keys rotated before the call.
  const auto rotate = [&](Tensor& x, core::Role role, std::int64_t first) {
    const core::Rotation in_place{x.view(), x.view(), role};
    core::rotate(*p.terms.rotation, core::positions_from(first), {&in_place, 1},
                 {.angles = core::AngleMode::float32});
  };
  rotate(p.q, core::Role::query, 9 - 6);
  rotate(p.k, core::Role::key, 0);
  p.terms.rotation.reset();
  expect_wide("out", engine, p.reference().out);
}

// interleaved_to_half moves features: the gradient must move them back.
TEST(WideAttentionOptions, RotateEveryLayout) {
  for (const auto layout : {core::PairLayout::interleaved, core::PairLayout::half,
                            core::PairLayout::interleaved_to_half}) {
    WideProblem wide({.terms = Terms::rope, .heads = 4, .queries = 6, .keys = 9, .head_dim = 16});
    Problem& p = wide.problem;
    p.terms.rotation->layout = layout;
    expect_wide("out", run_wide(p).out.wide(), p.reference().out);
    expect_wide_gradients(p);
  }
}

TEST(WideAttentionExtras, AreThoseOfTheFullMatrixRoundedOnce) {
  WideProblem wide({.terms = Terms::deberta,
                    .batch = 2,
                    .queries = 7,
                    .keys = 9,
                    .causality = Causality::bottom_right,
                    .soft_cap = 2.0,
                    .masked = Masked::additive_rank_4});
  const Problem& p = wide.problem;
  const ReferenceResult expected = p.reference();
  std::vector<float> scores(expected.scores.size()), capped = scores, masked = scores;
  std::vector<float> probabilities = scores, log_sum_exp(expected.log_sum_exp.size());
  const auto compare = [](const char* what, const std::vector<float>& got,
                          const std::vector<double>& exact) {
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_FLOAT_EQ(got[i], static_cast<float>(exact[i])) << what << "[" << i << "]";
    }
  };
  run_wide(p, 2,
           {log_sum_exp.data(), scores.data(), capped.data(), masked.data(), probabilities.data()});
  compare("log_sum_exp", log_sum_exp, expected.log_sum_exp);
  compare("scores", scores, expected.scores);
  compare("capped_scores", capped, expected.capped_scores);
  compare("masked_scores", masked, expected.masked_scores);
  compare("probabilities", probabilities, expected.probabilities);
  // Without the scores.
  std::fill(probabilities.begin(), probabilities.end(), 7.0F);
  run_wide(p, 1, {.probabilities = probabilities.data()});
  compare("probabilities alone", probabilities, expected.probabilities);
}

TEST(WideAttentionRows, NaNInAHiddenKeyReachesNoQuery) {
  WideProblem wide({.terms = Terms::rope,
                    .batch = 2,
                    .queries = 5,
                    .keys = 8,
                    .strides = Strides::dense,
                    .padded = Padded::flags});
  Problem& p = wide.problem;
  const std::vector<double> before = run_wide(p).out.wide();
  const auto spoil = [&](Tensor& tensor) {
    const core::HeadsView view = tensor.view();
    for (std::int64_t t = 0; t < view.batch * view.tokens; ++t) {
      if (p.key_padding[static_cast<std::size_t>(t)] == 0) {
        core::set_element(view, t * view.token_stride, std::numeric_limits<double>::quiet_NaN());
      }
    }
  };
  ASSERT_NE(std::count(p.key_padding.begin(), p.key_padding.end(), 0), 0);
  spoil(p.k);
  spoil(p.v);
  EXPECT_EQ(run_wide(p).out.wide(), before);
}

TEST(WideAttentionRows, OfNoKeysAreZeros) {
  for (const std::int64_t keys : {0, 3}) {
    WideProblem wide({.queries = 5, .keys = keys, .causality = Causality::bottom_right});
    const WideAttended got = run_wide(wide.problem);
    for (std::size_t i = 0; i < got.log_sum_exp.size(); ++i) {
      if (static_cast<std::int64_t>(i) % 5 < 5 - keys) {
        EXPECT_EQ(got.log_sum_exp[i], -std::numeric_limits<double>::infinity());
      }
    }
    EXPECT_EQ(core::element_of(got.out.view(), 0), 0.0);
  }
  EXPECT_NO_THROW(run_wide(WideProblem({.queries = 0, .keys = 3}).problem));
}

TEST(WideAttentionRefuses, AMixOfTypes) {
  std::vector<double> wide(64, 7.0);
  std::vector<float> narrow(64, 7.0F);
  const auto f64 = core::heads_view(wide.data(), 1, 2, 2, 4);
  const auto f32 = core::heads_view(narrow.data(), 1, 2, 2, 4);
  std::vector<double> out(16, 7.0), log_sum(4), more(16, 7.0), last(16, 7.0);
  const auto d = core::heads_view(out.data(), 1, 2, 2, 4);
  const auto d_k = core::heads_view(more.data(), 1, 2, 2, 4);
  const auto d_v = core::heads_view(last.data(), 1, 2, 2, 4);
  const auto run = [&](core::ConstHeadsView q, core::ConstHeadsView k, core::ConstHeadsView v,
                       core::HeadsView o,
                       const AttentionExtras& extras = {}) { attend({}, q, k, v, o, {}, extras); };
  expect_error(ErrorCode::unsupported, {"k", "f32"}, [&] { run(f64, f32, f64, d); });
  expect_error(ErrorCode::unsupported, {"v", "f32"}, [&] { run(f64, f64, f32, d); });
  expect_error(ErrorCode::unsupported, {"k", "f64"}, [&] { run(f32, f64, f32, d); });
  expect_error(ErrorCode::unsupported, {"out", "f64"}, [&] { run(f32, f32, f32, d); });
  expect_error(ErrorCode::unsupported, {"wide_log_sum_exp", "f32"}, [&] {
    std::vector<float> other(16);
    run(f32, f32, f32, core::heads_view(other.data(), 1, 2, 2, 4),
        {.wide_log_sum_exp = log_sum.data()});
  });
  EXPECT_EQ(out, std::vector<double>(16, 7.0));

  const auto back = [&](core::ConstHeadsView o, core::ConstHeadsView d_o, core::HeadsView d_q) {
    attend_backward({}, f64, f64, f64, {o, nullptr, d_o, log_sum.data()}, {d_q, d_k, d_v, {}});
  };
  expect_error(ErrorCode::unsupported, {"d_q", "f32"}, [&] { back(f64, f64, f32); });
  expect_error(ErrorCode::unsupported, {"out", "f32"}, [&] { back(f32, f64, d); });
  expect_error(ErrorCode::unsupported, {"d_out", "f32"}, [&] { back(f64, f32, d); });
  expect_error(ErrorCode::invalid_argument, {"wide_log_sum_exp"}, [&] {
    attend_backward({}, f64, f64, f64, {f64, narrow.data(), f64}, {d, d_k, d_v, {}});
  });
  for (const auto* values : {&out, &more, &last}) {
    EXPECT_EQ(*values, std::vector<double>(16, 7.0)) << "written before it was refused";
  }
}

}  // namespace
}  // namespace phasor::attention::tests
