// AdamW, schedules of the learning rate, the norm of gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "phasor/lab/internal/exchange.hpp"
#include "phasor/lab/internal/network.hpp"

namespace phasor::lab {

enum class ScheduleShape : std::uint8_t { constant, cosine, inverse_square_root };
[[nodiscard]] std::string_view name_of(ScheduleShape shape) noexcept;

struct Schedule {
  ScheduleShape shape = ScheduleShape::cosine;
  double peak = 1e-3;
  std::int64_t warmup = 0;  // steps of a linear rise to the peak
  std::int64_t steps = 0;   // of the run: where the cosine ends
  double floor = 0.1;       // cosine: its end, as a share of the peak
};

// The rate of step s = 1, 2, ..., w = max(warmup, 1), N = steps.
//
//   s <= warmup           peak s / w
//   constant              peak
//   cosine                peak (floor + (1 - floor) (1 + cos(pi (s - w) / (N - w))) / 2)
//   inverse_square_root   peak sqrt(w / s)
//
// precondition  1 <= step <= schedule.steps
[[nodiscard]] double learning_rate(const Schedule& schedule, std::int64_t step);

// The Euclidean norm of all numbers, summed in double, in chunks whose sums are added in order: the same
// bits with any number of threads. NaN or infinite if one of the numbers is.
[[nodiscard]] double global_norm(std::span<const float> numbers, int threads);
// The same without the root, of some slices.
[[nodiscard]] double sum_of_squares(std::span<const float> numbers, std::span<const Slice> slices,
                                    int threads);

struct AdamWSettings {
  double beta1 = 0.9, beta2 = 0.98, epsilon = 1e-8, weight_decay = 0.01;
};

// Loshchilov & Hutter (2019), with g the gradient, r the rate, t the step:
//
//   m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
//   p = p - r (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay p)
//
// Parameters that are Decay::exempt have no weight decay. In float32, element by element: the same bits
// with any number of threads and any division into slices.
class AdamW {
 public:
  // throws   Error(invalid_argument): betas outside of [0, 1), epsilon that is not positive, a negative
  //          weight decay
  AdamW(const AdamWSettings& settings, const std::vector<Parameter>& layout);
  // Has moments of these slices only, and updates no other parameters.
  AdamW(const AdamWSettings& settings, const std::vector<Parameter>& layout,
        std::span<const Slice> slices);

  // gradient_factor  multiplies each gradient: clipping
  // shape            both arrays have the size of the layout
  void step(std::span<float> parameters, std::span<const float> gradients, double rate,
            double gradient_factor, int threads);

  // What a checkpoint holds: the steps so far and the two moments, of one slice after the other.
  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }
  [[nodiscard]] std::span<const float> first_moments() const noexcept { return first_; }
  [[nodiscard]] std::span<const float> second_moments() const noexcept { return second_; }
  // throws   Error(shape_mismatch)
  void restore(std::int64_t steps, std::span<const float> first_moments,
               std::span<const float> second_moments);

 private:
  AdamWSettings settings_;
  struct Range {
    std::size_t first = 0, count = 0;
    std::size_t moment = 0;  // where its moments begin
    bool decays = false;
  };
  std::size_t numbers_ = 0;    // of the layout
  std::vector<Range> ranges_;  // no longer than a chunk
  std::vector<float> first_, second_;
  std::int64_t steps_ = 0;
};

}  // namespace phasor::lab
