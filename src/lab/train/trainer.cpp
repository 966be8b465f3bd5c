#include "lab/train/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "phasor/core/error.hpp"

namespace phasor::lab {
namespace {

constexpr double kRunningShare = 0.95;  // of the past, in the running mean of the loss

[[nodiscard]] std::int64_t labels_of(const Batch& batch) noexcept {
  return std::count_if(batch.labels.begin(), batch.labels.end(),
                       [](std::int32_t label) { return label != kNoLabel; });
}

[[nodiscard]] std::int64_t side_tokens(const std::vector<std::int32_t>& ids,
                                       const std::vector<std::uint8_t>& mask) noexcept {
  if (mask.empty()) return static_cast<std::int64_t>(ids.size());
  return std::count_if(mask.begin(), mask.end(), [](std::uint8_t keep) { return keep != 0; });
}

}  // namespace

std::int64_t tokens_of(const Batch& batch) noexcept {
  return side_tokens(batch.ids, batch.mask) + side_tokens(batch.source_ids, batch.source_mask);
}

Trainer::Trainer(const TrainingSettings& settings, std::uint64_t seed, const TaskData& data,
                 Network<float>& network, int threads)
    : settings_(settings),
      seed_(seed),
      batches_(data.train(seed)),
      network_(network),
      threads_(threads),
      optimiser_(settings.optimiser, network.layout()) {}

void Trainer::restore(const TrainerState& state, std::span<const float> first_moments,
                      std::span<const float> second_moments) {
  optimiser_.restore(state.step, first_moments, second_moments);
  state_ = state;
}

void Trainer::refuse_diverged(double loss) const {
  const std::int64_t step = state_.step + 1;
  if (!std::isfinite(loss)) {
    refuse(ErrorCode::out_of_range,
           message("step ", step, ": the loss must be finite, got ", loss));
  }
  if (step <= settings_.warmup) return;
  const ModelSpec& spec = network_.spec();
  // A batch of few rows may well be classified worse than by a guess.
  constexpr double kClassificationSlack = 4.0;
  const bool classifies = spec.head == Head::classification;
  const double guess = classifies
                           ? kClassificationSlack * std::log(static_cast<double>(spec.labels) + 1.0)
                           : std::log(static_cast<double>(spec.vocabulary));
  const double most = settings_.diverged_above * guess;
  const double usual = std::max(settings_.diverged_above * state_.running_loss, guess);
  if (state_.running_loss > 0.0 && loss > usual) {
    refuse(ErrorCode::out_of_range,
           message("step ", step, ": the loss diverged: it must be at most ", usual,
                   ", diverged_above ", settings_.diverged_above, " times its running mean ",
                   state_.running_loss, ", got ", loss));
  }
  if (loss > most) {
    refuse(ErrorCode::out_of_range,
           message("step ", step, ": the loss diverged: it must be at most ", most,
                   ", diverged_above ", settings_.diverged_above, " times that of a guess ", guess,
                   ", got ", loss));
  }
}

StepFacts Trainer::step(const core::Cancellation* cancellation) {
  const std::int64_t first_part = state_.step * settings_.accumulation;
  std::vector<Batch> parts;
  std::int64_t labels = 0, tokens = 0;
  for (std::int64_t part = 0; part < settings_.accumulation; ++part) {
    parts.push_back(batches_->at(first_part + part));
    labels += labels_of(parts.back());
    tokens += tokens_of(parts.back());
  }
  StepFacts facts;
  facts.rate = learning_rate(settings_.learning_rates(), state_.step + 1);
  const std::span<float> gradients = network_.gradients();
  std::fill(gradients.begin(), gradients.end(), 0.0F);
  {
    const core::CancellationScope scope(cancellation);
    TrainOptions options;
    options.label_smoothing = settings_.label_smoothing;
    options.gradient_scale = 1.0 / static_cast<double>(std::max<std::int64_t>(labels, 1));
    options.seed = seed_;
    for (std::size_t part = 0; part < parts.size(); ++part) {
      core::throw_if_cancelled();
      options.step = static_cast<std::uint64_t>(first_part) + part;
      facts.loss += network_.train(parts[part], options);
    }
  }
  const double loss = facts.mean_loss();
  refuse_diverged(loss);
  facts.gradient_norm = global_norm(gradients, threads_);
  if (!std::isfinite(facts.gradient_norm)) {
    refuse(ErrorCode::out_of_range,
           message("step ", state_.step + 1, ": the norm of the gradients must be finite, got ",
                   facts.gradient_norm, " with a loss of ", loss));
  }
  const bool clips = settings_.clip > 0.0 && facts.gradient_norm > settings_.clip;
  // Not in the scope: a step is taken whole or not at all.
  optimiser_.step(network_.parameters(), gradients, facts.rate,
                  clips ? settings_.clip / facts.gradient_norm : 1.0, threads_);
  ++state_.step;
  state_.tokens += tokens;
  state_.running_loss = state_.running_loss == 0.0
                            ? loss
                            : kRunningShare * state_.running_loss + (1.0 - kRunningShare) * loss;
  return facts;
}

}  // namespace phasor::lab
