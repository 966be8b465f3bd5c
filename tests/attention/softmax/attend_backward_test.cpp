#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "attention/softmax/attend_comparison.hpp"
#include "attention/softmax/random_case.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/core/error.hpp"

namespace phasor::attention::tests {
namespace {

constexpr float kThere = 0.5F;  // in each table's gradient before the call, which adds to it

struct AttendGradients {
  Tensor d_q, d_k, d_v;
  std::vector<std::vector<float>> tables;  // in the order of tables_of()
};
enum class TablesWanted : std::uint8_t { all, none };

AttendGradients run_backward(const Problem& p, const std::vector<TableSlot>& slots,
                             core::InstructionSet isa, int threads,
                             TablesWanted wanted = TablesWanted::all) {
  const Case& c = p.what;
  Attended forward = run_attend(p, isa, threads, WithExtras::log_sum_exp);
  AttendGradients got{Tensor(DType::f32, {c.batch, c.queries, c.heads, c.head_dim}, c.strides, 1),
                      Tensor(DType::f32, {c.batch, c.keys, c.key_heads, c.head_dim}, c.strides, 2),
                      Tensor(DType::f32, {c.batch, c.keys, c.key_heads, c.value_dim}, c.strides, 3),
                      {}};
  AttentionGradients gradients{got.d_q.view(), got.d_k.view(), got.d_v.view(), {}};
  for (const TableSlot& slot : slots) {
    if (wanted == TablesWanted::none) break;
    const Table& t = slot.table;
    auto& values =
        got.tables.emplace_back(static_cast<std::size_t>(t.heads * t.rows * t.dim), kThere);
    gradients.terms.*slot.gradient =
        encodings::heads_then_rows(values.data(), t.heads, t.rows, t.dim);
  }
  AttentionOptions options = p.options;
  options.isa = isa;
  options.threads = threads;
  attend_backward(p.terms, p.q_view(), p.k_view(), p.v_view(),
                  {out_view(p, forward.out), forward.log_sum_exp.data(), p.d_out_view()}, gradients,
                  options);
  return got;
}

void expect_near_reference(const Problem& p, const std::vector<TableSlot>& slots,
                           const ReferenceGradients& expected, const AttendGradients& got,
                           double relative, core::InstructionSet isa) {
  const Case& c = p.what;
  Differences differences(p, isa);
  const double product = std::sqrt(static_cast<double>(c.value_dim));
  const auto compare = [&](const char* name, const Tensor& tensor,
                           const std::vector<double>& exact) {
    const double tolerance = relative * (largest_of(exact) + product);
    std::size_t dense = 0;
    tensor.for_each([&](std::int64_t at) {
      differences.check(name, dense, core::element_of(tensor.view(), at), exact[dense], tolerance);
      ++dense;
    });
  };
  compare("d_q", got.d_q, expected.d_q);
  compare("d_k", got.d_k, expected.d_k);
  compare("d_v", got.d_v, expected.d_v);
  const double rows = std::sqrt(static_cast<double>(c.batch * c.queries));
  for (std::size_t s = 0; s < got.tables.size(); ++s) {
    const std::vector<double>& exact = *slots[s].expected;
    const double tolerance = relative * (kThere + largest_of(exact) + product * rows);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      differences.check(slots[s].name, i, got.tables[s][i], kThere + exact[i], tolerance);
    }
  }
}

void expect_backward(const Problem& p) {
  const ReferenceResult forward = p.reference();
  const ReferenceGradients expected = p.reference_gradients();
  const std::vector<TableSlot> slots = tables_of(p.terms, expected);
  const double relative = relative_error(p, forward);
  for (const core::InstructionSet isa : core::available_instruction_sets()) {
    expect_near_reference(p, slots, expected, run_backward(p, slots, isa, 1), relative, isa);
  }
}
void expect_backward(const Case& c) { expect_backward(Problem(c)); }

constexpr std::array<std::int64_t, 11> kBackwardSizes = {1,  6,  7,   16,  17, 95,
                                                         96, 97, 192, 193, 255};
constexpr std::array<std::int64_t, 5> kBackwardDims = {16, 7, 64, 1, 33};
constexpr std::array<std::int64_t, 4> kBackwardValueDims = {12, 1, 32, 17};

class AttendBackward : public ::testing::TestWithParam<Terms> {};
INSTANTIATE_TEST_SUITE_P(Every, AttendBackward, ::testing::ValuesIn(kAllTerms),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(AttendBackward, IsTheReferenceAcrossEveryTileEdge) {
  const auto kind = static_cast<std::size_t>(GetParam());
  for (std::size_t i = 0; i < kBackwardSizes.size(); ++i) {
    const std::size_t n = i + 13 * kind;
    Case c{.terms = GetParam()};
    c.queries = pick(kBackwardSizes, i);
    c.keys = pick(kBackwardSizes, 3 * i + kind);
    c.head_dim = pick(kBackwardDims, n);
    c.value_dim = pick(kBackwardValueDims, n);
    c.heads = n % 3 == 2 ? 4 : 2;
    c.key_heads = n % 3 == 0 ? 2 : 1;
    c.causality = n % 2 == 0 ? Causality::none : Causality::bottom_right;
    c.strides = pick(std::array{Strides::heads_first, Strides::dense, Strides::padded}, n);
    c.seed = n + 1;
    expect_backward(c);
  }
}

// Three tiles of keys, each packed and written on its own, or all at once if heads share them.
TEST_P(AttendBackward, ShiftsWhatBelongsToKeysFromTileToTile) {
  for (const std::int64_t key_heads : {2, 1}) {
    Case c = around_tile_edges(GetParam());
    c.key_heads = key_heads;
    c.queries = 100;
    c.keys = 390;
    c.masked = Masked::additive_rank_4;
    c.padded = Padded::flags;
    c.window = 250;
    c.causality = key_heads == 2 ? Causality::none : Causality::bottom_right;
    expect_backward(c);
  }
}

TEST_P(AttendBackward, SumsOverGroupedHeads) {
  Case c = around_tile_edges(GetParam());
  c.heads = 6;
  c.key_heads = 2;
  c.causality = Causality::bottom_right;
  expect_backward(c);
}

TEST_P(AttendBackward, SeesOnlyTheWindow) {
  for (const std::int64_t window : {1, 5, 100}) {
    Case c = around_tile_edges(GetParam());
    c.window = window;
    c.causality = window == 5 ? Causality::none : Causality::bottom_right;
    expect_backward(c);
  }
}

TEST_P(AttendBackward, BeginsAtTheTokenItIsGiven) {
  for (const Case& c : at_offsets(GetParam(), 97)) expect_backward(c);
}

TEST_P(AttendBackward, AppliesMasksAndTheSoftCap) {
  for (const auto& [masked, cap] :
       {std::pair(Masked::boolean_rank_3, 0.0), std::pair(Masked::additive_rank_4, 2.0),
        std::pair(Masked::boolean_short, 0.0), std::pair(Masked::no, 1.0)}) {
    Case c = around_tile_edges(GetParam());
    c.masked = masked;
    c.soft_cap = cap;
    expect_backward(c);
  }
}

TEST_P(AttendBackward, LeavesPaddingOut) {
  for (const Padded padded : {Padded::lengths, Padded::flags}) {
    Case c = around_tile_edges(GetParam());
    c.batch = 3;
    c.padded = padded;
    c.causality = padded == Padded::flags ? Causality::bottom_right : Causality::none;
    expect_backward(c);
  }
}

TEST_P(AttendBackward, KeepsPackedSequencesApart) {
  for (const std::int64_t sequences : {2, 5}) {
    Case c = around_tile_edges(GetParam());
    c.batch = 1;
    c.queries = 210;
    c.keys = 255;
    c.packed = sequences;
    c.causality = sequences == 2 ? Causality::none : Causality::bottom_right;
    expect_backward(c);
  }
}

TEST_P(AttendBackward, ReadsThePositionsItIsGiven) {
  for (const PositionIds positions : kGivenPositions) {
    Case c = around_tile_edges(GetParam());
    c.positions = positions;
    c.causality = positions == PositionIds::left_padded ? Causality::bottom_right : Causality::none;
    expect_backward(c);
  }
}

TEST_P(AttendBackward, ReadsSixteenBits) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Case c = around_tile_edges(GetParam());
    c.dtype = c.key_dtype = dtype;
    c.strides = Strides::padded;
    c.shift = 1;
    expect_backward(c);
  }
}

void expect_the_same_bits_with_any_number_of_threads(const Problem& p) {
  const std::vector<TableSlot> slots = tables_of(p.terms, {});
  const core::InstructionSet best = core::available_instruction_sets().back();
  const AttendGradients one = run_backward(p, slots, best, 1);
  for (const int threads : {2, 3, 5}) {
    SCOPED_TRACE(testing::Message() << p.what << ", " << threads << " threads");
    const AttendGradients many = run_backward(p, slots, best, threads);
    EXPECT_EQ(one.d_q.bytes(), many.d_q.bytes());
    EXPECT_EQ(one.d_k.bytes(), many.d_k.bytes());
    EXPECT_EQ(one.d_v.bytes(), many.d_v.bytes());
    for (std::size_t i = 0; i < slots.size(); ++i)
      EXPECT_EQ(one.tables[i], many.tables[i]) << slots[i].name;
  }
}

TEST_P(AttendBackward, GivesTheSameBitsWithAnyNumberOfThreads) {
  for (const std::int64_t key_heads : {6, 3, 1}) {
    Case c = around_tile_edges(GetParam());
    c.heads = 6;
    c.key_heads = key_heads;
    c.queries = 200;
    c.causality = Causality::bottom_right;
    expect_the_same_bits_with_any_number_of_threads(Problem(c));
    c.batch = 1;
    c.packed = 3;
    expect_the_same_bits_with_any_number_of_threads(Problem(c));
  }
}

// Sums in double hide their order behind the rounding to float32. Here the first heads of two key heads
// cancel, and are 2^40 times larger than what is left: a sum in another order is another number.
TEST_P(AttendBackward, GivesTheSameBitsWhereHeadsCancel) {
  Case c = around_tile_edges(GetParam());
  c.batch = 1;
  c.heads = 4;
  c.key_heads = 2;
  Problem p(c);
  const auto repeat = [](Tensor& x, std::int64_t from, std::int64_t to, float factor) {
    const core::HeadsView view = x.view();
    auto* const data = static_cast<float*>(view.data);
    for (std::int64_t t = 0; t < view.tokens; ++t) {
      for (std::int64_t e = 0; e < view.head_dim; ++e) {
        float* const row = data + t * view.token_stride + e;
        row[to * view.head_stride] = factor * row[from * view.head_stride];
      }
    }
  };
  repeat(p.q, 0, 2, 1.0F);
  repeat(p.k, 0, 1, 1.0F);
  repeat(p.v, 0, 1, 1.0F);
  repeat(p.d_out, 0, 0, 0x1p40F);
  repeat(p.d_out, 0, 2, -1.0F);
  expect_the_same_bits_with_any_number_of_threads(p);
}

TEST_P(AttendBackward, LeavesTablesThatAreNotWanted) {
  Case c = around_tile_edges(GetParam());
  const Problem p(c);
  const ReferenceGradients expected = p.reference_gradients();
  const core::InstructionSet best = core::available_instruction_sets().back();
  const AttendGradients got =
      run_backward(p, tables_of(p.terms, expected), best, 1, TablesWanted::none);
  expect_near_reference(p, {}, expected, got, relative_error(p, p.reference()), best);
}

// A constant added to a whole row changes no weight, except through the soft cap.
TEST(AttendBackwardTerms, FirstTokensUnderTheSoftCap) {
  for (const std::int64_t packed : {0, 3}) {
    const Problem p({.terms = Terms::tupe_first,
                     .queries = 100,
                     .keys = 100,
                     .soft_cap = 2.0,
                     .packed = packed});
    double largest = 0.0;
    for (const double x : p.reference_gradients().first_row) {
      largest = std::fmax(largest, std::fabs(x));
    }
    if (packed == 0) {
      EXPECT_GT(largest, 1e-3);
    }
    expect_backward(p);
  }
}

// Everything that backward is given besides the inputs, for a test to change.
struct BackwardRequest {
  Problem problem{{.terms = Terms::everything,
                   .heads = 4,
                   .key_heads = 2,
                   .queries = 3,
                   .keys = 5,
                   .head_dim = 8,
                   .value_dim = 6,
                   .strides = Strides::dense}};
  std::vector<float> out = std::vector<float>(3 * 4 * 6, 0.0F), log_sum_exp = out;
  std::vector<float> d_q = std::vector<float>(3 * 4 * 8 + 64, 7.0F), d_k = d_q, d_v = d_q;
  std::vector<float> d_bias = std::vector<float>(9, 7.0F);
  AttentionForward forward{core::heads_view(out.data(), 1, 3, 4, 6), log_sum_exp.data(),
                           problem.d_out_view()};
  AttentionGradients gradients{core::heads_view(d_q.data(), 1, 3, 4, 8),
                               core::heads_view(d_k.data(), 1, 5, 2, 8),
                               core::heads_view(d_v.data(), 1, 5, 2, 6),
                               {}};
  BackwardRequest() { gradients.terms.bias = encodings::shared_rows(d_bias.data(), 9, 1); }

  void run() const {
    attend_backward(problem.terms, problem.q_view(), problem.k_view(), problem.v_view(), forward,
                    gradients, problem.options);
  }
  [[nodiscard]] bool untouched() const {
    for (const auto* values : {&d_q, &d_k, &d_v, &d_bias}) {
      if (std::any_of(values->begin(), values->end(), [](float x) { return x != 7.0F; })) {
        return false;
      }
    }
    return true;
  }
};

TEST(AttendBackwardRefuses, ResultsAndGradientsThatDoNotFit) {
  const auto refused = [](const char* what, const auto& spoil) {
    BackwardRequest request;
    spoil(request);
    try {
      request.run();
      ADD_FAILURE() << "took " << what;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
    EXPECT_TRUE(request.untouched()) << what;
  };
  using R = BackwardRequest;
  refused("d_q", [](R& r) { r.gradients.d_q.tokens = 2; });
  refused("d_k", [](R& r) { r.gradients.d_k.heads = 4; });
  refused("d_v", [](R& r) { r.gradients.d_v.head_dim = 8; });
  refused("d_q", [](R& r) { r.gradients.d_q.data = nullptr; });
  refused("bias", [](R& r) { r.gradients.terms.bias.rows = 8; });
  refused("first_row", [](R& r) { r.gradients.terms.first_row = r.gradients.terms.bias; });
  refused("out", [](R& r) { r.forward.out.tokens = 2; });
  refused("d_out", [](R& r) { r.forward.d_out.head_dim = 5; });
  refused("log_sum_exp", [](R& r) { r.forward.log_sum_exp = nullptr; });
  BackwardRequest fine;
  EXPECT_NO_THROW(fine.run());
  EXPECT_FALSE(fine.untouched());
}

TEST(AttendBackwardRefuses, RotatedKeys) {
  Problem p({.terms = Terms::rope, .queries = 4, .keys = 4});
  p.options.keys = KeyState::rotated;
  try {
    static_cast<void>(run_backward(p, {}, core::InstructionSet::best, 1));
    ADD_FAILURE() << "rotated keys were accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
  }
}

// Rounding log_sum_exp of such scores makes an error of many units: no weight may be above 1.
TEST(AttendBackwardTerms, HugeScoresHaveFiniteGradients) {
  Problem p({.queries = 97, .keys = 193});
  p.options.scale = 1e12;
  for (const core::InstructionSet isa : core::available_instruction_sets()) {
    const AttendGradients got = run_backward(p, {}, isa, 1);
    for (const Tensor* gradient : {&got.d_q, &got.d_k, &got.d_v}) {
      for (const double value : gradient->wide()) ASSERT_TRUE(std::isfinite(value));
    }
  }
}

TEST(AttendBackwardTerms, RandomCombinations) {
  for_random_cases(120,
                   {.queries = kBackwardSizes,
                    .keys = kBackwardSizes,
                    .head_dims = kBackwardDims,
                    .value_dims = kBackwardValueDims,
                    .windows = kRandomWindows,
                    .many_pairs = 20000},
                   [](const Case& c, std::mt19937_64& /*random*/) { expect_backward(c); });
}

}  // namespace
}  // namespace phasor::attention::tests
