#include "core/timing.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

namespace phasor::bench {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds(const std::function<void()>& work, int repeats) {
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < repeats; ++i) work();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / repeats;
}

int repeats_for(const std::function<void()>& work, double piece_us) {
  work();
  double once = microseconds(work, 1);
  if (once < 20.0) once = microseconds(work, 50);
  return static_cast<int>(std::clamp(std::ceil(piece_us / std::max(once, 1e-3)), 1.0, 1e6));
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

// What the engine and the limits measure at their first calls, ways through memory, is settled by then.
constexpr int kWarmUpRounds = 2, kMostWarmUpRounds = 60;
constexpr std::chrono::milliseconds kWarmUp(300);

}  // namespace

Contest compare(const std::function<void()>& ours, const std::function<void()>& against, int rounds,
                double piece_us) {
  const int our_repeats = repeats_for(ours, piece_us),
            their_repeats = repeats_for(against, piece_us);
  std::vector<double> our_times, their_times, ratios;
  const Clock::time_point begin = Clock::now();
  for (int round = 0; static_cast<int>(ratios.size()) < rounds; ++round) {
    // The second finds the caches as the first left them: the order alternates too.
    double mine = 0.0, theirs = 0.0;
    if (round % 2 == 0) {
      mine = microseconds(ours, our_repeats);
      theirs = microseconds(against, their_repeats);
    } else {
      theirs = microseconds(against, their_repeats);
      mine = microseconds(ours, our_repeats);
    }
    if (round < kWarmUpRounds || (round < kMostWarmUpRounds && Clock::now() - begin < kWarmUp))
      continue;
    our_times.push_back(mine);
    their_times.push_back(theirs);
    ratios.push_back(mine / theirs);
  }
  return {quantile(our_times, 0.5), quantile(their_times, 0.5), quantile(ratios, 0.5),
          quantile(ratios, 0.25), quantile(ratios, 0.75)};
}

}  // namespace phasor::bench
