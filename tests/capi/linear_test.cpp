// Linear attention through phasor.h: its state, positions, padding and backward pass.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "capi/support.hpp"
#include "phasor/attention/linear.hpp"

namespace phasor::capi {
namespace {

using testing::expect_status;
using testing::kDim;
using testing::kHeads;
using testing::kKeyHeads;
using testing::LinearState;
using testing::make_rope;
using testing::Rope;
using testing::Tensor;
using testing::untouched;

constexpr std::int64_t kTokens = 6;

core::Rotary rotary() { return {core::make_frequencies({kDim}), core::PairLayout::half, kDim}; }

class CapiLinear : public ::testing::Test {
 protected:
  CapiLinear() {
    options_.struct_size = sizeof(options_);
    options_.causality = PHASOR_CAUSAL;
    options_.threads = 1;
    cpp_options_.causality = attention::Causality::bottom_right;
    cpp_options_.threads = 1;
    phasor_linear_state* state = nullptr;
    EXPECT_EQ(phasor_linear_state_create(1, kKeyHeads, kDim, kDim, &state), PHASOR_OK)
        << phasor_last_error();
    state_.reset(state);
  }
  // Tokens [first, first + count) of a tensor.
  static phasor_heads part(const Tensor& tensor, std::int64_t first, std::int64_t count) {
    phasor_heads view = tensor.c;
    view.data = static_cast<float*>(view.data) + first * view.token_stride;
    view.tokens = count;
    return view;
  }
  phasor_status continue_with(std::int64_t first, std::int64_t count) {
    const phasor_heads q = part(q_, first, count), k = part(k_, first, count);
    const phasor_heads v = part(v_, first, count), out = part(out_, first, count);
    return phasor_linear_continue(state_.get(), rope_.get(), &q, &k, &v, &out, &options_);
  }

  Rope rope_ = make_rope(kDim);
  LinearState state_;
  Tensor q_{kTokens, kHeads, 0.1F}, k_{kTokens, kKeyHeads, 0.2F}, v_{kTokens, kKeyHeads, 0.3F};
  Tensor out_{kTokens, kHeads, 0.4F}, expected_{kTokens, kHeads, 0.5F};
  phasor_linear_options options_{};
  attention::LinearOptions cpp_options_;
};

TEST_F(CapiLinear, TheStateCarriesThePastOn) {
  attention::LinearState state(1, kKeyHeads, kDim, kDim);
  std::int64_t first = 0;
  for (const std::int64_t count : {1, 3, 2}) {
    ASSERT_EQ(continue_with(first, count), PHASOR_OK) << phasor_last_error();
    const auto cpp = [&](const Tensor& tensor) {
      core::HeadsView view = tensor.cpp;
      view.data = static_cast<float*>(view.data) + first * view.token_stride;
      view.tokens = count;
      return view;
    };
    attention::linear_attend(rotary(), cpp(q_), cpp(k_), cpp(v_), cpp(expected_), cpp_options_,
                             &state);
    first += count;
    EXPECT_EQ(phasor_linear_state_tokens(state_.get()), first);
  }
  EXPECT_EQ(out_.values, expected_.values);
}

TEST_F(CapiLinear, ForksAndResets) {
  ASSERT_EQ(continue_with(0, 3), PHASOR_OK);
  phasor_linear_state* raw = nullptr;
  ASSERT_EQ(phasor_linear_state_fork(state_.get(), &raw), PHASOR_OK);
  LinearState fork(raw);
  ASSERT_EQ(continue_with(3, 3), PHASOR_OK);
  const std::vector<float> once = out_.values;
  EXPECT_EQ(phasor_linear_state_tokens(fork.get()), 3);
  state_.swap(fork);
  ASSERT_EQ(continue_with(3, 3), PHASOR_OK);
  EXPECT_EQ(out_.values, once);
  ASSERT_EQ(phasor_linear_state_reset(state_.get()), PHASOR_OK);
  EXPECT_EQ(phasor_linear_state_tokens(state_.get()), 0);
  ASSERT_EQ(continue_with(0, 6), PHASOR_OK);
  EXPECT_EQ(phasor_linear_state_tokens(state_.get()), 6);
}

TEST_F(CapiLinear, PositionsAndPadding) {
  const std::vector<std::int64_t> at = {3, 4, 8, 9, 20, 21};
  const std::vector<std::uint8_t> padding = {1, 0, 1, 1, 1, 0};
  const phasor_positions positions = phasor_positions_integers(at.data(), 1, 0, kTokens);
  options_.query_positions = &positions;
  options_.key_positions = &positions;
  options_.key_padding = padding.data();
  options_.key_padding_count = padding.size();
  cpp_options_.query_positions = core::positions_per_token(at);
  cpp_options_.key_positions = core::positions_per_token(at);
  cpp_options_.key_padding = padding;
  ASSERT_EQ(phasor_linear_attend(rope_.get(), &q_.c, &k_.c, &v_.c, &out_.c, &options_), PHASOR_OK)
      << phasor_last_error();
  attention::linear_attend(rotary(), q_.cpp, k_.cpp, v_.cpp, expected_.cpp, cpp_options_);
  EXPECT_EQ(out_.values, expected_.values);
  options_.key_padding_count = 0;
  expect_status(phasor_linear_attend(rope_.get(), &q_.c, &k_.c, &v_.c, &out_.c, &options_),
                PHASOR_SHAPE_MISMATCH, {"key_padding", "6", "0"});
  EXPECT_EQ(out_.values, expected_.values);
}

TEST_F(CapiLinear, RandomFeatures) {
  constexpr std::int64_t kFeatures = 12;
  options_.features = PHASOR_FAVOR;
  options_.feature_count = kFeatures;
  options_.seed = std::uint64_t{1} << 63;
  cpp_options_.features = attention::FeatureMap::favor;
  cpp_options_.feature_count = kFeatures;
  cpp_options_.seed = options_.seed;
  const auto compare = [&](const Rope& rope, const core::Rotary& rotary) {
    ASSERT_EQ(phasor_linear_attend(rope.get(), &q_.c, &k_.c, &v_.c, &out_.c, &options_), PHASOR_OK)
        << phasor_last_error();
    attention::linear_attend(rotary, q_.cpp, k_.cpp, v_.cpp, expected_.cpp, cpp_options_);
    EXPECT_EQ(out_.values, expected_.values);
  };
  const core::Rotary wide{core::make_frequencies({kFeatures}), core::PairLayout::half, kFeatures};
  compare(make_rope(kFeatures), wide);
  expect_status(phasor_linear_attend(rope_.get(), &q_.c, &k_.c, &v_.c, &out_.c, &options_),
                PHASOR_SHAPE_MISMATCH, {"feature_count", "12", "8"});
  options_.rotates = PHASOR_ROTATES_INPUTS;
  cpp_options_.rotates = attention::Rotates::inputs;
  compare(rope_, rotary());
  expect_status(continue_with(0, 3), PHASOR_SHAPE_MISMATCH, {"feature_count", "12", "8"});
  options_.rotates = 2;
  expect_status(phasor_linear_attend(rope_.get(), &q_.c, &k_.c, &v_.c, &out_.c, &options_),
                PHASOR_INVALID_ARGUMENT, {"rotates", "2"});
  EXPECT_EQ(out_.values, expected_.values);
}

TEST_F(CapiLinear, BackwardGivesTheRoomsOwnBits) {
  const Tensor d_out(kTokens, kHeads, 0.6F);
  const Tensor d_q(kTokens, kHeads, 0.0F), d_k(kTokens, kKeyHeads, 0.0F),
      d_v(kTokens, kKeyHeads, 0.0F);
  const Tensor e_q(kTokens, kHeads, 1.0F), e_k(kTokens, kKeyHeads, 1.0F),
      e_v(kTokens, kKeyHeads, 1.0F);
  ASSERT_EQ(phasor_linear_attend_backward(rope_.get(), &q_.c, &k_.c, &v_.c, &d_out.c, &d_q.c,
                                          &d_k.c, &d_v.c, &options_),
            PHASOR_OK)
      << phasor_last_error();
  attention::linear_attend_backward(rotary(), q_.cpp, k_.cpp, v_.cpp, d_out.cpp, e_q.cpp, e_k.cpp,
                                    e_v.cpp, cpp_options_);
  EXPECT_EQ(d_q.values, e_q.values);
  EXPECT_EQ(d_k.values, e_k.values);
  EXPECT_EQ(d_v.values, e_v.values);
}

TEST_F(CapiLinear, AFailedCallLeavesStateAndOutputsAsTheyWere) {
  ASSERT_EQ(continue_with(0, 3), PHASOR_OK);
  const std::vector<float> before = out_.values;
  options_.causality = PHASOR_NOT_CAUSAL;
  EXPECT_NE(continue_with(3, 3), PHASOR_OK);
  options_.causality = PHASOR_CAUSAL;
  options_.features = PHASOR_SOFTMAX_EXP;
  EXPECT_NE(continue_with(3, 3), PHASOR_OK);
  options_.features = PHASOR_ELU_PLUS_ONE;
  EXPECT_EQ(
      phasor_linear_continue(state_.get(), rope_.get(), &q_.c, &k_.c, nullptr, &out_.c, &options_),
      PHASOR_INVALID_ARGUMENT);
  EXPECT_EQ(phasor_linear_state_tokens(state_.get()), 3);
  EXPECT_EQ(out_.values, before);

  auto* const same = untouched<phasor_linear_state>();
  phasor_linear_state* state = same;
  const phasor_heads* const q = &q_.c;
  expect_status(phasor_linear_state_create(1, 0, 8, 8, &state), PHASOR_SHAPE_MISMATCH, "0");
  const phasor_status null[] = {
      phasor_linear_state_create(1, 1, 8, 8, nullptr),
      phasor_linear_state_fork(nullptr, &state),
      phasor_linear_state_fork(state_.get(), nullptr),
      phasor_linear_state_reset(nullptr),
      phasor_linear_continue(nullptr, nullptr, q, q, q, q, nullptr),
      phasor_linear_attend_backward(nullptr, nullptr, q, q, q, q, q, q, nullptr),
      phasor_linear_attend_backward(nullptr, q, nullptr, q, q, q, q, q, nullptr),
      phasor_linear_attend_backward(nullptr, q, q, nullptr, q, q, q, q, nullptr),
      phasor_linear_attend_backward(nullptr, q, q, q, nullptr, q, q, q, nullptr),
      phasor_linear_attend_backward(nullptr, q, q, q, q, nullptr, q, q, nullptr),
      phasor_linear_attend_backward(nullptr, q, q, q, q, q, nullptr, q, nullptr),
      phasor_linear_attend_backward(nullptr, q, q, q, q, q, q, nullptr, nullptr),
  };
  for (std::size_t i = 0; i < std::size(null); ++i) {
    EXPECT_EQ(null[i], PHASOR_INVALID_ARGUMENT) << i;
  }
  EXPECT_EQ(state, same);
  EXPECT_EQ(phasor_linear_state_tokens(nullptr), 0);
  phasor_linear_state_destroy(nullptr);
}

}  // namespace
}  // namespace phasor::capi
