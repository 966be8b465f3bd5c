#include "lab/train/trainer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lab/run/synthetic.hpp"
#include "support/errors.hpp"

namespace phasor::lab::testing {
namespace {

using phasor::tests::expect_error;

// The rows of the same four-row batches, some at a time.
class SplitBatches : public Batches {
 public:
  explicit SplitBatches(std::int64_t rows) : rows_(rows) {}
  [[nodiscard]] Batch at(std::int64_t part) const override {
    constexpr std::int64_t kRows = 4, kTokens = 6;
    const std::int64_t first = part * rows_ % kRows;
    const Batch whole =
        counting_batch(9, static_cast<std::uint64_t>(part * rows_ / kRows), kRows, kTokens);
    Batch batch;
    batch.rows = rows_;
    batch.tokens = kTokens;
    const auto begin = first * kTokens, end = begin + rows_ * kTokens;
    batch.ids.assign(whole.ids.begin() + begin, whole.ids.begin() + end);
    batch.labels.assign(whole.labels.begin() + begin, whole.labels.begin() + end);
    // Parts with different numbers of labels: the mean is over the step, not over parts.
    for (std::int64_t row = first; row < first + rows_; ++row) {
      if (row == 0) std::fill_n(batch.labels.begin(), kTokens - 1, kNoLabel);
    }
    return batch;
  }
  [[nodiscard]] std::int64_t steps() const noexcept override { return 1; }

 private:
  std::int64_t rows_;
};

ModelSpec small_decoder() {
  return parse_model_spec(io::Json::parse(
      R"({"vocabulary": 11, "hidden": 8, "layers": 1, "heads": 2, "intermediate": 12, "context": 8,
          "output": "own"})"));
}

struct Trained {
  Network<float> network{small_decoder()};
  StepFacts facts;
};

Trained after_steps(std::int64_t accumulation, double clip, int steps) {
  Trained trained;
  trained.network.initialise(1);
  TrainingSettings settings;
  settings.steps = 10;
  settings.batch = 4;
  settings.accumulation = accumulation;
  settings.clip = clip;
  TaskData data;
  data.train = [&](std::uint64_t) { return std::make_unique<SplitBatches>(4 / accumulation); };
  Trainer trainer(settings, 1, data, trained.network, 1);
  for (int step = 0; step < steps; ++step) trained.facts = trainer.step(nullptr);
  EXPECT_EQ(trainer.state().step, steps);
  EXPECT_EQ(trainer.state().tokens, steps * 4 * 6);
  return trained;
}

TEST(Trainer, parts_of_a_step_are_the_step) {
  const Trained whole = after_steps(1, 0.0, 1);
  for (const std::int64_t accumulation : {2, 4}) {
    const Trained parts = after_steps(accumulation, 0.0, 1);
    EXPECT_EQ(parts.facts.loss.labels, whole.facts.loss.labels);
    EXPECT_NEAR(parts.facts.mean_loss(), whole.facts.mean_loss(), 1e-6);
    EXPECT_NEAR(parts.facts.gradient_norm, whole.facts.gradient_norm,
                1e-5 * whole.facts.gradient_norm);
  }
}

// Adam does not see the scale of a gradient, but it sees the ratio of steps.
TEST(Trainer, clipping_limits_what_a_large_gradient_does) {
  const Trained free = after_steps(1, 0.0, 4), same = after_steps(1, 1e6, 4),
                clipped = after_steps(1, 1e-3, 4);
  const auto numbers = [](const Trained& of) {
    return std::vector<float>(of.network.parameters().begin(), of.network.parameters().end());
  };
  EXPECT_EQ(numbers(free), numbers(same));
  EXPECT_NE(numbers(free), numbers(clipped));
  EXPECT_GT(clipped.facts.gradient_norm, 1e-3);  // as computed, before clipping
}

// A weight near the largest float32 behind one near the smallest: the loss is finite, its gradient is not.
TEST(Trainer, refuses_a_gradient_that_is_not_finite_and_changes_nothing) {
  Network<float> network(small_decoder());
  const auto at = [&](std::string_view name) -> float& {
    const auto found =
        std::find_if(network.layout().begin(), network.layout().end(),
                     [&](const Parameter& parameter) { return parameter.name == name; });
    EXPECT_NE(found, network.layout().end()) << name;
    return network.parameters()[found->first];
  };
  at("model.embed_tokens.weight") = -1.0F;  // id 0, feature 0
  at("model.norm.weight") = 2e-38F;
  at("lm_head.weight") = 3e38F;  // label 0, feature 0
  const std::vector<float> before(network.parameters().begin(), network.parameters().end());

  class Zeros : public Batches {
   public:
    [[nodiscard]] Batch at(std::int64_t) const override {
      Batch batch;
      batch.rows = 1;
      batch.tokens = 4;
      batch.ids.assign(4, 0);
      batch.labels.assign(4, 0);
      return batch;
    }
    [[nodiscard]] std::int64_t steps() const noexcept override { return 1; }
  };
  TrainingSettings settings;
  settings.steps = settings.warmup = 10;
  TaskData data;
  data.train = [](std::uint64_t) { return std::make_unique<Zeros>(); };
  Trainer trainer(settings, 1, data, network, 1);
  expect_error(ErrorCode::out_of_range, {"step 1", "inf", "gradient"},
               [&] { return trainer.step(nullptr); });
  EXPECT_EQ(trainer.state().step, 0);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), network.parameters().begin()));
}

}  // namespace
}  // namespace phasor::lab::testing
