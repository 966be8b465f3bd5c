#include "phasor/lab/internal/speed.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "phasor/core/error.hpp"
#include "phasor/lab/internal/network.hpp"
#include "phasor/lab/internal/optimiser.hpp"
#include "phasor/lab/internal/random.hpp"

namespace phasor::lab {
namespace {

[[nodiscard]] Batch random_batch(const ModelSpec& spec, const SpeedSettings& settings) {
  Random random(1, Stream::batches);
  const auto below = [&](std::int64_t count, std::int64_t most) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random.below(most));
    return ids;
  };
  Batch batch;
  batch.rows = settings.rows;
  batch.tokens = settings.tokens;
  const std::int64_t count = settings.rows * settings.tokens;
  batch.ids = below(count, spec.vocabulary);
  batch.labels = spec.head == Head::classification ? below(settings.rows, spec.labels)
                                                   : below(count, spec.vocabulary);
  if (spec.architecture == Architecture::encoder_decoder) {
    batch.source_tokens = settings.tokens;
    batch.source_ids = below(count, spec.vocabulary);
  }
  return batch;
}

}  // namespace

Speed measure_speed(const ModelSpec& spec, const SpeedSettings& settings) {
  if (settings.rows < 1 || settings.tokens < 1 || settings.steps < 1) {
    refuse(message("rows, tokens and steps must be at least 1, got ", settings.rows, ", ",
                   settings.tokens, " and ", settings.steps));
  }
  Speed speed;
  Network<float> network(spec, {.threads = settings.threads, .times = &speed.parts});
  network.initialise(1);
  AdamW optimiser({}, network.layout());
  speed.parameters = static_cast<std::int64_t>(network.parameters().size());
  const Batch batch = random_batch(spec, settings);
  const TrainOptions options{.gradient_scale = 1.0 / static_cast<double>(batch.labels.size())};
  const auto step = [&] {
    const std::span<float> gradients = network.gradients();
    {
      const TimedPart timed(&speed.parts, Part::optimiser);
      std::fill(gradients.begin(), gradients.end(), 0.0F);
    }
    network.train(batch, options);
    const TimedPart timed(&speed.parts, Part::optimiser);
    const double norm = global_norm(gradients, settings.threads);
    optimiser.step(network.parameters(), gradients, 1e-4, 1.0 / std::max(norm, 1.0),
                   settings.threads);
  };
  step();
  speed.parts = {};
  for (std::int64_t i = 0; i < settings.steps; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const std::clock_t cpu_begin = std::clock();
    step();
    const auto ticks = static_cast<double>(std::clock() - cpu_begin);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    speed.seconds.push_back(seconds.count());
    speed.cpu_seconds.push_back(ticks / static_cast<double>(CLOCKS_PER_SEC));
  }
  return speed;
}

}  // namespace phasor::lab
