// The fastest of a few ways to do the same work, found by timing the caller's own work.
#pragma once

#include <atomic>
#include <cstdint>

namespace phasor::core {

// While it measures, pieces of the work take turns over the ways; after kSamples pieces of each, the
// way with the least time of a piece is kept for the life of the process. The least, since what
// disturbs a measurement makes it longer. The work must give the same result in every way.
//
// threads  may use one object together; a piece that ends while another is recorded does not count
class MeasuredChoice {
 public:
  static constexpr int kMostWays = 6;
  static constexpr int kSamples = 8;
  // Another way than the first must be this much faster.
  static constexpr float kGain = 0.97F;

  // The kept way, or -1 while ways are measured.
  [[nodiscard]] int kept() const noexcept { return kept_.load(std::memory_order_relaxed); }
  // The way of the next piece. `ways` is the same in all calls, at most kMostWays.
  [[nodiscard]] int next(int ways) noexcept;
  // A piece done in `way` took `cost`, in time per unit of work.
  void record(int ways, int way, float cost) noexcept;

 private:
  std::atomic<int> kept_{-1};
  std::atomic<std::uint32_t> turn_{0};
  std::atomic_flag recording_{};
  float least_[kMostWays] = {};
  std::uint8_t samples_[kMostWays] = {};
};

}  // namespace phasor::core
