// Decoders through phasor.h: a golden model, token by token, and bad arguments.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "capi/support.hpp"
#include "phasor/models/decoder.hpp"
#include "phasor/phasor.h"
#include "support/changed_model.hpp"
#include "support/golden_array.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::capi {
namespace {

const std::string kCase = std::string(PHASOR_GOLDEN_DIR) + "/models/llama_gqa_llama3";

class Model : public ::testing::Test {
 protected:
  Model() {
    EXPECT_EQ(phasor_model_load((kCase + "/model").c_str(), nullptr, &model_), PHASOR_OK)
        << phasor_last_error();
    EXPECT_EQ(phasor_sequence_create(model_, 14, &sequence_), PHASOR_OK);
  }
  ~Model() override {
    phasor_sequence_destroy(sequence_);
    phasor_model_destroy(model_);
  }
  phasor_model* model_ = nullptr;
  phasor_sequence* sequence_ = nullptr;
};

TEST_F(Model, GivesTheLogitsOfEachToken) {
  const auto ids = tests::golden_array<std::int64_t>("models/llama_gqa_llama3/input_ids.npy");
  const auto expected = tests::golden_array<float>("models/llama_gqa_llama3/logits.npy");
  ASSERT_EQ(phasor_model_vocabulary(model_), 97);
  std::vector<float> logits(97);
  ASSERT_EQ(phasor_model_forward(model_, sequence_, ids.data(), 13, nullptr, 0), PHASOR_OK);
  ASSERT_EQ(phasor_model_forward(model_, sequence_, &ids[13], 1, logits.data(), 97), PHASOR_OK);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    ASSERT_NEAR(logits[i], expected[13 * 97 + i], 2e-5 + 1e-4 * std::abs(expected[13 * 97 + i]));
  }
  ASSERT_EQ(phasor_sequence_truncate(sequence_, 5), PHASOR_OK);
  ASSERT_EQ(phasor_model_forward(model_, sequence_, &ids[5], 1, logits.data(), 97), PHASOR_OK);
  EXPECT_NEAR(logits[0], expected[5 * 97], 2e-5 + 1e-4 * std::abs(expected[5 * 97]));
}

TEST_F(Model, RefusesBadArguments) {
  const std::int64_t id = 97;
  std::vector<float> logits(97);
  EXPECT_EQ(phasor_model_forward(model_, sequence_, &id, 1, logits.data(), 97),
            PHASOR_OUT_OF_RANGE);
  EXPECT_EQ(phasor_model_forward(model_, sequence_, &id, 1, logits.data(), 96),
            PHASOR_SHAPE_MISMATCH);
  EXPECT_EQ(phasor_model_forward(model_, nullptr, &id, 1, nullptr, 0), PHASOR_INVALID_ARGUMENT);
  EXPECT_EQ(phasor_sequence_truncate(sequence_, 1), PHASOR_OUT_OF_RANGE);
  auto* const same_sequence = testing::untouched<phasor_sequence>();
  phasor_sequence* none = same_sequence;
  EXPECT_EQ(phasor_sequence_create(model_, 0, &none), PHASOR_INVALID_ARGUMENT);
  EXPECT_EQ(phasor_sequence_create(nullptr, 4, &none), PHASOR_INVALID_ARGUMENT);
  EXPECT_EQ(phasor_sequence_fork(nullptr, 4, &none), PHASOR_INVALID_ARGUMENT);
  EXPECT_EQ(phasor_sequence_fork(sequence_, -1, &none), PHASOR_OUT_OF_RANGE);
  EXPECT_EQ(none, same_sequence);
  EXPECT_EQ(phasor_sequence_shift(sequence_, 0, 1), PHASOR_OUT_OF_RANGE);
  EXPECT_EQ(phasor_sequence_shift(nullptr, 0, 1), PHASOR_INVALID_ARGUMENT);
  EXPECT_EQ(phasor_sequence_tokens(nullptr), 0);
  auto* const same_model = testing::untouched<phasor_model>();
  phasor_model* missing = same_model;
  EXPECT_EQ(phasor_model_load("/nowhere/at/all", nullptr, &missing), PHASOR_IO);
  EXPECT_EQ(phasor_model_load(nullptr, nullptr, &missing), PHASOR_INVALID_ARGUMENT);
  phasor_model_options options{};
  options.struct_size = sizeof options;
  options.precision = 7;
  EXPECT_EQ(phasor_model_load((kCase + "/model").c_str(), &options, &missing),
            PHASOR_INVALID_ARGUMENT);
  EXPECT_EQ(missing, same_model);
  EXPECT_EQ(phasor_model_vocabulary(nullptr), 0);
  phasor_model_destroy(nullptr);
  phasor_sequence_destroy(nullptr);
}

TEST_F(Model, ReportsItsSizes) {
  phasor_model_info info{};
  info.struct_size = sizeof(info);
  ASSERT_EQ(phasor_model_describe(model_, &info), PHASOR_OK) << phasor_last_error();
  const models::Decoder decoder = models::Decoder::load(kCase + "/model").value_or_throw();
  const models::DecoderFacts& facts = decoder.facts();
  EXPECT_EQ(info.vocabulary, 97);
  EXPECT_EQ(info.layers, facts.layers);
  EXPECT_EQ(info.hidden, facts.hidden);
  EXPECT_EQ(info.heads, facts.heads);
  EXPECT_EQ(info.key_heads, facts.key_heads);
  EXPECT_EQ(info.head_dim, facts.head_dim);
  EXPECT_EQ(info.trained_length, facts.trained_length);
  EXPECT_EQ(info.parameters, facts.parameters);
  EXPECT_EQ(info.weight_bytes, static_cast<std::int64_t>(facts.weight_bytes));
  EXPECT_EQ(phasor_model_describe(nullptr, &info), PHASOR_INVALID_ARGUMENT);
  EXPECT_EQ(phasor_model_describe(model_, nullptr), PHASOR_INVALID_ARGUMENT);
}

TEST_F(Model, SequencesForkAndShift) {
  const auto ids = tests::golden_array<std::int64_t>("models/llama_gqa_llama3/input_ids.npy");
  ASSERT_EQ(phasor_model_forward(model_, sequence_, ids.data(), 9, nullptr, 0), PHASOR_OK);
  phasor_sequence* fork = nullptr;
  ASSERT_EQ(phasor_sequence_fork(sequence_, 20, &fork), PHASOR_OK) << phasor_last_error();
  std::vector<float> ours(97), forks(97);
  ASSERT_EQ(phasor_model_forward(model_, sequence_, &ids[9], 1, ours.data(), 97), PHASOR_OK);
  EXPECT_EQ(phasor_sequence_tokens(fork), 9);
  EXPECT_EQ(phasor_sequence_tokens(sequence_), 10);
  ASSERT_EQ(phasor_model_forward(model_, fork, &ids[9], 1, forks.data(), 97), PHASOR_OK);
  EXPECT_EQ(ours, forks);
  ASSERT_EQ(phasor_sequence_shift(fork, 2, 3), PHASOR_OK) << phasor_last_error();
  EXPECT_EQ(phasor_sequence_tokens(fork), 7);
  phasor_sequence_destroy(fork);
}

TEST_F(Model, GeneratesTheGoldenTokens) {
  const auto prompt = tests::golden_array<std::int64_t>("models/llama_gqa_llama3/input_ids.npy");
  const auto expected = tests::golden_array<std::int64_t>("models/llama_gqa_llama3/generated.npy");
  phasor_generate_options options;
  ASSERT_EQ(phasor_generate_options_init(&options, sizeof(options)), PHASOR_OK);
  options.tokens = 16;
  std::vector<std::int64_t> seen;
  const phasor_on_token keep = [](void* user, std::int64_t id) -> std::int32_t {
    static_cast<std::vector<std::int64_t>*>(user)->push_back(id);
    return 1;
  };
  phasor_ids* ids = nullptr;
  ASSERT_EQ(phasor_generate(model_, prompt.data(), prompt.size(), &options, keep, &seen, &ids),
            PHASOR_OK)
      << phasor_last_error();
  EXPECT_EQ(testing::taken(ids), expected);
  EXPECT_EQ(seen, expected);
  // A stop ends the answer and is not given out; so does a callback that returns 0.
  options.stops = &expected[5];
  options.stop_count = 1;
  ASSERT_EQ(phasor_generate(model_, prompt.data(), prompt.size(), &options, nullptr, nullptr, &ids),
            PHASOR_OK);
  const std::vector<std::int64_t> stopped = testing::taken(ids);
  EXPECT_LT(stopped.size(), 6U);
  options.stop_count = 0;
  const phasor_on_token end = [](void*, std::int64_t) -> std::int32_t { return 0; };
  ASSERT_EQ(phasor_generate(model_, prompt.data(), prompt.size(), &options, end, nullptr, &ids),
            PHASOR_OK);
  EXPECT_EQ(testing::taken(ids).size(), 1U);
}

TEST_F(Model, GenerateRefusesAndLeavesOutAsItWas) {
  const std::int64_t prompt[] = {1, 97};
  phasor_ids* const same = testing::untouched<phasor_ids>();
  phasor_ids* ids = same;
  phasor_generate_options options;
  ASSERT_EQ(phasor_generate_options_init(&options, sizeof(options)), PHASOR_OK);
  EXPECT_EQ(phasor_generate(model_, prompt, 2, nullptr, nullptr, nullptr, &ids),
            PHASOR_OUT_OF_RANGE);
  EXPECT_EQ(phasor_generate(model_, prompt, 0, nullptr, nullptr, nullptr, &ids),
            PHASOR_INVALID_ARGUMENT);
  EXPECT_EQ(phasor_generate(model_, nullptr, 1, nullptr, nullptr, nullptr, &ids),
            PHASOR_INVALID_ARGUMENT);
  EXPECT_EQ(phasor_generate(nullptr, prompt, 1, nullptr, nullptr, nullptr, &ids),
            PHASOR_INVALID_ARGUMENT);
  EXPECT_EQ(phasor_generate(model_, prompt, 1, nullptr, nullptr, nullptr, nullptr),
            PHASOR_INVALID_ARGUMENT);
  options.top_p = 0.0;
  testing::expect_status(phasor_generate(model_, prompt, 1, &options, nullptr, nullptr, &ids),
                         PHASOR_INVALID_ARGUMENT, "top_p");
  options.top_p = 1.0;
  options.when_full = 2;
  testing::expect_status(phasor_generate(model_, prompt, 1, &options, nullptr, nullptr, &ids),
                         PHASOR_INVALID_ARGUMENT, {"when_full", "1", "2"});
  options.when_full = 0;
  options.stop_count = 1;
  testing::expect_status(phasor_generate(model_, prompt, 1, &options, nullptr, nullptr, &ids),
                         PHASOR_INVALID_ARGUMENT, {"stops", "NULL"});
  EXPECT_EQ(ids, same);
}

class ChangedModel : public io::testing::TemporaryFolder {};

TEST_F(ChangedModel, WeightsAndResultsMustBeFinite) {
  const std::string tensor = "model.layers.2.mlp.gate_proj.weight";
  tests::copy_with_value(kCase + "/model", at("model"), tensor, NAN, 65, 66);
  auto* const same = testing::untouched<phasor_model>();
  phasor_model* model = same;
  testing::expect_status(phasor_model_load(at("model").c_str(), nullptr, &model),
                         PHASOR_INVALID_ARGUMENT, {tensor.c_str(), "row 1, column 1", "nan"});
  EXPECT_EQ(model, same);

  tests::copy_with_value(kCase + "/model", at("model"), tensor, 3e38F);
  ASSERT_EQ(phasor_model_load(at("model").c_str(), nullptr, &model), PHASOR_OK);
  phasor_sequence* sequence = nullptr;
  ASSERT_EQ(phasor_sequence_create(model, 14, &sequence), PHASOR_OK);
  const std::int64_t ids[] = {1, 2, 3};
  std::vector<float> logits(97);
  testing::expect_status(phasor_model_forward(model, sequence, ids, 3, logits.data(), 97),
                         PHASOR_OUT_OF_RANGE, {"layer 2 of 3"});
  testing::expect_status(phasor_model_forward(model, sequence, ids, 3, nullptr, 0),
                         PHASOR_OUT_OF_RANGE, {"layer 2 of 3"});
  EXPECT_EQ(phasor_sequence_tokens(sequence), 0);
  auto* const no_ids = testing::untouched<phasor_ids>();
  phasor_ids* answer = no_ids;
  testing::expect_status(phasor_generate(model, ids, 3, nullptr, nullptr, nullptr, &answer),
                         PHASOR_OUT_OF_RANGE, {"layer 2 of 3"});
  EXPECT_EQ(answer, no_ids);
  phasor_sequence_destroy(sequence);
  phasor_model_destroy(model);
}

}  // namespace
}  // namespace phasor::capi
