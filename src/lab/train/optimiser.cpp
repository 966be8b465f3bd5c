#include "phasor/lab/internal/optimiser.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "phasor/core/cpu.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/enum_names.hpp"

namespace phasor::lab {
namespace {

constexpr core::EnumNames<ScheduleShape::inverse_square_root> kShapes("constant", "cosine",
                                                                      "inverse_square_root");
// Numbers of one piece of work; the same for every number of threads.
constexpr std::size_t kChunk = 16384;

// task(chunk) for each chunk in [0, chunks), on `threads` threads (0: all).
template <class Task>
void for_chunks(std::size_t chunks, int threads, const Task& task) {
  struct Context {
    const Task* task;
    std::size_t chunks;
  } context{&task, chunks};
  const int most = threads > 0 ? threads : core::available_threads();
  const int parts =
      std::max(1, std::min(most, static_cast<int>(std::min<std::size_t>(chunks, 1024))));
  core::run_parts(
      parts,
      [](void* opaque, int part, int all) {
        const auto& given = *static_cast<const Context*>(opaque);
        const auto index = static_cast<std::size_t>(part), count = static_cast<std::size_t>(all);
        for (std::size_t chunk = index; chunk < given.chunks; chunk += count) (*given.task)(chunk);
      },
      &context);
}

void require_share(std::string_view name, double value) {
  if (value >= 0.0 && value < 1.0) return;
  refuse(message("training: ", name, " must be in [0, 1), got ", value));
}

// The sum of squares of a chunk, in eight lanes so that it vectorises.
[[nodiscard]] double sum_of_squares(std::span<const float> numbers) noexcept {
  constexpr std::size_t kLanes = 8;
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= numbers.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double number = numbers[i + lane];
      lanes[lane] += number * number;
    }
  }
  double sum = 0.0;
  for (; i < numbers.size(); ++i) sum += static_cast<double>(numbers[i]) * numbers[i];
  for (const double lane : lanes) sum += lane;
  return sum;
}

struct StepFactors {
  float beta1, beta2, rest1, rest2, gradient, rate, second, epsilon, decay;
};

void step_range(const StepFactors& by, std::size_t count, const float* gradients, float* first,
                float* second, float* parameters) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const float gradient = gradients[i] * by.gradient;
    first[i] = by.beta1 * first[i] + by.rest1 * gradient;
    second[i] = by.beta2 * second[i] + by.rest2 * gradient * gradient;
    const float size = std::sqrt(second[i] * by.second) + by.epsilon;
    parameters[i] -= by.rate * first[i] / size + by.decay * parameters[i];
  }
}

}  // namespace

std::string_view name_of(ScheduleShape shape) noexcept { return kShapes[shape]; }

double learning_rate(const Schedule& schedule, std::int64_t step) {
  const auto s = static_cast<double>(step);
  const auto w = static_cast<double>(std::max<std::int64_t>(schedule.warmup, 1));
  if (step <= schedule.warmup) return schedule.peak * s / w;
  switch (schedule.shape) {
    case ScheduleShape::constant:
      return schedule.peak;
    case ScheduleShape::inverse_square_root:
      return schedule.peak * std::sqrt(w / s);
    case ScheduleShape::cosine:
      break;
  }
  const double length = std::max(1.0, static_cast<double>(schedule.steps) - w);
  const double share = std::min(1.0, std::max(0.0, s - w) / length);
  const double wave = 0.5 * (1.0 + std::cos(std::numbers::pi * share));
  return schedule.peak * (schedule.floor + (1.0 - schedule.floor) * wave);
}

double global_norm(std::span<const float> numbers, int threads) {
  std::vector<double> sums((numbers.size() + kChunk - 1) / kChunk);
  for_chunks(sums.size(), threads, [&](std::size_t chunk) {
    const std::size_t first = chunk * kChunk;
    sums[chunk] = sum_of_squares(numbers.subspan(first, std::min(kChunk, numbers.size() - first)));
  });
  double sum = 0.0;
  for (const double part : sums) sum += part;
  return std::sqrt(sum);
}

AdamW::AdamW(const AdamWSettings& settings, const std::vector<Parameter>& layout)
    : settings_(settings) {
  require_share("beta1", settings.beta1);
  require_share("beta2", settings.beta2);
  if (!(settings.epsilon > 0.0)) {
    refuse(message("training: epsilon must be positive, got ", settings.epsilon));
  }
  if (!(settings.weight_decay >= 0.0 && std::isfinite(settings.weight_decay))) {
    refuse(message("training: weight_decay must be at least 0, got ", settings.weight_decay));
  }
  std::size_t end = 0;
  for (const Parameter& parameter : layout) {
    for (std::size_t first = 0; first < parameter.count; first += kChunk) {
      ranges_.push_back({parameter.first + first, std::min(kChunk, parameter.count - first),
                         parameter.decay == Parameter::Decay::decays});
    }
    end = std::max(end, parameter.first + parameter.count);
  }
  first_.resize(end);
  second_.resize(end);
}

void AdamW::step(std::span<float> parameters, std::span<const float> gradients, double rate,
                 double gradient_factor, int threads) {
  if (parameters.size() != first_.size() || gradients.size() != first_.size()) {
    refuse(ErrorCode::shape_mismatch,
           message("training: the optimiser has ", first_.size(), " numbers, got ",
                   parameters.size(), " parameters and ", gradients.size(), " gradients"));
  }
  ++steps_;
  const auto t = static_cast<double>(steps_);
  StepFactors by{};
  by.beta1 = static_cast<float>(settings_.beta1);
  by.beta2 = static_cast<float>(settings_.beta2);
  by.rest1 = static_cast<float>(1.0 - settings_.beta1);
  by.rest2 = static_cast<float>(1.0 - settings_.beta2);
  by.gradient = static_cast<float>(gradient_factor);
  by.rate = static_cast<float>(rate / (1.0 - std::pow(settings_.beta1, t)));
  by.second = static_cast<float>(1.0 / (1.0 - std::pow(settings_.beta2, t)));
  by.epsilon = static_cast<float>(settings_.epsilon);
  for_chunks(ranges_.size(), threads, [&](std::size_t index) {
    const Range& range = ranges_[index];
    StepFactors own = by;
    own.decay = range.decays ? static_cast<float>(rate * settings_.weight_decay) : 0.0F;
    step_range(own, range.count, gradients.data() + range.first, first_.data() + range.first,
               second_.data() + range.first, parameters.data() + range.first);
  });
}

void AdamW::restore(std::int64_t steps, std::span<const float> first_moments,
                    std::span<const float> second_moments) {
  if (first_moments.size() != first_.size() || second_moments.size() != second_.size()) {
    refuse(ErrorCode::shape_mismatch,
           message("training: the optimiser has ", first_.size(), " numbers, got ",
                   first_moments.size(), " and ", second_moments.size()));
  }
  std::copy(first_moments.begin(), first_moments.end(), first_.begin());
  std::copy(second_moments.begin(), second_moments.end(), second_.begin());
  steps_ = steps;
}

}  // namespace phasor::lab
