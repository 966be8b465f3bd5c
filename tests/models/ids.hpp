// Token ids for the tests of models and tokenizers.
#pragma once

#include <cstdint>
#include <vector>

namespace phasor::models::testing {

using Ids = std::vector<std::int64_t>;

// Ids without a pattern, below the golden vocabulary of 97.
inline Ids some_ids(std::size_t count, std::uint32_t seed = 1) {
  Ids ids;
  for (std::size_t i = 0; i < count; ++i) {
    seed = seed * 1664525U + 1013904223U;
    ids.push_back((seed >> 16U) % 97);
  }
  return ids;
}

}  // namespace phasor::models::testing
