// A real model's decode step, large enough for threads to share it: warm it allocates nothing, and
// memory that runs out in it leaves the sequence as it was. PHASOR_MODELS names the folder that
// holds the file.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <new>
#include <vector>

#include "phasor/models/decoder.hpp"
#include "support/allocations.hpp"

namespace phasor::models {
namespace {

class RealStep : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const folder = std::getenv("PHASOR_MODELS");
    if (folder == nullptr) GTEST_SKIP() << "PHASOR_MODELS names no folder of models";
    file_ = std::filesystem::path(folder) / "SmolLM2-135M-Instruct.Q4_1.gguf";
  }
  [[nodiscard]] Decoder load(const ComputeOptions& options) const {
    return Decoder::load(file_, options).value_or_throw();
  }
  std::filesystem::path file_;
};

TEST_F(RealStep, AllocatesNothingWhenWarm) {
  for (const Precision precision : {Precision::exact, Precision::fast}) {
    for (const int threads : {1, 2}) {
      Decoder decoder = load({.precision = precision, .threads = threads});
      Sequence sequence = decoder.sequence({.capacity = 64});
      ForwardResult result;
      const std::vector<std::int64_t> prompt = {1, 4093, 198, 28120};
      const Step first{&sequence, prompt};
      decoder.forward({&first, 1}, {}, result);
      std::int64_t before = 0;
      for (int step = 0; step < 12; ++step) {
        const std::int64_t id = 30 + step;
        const Step next{&sequence, {&id, 1}};
        decoder.forward({&next, 1}, {}, result);
        if (step == 1) before = test::allocation_count();
      }
      EXPECT_EQ(test::allocation_count() - before, 0) << name_of(precision) << ", " << threads;
    }
  }
}

TEST_F(RealStep, ThatFailedInAThreadChangesNothing) {
  Decoder undisturbed = load({.threads = 2});
  const std::vector<std::int64_t> prompt = {1, 4093, 198, 28120};
  const auto logits_of = [](Decoder& decoder, Sequence& sequence,
                            std::span<const std::int64_t> ids) {
    const Step step{&sequence, ids};
    return decoder.forward({&step, 1}, {LogitsOf::last_token, HiddenStates::leave}).logits;
  };
  Sequence twin = undisturbed.sequence({.capacity = 16});
  const std::vector<float> expected = logits_of(undisturbed, twin, prompt);

  Decoder decoder = load({.threads = 2});
  Sequence sequence = decoder.sequence({.capacity = 16});
  std::vector<float> logits;
  const std::int64_t refused = test::fail_each_allocation(
      [&] {
        try {
          logits = logits_of(decoder, sequence, prompt);
        } catch (const std::bad_alloc&) {
          logits.clear();
        }
      },
      [&](std::int64_t index) {
        ASSERT_TRUE(logits.empty()) << "allocation " << index << " was refused in silence";
        ASSERT_TRUE(sequence.ids().empty()) << index;
      });
  EXPECT_GT(refused, 0);
  EXPECT_EQ(logits, expected);
}

}  // namespace
}  // namespace phasor::models
