#include "phasor/core/internal/measured_choice.hpp"

#include <algorithm>

namespace phasor::core {

int MeasuredChoice::next(int ways) noexcept {
  const int kept = this->kept();
  if (kept >= 0) return kept;
  return static_cast<int>(turn_.fetch_add(1, std::memory_order_relaxed) %
                          static_cast<std::uint32_t>(ways));
}

void MeasuredChoice::record(int ways, int way, float cost) noexcept {
  if (kept() >= 0 || recording_.test_and_set(std::memory_order_acquire)) return;
  least_[way] = samples_[way] == 0 ? cost : std::min(least_[way], cost);
  if (samples_[way] < kSamples) ++samples_[way];
  if (std::all_of(samples_, samples_ + ways, [](int count) { return count == kSamples; })) {
    const auto best = static_cast<int>(std::min_element(least_, least_ + ways) - least_);
    kept_.store(least_[best] < kGain * least_[0] ? best : 0, std::memory_order_relaxed);
  }
  recording_.clear(std::memory_order_release);
}

}  // namespace phasor::core
