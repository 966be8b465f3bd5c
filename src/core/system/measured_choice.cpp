#include "phasor/core/internal/measured_choice.hpp"

#include <algorithm>
#include <bit>

namespace phasor::core {

int size_class(std::int64_t bytes, std::int64_t least, int classes) noexcept {
  const auto times = static_cast<std::uint64_t>(bytes / least);
  return std::min(static_cast<int>(std::bit_width(times)) - 1, classes - 1);
}

int MeasuredChoice::next(int ways) noexcept {
  const int kept = this->kept();
  if (kept >= 0) return kept;
  return static_cast<int>(turn_.fetch_add(1, std::memory_order_relaxed) / kRun %
                          static_cast<std::uint32_t>(ways));
}

void MeasuredChoice::record(int ways, int way, float ns, float work) noexcept {
  if (kept() >= 0 || recording_.test_and_set(std::memory_order_acquire)) return;
  Samples& own = samples_[way];
  const bool is_settled = own.pieces++ % kRun >= kRun / 2 || ns >= kLongNs;
  if (own.warm_up < kWarmUp && own.warm_up_ns < kWarmUpNs) {
    ++own.warm_up;
    own.warm_up_ns += ns;
  } else if (is_settled && own.count < kSamples) {
    own.costs[own.count++] = ns / work;
    own.ns += ns;
  }
  if (std::all_of(samples_, samples_ + ways, [](const Samples& s) { return s.are_enough(); })) {
    float times[kMostWays];
    for (int i = 0; i < ways; ++i) {
      Samples& some = samples_[i];
      std::nth_element(some.costs, some.costs + some.count / 4, some.costs + some.count);
      times[i] = some.costs[some.count / 4];
    }
    const auto best = static_cast<int>(std::min_element(times, times + ways) - times);
    kept_and_one_.store((times[best] < kGain * times[0] ? best : 0) + 1, std::memory_order_relaxed);
  }
  recording_.clear(std::memory_order_release);
}

}  // namespace phasor::core
