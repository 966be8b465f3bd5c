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
[[nodiscard]] double squares_of_chunk(std::span<const float> numbers) noexcept {
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

[[nodiscard]] std::size_t numbers_of(const std::vector<Parameter>& layout) noexcept {
  std::size_t end = 0;
  for (const Parameter& parameter : layout) end = std::max(end, parameter.first + parameter.count);
  return end;
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

double sum_of_squares(std::span<const float> numbers, std::span<const Slice> slices, int threads) {
  std::vector<Slice> chunks;
  for (const Slice& slice : slices) {
    for (std::size_t at = 0; at < slice.count; at += kChunk) {
      chunks.push_back({slice.first + at, std::min(kChunk, slice.count - at)});
    }
  }
  std::vector<double> sums(chunks.size());
  for_chunks(sums.size(), threads, [&](std::size_t chunk) {
    sums[chunk] = squares_of_chunk(numbers.subspan(chunks[chunk].first, chunks[chunk].count));
  });
  double sum = 0.0;
  for (const double part : sums) sum += part;
  return sum;
}

double global_norm(std::span<const float> numbers, int threads) {
  const Slice whole{0, numbers.size()};
  return std::sqrt(sum_of_squares(numbers, std::span(&whole, 1), threads));
}

AdamW::AdamW(const AdamWSettings& settings, const std::vector<Parameter>& layout)
    : AdamW(settings, layout, std::vector<Slice>{{0, numbers_of(layout)}}) {}

AdamW::AdamW(const AdamWSettings& settings, const std::vector<Parameter>& layout,
             std::span<const Slice> slices)
    : settings_(settings), numbers_(numbers_of(layout)) {
  require_share("beta1", settings.beta1);
  require_share("beta2", settings.beta2);
  if (!(settings.epsilon > 0.0)) {
    refuse(message("training: epsilon must be positive, got ", settings.epsilon));
  }
  if (!(settings.weight_decay >= 0.0 && std::isfinite(settings.weight_decay))) {
    refuse(message("training: weight_decay must be at least 0, got ", settings.weight_decay));
  }
  std::size_t moments = 0;
  for (const Slice& slice : slices) {
    for (const Parameter& parameter : layout) {
      const std::size_t begin = std::max(parameter.first, slice.first);
      const std::size_t end =
          std::min(parameter.first + parameter.count, slice.first + slice.count);
      for (std::size_t first = begin; first < end; first += kChunk) {
        ranges_.push_back({first, std::min(kChunk, end - first), moments + first - slice.first,
                           parameter.decay == Parameter::Decay::decays});
      }
    }
    moments += slice.count;
  }
  first_.resize(moments);
  second_.resize(moments);
}

void AdamW::step(std::span<float> parameters, std::span<const float> gradients, double rate,
                 double gradient_factor, int threads) {
  if (parameters.size() != numbers_ || gradients.size() != numbers_) {
    refuse(ErrorCode::shape_mismatch,
           message("training: the optimiser has ", numbers_, " numbers, got ", parameters.size(),
                   " parameters and ", gradients.size(), " gradients"));
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
    step_range(own, range.count, gradients.data() + range.first, first_.data() + range.moment,
               second_.data() + range.moment, parameters.data() + range.first);
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
