// Small data without files, for tests of runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "phasor/lab/internal/batches.hpp"
#include "phasor/lab/internal/experiment.hpp"
#include "phasor/lab/internal/random.hpp"
#include "phasor/lab/internal/task_data.hpp"

namespace phasor::lab::testing {

inline constexpr std::int64_t kWords = 11;  // tokens of the synthetic language

// Rows in which each token follows from the one before it, with some noise.
inline Batch counting_batch(std::uint64_t seed, std::uint64_t index, std::int64_t rows,
                            std::int64_t tokens) {
  Random random(seed, Stream::batches, index);
  Batch batch;
  batch.rows = rows;
  batch.tokens = tokens;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t word = random.below(kWords);
    for (std::int64_t token = 0; token < tokens; ++token) {
      batch.ids.push_back(static_cast<std::int32_t>(word));
      word = random.below(10) == 0 ? random.below(kWords) : (3 * word + 1) % kWords;
      batch.labels.push_back(static_cast<std::int32_t>(word));
    }
  }
  return batch;
}

class CountingBatches : public Batches {
 public:
  CountingBatches(std::uint64_t seed, std::int64_t rows, std::int64_t tokens)
      : seed_(seed), rows_(rows), tokens_(tokens) {}
  [[nodiscard]] Batch at(std::int64_t step) const override {
    return counting_batch(seed_, static_cast<std::uint64_t>(step), rows_, tokens_);
  }
  [[nodiscard]] std::int64_t steps() const noexcept override { return 2; }

 private:
  std::uint64_t seed_;
  std::int64_t rows_, tokens_;
};

inline std::shared_ptr<TaskData> counting_data(const Stage& stage) {
  auto data = std::make_shared<TaskData>();
  data->vocabulary = kWords;
  data->facts["text"] = "counting";
  const std::int64_t rows = stage.training.batch / stage.training.accumulation;
  const std::int64_t tokens = stage.training.context;
  const auto make = [=](std::uint64_t seed) -> std::unique_ptr<Batches> {
    return std::make_unique<CountingBatches>(seed, rows, tokens);
  };
  data->train = make;
  data->validation = [=] { return make(1000); };
  data->test = [=] { return make(1001); };
  data->held_out = counting_batch(2000, 0, 1, 200).ids;
  return data;
}

// The first plan of an experiment.
inline RunPlan plan_of(const std::string& json, const PlanChoices& choices = {}) {
  return plan_runs(parse_experiment(json), choices).front();
}

inline const std::string kTiny = R"({
  "name": "tiny", "task": "causal_lm",
  "model": {"hidden": 8, "layers": 1, "heads": 2, "intermediate": 16},
  "training": {"steps": 24, "batch": 4, "accumulation": 2, "context": 12, "learning_rate": 0.02,
               "warmup": 3, "log_every": 2, "evaluate_every": 5, "checkpoint_every": 7},
  "evaluation": {"contexts": [12, 24], "tokens": 48, "scalings": ["none", "linear"]},
  "variants": [{"name": "rope"}, {"name": "learned", "model": {"encoding": "learned"}}],
  "seeds": [3, 4]})";

}  // namespace phasor::lab::testing
