#include "phasor/parallel/shards.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "parallel/attention/pieces.hpp"
#include "phasor/core/error.hpp"

namespace phasor::parallel {
namespace {

using attention::AttentionOptions;
using attention::AttentionSizes;
using attention::Causality;

constexpr std::array kShardOrders = {TokenOrder::contiguous, TokenOrder::zigzag,
                                     TokenOrder::striped};

TEST(Shards, HoldEveryTokenOnce) {
  for (const TokenOrder order : kShardOrders) {
    for (const int ranks : {1, 2, 3, 4, 7}) {
      for (const std::int64_t tokens : {0, 1, 2, 3, 5, 8, 13, 64, 101}) {
        const Shards shards(order, tokens, ranks);
        std::vector<int> seen(static_cast<std::size_t>(tokens), 0);
        for (int rank = 0; rank < ranks; ++rank) {
          const std::vector<std::int64_t> held = shards.tokens_of(rank);
          ASSERT_EQ(static_cast<std::int64_t>(held.size()), shards.count(rank));
          EXPECT_LE(shards.count(rank), shards.largest_count());
          EXPECT_LE(shards.runs(rank).size(), 2U);
          EXPECT_TRUE(std::is_sorted(held.begin(), held.end()));
          for (std::size_t row = 0; row < held.size(); ++row) {
            EXPECT_EQ(shards.token(rank, static_cast<std::int64_t>(row)), held[row]);
            ++seen[static_cast<std::size_t>(held[row])];
          }
        }
        EXPECT_EQ(seen, std::vector<int>(seen.size(), 1))
            << attention::name_of(order) << ", " << ranks << " ranks, " << tokens << " tokens";
      }
    }
  }
}

TEST(Shards, AreThoseOfSplitIds) {
  for (const TokenOrder order : kShardOrders) {
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(Shards(order, 24, 3).tokens_of(rank), attention::split_ids(order, 24, rank, 3));
  }
}

TEST(Shards, RefuseNumbersBelowZero) {
  EXPECT_THROW(Shards(TokenOrder::zigzag, -1, 2), Error);
  EXPECT_THROW(Shards(TokenOrder::zigzag, 5, 0), Error);
}

struct PairRequest {
  std::int64_t queries, keys;
  bool causal;
  std::int64_t window;  // 0: none
  std::vector<std::int64_t> query_bounds, key_bounds;
};

// Every pair that attention sees, by its definition.
bool sees(const PairRequest& r, std::int64_t query, std::int64_t key) {
  std::int64_t offset = r.keys - r.queries;
  if (!r.query_bounds.empty()) {
    std::size_t s = 0;
    while (r.query_bounds[s + 1] <= query) ++s;
    if (key < r.key_bounds[s] || key >= r.key_bounds[s + 1]) return false;
    offset = r.key_bounds[s + 1] - r.query_bounds[s + 1];
  }
  const std::int64_t distance = offset + query - key;
  return (!r.causal || distance >= 0) && (r.window == 0 || std::abs(distance) < r.window);
}

// The pairs of the pieces are those that are seen, each once; and a piece has no row to spare.
void expect_every_pair(const PairRequest& r, TokenOrder order, int ranks) {
  AttentionOptions options;
  if (r.causal) options.causality = Causality::bottom_right;
  if (r.window > 0) options.window = r.window;
  options.query_boundaries = r.query_bounds;
  options.key_boundaries = r.key_bounds;
  const Layout layout({.queries = r.queries, .keys = r.keys}, options, order, ranks);
  std::vector<int> seen(static_cast<std::size_t>(r.queries * r.keys), 0);
  for (int a = 0; a < ranks; ++a) {
    for (int b = 0; b < ranks; ++b) {
      const std::vector<Piece> pieces = layout.pieces(a, b);
      EXPECT_EQ(layout.needs(a, b), !pieces.empty());
      for (const Piece& piece : pieces) {
        std::vector<int> rows(static_cast<std::size_t>(piece.queries), 0);
        std::vector<int> columns(static_cast<std::size_t>(piece.keys), 0);
        for (std::int64_t i = 0; i < piece.queries; ++i) {
          for (std::int64_t j = 0; j < piece.keys; ++j) {
            const std::int64_t distance = piece.offset + i - j;
            if (piece.causal && distance < 0) continue;
            if (piece.window && std::abs(distance) >= *piece.window) continue;
            const std::int64_t query = layout.queries().token(a, piece.first_query + i);
            const std::int64_t key = layout.keys().token(b, piece.first_key + j);
            EXPECT_EQ(query, piece.query_token + i * piece.stride);
            EXPECT_EQ(key, piece.key_token + j * piece.stride);
            ++seen[static_cast<std::size_t>(query * r.keys + key)];
            rows[static_cast<std::size_t>(i)] = columns[static_cast<std::size_t>(j)] = 1;
          }
        }
        EXPECT_EQ(rows, std::vector<int>(rows.size(), 1));
        EXPECT_EQ(columns, std::vector<int>(columns.size(), 1));
      }
    }
  }
  for (std::int64_t q = 0; q < r.queries; ++q) {
    for (std::int64_t k = 0; k < r.keys; ++k) {
      ASSERT_EQ(seen[static_cast<std::size_t>(q * r.keys + k)], sees(r, q, k) ? 1 : 0)
          << "query " << q << ", key " << k << ", " << attention::name_of(order) << ", " << ranks
          << " ranks, window " << r.window << (r.causal ? ", causal" : "");
    }
  }
}

TEST(Pieces, AreEveryPairThatIsSeen) {
  for (const TokenOrder order : kShardOrders) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const bool causal : {false, true}) {
        for (const std::int64_t window : {0, 1, 2, 5, 9, 40}) {
          if (window > 0 && !causal && order == TokenOrder::striped) continue;
          for (const auto& [queries, keys] :
               {std::pair<std::int64_t, std::int64_t>{17, 17}, {3, 3}, {5, 19}, {19, 5}, {0, 4}}) {
            expect_every_pair({queries, keys, causal, window, {}, {}}, order, ranks);
          }
          expect_every_pair(
              {21, 21, causal, window, {0, 0, 2, 9, 9, 20, 21}, {0, 0, 2, 9, 9, 20, 21}}, order,
              ranks);
          expect_every_pair({13, 21, causal, window, {0, 4, 4, 13}, {0, 9, 11, 21}}, order, ranks);
        }
      }
    }
  }
}

TEST(Pieces, RefuseAWindowWithTwoEndsInStripes) {
  try {
    const Layout layout({.queries = 8, .keys = 8}, {.window = 3}, TokenOrder::striped, 2);
    ADD_FAILURE() << "took it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("window 3"), std::string::npos) << error.what();
  }
}

// The formulas of the header for a sequence that every rank shares evenly.
TEST(RingBytes, AreThoseOfTheFormula) {
  const AttentionSizes whole{.batch = 2,
                             .queries = 48,
                             .keys = 48,
                             .heads = 4,
                             .key_heads = 2,
                             .head_dim = 16,
                             .value_dim = 12};
  const std::int64_t shard = 2 * 12 * 2 * (16 + 12) * 4;
  const auto all = [&](const AttentionOptions& options, const ParallelOptions& parallel) {
    RingBytes sum;
    for (int rank = 0; rank < 4; ++rank) {
      const RingBytes own = ring_bytes(whole, options, parallel, 4, rank);
      sum.keys_and_values += own.keys_and_values;
      sum.gradients += own.gradients;
    }
    EXPECT_EQ(sum.keys_and_values, sum.gradients);
    return sum.keys_and_values;
  };
  EXPECT_EQ(all({}, {}), 4 * 3 * shard);
  EXPECT_EQ(all({}, {.wire = WireType::bf16}), 4 * 3 * shard / 2);
  const AttentionOptions causal{.causality = Causality::bottom_right};
  EXPECT_EQ(all(causal, {}), (3 + 2 + 1) * shard);
  EXPECT_EQ(all(causal, {.order = TokenOrder::zigzag}), 4 * 3 * shard);
  EXPECT_EQ(all(causal, {.order = TokenOrder::striped}), 4 * 3 * shard);
  // A window of 13 tokens reaches back one shard of 12, one of 14 two.
  EXPECT_EQ(all({.causality = Causality::bottom_right, .window = 13}, {}), 3 * shard);
  EXPECT_EQ(all({.causality = Causality::bottom_right, .window = 14}, {}), (3 + 2) * shard);
  EXPECT_EQ(all({.window = 13}, {}), 2 * 3 * shard);
  EXPECT_EQ(all({.causality = Causality::bottom_right, .window = 1}, {}), 0);
}

}  // namespace
}  // namespace phasor::parallel
