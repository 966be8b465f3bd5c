// Where the time of training goes.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace phasor::lab {

enum class Part : std::uint8_t {
  products,  // of matrices: layers, output, projected tables of encodings
  attention,
  elementwise,  // norms, activations, sums, dropout, embeddings
  loss,
  optimiser,  // zeroing and clipping of gradients, AdamW
};
inline constexpr std::size_t kTimedParts = 5;
[[nodiscard]] constexpr std::string_view name_of(Part part) noexcept {
  constexpr std::string_view kNames[kTimedParts] = {"products", "attention", "elementwise", "loss",
                                                    "optimiser"};
  return kNames[static_cast<std::size_t>(part)];
}

// Seconds of each part, as the thread that trains sees them.
using PartTimes = std::array<double, kTimedParts>;

// Adds its lifetime to a part; a null `times` costs nothing.
class TimedPart {
 public:
  TimedPart(PartTimes* times, Part part) noexcept : times_(times), part_(part) {
    if (times_ != nullptr) begin_ = std::chrono::steady_clock::now();
  }
  ~TimedPart() {
    if (times_ == nullptr) return;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
    (*times_)[static_cast<std::size_t>(part_)] += seconds.count();
  }
  TimedPart(const TimedPart&) = delete;
  TimedPart& operator=(const TimedPart&) = delete;

 private:
  PartTimes* times_;
  Part part_;
  std::chrono::steady_clock::time_point begin_ = {};
};

}  // namespace phasor::lab
