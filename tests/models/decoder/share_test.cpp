#include "models/decoder/share.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

namespace phasor::models {
namespace {

// Only its rank and size are read.
class Rank final : public ContextShare {
 public:
  Rank(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int ranks() const noexcept override { return ranks_; }
  void agree(std::string_view, std::string_view) override {}
  void gather(std::span<const std::byte>, std::span<const std::int64_t>, int,
              std::span<std::byte>) override {}
  void broadcast(std::span<std::byte>, int) override {}
  void ask(std::span<const float>, std::span<const Sizes>, const Answer&,
           std::span<float>) override {}

 private:
  int rank_, ranks_;
};

std::vector<std::int64_t> counts(const std::vector<TokenBlock>& blocks) {
  std::vector<std::int64_t> result;
  for (const TokenBlock& block : blocks) result.push_back(block.count);
  return result;
}

TEST(TokenOwners, DividesLongCallsAndGivesShortOnesToTheRankWithTheFewest) {
  const Rank second(1, 3);
  TokenOwners owners(second, 100, 1000);
  EXPECT_FALSE(owners.divides(3 * kTokensToDivide - 1));
  EXPECT_TRUE(owners.divides(3 * kTokensToDivide));
  EXPECT_EQ(counts(owners.blocks(31)), (std::vector<std::int64_t>{11, 10, 10}));
  owners.append(owners.blocks(31));
  EXPECT_EQ(owners.own_positions().front(), 111);
  EXPECT_EQ(owners.own_positions().back(), 120);
  EXPECT_EQ(counts(owners.blocks(2)), (std::vector<std::int64_t>{0, 2, 0}));
  owners.append(owners.blocks(2));
  EXPECT_EQ(counts(owners.blocks(1)), (std::vector<std::int64_t>{0, 0, 1}));
  owners.truncate(15);  // 11, 4, 0
  EXPECT_EQ(owners.own_positions().size(), 4U);
  EXPECT_EQ(counts(owners.blocks(24)), (std::vector<std::int64_t>{2, 9, 13}));
}

RC_GTEST_PROP(TokenOwners, NoRankExceedsItsShareOfTheCapacity, ()) {
  const int ranks = *rc::gen::inRange(1, 7);
  const std::int64_t capacity = *rc::gen::inRange<std::int64_t>(1, 2000);
  std::vector<TokenOwners> all;
  for (int rank = 0; rank < ranks; ++rank) all.emplace_back(Rank(rank, ranks), 0, capacity);
  std::int64_t tokens = 0;
  for (int step = 0; step < 20; ++step) {
    if (*rc::gen::inRange(0, 3) == 0) {
      tokens = *rc::gen::inRange<std::int64_t>(0, tokens + 1);
      for (TokenOwners& owners : all) owners.truncate(tokens);
      continue;
    }
    const std::int64_t count = *rc::gen::inRange<std::int64_t>(0, capacity - tokens + 1);
    const std::vector<TokenBlock> blocks = all.front().blocks(count);
    tokens += count;
    std::int64_t held = 0, first = 0;
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (blocks[r].count > 0 && all.front().divides(count)) RC_ASSERT(blocks[r].first == first);
      first += blocks[r].count;
      all[r].append(blocks);
      const auto own = static_cast<std::int64_t>(all[r].own_positions().size());
      RC_ASSERT(own <= share_of_capacity(capacity, ranks));
      held += own;
    }
    RC_ASSERT(held == tokens);
  }
}

}  // namespace
}  // namespace phasor::models
