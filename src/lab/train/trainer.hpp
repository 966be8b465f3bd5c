// The steps of training: batches to gradients to parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lab/train/ranks.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/lab/internal/experiment.hpp"
#include "phasor/lab/internal/network.hpp"
#include "phasor/lab/internal/optimiser.hpp"
#include "phasor/lab/internal/task_data.hpp"

namespace phasor::lab {

struct StepFacts {
  Loss loss;
  double gradient_norm = 0.0;  // before clipping
  double rate = 0.0;

  [[nodiscard]] double mean_loss() const noexcept {
    return loss.labels > 0 ? loss.plain_sum / static_cast<double>(loss.labels) : 0.0;
  }
};

// Numbers that a run carries from step to step, besides parameters and moments.
struct TrainerState {
  std::int64_t step = 0;      // steps that are done
  std::int64_t tokens = 0;    // read by them, without padding
  double running_loss = 0.0;  // exponential mean of the steps' losses; 0: no step yet
};

// The moments of the optimiser, of the whole network. On several ranks: rank 0 has them, the others none.
struct OptimiserMoments {
  std::span<const float> first, second;
  std::vector<float> first_memory, second_memory;  // of several ranks
};

// On several ranks each computes some rows of a step's batch, the same number for all but for one row:
// ranks may have none. All calls are then collective, and the facts of a step are the same on all ranks.
class Trainer {
 public:
  // Settings and network must outlive it.
  Trainer(const TrainingSettings& settings, std::uint64_t seed, const TaskData& data,
          Network<float>& network, int threads, const Ranks& ranks = Ranks());

  [[nodiscard]] const TrainerState& state() const noexcept { return state_; }
  [[nodiscard]] OptimiserMoments moments() const;
  // OptimiserMoments of the whole network; only those of rank 0 are read. Parameters are restored by the caller.
  void restore(const TrainerState& state, std::span<const float> first_moments,
               std::span<const float> second_moments);

  // One step. The gradients are those of the mean over all labels of all its parts.
  //
  // throws   Error(cancelled): the step was dropped; on several ranks SharedError(cancelled), before the
  //          step that follows the request of any rank. SharedError(out_of_range), with the step and the
  //          value: a loss or gradient that is not finite, or a diverged loss. Parameters, moments and
  //          state are then as before
  StepFacts step(const core::Cancellation* cancellation);

 private:
  void refuse_diverged(double loss) const;
  [[nodiscard]] Loss compute(const std::vector<Batch>& parts, std::int64_t first_part,
                             std::int64_t labels);
  // The sums over ranks.
  void share(Loss& loss, double& squares, const core::Cancellation* cancellation);

  const TrainingSettings& settings_;
  std::uint64_t seed_;
  std::unique_ptr<Batches> batches_;
  Network<float>& network_;
  int threads_;
  Ranks ranks_;
  AdamW optimiser_;
  TrainerState state_;
  bool stops_ = false;  // a rank has asked for it
};

// Tokens of a batch that are not padding, both sides of a translation.
[[nodiscard]] std::int64_t tokens_of(const Batch& batch) noexcept;

}  // namespace phasor::lab
