// Position ids as callers of attention have them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

namespace phasor::attention::tests {

enum class PositionIds : std::uint8_t {
  by_default,
  scattered,    // any numbers, some of them negative; the keys of all batch rows the same
  moved,        // counted from a number of the queries' own, and one of the keys' own
  left_padded,  // padding at 0, then 0, 1, ...; each batch row its own, the padding hidden
  gaps,         // counted, with jumps
  packed,       // sequences of different lengths after each other, each counted from 0
  reordered,    // keys in any order
  far_apart,    // queries and keys counted, thousands from each other
  tile_gaps,    // queries counted; keys too, with a jump after every tile of them
};
inline constexpr std::array kGivenPositions = {PositionIds::scattered,   PositionIds::moved,
                                               PositionIds::left_padded, PositionIds::gaps,
                                               PositionIds::packed,      PositionIds::reordered,
                                               PositionIds::far_apart,   PositionIds::tile_gaps};
inline const char* name_of(PositionIds positions) {
  constexpr std::array kNames = {"by_default", "scattered", "moved",     "left_padded", "gaps",
                                 "packed",     "reordered", "far_apart", "tile_gaps"};
  return kNames[static_cast<std::size_t>(positions)];
}

// [batch, tokens] each. Unless they are scattered, moved, far apart or have gaps between tiles, the
// queries are the last of the keys.
struct GivenIds {
  std::vector<std::int64_t> queries, keys;
  std::vector<std::uint8_t> padding;  // empty: none

  // `lowest` is the lowest of scattered ids.
  GivenIds(PositionIds kind, std::int64_t batch, std::int64_t query_count, std::int64_t key_count,
           std::int64_t lowest, std::mt19937_64& random) {
    if (kind == PositionIds::by_default) return;
    fill(kind, batch, query_count, key_count, lowest, random);
    if (queries.empty() || keys.empty()) return;
    const auto [low, high] = std::minmax_element(queries.begin(), queries.end());
    const auto [first, last] = std::minmax_element(keys.begin(), keys.end());
    farthest = std::max(*high - *first, *last - *low);
  }

  // The largest |m - n| of any two; 0 without ids.
  std::int64_t farthest = 0;
  // The rows of a table with a row per position.
  [[nodiscard]] static std::int64_t rows_of(const std::vector<std::int64_t>& ids) {
    return ids.empty() ? 0 : *std::max_element(ids.begin(), ids.end()) + 1;
  }

 private:
  void fill(PositionIds kind, std::int64_t batch, std::int64_t query_count, std::int64_t key_count,
            std::int64_t lowest, std::mt19937_64& random) {
    const auto uniform = [&](std::int64_t low, std::int64_t high) {
      return std::uniform_int_distribution<std::int64_t>(low, high)(random);
    };
    if (kind == PositionIds::scattered) {
      for (std::int64_t i = 0; i < batch * query_count; ++i)
        queries.push_back(uniform(lowest, 400));
      for (std::int64_t i = 0; i < key_count; ++i) keys.push_back(uniform(lowest, 400));
      const std::vector<std::int64_t> row = keys;
      for (std::int64_t b = 1; b < batch; ++b) keys.insert(keys.end(), row.begin(), row.end());
      return;
    }
    for (std::int64_t b = 0; b < batch; ++b) {
      if (kind == PositionIds::moved || kind == PositionIds::far_apart) {
        const std::int64_t key = uniform(0, 30);
        const std::int64_t query = kind == PositionIds::moved ? uniform(0, 60) : key + 5000;
        for (std::int64_t i = 0; i < query_count; ++i) queries.push_back(query + i);
        for (std::int64_t j = 0; j < key_count; ++j) keys.push_back(key + j);
        continue;
      }
      if (kind == PositionIds::tile_gaps) {
        constexpr std::int64_t kTile = 192;
        for (std::int64_t i = 0; i < query_count; ++i) queries.push_back(key_count / 2 + i);
        for (std::int64_t j = 0; j < key_count; ++j) keys.push_back(j + j / kTile * 13);
        continue;
      }
      const std::int64_t pad = uniform(0, key_count / 2);
      std::vector<std::int64_t> row;
      std::int64_t next = kind == PositionIds::gaps ? uniform(0, 9) : 0;
      for (std::int64_t j = 0; j < key_count; ++j) {
        if (kind == PositionIds::left_padded) {
          row.push_back(std::max<std::int64_t>(0, j - pad));
          padding.push_back(j < pad ? 0 : 1);
          continue;
        }
        if (kind == PositionIds::gaps && uniform(0, 70) == 0) next += uniform(2, 40);
        if (kind == PositionIds::packed && uniform(0, 50) == 0) next = 0;
        row.push_back(next++);
      }
      if (kind == PositionIds::reordered) std::shuffle(row.begin(), row.end(), random);
      for (std::int64_t i = 0; i < query_count; ++i) {
        const std::int64_t of_key = key_count - query_count + i;
        queries.push_back(of_key < 0 ? 0 : row[static_cast<std::size_t>(of_key)]);
      }
      keys.insert(keys.end(), row.begin(), row.end());
    }
  }
};

}  // namespace phasor::attention::tests
