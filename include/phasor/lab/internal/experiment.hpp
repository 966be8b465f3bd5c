// Experiments as JSON: what is trained, on what, in which variants; and the runs that follow from them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/view.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/lab/internal/model_spec.hpp"
#include "phasor/lab/internal/optimiser.hpp"

namespace phasor::lab {

enum class Task : std::uint8_t { masked_lm, causal_lm, classification, match, translation };
[[nodiscard]] std::string_view name_of(Task task) noexcept;

struct TrainingSettings {
  std::int64_t steps = 1000;
  std::int64_t batch = 16;        // rows of a step
  std::int64_t accumulation = 1;  // parts that a step is computed in; divides `batch`
  std::int64_t context = 128;     // tokens of a row
  double learning_rate = 1e-3;
  std::int64_t warmup = 0;  // without the key: a tenth of the steps
  ScheduleShape schedule = ScheduleShape::cosine;
  double floor = 0.1;  // Schedule::floor
  AdamWSettings optimiser;
  double clip = 1.0;  // of the norm of all gradients; 0: none
  double label_smoothing = 0.0;
  // A step whose loss is above this multiple of its running mean, and worse than a uniform guess, ends
  // the run, after the warm-up; so does one above this multiple of ln(vocabulary).
  double diverged_above = 3.0;
  // In steps. Without the key: a hundredth, a twentieth and a quarter of all.
  std::int64_t log_every = 10;        // a row in log.csv
  std::int64_t evaluate_every = 0;    // 0: at the end only
  std::int64_t checkpoint_every = 0;  // 0: at the end only
  // Of the numbers in model/, which is not read again: float32 or float16.
  core::DType weights = core::DType::f32;

  [[nodiscard]] Schedule learning_rates() const noexcept {
    return {schedule, learning_rate, warmup, steps, floor};
  }
};

struct EvaluationSettings {
  std::int64_t batches = 8;        // of `batch` rows, the same at each evaluation
  std::int64_t test_batches = 32;  // after training, of other held-out data
  // causal_lm, after training: rows of these lengths, with `tokens` tokens of each length in all; for
  // models with RoPE once for each scaling (as `phasor eval` names them).
  std::vector<std::int64_t> contexts;
  std::vector<std::string> scalings = {"none"};
  std::int64_t tokens = 32768;
  // translation, after training: sentences to translate, and tokens of an answer.
  std::int64_t sentences = 500, longest = 64;
};

// What one part of a run trains.
struct Stage {
  Task task = Task::causal_lm;
  io::Json data;  // read by DataCache
  TrainingSettings training;
  EvaluationSettings evaluation;
};

// One run: a variant with a seed, all settings final.
struct RunPlan {
  std::string experiment, variant;
  std::uint64_t seed = 1;
  Stage stage;
  std::optional<Stage> pretraining;  // with the same body, before the stage
  std::string
      pretraining_name;  // runs of one seed that have the same name share it; empty: none do
  io::Json tokenizer;    // read by DataCache
  io::Json model;        // parse_model_spec() after model_spec_of() has filled it
  io::Json document;     // all of the above, as experiment.json has it

  [[nodiscard]] std::string name() const { return variant + "-s" + std::to_string(seed); }
};

inline constexpr std::int64_t kAnySize = 0;  // for model_spec_of(): the data is not known yet

// The network of a stage: vocabulary and labels from the data, head and context from the task, unless the
// JSON has them.
//
// throws   Error(invalid_argument): another vocabulary or number of labels than the data has; as
//          parse_model_spec()
[[nodiscard]] ModelSpec model_spec_of(const RunPlan& plan, const Stage& stage,
                                      std::int64_t vocabulary, std::int64_t labels);

struct Experiment {
  std::string name, description, paper;
  io::Json document;
  [[nodiscard]] std::vector<std::string> sizes() const;
  [[nodiscard]] std::vector<std::string> variants() const;
  // What "time" says of a size; empty: nothing.
  [[nodiscard]] std::string time_of(std::string_view size) const;
};

// {"name", "description", "paper", "task", "data", "tokenizer", "model", "training", "evaluation",
// "pretraining": {"name", "task", "data", "training", "evaluation"}, "variants": [{"name", and parts of the
// above}], "seeds", "sizes": {"quick": {parts of the above}}, "time": {"quick": text}}
//
// throws   Error(invalid_argument | unsupported) with the path of the key: anything that a run of any
//          variant and size would refuse without its data
[[nodiscard]] Experiment parse_experiment(std::string_view json);

struct PlanChoices {
  std::string size;                      // empty: "quick" if the experiment has sizes
  std::vector<std::uint64_t> seeds;      // empty: those of the experiment
  std::vector<std::string> variants;     // empty: all
  std::vector<std::string> assignments;  // of assign(): above all else
};

// throws   Error(invalid_argument): a size, variant or key that the experiment does not have
[[nodiscard]] std::vector<RunPlan> plan_runs(const Experiment& experiment,
                                             const PlanChoices& choices);

// Where two documents differ, as "training.steps: 400 -> 800; ..."; empty: nowhere.
[[nodiscard]] std::string difference_of(const io::Json& before, const io::Json& after);

// The experiments that come with Phasor.
[[nodiscard]] std::span<const std::string_view> built_in_names();
// The JSON text; nullopt for another name.
[[nodiscard]] std::optional<std::string_view> built_in_experiment(std::string_view name);

// "training.steps=400": sets a value of a document. The value is JSON, or else text.
//
// throws   Error(invalid_argument): no key or no "="
void assign(io::Json& document, std::string_view assignment);

}  // namespace phasor::lab
