// What a network is measured by, during and after training.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/train/ranks.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/lab/internal/experiment.hpp"
#include "phasor/lab/internal/network.hpp"
#include "phasor/lab/internal/task_data.hpp"

namespace phasor::lab {

// All are collective: ranks divide batches, rows and sentences, and all have the numbers of one rank, bit for
// bit.

// The loss of the first `most` batches.
//
// throws   Error(cancelled)
[[nodiscard]] Loss loss_of(Network<float>& network, const Batches& batches, std::int64_t most,
                           const Ranks& ranks);

struct ContextLoss {
  std::int64_t context = 0;
  std::string scaling;
  std::int64_t tokens = 0;
  // Mean of the negative log-likelihoods; of the last quarter of each row. None: the encoding has no
  // positions beyond its table, or the held-out text is shorter.
  std::optional<double> nats, last_quarter_nats;
};
// Rows of each length from the held-out text, without overlap, for each scaling that the encoding has.
[[nodiscard]] std::vector<ContextLoss> losses_by_context(
    Network<float>& network, const TaskData& data, const TrainingSettings& training,
    const EvaluationSettings& settings, const Ranks& ranks,
    const std::function<void(const std::string&, double)>& report);

// The most likely token at each place, sentence by sentence, until the end token or `longest` tokens.
[[nodiscard]] std::vector<std::string> translate(
    Network<float>& network, const TaskData& data, const EvaluationSettings& settings,
    const Ranks& ranks, const std::function<void(const std::string&, double)>& report);

}  // namespace phasor::lab
