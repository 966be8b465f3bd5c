// A run: training in a folder that can be stopped at any moment and continued to the same numbers.
//
//   experiment.json   the resolved settings          run.json      version, data, sizes
//   log.csv           curves                         result.json   final numbers, written last
//   checkpoints/step-00000500/                       model/        the trained network
//     config.json, model.safetensors, tokenizer      config.json, model.safetensors, tokenizer
//     optimiser.safetensors, state.json
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "phasor/core/cancellation.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/lab/internal/exchange.hpp"
#include "phasor/lab/internal/experiment.hpp"
#include "phasor/lab/internal/task_data.hpp"

namespace phasor::lab {

struct RunProgress {
  std::int64_t step = 0, steps = 0, first_step = 0;  // first_step: where this call began
  double loss = 0.0;                                 // of the last step
  double tokens_per_second = 0.0;  // of the steps of this call, without evaluations
  // Set when the network was just evaluated.
  std::optional<double> validation_loss, accuracy;
  std::string_view activity;  // "training", "pre-training", "evaluating at 1024", "translating"
};

struct RunOptions {
  int threads = 0;
  std::string version;  // of Phasor, for run.json
  const core::Cancellation* cancellation = nullptr;
  // Null: this process trains alone. Otherwise all ranks call run(), and divide its work; rank 0 alone
  // reads and writes the folder. It must be used by no other run meanwhile.
  GradientExchange* exchange = nullptr;
  std::function<void(const RunProgress&)> progress;
};

enum class RunEnd : std::uint8_t {
  finished,
  already_finished,  // result.json was there
  stopped,           // by the cancellation; the next call goes on
};

// Trains and evaluates in `folder`, which is created. A folder with a checkpoint is continued from the
// newest one; the curve is that of a run without a stop, bit for bit, with any number of threads. A run may
// go on with another number of ranks: the curve is then the same but for sums in another order.
//
// throws   Error(invalid_argument): a folder of other settings, with the differences; a log that was
//          changed; Error(shape_mismatch): a checkpoint of another vocabulary;
//          Error(out_of_range): a loss or gradient that is not finite, or a diverged loss, with the step,
//          the value and the last checkpoint; Error(io): a file that cannot be read or written. What was
//          written before stays whole. On several ranks these are SharedError, and also
//          SharedError(invalid_argument): ranks with other settings or data, with the differences
[[nodiscard]] RunEnd run(const RunPlan& plan, const TaskData& data, const TaskData* pretraining,
                         const std::filesystem::path& folder, const RunOptions& options);

// result.json of a finished run.
[[nodiscard]] Result<io::Json> read_result(const std::filesystem::path& folder);

// The newest complete checkpoint of a run's folder; empty: none.
[[nodiscard]] std::filesystem::path newest_checkpoint(const std::filesystem::path& folder);

}  // namespace phasor::lab
