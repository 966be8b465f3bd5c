#include "phasor/attention/kv_cache.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace phasor::attention {
namespace {

using core::DType;
using core::Frequencies;
using core::PairLayout;
using core::Rotary;

constexpr std::int64_t kBatch = 2, kKeyTokens = 7, kHeads = 3, kDim = 32;

Frequencies frequencies(double base, double amplitude = 1.0, std::int64_t dim = kDim) {
  const Frequencies plain = core::make_frequencies({dim, base});
  return Frequencies({plain.values().begin(), plain.values().end()}, amplitude);
}
std::vector<double> raw_keys() {
  std::mt19937_64 random(21);
  std::normal_distribution<double> normal;
  std::vector<double> keys(kBatch * kKeyTokens * kHeads * kDim);
  for (double& key : keys) key = normal(random);
  return keys;
}
template <class T>
core::HeadsView view(std::vector<T>& keys) {
  return core::heads_view(keys.data(), kBatch, kKeyTokens, kHeads, kDim);
}

struct ChangeOfScheme {
  const char* name;
  Rotary from, to;
};
std::vector<ChangeOfScheme> changes_of_scheme() {
  const Frequencies plain = frequencies(10000.0);
  const Frequencies rows({plain.values().begin(), plain.values().end()}, 1.0,
                         {0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0});
  const auto rotary = [](const Frequencies& f, PairLayout layout, std::int64_t offset = 0) {
    return Rotary{f, layout, kDim, offset};
  };
  std::vector<ChangeOfScheme> all = {
      {"another base", rotary(plain, PairLayout::half),
       rotary(frequencies(500000.0), PairLayout::half)},
      {"amplitudes", rotary(frequencies(10000.0, 1.2), PairLayout::interleaved),
       rotary(frequencies(10000.0, 1.5), PairLayout::interleaved)},
      {"another layout", rotary(plain, PairLayout::half), rotary(plain, PairLayout::interleaved)},
      {"both across", rotary(plain, PairLayout::interleaved_to_half),
       rotary(frequencies(77.0), PairLayout::interleaved_to_half)},
      {"from across", rotary(plain, PairLayout::interleaved_to_half),
       rotary(plain, PairLayout::half)},
      {"to across", rotary(plain, PairLayout::interleaved),
       rotary(plain, PairLayout::interleaved_to_half)},
      {"another window", rotary(frequencies(10000.0, 1.0, 16), PairLayout::half),
       rotary(frequencies(10000.0, 1.0, 24), PairLayout::half, 8)},
      {"axes", rotary(rows, PairLayout::half), rotary(rows, PairLayout::half)},
  };
  Rotary growing = rotary(plain, PairLayout::half);
  growing.growth = core::Growth{std::vector<double>(kDim / 2, 1e-3), 5.0};
  all.push_back({"growth", growing, rotary(plain, PairLayout::half)});
  return all;
}

// ChangeOfScheme with several position rows included: M-RoPE caches can be shifted (llama.cpp #13865,
// #19928).
TEST(Rerotate, LlamaCpp19928_GivesTheKeysThatTheOtherSchemeWouldHaveMade) {
  std::vector<std::int64_t> before(2 * kBatch * kKeyTokens), after(2 * kBatch * kKeyTokens);
  for (std::size_t i = 0; i < before.size(); ++i) {
    before[i] = static_cast<std::int64_t>(1000 + 37 * i);
    after[i] = static_cast<std::int64_t>(3 * i) - 5;
  }
  for (const ChangeOfScheme& s : changes_of_scheme()) {
    const auto at = [](const Rotary& rotary, const std::vector<std::int64_t>& ids) {
      return core::positions_per_row(ids.data(), rotary.frequencies.axis_count(), kBatch,
                                     kKeyTokens);
    };
    const auto positions_from_ = at(s.from, before), positions_to = at(s.to, after);
    std::vector<double> cached = raw_keys(), expected = raw_keys();
    const core::Rotation rotate_cached{view(cached), view(cached), core::Role::key};
    const core::Rotation rotate_expected{view(expected), view(expected), core::Role::key};
    core::rotate(s.from, positions_from_, {&rotate_cached, 1});
    core::rotate(s.to, positions_to, {&rotate_expected, 1});

    std::vector<float> cached32(cached.begin(), cached.end());
    rerotate({s.from, positions_from_}, {s.to, positions_to}, view(cached32));
    std::vector<double> cached64 = cached;
    rerotate({s.from, positions_from_}, {s.to, positions_to}, view(cached64));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(cached32[i], expected[i], 2e-6) << s.name << " " << i;
      ASSERT_NEAR(cached64[i], expected[i], 1e-13) << s.name << " " << i;
    }
  }
}

TEST(Rerotate, RefusesKeysOfAnotherWidthBeforeTouchingThem) {
  const Rotary rotary{frequencies(10000.0), PairLayout::half, kDim};
  std::vector<float> keys(16, 1.0F);
  EXPECT_THROW(rerotate({rotary, core::positions_from(0)}, {rotary, core::positions_from(1)},
                        core::heads_view(keys.data(), 1, 1, 1, 16)),
               Error);
  std::vector<float> right(kKeyTokens * kDim, 1.0F);
  const std::vector<std::int64_t> short_ids = {1, 2};
  EXPECT_THROW(
      rerotate({rotary, core::positions_from(0)}, {rotary, core::positions_per_token(short_ids)},
               core::heads_view(right.data(), 1, kKeyTokens, 1, kDim)),
      Error);
  EXPECT_EQ(right, std::vector<float>(kKeyTokens * kDim, 1.0F));
}

}  // namespace
}  // namespace phasor::attention
