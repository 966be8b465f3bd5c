// Decoders through phasor.h: a golden model, token by token, and bad arguments.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "phasor/phasor.h"
#include "support/golden_array.hpp"

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
  phasor_sequence* none = nullptr;
  EXPECT_EQ(phasor_sequence_create(model_, 0, &none), PHASOR_INVALID_ARGUMENT);
  EXPECT_EQ(none, nullptr);
  phasor_model* missing = nullptr;
  EXPECT_EQ(phasor_model_load("/nowhere/at/all", nullptr, &missing), PHASOR_IO);
  EXPECT_EQ(missing, nullptr);
  phasor_model_options options{};
  options.struct_size = sizeof options;
  options.precision = 7;
  EXPECT_EQ(phasor_model_load((kCase + "/model").c_str(), &options, &missing),
            PHASOR_INVALID_ARGUMENT);
  EXPECT_EQ(phasor_model_vocabulary(nullptr), 0);
  phasor_model_destroy(nullptr);
  phasor_sequence_destroy(nullptr);
}

}  // namespace
}  // namespace phasor::capi
