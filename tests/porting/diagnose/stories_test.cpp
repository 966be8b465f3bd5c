// Rules about positions one by one, and the progress of a diagnosis.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "diagnose_sample.hpp"
#include "porting/diagnose/forward/stories.hpp"

namespace phasor::porting {
namespace {

using PositionList = std::vector<double>;

PositionList counted(double first, std::size_t count) {
  PositionList row(count);
  std::iota(row.begin(), row.end(), first);
  return row;
}
PositionList followed_by(PositionList a, const PositionList& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Told {
  PositionList found, asked;
  std::string id, shows;  // a part of the text: a number
};

TEST(PositionStories, EachRuleNamesItsMistake) {
  const PositionList plain = counted(0, 16), far = counted(1000, 16);
  const Told cases[] = {
      {counted(1, 16), plain, "positions_one_ahead", ""},
      {counted(999, 16), far, "positions_one_behind", ""},
      {counted(7, 16), plain, "positions_offset", "7"},
      {PositionList(16, 0.0), plain, "not_rotated", "0"},
      {PositionList(16, 5.0), plain, "positions_all_equal", "5"},
      {followed_by(counted(0, 12), PositionList(4, 11.0)), plain, "positions_clipped", "11"},
      {{1000, 1000, 1000, 1004, 1004, 1004, 1008, 1008, 1008},
       {1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008},
       "bfloat16_positions",
       "bfloat16"},
      {PositionList(plain.rbegin(), plain.rend()), plain, "positions_reversed", ""},
      {{0, -1, -2, -3}, {0, 1, 2, 3}, "turned_backwards", ""},
      {{20, 19, 18, 17}, {0, 1, 2, 3}, "positions_reversed", "17"},
      {{0, 2, 4, 6}, {0, 1, 2, 3}, "positions_step", "2"},
      {{0, 1, 0, 3, 4}, {0, 1, 2, 3, 4}, "tokens_not_rotated", "2"},
      {{0, 1, 2, 3, 0, 1, 2, 3, 0}, counted(0, 9), "positions_restart", "4"},
      {counted(0, 6), {0, 0, 0, 1, 2, 3}, "left_padding", "0-5"},
      {{1, 1, 0, 1, 2, 3}, counted(0, 6), "left_padding", "0-5"},
      {followed_by(counted(0, 12), PositionList(4, 0.0)), plain, "decode_positions", "12"},
      {followed_by(counted(0, 12), counted(11, 4)), plain, "position_repeated", "11"},
      {followed_by(counted(0, 12), counted(13, 4)), plain, "position_skipped", "12"},
      {followed_by(counted(5, 10), counted(5, 6)), counted(5, 16), "positions_restart", "token 10"},
      {followed_by(counted(0, 12), counted(40, 4)), plain, "positions_jump", "40"},
      {followed_by(followed_by(counted(3, 5), counted(3, 4)), counted(3, 7)), plain,
       "positions_restart", "3-7"},
      {counted(2, 16), followed_by(counted(2, 8), counted(2, 8)), "positions_not_restarted",
       "2-17"},
      {{4, 9, 1, 7, 3}, {0, 1, 2, 3, 4}, "positions", "instead of 0-4"},
  };
  for (const Told& told : cases) {
    const auto story = forward::story_of({told.found, told.asked, true});
    ASSERT_TRUE(story.has_value()) << told.id;
    EXPECT_EQ(story->id, told.id) << story->text;
    EXPECT_NE(story->text.find(told.shows), std::string::npos) << story->text;
  }
  EXPECT_FALSE(forward::story_of({plain, plain, true}));
  EXPECT_FALSE(forward::story_of({far, plain, false})) << "any offset is right";
  EXPECT_TRUE(forward::story_of({far, plain, true}));
  EXPECT_FALSE(forward::story_of({{3}, {0}, false}));
  EXPECT_EQ(forward::story_of({{3}, {0}, true})->id, "positions_offset");
}

// Ascending shares that end at 1, with and without a config, whether it fits or not.
TEST(DiagnoseProgress, SharesAscendToOne) {
  const testing::Recipe recipe;
  const testing::Sample sample = testing::make(recipe);
  std::vector<double> shares;
  const io::NpyArray before = testing::array_of(sample.dtype, sample.shape, sample.before);
  const io::NpyArray after = testing::array_of(sample.dtype, sample.shape, sample.after);
  DiagnoseInput input{&before, &after, nullptr, {}};
  input.progress = [&](double share) { shares.push_back(share); };
  const auto expect_shares = [&] {
    ASSERT_GE(shares.size(), 4U);
    for (std::size_t i = 1; i < shares.size(); ++i) EXPECT_LE(shares[i - 1], shares[i]);
    EXPECT_GE(shares.front(), 0.0);
    EXPECT_EQ(shares.back(), 1.0);
    shares.clear();
  };
  (void)diagnose(input);
  expect_shares();
  encodings::RopeSpec spec = testing::spec_of(recipe);
  EXPECT_TRUE(diagnose(input, spec).check.agrees);
  expect_shares();
  spec.base *= 3.0;
  EXPECT_FALSE(diagnose(input, spec).check.agrees);
  expect_shares();
  input.progress = [](double share) {
    if (share > 0.3) throw Error(ErrorCode::cancelled, "stop");
  };
  EXPECT_THROW((void)diagnose(input), Error);
}

TEST(AuditProgress, SharesAscend) {
  encodings::RopeSpec spec;
  spec.head_dim = spec.rotary_dim = 8;
  constexpr std::int64_t kRows = 5000;
  const std::vector<double> numbers(kRows * 4, 0.5), positions(kRows, 3.0);
  std::vector<double> shares;
  AuditOptions options;
  options.progress = [&](double share) { shares.push_back(share); };
  (void)audit(spec, {numbers, numbers, positions, kRows}, options);
  ASSERT_EQ(shares.size(), 5U);
  EXPECT_EQ(shares.front(), 0.0);
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_LT(shares.back(), 1.0);
}

}  // namespace
}  // namespace phasor::porting
