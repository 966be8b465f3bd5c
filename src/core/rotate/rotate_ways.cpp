#include "core/rotate/rotate_ways.hpp"

#include <algorithm>
#include <bit>
#include <iterator>

#include "core/system/cache_sizes.hpp"

namespace phasor::core {
namespace {

constexpr Way kTokensFirst[] = {{0}, {512}, {1024}, {2048}, {4096}};
constexpr Way kHeadsFirst[] = {{0},
                               {2048},
                               {0, HeadsFirst::heads_together},
                               {2048, HeadsFirst::heads_together},
                               {4096, HeadsFirst::head_by_head},
                               {8192, HeadsFirst::head_by_head}};
static_assert(std::max(std::size(kTokensFirst), std::size(kHeadsFirst)) <=
              MeasuredChoice::kMostWays);

// Tensors of 1, 2, 4, ... times the L2 cache; the last includes all larger ones.
constexpr int kSizes = 8;
constexpr int kLevels = static_cast<int>(InstructionSet::x86_64_v4) + 1;

}  // namespace

Ways ways_of(const Traffic& traffic) {
  const std::int64_t l2 = l2_cache_bytes();
  if (traffic.bytes <= l2) return {{kTokensFirst, 1}};
  static MeasuredChoice choices[kLevels][kSizes][2][2][2][2];
  const auto times = static_cast<std::uint64_t>(traffic.bytes / l2);
  const int size = std::min(static_cast<int>(std::bit_width(times)) - 1, kSizes - 1);
  MeasuredChoice& choice =
      choices[static_cast<int>(traffic.isa)][size][traffic.element == 4 ? 1 : 0]
             [traffic.streams ? 1 : 0][traffic.heads_first ? 1 : 0]
             [traffic.layout == PairLayout::half ? 1 : 0];
  if (traffic.heads_first) return {kHeadsFirst, &choice};
  return {kTokensFirst, &choice};
}

}  // namespace phasor::core
