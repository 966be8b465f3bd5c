#include "core/rotate/rotate_ways.hpp"

#include <algorithm>
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

constexpr int kSizes = 8;  // classes, from the L2 cache on

}  // namespace

Ways ways_of(const Traffic& traffic) {
  const std::int64_t l2 = l2_cache_bytes();
  if (traffic.bytes <= l2) return {{kTokensFirst, 1}};
  static MeasuredChoice choices[kChoiceLevels][kSizes][2][2][2][2];
  MeasuredChoice& choice =
      choices[static_cast<int>(traffic.isa)][size_class(traffic.bytes, l2, kSizes)]
             [traffic.element == 4 ? 1 : 0][traffic.streams ? 1 : 0][traffic.heads_first ? 1 : 0]
             [traffic.layout == PairLayout::half ? 1 : 0];
  if (traffic.heads_first) return {kHeadsFirst, &choice};
  return {kTokensFirst, &choice};
}

}  // namespace phasor::core
