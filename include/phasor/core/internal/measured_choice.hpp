// The fastest of a few ways to do the same work, found by timing the caller's own work.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "phasor/core/cpu.hpp"

namespace phasor::core {

// Choices are made for each instruction set and for classes of size that begin at 1, 2, 4, ... times
// `least` bytes; the last includes all larger sizes.
inline constexpr int kChoiceLevels = static_cast<int>(InstructionSet::x86_64_v4) + 1;
// The class of `bytes` >= `least`.
[[nodiscard]] int size_class(std::int64_t bytes, std::int64_t least, int classes) noexcept;

// While it measures, runs of kRun pieces of the work take turns over the ways. The first kWarmUp pieces of a
// way, or those of its first kWarmUpNs, do not count: a first call finds its memory in another state than
// those after it. Nor does the first half of a run: it finds the caches as another way left them, unless a
// piece takes kLongNs, in which it moves more than a cache holds. After kSamples more of each, or kFewSamples
// that take kSampledNs together, the way with the least first quartile of time for its work is kept for the
// life of the process. The quartile, since on a busy machine half of the pieces may be disturbed, and a few
// may be in a cache by chance. The work must give the same result in every way.
//
// threads  may use one object together; a piece that ends while another is recorded does not count
class MeasuredChoice {
 public:
  static constexpr int kMostWays = 8;
  static constexpr int kWarmUp = 64, kSamples = 16, kFewSamples = 4;  // pieces of each way
  static constexpr int kRun = 4;
  static constexpr float kWarmUpNs = 1e6F, kSampledNs = 1e6F, kLongNs = 1e5F;
  // Another way than the first must be this much faster.
  static constexpr float kGain = 0.97F;

  // The kept way, or -1 while ways are measured.
  [[nodiscard]] int kept() const noexcept {
    return kept_and_one_.load(std::memory_order_relaxed) - 1;
  }
  // The way of the next piece. `ways` is the same in all calls, at most kMostWays.
  [[nodiscard]] int next(int ways) noexcept;
  // A piece done in `way` took `ns` for `work`, in any unit.
  void record(int ways, int way, float ns, float work) noexcept;
  // Calls piece(way) in the kept way, or timed in the next one. A piece that throws is not recorded.
  template <class Piece>
  void run(int ways, float work, const Piece& piece) {
    if (const int way = kept(); way >= 0) return piece(way);
    const int way = next(ways);
    const auto begin = std::chrono::steady_clock::now();
    piece(way);
    const std::chrono::duration<float, std::nano> time = std::chrono::steady_clock::now() - begin;
    record(ways, way, time.count(), work);
  }

 private:
  // All zeros at first: tables of choices then take no room in the library's file.
  std::atomic<int> kept_and_one_{0};
  std::atomic<std::uint32_t> turn_{0};
  std::atomic_flag recording_{};
  struct Samples {
    float costs[kSamples];
    float warm_up_ns, ns;
    int pieces, warm_up, count;

    [[nodiscard]] bool are_enough() const noexcept {
      return count == kSamples || (count >= kFewSamples && ns >= kSampledNs);
    }
  } samples_[kMostWays] = {};
};

}  // namespace phasor::core
