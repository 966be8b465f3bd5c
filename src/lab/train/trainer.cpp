#include "lab/train/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>
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

// Rows [first, first + count) of a batch.
[[nodiscard]] Batch rows_of(const Batch& batch, std::int64_t first, std::int64_t count) {
  const auto cut = [&](const auto& numbers) {
    const auto width = static_cast<std::int64_t>(numbers.size()) / batch.rows;
    const auto begin = numbers.begin() + first * width;
    return std::decay_t<decltype(numbers)>(begin, begin + count * width);
  };
  Batch rows;
  rows.rows = count;
  rows.tokens = batch.tokens;
  rows.ids = cut(batch.ids);
  rows.token_types = cut(batch.token_types);
  rows.mask = cut(batch.mask);
  rows.labels = cut(batch.labels);
  rows.source_tokens = batch.source_tokens;
  rows.source_ids = cut(batch.source_ids);
  rows.source_mask = cut(batch.source_mask);
  return rows;
}

[[nodiscard]] AdamW optimiser_of(const TrainingSettings& settings, const Network<float>& network,
                                 const Ranks& ranks) {
  GradientExchange* const exchange = ranks.exchange();
  if (exchange == nullptr) return {settings.optimiser, network.layout()};
  exchange->divide(network.parameters().size());
  return {settings.optimiser, network.layout(), exchange->slices()};
}

}  // namespace

std::int64_t tokens_of(const Batch& batch) noexcept {
  return side_tokens(batch.ids, batch.mask) + side_tokens(batch.source_ids, batch.source_mask);
}

Trainer::Trainer(const TrainingSettings& settings, std::uint64_t seed, const TaskData& data,
                 Network<float>& network, int threads, const Ranks& ranks)
    : settings_(settings),
      seed_(seed),
      batches_(data.train(seed)),
      network_(network),
      threads_(threads),
      ranks_(ranks),
      optimiser_(optimiser_of(settings, network, ranks)) {}

OptimiserMoments Trainer::moments() const {
  OptimiserMoments moments{optimiser_.first_moments(), optimiser_.second_moments(), {}, {}};
  GradientExchange* const exchange = ranks_.exchange();
  if (exchange == nullptr) return moments;
  const auto collect = [&](std::span<const float>& numbers, std::vector<float>& memory) {
    if (exchange->rank() == 0) memory.resize(network_.parameters().size());
    exchange->collect(numbers, memory);
    numbers = memory;
  };
  collect(moments.first, moments.first_memory);
  collect(moments.second, moments.second_memory);
  return moments;
}

void Trainer::restore(const TrainerState& state, std::span<const float> first_moments,
                      std::span<const float> second_moments) {
  if (GradientExchange* const exchange = ranks_.exchange()) {
    std::vector<float> first(optimiser_.first_moments().size()), second(first.size());
    exchange->spread(first_moments, first);
    exchange->spread(second_moments, second);
    optimiser_.restore(state.step, first, second);
  } else {
    optimiser_.restore(state.step, first_moments, second_moments);
  }
  state_ = state;
}

void Trainer::refuse_diverged(double loss) const {
  const std::int64_t step = state_.step + 1;
  const auto refuse = [](ErrorCode code, const std::string& text) {
    throw SharedError(code, text);
  };
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

Loss Trainer::compute(const std::vector<Batch>& parts, std::int64_t first_part,
                      std::int64_t labels) {
  GradientExchange* const exchange = ranks_.exchange();
  TrainOptions options;
  options.label_smoothing = settings_.label_smoothing;
  options.gradient_scale = 1.0 / static_cast<double>(std::max<std::int64_t>(labels, 1));
  options.seed = seed_;
  Loss loss;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    core::throw_if_cancelled();
    options.step = static_cast<std::uint64_t>(first_part) + part;
    if (exchange == nullptr) {
      loss += network_.train(parts[part], options);
      continue;
    }
    // Earlier parts leave gradients that the last one adds to.
    if (part + 1 == parts.size()) {
      options.final_from = [exchange](std::size_t first) { exchange->final_from(first); };
    }
    const std::int64_t rows = parts[part].rows, rank = exchange->rank(), size = exchange->size();
    options.first_row = rows * rank / size;
    const std::int64_t count = rows * (rank + 1) / size - options.first_row;
    if (count > 0) loss += network_.train(rows_of(parts[part], options.first_row, count), options);
  }
  return loss;
}

void Trainer::share(Loss& loss, double& squares, const core::Cancellation* cancellation) {
  struct Facts {
    Loss loss;
    double squares = 0.0;
    std::int64_t stops = 0;
  };
  const Facts mine{loss, squares, cancellation != nullptr && cancellation->requested() ? 1 : 0};
  std::vector<Facts> all(static_cast<std::size_t>(ranks_.size()));
  ranks_.exchange()->gather(std::as_bytes(std::span(&mine, 1)),
                            std::as_writable_bytes(std::span(all)));
  loss = {};
  squares = 0.0;
  for (const Facts& facts : all) {
    loss += facts.loss;
    squares += facts.squares;
    stops_ = stops_ || facts.stops != 0;
  }
}

StepFacts Trainer::step(const core::Cancellation* cancellation) {
  GradientExchange* const exchange = ranks_.exchange();
  if (std::exchange(stops_, false)) {
    throw SharedError(ErrorCode::cancelled, message("stopped after step ", state_.step));
  }
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
  if (exchange != nullptr) exchange->begin(gradients);
  {
    // A rank alone cannot drop a step: the others would wait for it.
    const core::CancellationScope scope(exchange == nullptr ? cancellation : nullptr);
    facts.loss = compute(parts, first_part, labels);
  }
  double squares = 0.0;
  if (exchange != nullptr) {
    exchange->finish();
    squares = sum_of_squares(gradients, exchange->slices(), threads_);
    share(facts.loss, squares, cancellation);
  }
  const double loss = facts.mean_loss();
  refuse_diverged(loss);
  facts.gradient_norm = exchange == nullptr ? global_norm(gradients, threads_) : std::sqrt(squares);
  if (!std::isfinite(facts.gradient_norm)) {
    throw SharedError(
        ErrorCode::out_of_range,
        message("step ", state_.step + 1, ": the norm of the gradients must be finite, got ",
                facts.gradient_norm, " with a loss of ", loss));
  }
  const bool clips = settings_.clip > 0.0 && facts.gradient_norm > settings_.clip;
  // Not in the scope: a step is taken whole or not at all.
  optimiser_.step(network_.parameters(), gradients, facts.rate,
                  clips ? settings_.clip / facts.gradient_norm : 1.0, threads_);
  if (exchange != nullptr) exchange->gather_slices(network_.parameters());
  ++state_.step;
  state_.tokens += tokens;
  state_.running_loss = state_.running_loss == 0.0
                            ? loss
                            : kRunningShare * state_.running_loss + (1.0 - kRunningShare) * loss;
  return facts;
}

}  // namespace phasor::lab
