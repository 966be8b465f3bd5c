// How fast a model trains here.
#pragma once

#include <cstdint>
#include <vector>

#include "phasor/lab/internal/model_spec.hpp"
#include "phasor/lab/internal/part_times.hpp"

namespace phasor::lab {

struct SpeedSettings {
  std::int64_t rows = 8, tokens = 512;  // of a batch; an encoder-decoder has as many source tokens
  std::int64_t steps = 5;               // that are timed, after one that is not
  int threads = 0;                      // 0: all
};

struct Speed {
  std::vector<double> seconds;  // of each step
  // CPU time of each step, over all threads: the same on a busy machine.
  std::vector<double> cpu_seconds;
  PartTimes parts = {};  // sums over the steps
  std::int64_t parameters = 0;
};

// Times steps of training on random tokens: gradients set to 0, forward, backward, clipping to norm 1,
// AdamW.
//
// throws   Error(invalid_argument): rows, tokens or steps below 1; as Network
[[nodiscard]] Speed measure_speed(const ModelSpec& spec, const SpeedSettings& settings);

}  // namespace phasor::lab
