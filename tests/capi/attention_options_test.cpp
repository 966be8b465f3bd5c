// Masks, padding, packing, positions and scores of phasor_attend: the room's own bits, and what is
// refused before a number is written.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "capi/support.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/config/encoding.hpp"

namespace phasor::capi {
namespace {

using testing::Encoding;
using testing::expect_status;
using testing::kDim;
using testing::kHeads;
using testing::kKeyHeads;
using testing::parse_encoding;
using testing::Tensor;
using testing::Values;

constexpr std::int64_t kBatch = 2, kFewQueries = 3, kFewKeys = 5;
constexpr const char* kRope = R"({"encoding": "rope", "head_dim": 8, "layout": "half"})";

class AttendOptions : public ::testing::Test {
 protected:
  AttendOptions() { reset(); }
  void reset() {
    options_ = {};
    options_.struct_size = sizeof(options_);
    options_.threads = 1;
  }
  // The same call in C and in C++.
  void expect_same(const attention::AttentionOptions& options,
                   const attention::AttentionExtras& extras = {}) {
    attention::AttentionOptions same = options;
    same.threads = 1;
    const config::LoadedEncoding loaded = config::parse_encoding(json_, ".").value_or_throw();
    const encodings::ScoreTerms terms =
        config::resolve(loaded, attention::attention_shape(q_->cpp, k_->cpp, v_->cpp, same));
    attention::attend(terms, q_->cpp, k_->cpp, v_->cpp, expected_->cpp, same, extras);
    ASSERT_EQ(phasor_attend(rope_.get(), &q_->c, &k_->c, &v_->c, &out_->c, &options_), PHASOR_OK)
        << phasor_last_error();
    EXPECT_EQ(out_->values, expected_->values);
  }
  void expect_refused(phasor_status status, const Values& values) {
    const std::vector<float> before = out_->values;
    expect_status(phasor_attend(rope_.get(), &q_->c, &k_->c, &v_->c, &out_->c, &options_), status,
                  values);
    EXPECT_EQ(out_->values, before);
  }
  void make(std::int64_t batch, std::int64_t queries, std::int64_t keys) {
    q_ = std::make_unique<Tensor>(queries, kHeads, 0.1F, kDim, batch);
    k_ = std::make_unique<Tensor>(keys, kKeyHeads, 0.2F, kDim, batch);
    v_ = std::make_unique<Tensor>(keys, kKeyHeads, 0.3F, kDim, batch);
    out_ = std::make_unique<Tensor>(queries, kHeads, 0.4F, kDim, batch);
    expected_ = std::make_unique<Tensor>(queries, kHeads, 0.5F, kDim, batch);
  }

  std::string json_ = kRope;
  Encoding rope_ = parse_encoding(kRope);
  std::unique_ptr<Tensor> q_, k_, v_, out_, expected_;
  phasor_attend_options options_{};

  void SetUp() override { make(kBatch, kFewQueries, kFewKeys); }
};

TEST_F(AttendOptions, MasksOfEveryKindAndShape) {
  std::vector<std::uint8_t> hidden(kBatch * kHeads * kFewQueries * kFewKeys);
  for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] = i % 3 != 0;
  std::vector<float> added(hidden.size());
  for (std::size_t i = 0; i < added.size(); ++i) added[i] = static_cast<float>(i % 7) - 3.0F;
  added[4] = -std::numeric_limits<float>::infinity();
  const std::vector<std::vector<std::int64_t>> shapes = {{kBatch, kHeads, kFewQueries, kFewKeys},
                                                         {1, 1, kFewQueries, kFewKeys},
                                                         {kBatch, 1, 1, kFewKeys},
                                                         {1, kHeads, kFewQueries, 1},
                                                         {1, 1, kFewQueries, kFewKeys - 1}};
  for (const auto& shape : shapes) {
    attention::AttentionOptions options;
    options.mask =
        attention::boolean_mask(hidden.data(), shape, kBatch, kHeads, kFewQueries, kFewKeys);
    phasor_mask mask = phasor_dense_mask(hidden.data(), PHASOR_MASK_BOOLEAN, shape[0], shape[1],
                                         shape[2], shape[3]);
    options_.mask = &mask;
    expect_same(options);
    options.mask =
        attention::additive_mask(added.data(), shape, kBatch, kHeads, kFewQueries, kFewKeys);
    mask.data = added.data();
    mask.kind = PHASOR_MASK_ADDITIVE;
    expect_same(options);
  }
}

TEST_F(AttendOptions, AMaskWithStridesOfItsOwn) {
  // [Nk, Nq] in memory, read across.
  std::vector<std::uint8_t> across(kFewKeys * kFewQueries);
  std::vector<std::uint8_t> along(across.size());
  for (std::int64_t i = 0; i < kFewQueries; ++i) {
    for (std::int64_t j = 0; j < kFewKeys; ++j) {
      const std::uint8_t seen = (i + 2 * j) % 3 != 0;
      across[static_cast<std::size_t>(j * kFewQueries + i)] = seen;
      along[static_cast<std::size_t>(i * kFewKeys + j)] = seen;
    }
  }
  phasor_mask mask =
      phasor_dense_mask(across.data(), PHASOR_MASK_BOOLEAN, 1, 1, kFewQueries, kFewKeys);
  mask.query_stride = 1;
  mask.key_stride = kFewQueries;
  options_.mask = &mask;
  const std::vector<std::int64_t> shape = {kFewQueries, kFewKeys};
  attention::AttentionOptions options;
  options.mask =
      attention::boolean_mask(along.data(), shape, kBatch, kHeads, kFewQueries, kFewKeys);
  expect_same(options);
}

TEST_F(AttendOptions, PaddingAndLengths) {
  const std::vector<std::uint8_t> padding = {0, 1, 1, 1, 1, 1, 1, 1, 0, 0};
  attention::AttentionOptions options;
  options.key_padding = padding;
  options_.key_padding = padding.data();
  options_.key_padding_count = padding.size();
  expect_same(options);
  reset();
  const std::vector<std::int64_t> lengths = {3, 5};
  options = {};
  options.causality = attention::Causality::bottom_right;
  options.key_lengths = lengths;
  options_.causality = PHASOR_CAUSAL;
  options_.key_lengths = lengths.data();
  options_.key_length_count = lengths.size();
  expect_same(options);
}

TEST_F(AttendOptions, PackedSequences) {
  make(1, 7, 9);
  const std::vector<std::int64_t> queries = {0, 3, 7}, keys = {0, 5, 9};
  attention::AttentionOptions options;
  options.causality = attention::Causality::bottom_right;
  options.query_boundaries = queries;
  options.key_boundaries = keys;
  options_.causality = PHASOR_CAUSAL;
  options_.query_boundaries = queries.data();
  options_.query_boundary_count = queries.size();
  options_.key_boundaries = keys.data();
  options_.key_boundary_count = keys.size();
  expect_same(options);
}

TEST_F(AttendOptions, PositionsKeyStateAndAngles) {
  const std::vector<std::int64_t> at = {4, 9, 11};
  const std::vector<double> keys_at = {0.0, 0.5, 2.0, 3.0, 8.0};
  const phasor_positions query_positions = phasor_positions_integers(at.data(), 1, 0, kFewQueries);
  const phasor_positions key_positions = phasor_positions_floats(keys_at.data(), 1, 0, kFewKeys);
  attention::AttentionOptions options;
  options.query_positions = core::positions_per_token(at);
  options.key_positions = core::positions_per_token(keys_at);
  options_.query_positions = &query_positions;
  options_.key_positions = &key_positions;
  expect_same(options);
  options.angles = core::AngleMode::float32;
  options_.angles = PHASOR_ANGLES_FLOAT32;
  expect_same(options);
  reset();
  options = {};
  options.keys = attention::KeyState::rotated;
  options_.key_state = PHASOR_KEYS_ROTATED;
  expect_same(options);
}

// Every encoding that reads distances, at keys in another order with a gap, forward and backward.
TEST_F(AttendOptions, PositionsOfDistances) {
  const std::vector<std::int64_t> at = {4, 9, 11, 0, 1, 2},
                                  keys_at = {9, 0, 11, 4, 30, 2, 1, 0, 3, 4};
  const phasor_positions query_positions =
      phasor_positions_integers(at.data(), 1, kBatch, kFewQueries);
  const phasor_positions key_positions =
      phasor_positions_integers(keys_at.data(), 1, kBatch, kFewKeys);
  for (const char* const json :
       {R"({"encoding": "alibi"})",
        R"({"encoding": "t5", "relative_attention_bias": [[1, 2, 3, 4], [0, 1, 0, 1], [5, 1, 2, 3],
            [2, 2, 1, 0], [1, 0, 0, 1], [3, 2, 1, 0], [1, 1, 0, 0], [0, 2, 0, 4]],
            "max_distance": 20})",
        R"({"encoding": "shaw", "clip": 1, "rel_k": [[1, 0, 1, 2, 0, 1, 0, 3],
            [0, 1, 0, 0, 2, 0, 1, 0], [2, 1, 0, 1, 0, 0, 1, 1]]})"}) {
    SCOPED_TRACE(json);
    reset();
    json_ = json;
    rope_ = parse_encoding(json);
    expect_same({});
    const std::vector<float> counted = out_->values;
    attention::AttentionOptions options;
    options.query_positions = core::positions_per_row(at.data(), 1, kBatch, kFewQueries);
    options.key_positions = core::positions_per_row(keys_at.data(), 1, kBatch, kFewKeys);
    options_.query_positions = &query_positions;
    options_.key_positions = &key_positions;
    expect_same(options);
    EXPECT_NE(out_->values, counted);

    std::vector<float> sums(kBatch * kHeads * kFewQueries);
    options_.log_sum_exp = sums.data();
    options_.log_sum_exp_count = sums.size();
    ASSERT_EQ(phasor_attend(rope_.get(), &q_->c, &k_->c, &v_->c, &out_->c, &options_), PHASOR_OK);
    Tensor d_q(kFewQueries, kHeads, 0.0F, kDim, kBatch);
    Tensor same_q(kFewQueries, kHeads, 1.0F, kDim, kBatch);
    Tensor d_k(kFewKeys, kKeyHeads, 0.0F, kDim, kBatch),
        d_v(kFewKeys, kKeyHeads, 0.0F, kDim, kBatch);
    Tensor same_k(kFewKeys, kKeyHeads, 1.0F, kDim, kBatch);
    Tensor same_v(kFewKeys, kKeyHeads, 1.0F, kDim, kBatch);
    ASSERT_EQ(phasor_attend_backward(rope_.get(), &q_->c, &k_->c, &v_->c, &out_->c, &out_->c,
                                     &d_q.c, &d_k.c, &d_v.c, &options_),
              PHASOR_OK)
        << phasor_last_error();
    options.threads = 1;
    const config::LoadedEncoding loaded = config::parse_encoding(json, ".").value_or_throw();
    const encodings::ScoreTerms terms =
        config::resolve(loaded, attention::attention_shape(q_->cpp, k_->cpp, v_->cpp, options));
    attention::attend_backward(terms, q_->cpp, k_->cpp, v_->cpp,
                               {out_->cpp, sums.data(), out_->cpp},
                               {same_q.cpp, same_k.cpp, same_v.cpp, {}}, options);
    EXPECT_EQ(d_q.values, same_q.values);
    EXPECT_EQ(d_k.values, same_k.values);

    const std::vector<double> halves = {0.5, 1.0, 2.0, 3.0, 4.0};
    const phasor_positions fractions = phasor_positions_floats(halves.data(), 1, 0, kFewKeys);
    options_.key_positions = &fractions;
    expect_refused(PHASOR_UNSUPPORTED, {"key_positions", "0.5"});
  }
}

TEST_F(AttendOptions, ScoresOfEveryStage) {
  constexpr std::size_t kCount = kBatch * kHeads * kFewQueries * kFewKeys;
  std::vector<float> ours[4], theirs[4];
  for (int i = 0; i < 4; ++i) {
    ours[i].assign(kCount, -1.0F);
    theirs[i].assign(kCount, -2.0F);
  }
  options_.soft_cap = 2.0;
  options_.causality = PHASOR_CAUSAL;
  options_.scores = ours[0].data();
  options_.capped_scores = ours[1].data();
  options_.masked_scores = ours[2].data();
  options_.probabilities = ours[3].data();
  options_.score_count = kCount;
  attention::AttentionOptions options;
  options.soft_cap = 2.0;
  options.causality = attention::Causality::bottom_right;
  expect_same(options, {.scores = theirs[0].data(),
                        .capped_scores = theirs[1].data(),
                        .masked_scores = theirs[2].data(),
                        .probabilities = theirs[3].data()});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(ours[i], theirs[i]) << i;
}

TEST_F(AttendOptions, RefusesCountsThatDoNotFit) {
  const std::vector<std::uint8_t> bytes(100, 1);
  const std::vector<std::int64_t> lengths(10, 3);
  float numbers[4] = {7.0F, 7.0F, 7.0F, 7.0F};
  // A count that was forgotten must not mean "no padding".
  options_.key_padding = bytes.data();
  expect_refused(PHASOR_SHAPE_MISMATCH, {"key_padding", "10", "0"});
  options_.key_padding_count = 9;
  expect_refused(PHASOR_SHAPE_MISMATCH, {"key_padding", "10", "9"});
  options_.key_padding = nullptr;
  expect_refused(PHASOR_INVALID_ARGUMENT, {"key_padding", "NULL"});
  reset();
  options_.key_lengths = lengths.data();
  options_.key_length_count = 3;
  expect_refused(PHASOR_SHAPE_MISMATCH, {"key_lengths", "2", "3"});
  reset();
  options_.query_boundaries = lengths.data();
  expect_refused(PHASOR_SHAPE_MISMATCH, {"query_boundaries", "1", "0"});
  reset();
  options_.probabilities = numbers;
  options_.score_count = 4;
  expect_refused(PHASOR_SHAPE_MISMATCH, {"score_count", "120", "4"});
  EXPECT_EQ(numbers[0], 7.0F);
}

TEST_F(AttendOptions, RefusesWrongMasksAndChoices) {
  const std::vector<std::uint8_t> bytes(200, 1);
  phasor_mask mask = phasor_dense_mask(bytes.data(), 3, 1, 1, kFewQueries, kFewKeys);
  options_.mask = &mask;
  expect_refused(PHASOR_INVALID_ARGUMENT, {"mask.kind", "2", "3"});
  mask = phasor_dense_mask(nullptr, PHASOR_MASK_BOOLEAN, 1, 1, kFewQueries, kFewKeys);
  expect_refused(PHASOR_INVALID_ARGUMENT, {"mask.data", "NULL"});
  mask = phasor_dense_mask(bytes.data(), PHASOR_MASK_BOOLEAN, 1, 1, kFewQueries + 1, kFewKeys);
  expect_refused(PHASOR_SHAPE_MISMATCH, "4");
  mask = phasor_dense_mask(bytes.data(), PHASOR_MASK_BOOLEAN, 1, 1, kFewQueries, kFewKeys + 1);
  expect_refused(PHASOR_SHAPE_MISMATCH, "6");
  mask = phasor_dense_mask(bytes.data(), PHASOR_MASK_ADDITIVE_F64, 1, 1, 1, kFewKeys);
  expect_refused(PHASOR_UNSUPPORTED, "f64");
  reset();
  options_.key_state = 2;
  expect_refused(PHASOR_INVALID_ARGUMENT, {"key_state", "1", "2"});
  reset();
  options_.angles = -1;
  expect_refused(PHASOR_INVALID_ARGUMENT, {"angles", "1", "-1"});
  reset();
  phasor_positions positions = phasor_positions_from(0);
  positions.kind = 7;
  options_.key_positions = &positions;
  expect_refused(PHASOR_INVALID_ARGUMENT, {"key_positions.kind", "3", "7"});
}

}  // namespace
}  // namespace phasor::capi
