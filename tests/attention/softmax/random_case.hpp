// Random combinations of terms and options, each from its seed.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <span>

#include "attention/softmax/attend_support.hpp"

namespace phasor::attention::tests {

// What the sizes and types of a random case are drawn from.
struct RandomRange {
  std::span<const std::int64_t> queries, keys, head_dims, value_dims;
  std::span<const DType> dtypes = {};  // empty: f32, and nothing is drawn
  std::span<const std::int64_t> windows;
  // More pairs of a query and a key than this: one head.
  std::int64_t many_pairs = std::numeric_limits<std::int64_t>::max();
};

// The case of a seed; `random`, seeded with it, can go on with choices of the test's own.
inline Case random_case(std::uint64_t seed, const RandomRange& range, std::mt19937_64& random) {
  const auto one_of = [&](const auto& list) { return pick(list, random()); };
  Case c{.terms = one_of(kAllTerms)};
  c.queries = one_of(range.queries);
  c.keys = one_of(range.keys);
  c.head_dim = one_of(range.head_dims);
  c.value_dim = one_of(range.value_dims);
  c.key_heads = one_of(std::array{1, 2});
  c.heads = c.key_heads * one_of(std::array{1, 2, 3});
  if (c.queries * c.keys > range.many_pairs) c.heads = c.key_heads = 1;
  c.packed = one_of(std::array{0, 0, 0, 2, 5});
  c.batch = c.packed > 0 ? 1 : one_of(std::array{1, 2});
  if (!range.dtypes.empty()) c.dtype = c.key_dtype = one_of(range.dtypes);
  c.strides = one_of(std::array{Strides::dense, Strides::padded, Strides::heads_first});
  c.shift = one_of(std::array{0, 1});
  c.causality = one_of(std::array{Causality::none, Causality::bottom_right});
  c.window = one_of(range.windows);
  c.soft_cap = one_of(std::array{0.0, 0.0, 3.0});
  c.masked = static_cast<Masked>(random() % 2 == 0 ? 0 : random() % 9);
  c.padded =
      c.packed > 0 ? Padded::no : one_of(std::array{Padded::no, Padded::lengths, Padded::flags});
  c.positions = random() % 2 == 0 ? PositionIds::by_default : one_of(kGivenPositions);
  c.seed = seed;
  return c;
}

// Calls run(case, random) for the seeds 1 to `seeds`, up to the first that fails.
template <class Run>
void for_random_cases(std::uint64_t seeds, const RandomRange& range, const Run& run) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    std::mt19937_64 random(seed);
    const Case c = random_case(seed, range, random);
    run(c, random);
    if (::testing::Test::HasFailure()) return;  // one case is enough to paste
  }
}

inline constexpr std::array<std::int64_t, 5> kRandomWindows = {0, 0, 1, 5, 100};

}  // namespace phasor::attention::tests
