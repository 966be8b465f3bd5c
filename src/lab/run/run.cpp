#include "phasor/lab/internal/run.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

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
        path_(folder),
        ranks_(options.exchange),
        network_(model_spec_of(plan, stage, data.vocabulary, data.labels),
                 NetworkOptions{options.threads}),
        trainer_(stage.training, plan.seed, data, network_, options.threads, ranks_),
        validating_(data.validation()) {}

  // initial  a folder whose parameters the network starts with, its head excepted; empty: none
  [[nodiscard]] RunEnd run(const fs::path& initial) {
    ranks_.on_first([&] {
      folder_.emplace(path_);
      folder_->keep_document("run.json", facts());
    });
    begin(initial);
    try {
      train();
      finish();
    } catch (const Error& error) {
      // The others do not know of an error of one rank.
      if (ranks_.size() > 1 && dynamic_cast<const SharedError*>(&error) == nullptr) throw;
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
    struct Begin {
      RunState state;
      std::int64_t last_row = -1;  // RunLog::last_step()
      bool resumes = false;
    } from;
    OptimiserMoments moments;
    ranks_.on_first([&] {
      if (!initial.empty()) static_cast<void>(read_body(initial, network_).value_or_throw());
      if (const std::optional<RunState> state = folder_->resume(network_, moments)) {
        log_ = RunLog::read(folder_->file("log.csv"), state->log_rows).value_or_throw();
        from = {*state, log_.last_step(), true};
      }
    });
    ranks_.share(from);
    if (ranks_.size() > 1 && (!initial.empty() || from.resumes)) {
      ranks_.exchange()->broadcast(std::as_writable_bytes(network_.parameters()));
    }
    if (from.resumes) {
      trainer_.restore(from.state.trainer, moments.first, moments.second);
      last_row_ = from.last_row;
      pending_ = from.state.pending;
      last_facts_.gradient_norm = from.state.gradient_norm;
      seconds_before_ = from.state.seconds;
    }
    first_step_ = trainer_.state().step;
    first_tokens_ = trainer_.state().tokens;
    start_ = Clock::now();
  }

  void train() {
    while (true) {
      const std::int64_t step = trainer_.state().step, last = training().steps;
      if (last_row_ < step && (step == 0 || is_due(step, training().log_every, last) ||
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
      validation_ = loss_of(network_, *validating_, stage_.evaluation.batches, ranks_);
      row.validation_loss = share(validation_.plain_sum, validation_.labels);
      row.validation_accuracy = share(static_cast<double>(validation_.correct), validation_.labels);
    }
    if (row.step > 0) {
      row.loss = share(pending_.plain_sum, pending_.labels);
      row.rate = learning_rate(training().learning_rates(), row.step);
      row.gradient_norm = last_facts_.gradient_norm;
    }
    log_.add(row);
    last_row_ = row.step;
    pending_ = {};
    if (evaluates) {
      ranks_.on_first([&] { save_log(); });
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

  void save_log() const { static_cast<void>(log_.save(folder_->file("log.csv")).value_or_throw()); }

  void checkpoint() {
    const OptimiserMoments moments = trainer_.moments();
    RunState state;
    state.trainer = trainer_.state();
    state.log_rows = log_.rows();
    state.pending = pending_;
    state.gradient_norm = last_facts_.gradient_norm;
    state.seconds = seconds_before_ + seconds();
    ranks_.on_first([&] {
      save_log();  // first: a checkpoint counts on its rows
      folder_->save_checkpoint(state, network_, moments, data_.tokenizer_files);
    });
  }

  [[nodiscard]] SharedError with_last_good(const Error& error) const {
    const fs::path last = newest_checkpoint(path_);
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
        validation_ = loss_of(network_, *validating_, stage_.evaluation.batches, ranks_);
      result["validation_loss"] = number(share(validation_.plain_sum, validation_.labels));
      result["validation_accuracy"] =
          number(share(static_cast<double>(validation_.correct), validation_.labels));
      const Loss test = loss_of(network_, *data_.test(), stage_.evaluation.test_batches, ranks_);
      result["test_loss"] = number(share(test.plain_sum, test.labels));
      result["test_accuracy"] = number(share(static_cast<double>(test.correct), test.labels));
      evaluate_further(result);
    }
    const double all = seconds_before_ + seconds();
    result["seconds"] = all;
    ranks_.on_first([&] {
      static_cast<void>(save_checkpoint(network_, data_.tokenizer_files, folder_->file("model"),
                                        training().weights)
                            .value_or_throw());
      folder_->write(kResult, result.dump(2) + "\n");
      folder_->remove_checkpoints();
    });
  }

  void evaluate_further(Json& result) {
    const auto note = [&](const std::string& activity, double) { report({}, activity); };
    if (stage_.task == Task::causal_lm && !stage_.evaluation.contexts.empty()) {
      result["contexts"] = Json::array();
      for (const ContextLoss& cell :
           losses_by_context(network_, data_, training(), stage_.evaluation, ranks_, note)) {
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
      const std::vector<std::string> answers =
          translate(network_, data_, stage_.evaluation, ranks_, note);
      std::string hypotheses, references, sources;
      for (std::size_t i = 0; i < answers.size(); ++i) {
        hypotheses += answers[i] + "\n";
        references += data_.sentences[i].reference + "\n";
        sources += data_.sentences[i].source_text + "\n";
      }
      ranks_.on_first([&] {
        folder_->write("hypotheses.txt", hypotheses);
        folder_->write("references.txt", references);
        folder_->write("sources.txt", sources);
      });
      result["sentences"] = answers.size();
    }
  }

  const RunPlan& plan_;
  const Stage& stage_;
  const TaskData& data_;
  const RunOptions& options_;
  std::string_view activity_;
  fs::path path_;
  Ranks ranks_;
  std::optional<RunFolder> folder_;  // of rank 0, once run() has begun
  Network<float> network_;
  Trainer trainer_;
  std::unique_ptr<Batches> validating_;
  RunLog log_;  // of rank 0; the others have rows of this call only
  std::int64_t last_row_ = -1;
  Loss pending_, validation_;
  StepFacts last_facts_;
  std::int64_t first_step_ = 0, first_tokens_ = 0;
  double seconds_before_ = 0.0, step_seconds_ = 0.0;
  Clock::time_point start_;
};

[[nodiscard]] RunEnd pretrain(const RunPlan& plan, const TaskData& data, const fs::path& folder,
                              const RunOptions& options) {
  const Ranks ranks(options.exchange);
  bool finished = false;
  ranks.on_first([&] { finished = RunFolder(folder).has(kResult); });
  ranks.share(finished);
  if (finished) return RunEnd::already_finished;
  return StageRun(plan, *plan.pretraining, data, folder, options, "pre-training").run({});
}

// Waits until no other process trains in the folder; false: the cancellation was requested meanwhile.
[[nodiscard]] bool wait_for(const fs::path& folder, const RunOptions& options,
                            std::optional<io::Descriptor>& alone) {
  const Ranks ranks(options.exchange);
  while (!ranks.any_requested(options.cancellation)) {
    bool locked = false;
    ranks.on_first([&] {
      alone = RunFolder(folder).try_lock();
      locked = alone.has_value();
    });
    ranks.share(locked);
    if (locked) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

// Pre-training that several runs share: the first one trains, the others wait.
[[nodiscard]] RunEnd pretrain_once(const RunPlan& plan, const TaskData& data,
                                   const fs::path& folder, const RunOptions& options) {
  RunPlan shared = plan;
  shared.variant = plan.pretraining_name;
  Json settings = Json::object();
  settings["seed"] = plan.seed;
  settings["pretraining"] = plan.document["pretraining"];
  settings["tokenizer"] = plan.tokenizer;
  settings["model"] = json_of(model_spec_of(plan, *plan.pretraining, data.vocabulary, data.labels));
  std::optional<io::Descriptor> alone;
  if (!wait_for(folder, options, alone)) return RunEnd::stopped;
  Ranks(options.exchange).on_first([&] {
    RunFolder(folder).keep_document("experiment.json", settings);
  });
  return pretrain(shared, data, folder, options);
}

void agree_on_work(const RunPlan& plan, const TaskData& data, const TaskData* pretraining,
                   const RunOptions& options) {
  Json work = Json::object();
  work["phasor"] = options.version;
  work["experiment"] = plan.experiment;
  work["variant"] = plan.variant;
  work["seed"] = plan.seed;
  work["settings"] = plan.document;
  work["data"] = data.facts;
  work["vocabulary"] = data.vocabulary;
  if (pretraining != nullptr) work["pretraining_data"] = pretraining->facts;
  Ranks(options.exchange).agree("the run", work);
}

}  // namespace

RunEnd run(const RunPlan& plan, const TaskData& data, const TaskData* pretraining,
           const fs::path& folder, const RunOptions& options) {
  if (plan.pretraining && pretraining == nullptr) {
    refuse(ErrorCode::internal, "run: pretraining without its data");
  }
  const Ranks ranks(options.exchange);
  agree_on_work(plan, data, pretraining, options);
  std::optional<io::Descriptor> alone;
  bool finished = false;
  ranks.on_first([&] {
    const RunFolder files(folder);
    alone = files.lock();
    files.keep_document("experiment.json", plan.document);
    finished = files.has(kResult);
    if (finished) files.remove_checkpoints();
  });
  ranks.share(finished);
  if (finished) return RunEnd::already_finished;
  fs::path initial;
  if (plan.pretraining) {
    const bool is_shared = !plan.pretraining_name.empty();
    const fs::path own = io::as_folder(folder);
    const fs::path first = is_shared
                               ? own.parent_path() / "pretraining" /
                                     (plan.pretraining_name + "-s" + std::to_string(plan.seed))
                               : own / "pretraining";
    const RunEnd end = is_shared ? pretrain_once(plan, *pretraining, first, options)
                                 : pretrain(plan, *pretraining, first, options);
    if (end == RunEnd::stopped) return end;
    initial = first / "model";
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
