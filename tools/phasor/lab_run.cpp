// phasor lab run: every variant with every seed.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "command_line.hpp"
#include "given_command.hpp"
#include "lab.hpp"
#include "model_files.hpp"
#include "output.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/lab/internal/exchange.hpp"
#include "phasor/lab/internal/run.hpp"
#include "phasor/lab/internal/task_data.hpp"
#include "phasor/phasor.h"
#include "progress.hpp"
#include "ranks.hpp"
#include "signals.hpp"
#include "text_lines.hpp"

namespace phasor::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kSignalled = 128;  // a shell's exit code of a signal is this and its number

[[nodiscard]] fs::path corpora_of(const LabFlags& flags) {
  const char* const given = std::getenv("PHASOR_CORPORA");
  if (!flags.data.empty()) return io::as_folder(flags.data);
  if (given != nullptr && *given != '\0') return io::as_folder(given);
  for (const fs::path& folder : model_folders()) {
    std::error_code ignored;
    if (fs::is_directory(folder / "corpora", ignored)) return folder / "corpora";
  }
  return {};
}

// The largest value of all ranks.
[[nodiscard]] int over_ranks(int value) {
  if (ranks() == nullptr) return value;
  std::vector<int> all(static_cast<std::size_t>(ranks()->size()));
  ranks()->gradients().gather(std::as_bytes(std::span(&value, 1)),
                              std::as_writable_bytes(std::span(all)));
  return *std::max_element(all.begin(), all.end());
}

struct Outcome {
  std::optional<lab::RunEnd> end;
  std::optional<Error> error;
};

// The runs of one command, in `jobs` threads; or one after the other, each on all ranks, of which rank 0
// prints.
class Runs {
 public:
  Runs(const LabFlags& flags, std::vector<lab::RunPlan> plans)
      : flags_(flags), plans_(std::move(plans)), outcomes_(plans_.size()), shares_(plans_.size()) {
    const int jobs = std::max(1, std::min(flags.jobs, static_cast<int>(plans_.size())));
    jobs_ = jobs;
    threads_ = flags.threads > 0    ? flags.threads
               : ranks() != nullptr ? ranks()->threads()
                                    : std::max(1, core::available_threads() / jobs);
  }

  void load_data() {
    lab::DataCache cache(corpora_of(flags_));
    for (const lab::RunPlan& plan : plans_) {
      if (is_first_rank()) progress_.note("reading " + plan.name());
      Data data;
      data.main = cache.load(plan, plan.stage);
      if (plan.pretraining) data.pretraining = cache.load(plan, *plan.pretraining);
      data_.push_back(std::move(data));
    }
    progress_.clear();
    if (!is_first_rank()) return;
    std::vector<std::string> notes;
    for (const Data& data : data_) {
      for (const std::string& note : data.main->notes) {
        if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
      }
    }
    for (const std::string& note : notes) print_err("phasor lab: note: {}\n", note);
  }

  // Returns the signal that stopped it; 0: none did.
  int run() {
    const StopOnSignal stop;
    progress_.begin();
    if (jobs_ == 1) {
      work();
    } else {
      std::vector<std::thread> threads;
      for (int job = 1; job < jobs_; ++job) threads.emplace_back([this] { work(); });
      work();
      for (std::thread& thread : threads) thread.join();
    }
    progress_.clear();
    return over_ranks(StopOnSignal::signal());
  }

  int report() const {
    bool failed = false;
    io::Json page = io::Json::array();
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      const Outcome& outcome = outcomes_[i];
      if (outcome.error) failed = true;
      if (!is_first_rank()) continue;
      if (outcome.error) {
        print_err("phasor lab: {}: {}\n", plans_[i].name(), outcome.error->what());
      } else if (outcome.end && *outcome.end != lab::RunEnd::stopped) {
        page.push_back(lab::read_result(folder_of(plans_[i])).value_or_throw());
      }
    }
    if (!is_first_rank()) return failed ? exit_code::wrong : exit_code::done;
    if (flags_.json && (!failed || !page.empty())) {
      print_out("{}\n", page.dump());
    } else if (!flags_.json && !page.empty()) {
      print_out("{}", table(page));
      if (!failed) print_out("\nphasor lab report {} makes the page\n", flags_.out);
    }
    return failed ? exit_code::wrong : exit_code::done;
  }

 private:
  struct Data {
    std::shared_ptr<const lab::TaskData> main, pretraining;
  };

  [[nodiscard]] fs::path folder_of(const lab::RunPlan& plan) const {
    return io::as_folder(flags_.out) / plan.name();
  }

  void work() {
    while (true) {
      const std::size_t index = next_++;
      if (index >= plans_.size() || disk_failed_ || is_stopped()) return;
      try {
        outcomes_[index].end = run_one(index);
      } catch (const Error& error) {
        // An error of this rank alone ends all of them.
        if (ranks() != nullptr && dynamic_cast<const lab::SharedError*>(&error) == nullptr) throw;
        outcomes_[index].error = error;
        // A full disk would end all others too.
        if (error.code() == ErrorCode::io) disk_failed_ = true;
      } catch (const std::bad_alloc&) {
        if (jobs_ == 1) throw;
        outcomes_[index].error = Error(ErrorCode::internal, "out of memory");
      }
      const std::scoped_lock lock(mutex_);
      shares_[index] = 1.0;
    }
  }

  [[nodiscard]] static bool is_stopped() {
    return over_ranks(StopOnSignal::cancellation().requested() ? 1 : 0) != 0;
  }

  [[nodiscard]] lab::RunEnd run_one(std::size_t index) {
    const lab::RunPlan& plan = plans_[index];
    lab::RunOptions options;
    options.threads = threads_;
    options.version = phasor_version();
    options.cancellation = &StopOnSignal::cancellation();
    if (ranks() != nullptr) options.exchange = &ranks()->gradients();
    if (is_first_rank()) {
      options.progress = [&, index](const lab::RunProgress& at) { show(index, at); };
    }
    return lab::run(plan, *data_[index].main, data_[index].pretraining.get(), folder_of(plan),
                    options);
  }

  void show(std::size_t index, const lab::RunProgress& at) {
    const std::scoped_lock lock(mutex_);
    const lab::RunPlan& plan = plans_[index];
    const double share = static_cast<double>(at.step) / static_cast<double>(at.steps);
    const bool first_half = at.activity == "pre-training";
    shares_[index] = !plan.pretraining ? share : first_half ? 0.5 * share : 0.5 + 0.5 * share;
    double done = 0.0;
    for (const double part : shares_) done += part;
    if (at.validation_loss && !flags_.json) {
      progress_.clear();
      print_out(
          "{:18} {} {:>6}/{}  loss {}  validation {:.4f}  accuracy {:5.2f} %  {:.0f} tokens/s\n",
          plan.name(), at.activity, at.step, at.steps,
          at.step == 0 ? std::string("     -") : fmt::format("{:.4f}", at.loss),
          *at.validation_loss, 100.0 * at.accuracy.value_or(0.0), at.tokens_per_second);
      std::fflush(stdout);
    }
    progress_.move(done, static_cast<double>(plans_.size()),
                   fmt::format("loss {}, {:.0f} tokens/s, {}/{} {} {}",
                               at.step == at.first_step ? "-" : fmt::format("{:.3f}", at.loss),
                               at.tokens_per_second, at.step, at.steps, plan.name(),
                               at.activity == "training" ? "" : at.activity));
  }

  [[nodiscard]] static std::string table(const io::Json& page) {
    std::string text = fmt::format("{:20} {:>10} {:>8} {:>12} {:>10} {:>9}\n", "run", "parameters",
                                   "steps", "validation", "accuracy", "time");
    const auto number = [](const io::Json& value, double factor, int digits) {
      return value.is_number() ? fmt::format("{:.{}f}", factor * value.get<double>(), digits)
                               : std::string("-");
    };
    for (const io::Json& run : page) {
      text += fmt::format(
          "{:20} {:>10} {:>8} {:>12} {:>10} {:>9}\n",
          fmt::format("{}-s{}", run["variant"].text(), run["seed"].get<std::int64_t>()),
          run["parameters"].get<std::int64_t>(), run["steps"].get<std::int64_t>(),
          number(run["validation_loss"], 1.0, 4), number(run["validation_accuracy"], 100.0, 2),
          duration_text(run["seconds"].get<double>()));
    }
    return text;
  }

  const LabFlags& flags_;
  std::vector<lab::RunPlan> plans_;
  std::vector<Data> data_;
  std::vector<Outcome> outcomes_;
  std::vector<double> shares_;  // of each run that is done
  int jobs_ = 1, threads_ = 1;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> disk_failed_ = false;
  std::mutex mutex_;  // of the progress and of shares_
  Progress progress_;
};

}  // namespace

int lab_run(const LabFlags& flags) {
  if (flags.names.size() != 1) {
    refuse(message("run takes one experiment, got ", flags.names.size()));
  }
  if (flags.out.empty()) refuse("run needs --out DIR");
  if (ranks() != nullptr && flags.jobs > 1) {
    refuse(message("--jobs ", flags.jobs, " cannot be combined with mpirun: all ", ranks()->size(),
                   " ranks train one run at a time"));
  }
  const lab::Experiment experiment = experiment_named(flags.names.front());
  Runs runs(flags, lab::plan_runs(experiment,
                                  {flags.size, flags.seeds, flags.variants, flags.assignments}));
  runs.load_data();
  if (const int signal = runs.run()) {
    const std::string command = given_command();
    if (is_first_rank()) {
      print_err("phasor lab: stopped; what was done is kept in {}{}{}\n", flags.out,
                command.empty() ? "" : ". To go on: ", command);
    }
    // mpirun would say of each rank that a signal ended it.
    if (ranks() != nullptr) return kSignalled + signal;
    end_by(signal);
  }
  return runs.report();
}

}  // namespace phasor::tools
