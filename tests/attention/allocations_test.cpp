// Memory that runs out in the n-th allocation of a call, for every n, on any thread, and a call that
// is cancelled at its n-th look: the caller gets the exception or the right result, inputs keep their
// bits, a state stays where it was, and the next call works. A program of its own, since it replaces
// operator new.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <new>
#include <vector>

#include "attention/linear/linear_support.hpp"
#include "attention/softmax/attend_support.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/error.hpp"
#include "support/allocations.hpp"
#include "support/cancellation.hpp"

namespace phasor::attention::tests {
namespace {

using Bytes = std::vector<std::byte>;

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  const auto* const begin = reinterpret_cast<const std::byte*>(values.data());
  return {begin, begin + values.size() * sizeof(T)};
}

// Refuses each allocation of call(), one after the other, and cancels it at each look. results() are
// those of an undisturbed call whenever a call did not throw, and again after each failure; inputs()
// never change. Returns how many allocations could be refused.
template <class Call, class Results, class Inputs>
std::int64_t expect_to_live_on(const Call& call, const Results& results, const Inputs& inputs) {
  call();
  const std::vector<Bytes> expected = results(), given = inputs();
  bool has_result = false;
  const auto attempt = [&] {
    try {
      has_result = test::runs_to_its_end(call);
    } catch (const std::bad_alloc&) {
      has_result = false;
    }
  };
  const auto check = [&](std::int64_t index) {
    EXPECT_EQ(inputs(), given) << "allocation or look " << index;
    if (has_result) {
      EXPECT_EQ(results(), expected) << "allocation or look " << index;
    }
    call();
    EXPECT_EQ(results(), expected) << "after allocation or look " << index;
  };
  EXPECT_GT(test::cancel_at_each_look(attempt, check), 0);
  return test::fail_each_allocation(attempt, check);
}

// One problem with the memory of all its results, so that a call allocates nothing but its own.
class AttendCalls {
 public:
  AttendCalls(const Case& c, int threads)
      : p(c),
        out(c.dtype, {c.batch, c.queries, c.heads, c.value_dim}, c.strides, 99),
        d_q(c.dtype, {c.batch, c.queries, c.heads, c.head_dim}, c.strides, 99),
        d_k(c.key_dtype, {c.batch, c.keys, c.key_heads, c.head_dim}, c.strides, 99),
        d_v(c.key_dtype, {c.batch, c.keys, c.key_heads, c.value_dim}, c.strides, 99),
        log_sum_exp(static_cast<std::size_t>(c.batch * c.heads * c.queries)),
        wide_log_sum_exp(log_sum_exp.size()),
        options(p.options) {
    options.threads = threads;
    const ReferenceGradients none;
    for (const TableSlot& slot : tables_of(p.terms, none)) {
      const Table& t = slot.table;
      std::vector<float>& values =
          tables.emplace_back(static_cast<std::size_t>(t.heads * t.rows * t.dim));
      terms.*slot.gradient =
          t.heads == 1 ? encodings::shared_rows<float>(values.data(), t.rows, t.dim)
                       : encodings::heads_then_rows<float>(values.data(), t.heads, t.rows, t.dim);
    }
  }

  void forward() {
    const bool is_wide = p.what.dtype == DType::f64;
    attend(p.terms, p.q_view(), p.k_view(), p.v_view(), out.view(), options,
           {.log_sum_exp = is_wide ? nullptr : log_sum_exp.data(),
            .wide_log_sum_exp = is_wide ? wide_log_sum_exp.data() : nullptr});
  }
  void clear_tables() {
    for (std::vector<float>& table : tables) std::fill(table.begin(), table.end(), 0.0F);
  }
  [[nodiscard]] AttentionForward forward_values() const {
    return {.out = out.view(),
            .log_sum_exp = log_sum_exp.data(),
            .d_out = p.d_out_view(),
            .wide_log_sum_exp = wide_log_sum_exp.data()};
  }
  [[nodiscard]] AttentionGradients gradients() {
    return {d_q.view(), d_k.view(), d_v.view(), terms};
  }
  // After forward().
  void backward() {
    clear_tables();
    attend_backward(p.terms, p.q_view(), p.k_view(), p.v_view(), forward_values(), gradients(),
                    options);
  }
  [[nodiscard]] std::vector<Bytes> forward_results() const {
    return {out.bytes(), bytes_of(log_sum_exp), bytes_of(wide_log_sum_exp)};
  }
  [[nodiscard]] std::vector<Bytes> backward_results() const {
    std::vector<Bytes> all = {d_q.bytes(), d_k.bytes(), d_v.bytes()};
    for (const std::vector<float>& table : tables) all.push_back(bytes_of(table));
    return all;
  }
  [[nodiscard]] std::vector<Bytes> inputs() const {
    return {p.q.bytes(), p.k.bytes(), p.v.bytes(), p.d_out.bytes()};
  }

  Problem p;
  Tensor out, d_q, d_k, d_v;
  std::vector<float> log_sum_exp;
  std::vector<double> wide_log_sum_exp;
  std::deque<std::vector<float>> tables;
  encodings::ScoreTermGradients terms;
  AttentionOptions options;
};

void expect_attention_to_live_on(const Case& c) {
  for (const int threads : {1, 2}) {
    SCOPED_TRACE(testing::Message() << c << ", " << threads << " threads");
    AttendCalls calls(c, threads);
    const auto inputs = [&] { return calls.inputs(); };
    EXPECT_GT(expect_to_live_on([&] { calls.forward(); }, [&] { return calls.forward_results(); },
                                inputs),
              0);
    EXPECT_GT(expect_to_live_on([&] { calls.backward(); }, [&] { return calls.backward_results(); },
                                inputs),
              0);
  }
}

// Before anything else has started the threads.
TEST(Allocations, OfAttentionThatWouldStartThreads) {
  const Case c{.terms = Terms::rope, .queries = 100, .keys = 100};
  AttendCalls alone(c, 1), calls(c, 2);
  alone.forward();
  bool has_result = false;
  test::fail_each_allocation(
      [&] {
        try {
          calls.forward();
          has_result = true;
        } catch (const std::bad_alloc&) {
          has_result = false;
        }
      },
      [&](std::int64_t index) {
        if (!has_result) return;
        EXPECT_EQ(calls.forward_results(), alone.forward_results())
            << "allocation " << index << " was refused";
      });
  EXPECT_EQ(calls.forward_results(), alone.forward_results());
}

TEST(Allocations, OfAttentionWithEachEncoding) {
  for (const Terms terms : {Terms::rope, Terms::alibi, Terms::t5, Terms::shaw, Terms::xlnet,
                            Terms::tupe_first, Terms::deberta, Terms::everything}) {
    expect_attention_to_live_on({.terms = terms,
                                 .heads = 4,
                                 .key_heads = 2,
                                 .queries = 100,
                                 .keys = 130,
                                 .causality = Causality::bottom_right});
  }
}

TEST(Allocations, OfAttentionInHalfPrecisionWithPadding) {
  expect_attention_to_live_on({.terms = Terms::rope,
                               .batch = 2,
                               .queries = 70,
                               .keys = 90,
                               .dtype = DType::bf16,
                               .key_dtype = DType::bf16,
                               .padded = Padded::flags});
}

Case small_wide_case(Terms terms, std::int64_t batch) {
  return {.terms = terms,
          .batch = batch,
          .heads = 4,
          .key_heads = 2,
          .queries = 20,
          .keys = 30,
          .head_dim = 8,
          .value_dim = 8,
          .dtype = DType::f64,
          .key_dtype = DType::f64};
}

TEST(Allocations, OfAttentionInDouble) {
  for (const Terms terms : {Terms::rope, Terms::alibi, Terms::t5, Terms::shaw, Terms::everything}) {
    expect_attention_to_live_on(small_wide_case(terms, 1));
  }
}

// Enough keys for two threads.
TEST(Allocations, OfAttentionToManyKeysByOneQuery) {
  for (const Terms terms : {Terms::none, Terms::alibi, Terms::t5}) {
    for (const int threads : {1, 2}) {
      AttendCalls calls({.terms = terms, .keys = 1100, .head_dim = 64, .value_dim = 64}, threads);
      const std::int64_t refused =
          expect_to_live_on([&] { calls.forward(); }, [&] { return calls.forward_results(); },
                            [&] { return calls.inputs(); });
      EXPECT_GT(refused, 0) << name_of(terms);
    }
  }
}

// A plan allocates when it is made, no more than it says, and never when it is run. The next call
// with a workspace allocates nothing either.
void expect_to_allocate_once(const Case& c, int threads) {
  SCOPED_TRACE(testing::Message() << c << ", " << threads << " threads");
  AttendCalls calls(c, threads);
  AttentionWorkspace workspace;
  calls.options.workspace = &workspace;
  calls.forward();  // starts the threads, too
  const std::vector<Bytes> expected = calls.forward_results();
  std::int64_t count = test::allocation_count();
  calls.forward();
  EXPECT_EQ(test::allocation_count(), count);
  EXPECT_EQ(calls.forward_results(), expected);
  calls.backward();
  const std::vector<Bytes> expected_gradients = calls.backward_results();

  const Problem& p = calls.p;
  const bool is_wide = c.dtype == DType::f64;
  AttentionOptions alone = calls.options;
  alone.workspace = nullptr;  // a plan with a workspace has its scratch there
  for (const AttentionPasses passes :
       {AttentionPasses::forward, AttentionPasses::forward_and_backward}) {
    const std::int64_t before = test::allocated_bytes();
    AttentionPlan plan(p.terms, sizes_for(c), alone, passes);
    EXPECT_GE(static_cast<std::int64_t>(plan.bytes()), test::allocated_bytes() - before);
    count = test::allocation_count();
    const std::size_t planned = plan.bytes();
    for (int run = 0; run < 3; ++run) {
      plan.run(p.q_view(), p.k_view(), p.v_view(), calls.out.view(),
               {.log_sum_exp = is_wide ? nullptr : calls.log_sum_exp.data(),
                .wide_log_sum_exp = is_wide ? calls.wide_log_sum_exp.data() : nullptr});
      if (passes == AttentionPasses::forward) continue;
      calls.clear_tables();
      plan.run_backward(p.q_view(), p.k_view(), p.v_view(), calls.forward_values(),
                        calls.gradients());
    }
    plan.update_tables();
    EXPECT_EQ(test::allocation_count(), count);
    EXPECT_EQ(plan.bytes(), planned);
    EXPECT_EQ(calls.forward_results(), expected);
    EXPECT_EQ(calls.backward_results(), expected_gradients);
  }
}

TEST(Allocations, OfPlansAndWorkspaces) {
  for (const Terms terms : kAllTerms) {
    for (const std::int64_t queries : {3, 100}) {
      for (const int threads : {1, 2}) {
        expect_to_allocate_once({.terms = terms,
                                 .batch = 2,
                                 .heads = 4,
                                 .key_heads = 2,
                                 .queries = queries,
                                 .keys = 130,
                                 .causality = Causality::bottom_right,
                                 .padded = queries == 3 ? Padded::no : Padded::flags},
                                threads);
      }
    }
  }
}

TEST(Allocations, OfPlansAndWorkspacesWithPositions) {
  for (const Terms terms : kAllTerms) {
    for (const PositionIds positions : {PositionIds::left_padded, PositionIds::reordered}) {
      for (const DType dtype : {DType::f32, DType::f64}) {
        expect_to_allocate_once({.terms = terms,
                                 .batch = 2,
                                 .queries = positions == PositionIds::reordered ? 3 : 100,
                                 .keys = 130,
                                 .head_dim = 8,
                                 .value_dim = 8,
                                 .dtype = dtype,
                                 .key_dtype = dtype,
                                 .positions = positions},
                                2);
      }
    }
  }
}

TEST(Allocations, OfPlansAndWorkspacesInDouble) {
  for (const Terms terms : kAllTerms) {
    for (const int threads : {1, 2}) {
      expect_to_allocate_once(small_wide_case(terms, 2), threads);
    }
  }
}

class LinearCalls {
 public:
  LinearCalls(const LinearCase& c, int threads)
      : p(c), out(p.new_out()), d_q(p.q), d_k(p.k), d_v(p.v), options(p.options) {
    options.threads = threads;
  }
  void forward(LinearState* state = nullptr) {
    linear_attend(p.rotary, p.q.view(), p.k.view(), p.v.view(), out.view(), options, state);
  }
  void backward() {
    linear_attend_backward(p.rotary, p.q.view(), p.k.view(), p.v.view(), p.d_out.view(), d_q.view(),
                           d_k.view(), d_v.view(), options);
  }
  [[nodiscard]] std::vector<Bytes> inputs() const {
    return {p.q.bytes(), p.k.bytes(), p.v.bytes(), p.d_out.bytes()};
  }

  LinearProblem p;
  Tensor out, d_q, d_k, d_v;
  LinearOptions options;
};

TEST(Allocations, OfLinearAttention) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const FeatureMap features : {FeatureMap::elu_plus_one, FeatureMap::softmax_exp}) {
      for (const Causality causality : {Causality::none, Causality::bottom_right}) {
        for (const int threads : {1, 2}) {
          const LinearCase c{.features = features,
                             .causality = causality,
                             .heads = 4,
                             .key_heads = 2,
                             .queries = 90,
                             .keys = 90,
                             .dtype = dtype,
                             .key_dtype = dtype};
          SCOPED_TRACE(testing::Message() << c << ", " << threads << " threads");
          LinearCalls calls(c, threads);
          const auto inputs = [&] { return calls.inputs(); };
          EXPECT_GT(
              expect_to_live_on([&] { calls.forward(); },
                                [&] { return std::vector<Bytes>{calls.out.bytes()}; }, inputs),
              0);
          EXPECT_GT(expect_to_live_on([&] { calls.backward(); },
                                      [&] {
                                        return std::vector<Bytes>{calls.d_q.bytes(),
                                                                  calls.d_k.bytes(),
                                                                  calls.d_v.bytes()};
                                      },
                                      inputs),
                    0);
        }
      }
    }
  }
}

// A failed call leaves the state unchanged: the same call can be repeated.
TEST(Allocations, OfALinearStateCarriedOn) {
  // One key head for two threads: its query heads are divided, and the state is updated in a copy.
  for (const std::int64_t key_heads : {1, 4}) {
    for (const int threads : {1, 2}) {
      LinearCalls calls({.features = FeatureMap::softmax_exp,
                         .heads = 4,
                         .key_heads = key_heads,
                         .queries = 90,
                         .keys = 90},
                        threads);
      LinearState past(1, key_heads, 16, 16);
      calls.forward(&past);
      LinearState expected_state = past;
      calls.forward(&expected_state);
      const Bytes expected = calls.out.bytes();
      LinearState state = past;
      bool has_result = false;
      const auto attempt = [&] {
        try {
          has_result = test::runs_to_its_end([&] { calls.forward(&state); });
        } catch (const std::bad_alloc&) {
          has_result = false;
        }
      };
      const auto check = [&](std::int64_t index) {
        EXPECT_EQ(state.tokens(), has_result ? 180 : 90);
        if (!has_result) calls.forward(&state);
        EXPECT_EQ(calls.out.bytes(), expected) << "allocation or look " << index;
        state = past;
      };
      EXPECT_GT(test::cancel_at_each_look(attempt, check), 1);
      state = past;
      EXPECT_GT(test::fail_each_allocation(attempt, check), 0);
    }
  }
}

}  // namespace
}  // namespace phasor::attention::tests
