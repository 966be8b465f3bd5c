#include "phasor/lab/internal/run.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

#include "lab/run/evaluate.hpp"
#include "lab/run/run_folder.hpp"
#include "lab/run/run_log.hpp"
#include "lab/train/trainer.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/lab/internal/checkpoint.hpp"

namespace phasor::lab {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using io::Json;

constexpr std::string_view kResult = "result.json";

[[nodiscard]] Json number(std::optional<double> value) {
  return value ? Json(*value) : Json(nullptr);
}

[[nodiscard]] std::optional<double> share(double sum, std::int64_t count) {
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

[[nodiscard]] bool is_due(std::int64_t step, std::int64_t every, std::int64_t last) {
  return step == last || (every > 0 && step % every == 0);
}

class StageRun {
 public:
  StageRun(const RunPlan& plan, const Stage& stage, const TaskData& data, const fs::path& folder,
           const RunOptions& options, std::string_view activity)
      : plan_(plan),
        stage_(stage),
        data_(data),
        options_(options),
        activity_(activity),
        folder_(folder),
        network_(model_spec_of(plan, stage, data.vocabulary, data.labels),
                 NetworkOptions{options.threads}),
        trainer_(stage.training, plan.seed, data, network_, options.threads),
        validating_(data.validation()) {}

  // initial  a folder whose parameters the network starts with, its head excepted; empty: none
  [[nodiscard]] RunEnd run(const fs::path& initial) {
    folder_.keep_document("run.json", facts());
    begin(initial);
    try {
      train();
      finish();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::cancelled) {
        checkpoint();
        return RunEnd::stopped;
      }
      if (error.code() == ErrorCode::out_of_range) throw with_last_good(error);
      throw;
    }
    return RunEnd::finished;
  }

 private:
  [[nodiscard]] const TrainingSettings& training() const { return stage_.training; }

  [[nodiscard]] Json facts() const {
    Json json = Json::object();
    json["phasor"] = options_.version;
    json["experiment"] = plan_.experiment;
    json["variant"] = plan_.variant;
    json["seed"] = plan_.seed;
    json["task"] = name_of(stage_.task);
    json["model"] = json_of(network_.spec());
    json["parameters"] = network_.parameters().size();
    json["data"] = data_.facts;
    return json;
  }

  void begin(const fs::path& initial) {
    network_.initialise(plan_.seed);
    if (!initial.empty()) static_cast<void>(read_body(initial, network_).value_or_throw());
    if (const std::optional<RunState> state = folder_.resume(network_, trainer_)) {
      log_ = RunLog::read(folder_.file("log.csv"), state->log_rows).value_or_throw();
      pending_ = state->pending;
      last_facts_.gradient_norm = state->gradient_norm;
      seconds_before_ = state->seconds;
    }
    first_step_ = trainer_.state().step;
    first_tokens_ = trainer_.state().tokens;
    start_ = Clock::now();
  }

  void train() {
    while (true) {
      const std::int64_t step = trainer_.state().step, last = training().steps;
      if (log_.last_step() < step && (step == 0 || is_due(step, training().log_every, last) ||
                                      is_due(step, training().evaluate_every, last))) {
        add_row();
      }
      if (step > 0 && is_due(step, training().checkpoint_every, last)) checkpoint();
      if (step == last) return;
      const Clock::time_point before = Clock::now();
      last_facts_ = trainer_.step(options_.cancellation);
      step_seconds_ += std::chrono::duration<double>(Clock::now() - before).count();
      pending_ += last_facts_.loss;
      report({});
    }
  }

  void add_row() {
    LogRow row;
    row.step = trainer_.state().step;
    const bool evaluates =
        row.step == 0 || is_due(row.step, training().evaluate_every, training().steps);
    row.tokens = trainer_.state().tokens;
    if (evaluates) {
      const core::CancellationScope scope(options_.cancellation);
      validation_ = loss_of(network_, *validating_, stage_.evaluation.batches);
      row.validation_loss = share(validation_.plain_sum, validation_.labels);
      row.validation_accuracy = share(static_cast<double>(validation_.correct), validation_.labels);
    }
    if (row.step > 0) {
      row.loss = share(pending_.plain_sum, pending_.labels);
      row.rate = learning_rate(training().learning_rates(), row.step);
      row.gradient_norm = last_facts_.gradient_norm;
    }
    log_.add(row);
    pending_ = {};
    if (evaluates) {
      static_cast<void>(log_.save(folder_.file("log.csv")).value_or_throw());
      report(row);
    }
  }

  void report(const LogRow& row, std::string_view activity = {}) const {
    if (!options_.progress) return;
    RunProgress progress;
    progress.step = trainer_.state().step;
    progress.steps = training().steps;
    progress.first_step = first_step_;
    progress.loss = last_facts_.mean_loss();
    if (step_seconds_ > 0.0) {
      progress.tokens_per_second =
          static_cast<double>(trainer_.state().tokens - first_tokens_) / step_seconds_;
    }
    progress.validation_loss = row.validation_loss;
    progress.accuracy = row.validation_accuracy;
    progress.activity = activity.empty() ? activity_ : activity;
    options_.progress(progress);
  }

  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(Clock::now() - start_).count();
  }

  // The log first: a checkpoint counts on its rows.
  void checkpoint() {
    static_cast<void>(log_.save(folder_.file("log.csv")).value_or_throw());
    RunState state;
    state.trainer = trainer_.state();
    state.log_rows = log_.rows();
    state.pending = pending_;
    state.gradient_norm = last_facts_.gradient_norm;
    state.seconds = seconds_before_ + seconds();
    folder_.save_checkpoint(state, network_, trainer_.optimiser(), data_.tokenizer_files);
  }

  [[nodiscard]] Error with_last_good(const Error& error) const {
    const fs::path last = newest_checkpoint(folder_.path());
    return {error.code(),
            message(error.what(), last.empty() ? std::string("; no checkpoint was written yet")
                                               : "; the last good checkpoint is " + last.string())};
  }

  void finish() {
    Json result = Json::object();
    result["experiment"] = plan_.experiment;
    result["variant"] = plan_.variant;
    result["seed"] = plan_.seed;
    result["task"] = name_of(stage_.task);
    result["parameters"] = network_.parameters().size();
    result["steps"] = trainer_.state().step;
    result["tokens"] = trainer_.state().tokens;
    {
      const core::CancellationScope scope(options_.cancellation);
      // After a stop at the very end the numbers are computed again.
      if (validation_.labels == 0)
        validation_ = loss_of(network_, *validating_, stage_.evaluation.batches);
      result["validation_loss"] = number(share(validation_.plain_sum, validation_.labels));
      result["validation_accuracy"] =
          number(share(static_cast<double>(validation_.correct), validation_.labels));
      const Loss test = loss_of(network_, *data_.test(), stage_.evaluation.test_batches);
      result["test_loss"] = number(share(test.plain_sum, test.labels));
      result["test_accuracy"] = number(share(static_cast<double>(test.correct), test.labels));
      evaluate_further(result);
    }
    const double all = seconds_before_ + seconds();
    result["seconds"] = all;
    static_cast<void>(
        save_checkpoint(network_, data_.tokenizer_files, folder_.file("model"), training().weights)
            .value_or_throw());
    folder_.write(kResult, result.dump(2) + "\n");
    folder_.remove_checkpoints();
  }

  void evaluate_further(Json& result) {
    const auto note = [&](const std::string& activity, double) { report({}, activity); };
    if (stage_.task == Task::causal_lm && !stage_.evaluation.contexts.empty()) {
      result["contexts"] = Json::array();
      for (const ContextLoss& cell :
           losses_by_context(network_, data_, training(), stage_.evaluation, note)) {
        Json row = Json::object();
        row["context"] = cell.context;
        row["scaling"] = cell.scaling;
        row["tokens"] = cell.tokens;
        row["nats"] = number(cell.nats);
        row["last_quarter_nats"] = number(cell.last_quarter_nats);
        result["contexts"].push_back(row);
      }
    }
    if (stage_.task == Task::translation) {
      const std::vector<std::string> answers = translate(network_, data_, stage_.evaluation, note);
      std::string hypotheses, references, sources;
      for (std::size_t i = 0; i < answers.size(); ++i) {
        hypotheses += answers[i] + "\n";
        references += data_.sentences[i].reference + "\n";
        sources += data_.sentences[i].source_text + "\n";
      }
      folder_.write("hypotheses.txt", hypotheses);
      folder_.write("references.txt", references);
      folder_.write("sources.txt", sources);
      result["sentences"] = answers.size();
    }
  }

  const RunPlan& plan_;
  const Stage& stage_;
  const TaskData& data_;
  const RunOptions& options_;
  std::string_view activity_;
  RunFolder folder_;
  Network<float> network_;
  Trainer trainer_;
  std::unique_ptr<Batches> validating_;
  RunLog log_;
  Loss pending_, validation_;
  StepFacts last_facts_;
  std::int64_t first_step_ = 0, first_tokens_ = 0;
  double seconds_before_ = 0.0, step_seconds_ = 0.0;
  Clock::time_point start_;
};

[[nodiscard]] RunEnd pretrain(const RunPlan& plan, const TaskData& data, const RunFolder& folder,
                              const RunOptions& options) {
  if (folder.has(kResult)) return RunEnd::already_finished;
  return StageRun(plan, *plan.pretraining, data, folder.path(), options, "pre-training").run({});
}

// Pre-training that several runs share: the first one trains, the others wait.
[[nodiscard]] RunEnd pretrain_once(const RunPlan& plan, const TaskData& data,
                                   const RunFolder& folder, const RunOptions& options) {
  RunPlan shared = plan;
  shared.variant = plan.pretraining_name;
  Json settings = Json::object();
  settings["seed"] = plan.seed;
  settings["pretraining"] = plan.document["pretraining"];
  settings["tokenizer"] = plan.tokenizer;
  settings["model"] = json_of(model_spec_of(plan, *plan.pretraining, data.vocabulary, data.labels));
  const std::optional<io::Descriptor> alone = folder.wait_for_lock(options.cancellation);
  if (!alone) return RunEnd::stopped;
  folder.keep_document("experiment.json", settings);
  return pretrain(shared, data, folder, options);
}

}  // namespace

RunEnd run(const RunPlan& plan, const TaskData& data, const TaskData* pretraining,
           const fs::path& folder, const RunOptions& options) {
  const RunFolder files(folder);
  const io::Descriptor alone = files.lock();
  files.keep_document("experiment.json", plan.document);
  if (files.has(kResult)) {
    files.remove_checkpoints();
    return RunEnd::already_finished;
  }
  fs::path initial;
  if (plan.pretraining) {
    if (pretraining == nullptr) refuse(ErrorCode::internal, "run: pretraining without its data");
    const bool is_shared = !plan.pretraining_name.empty();
    const RunFolder first(is_shared ? files.path().parent_path() / "pretraining" /
                                          (plan.pretraining_name + "-s" + std::to_string(plan.seed))
                                    : files.file("pretraining"));
    const RunEnd end = is_shared ? pretrain_once(plan, *pretraining, first, options)
                                 : pretrain(plan, *pretraining, first, options);
    if (end == RunEnd::stopped) return end;
    initial = first.file("model");
  }
  return StageRun(plan, plan.stage, data, folder, options, "training").run(initial);
}

Result<Json> read_result(const fs::path& folder) {
  const fs::path path = io::as_folder(folder) / kResult;
  auto text = io::read_text(path);
  if (!text) return text.error();
  try {
    return io::parse_object(*text);
  } catch (const Error& error) {
    return io::in_file(path.string(), error);
  }
}

}  // namespace phasor::lab
