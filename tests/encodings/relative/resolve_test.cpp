// What each encoding resolves to: the row of every distance, by the formula of its paper.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "encodings/rope/rope_specs.hpp"
#include "encodings/table_shapes.hpp"
#include "phasor/encodings/encoding.hpp"
#include "support/golden_array.hpp"

namespace phasor::encodings {
namespace {

using testing::table_of;
using tests::golden_array;

constexpr std::int64_t kHeads = 4, kDim = 8, kValueDim = 6;

AttentionShape shape_of(std::int64_t queries, std::int64_t keys) {
  return {kHeads, 2, kDim, kValueDim, queries, keys};
}
const std::vector<AttentionShape> kShapes = {shape_of(1, 1),  shape_of(7, 7),  shape_of(1, 300),
                                             shape_of(5, 40), shape_of(40, 5), shape_of(300, 300),
                                             shape_of(0, 0),  shape_of(0, 9),  shape_of(9, 0)};

// Every distance of the shape reads the row of the formula, and so does every other one that the
// map does not refuse.
void expect_rows(const RelativeMap& map, const AttentionShape& shape,
                 const std::function<std::int64_t(std::int64_t)>& row) {
  ASSERT_FALSE(map.rows.empty());
  const bool clamps = map.outside == RelativeMap::Outside::clamp;
  for (std::int64_t d = 1 - shape.query_tokens; d < shape.key_tokens; ++d) {
    ASSERT_EQ(map.row_of(d), row(d)) << "distance " << d;
    ASSERT_TRUE(clamps || (map.first <= d && d <= map.last())) << "distance " << d;
  }
  for (std::int64_t d = -2000; clamps && d <= 2000; ++d) {
    ASSERT_EQ(map.row_of(d), row(d)) << "distance " << d;
  }
}

// No entry that could be left out: a clamping map has none that repeat at its ends, and no map is
// longer than the distances of its shape.
void expect_shortest(const RelativeMap& map, const AttentionShape& shape) {
  const auto distances = static_cast<std::size_t>(std::max<std::int64_t>(1, shape.query_tokens) +
                                                  std::max<std::int64_t>(1, shape.key_tokens) - 1);
  EXPECT_LE(map.rows.size(), distances);
  if (map.outside == RelativeMap::Outside::refuse || map.rows.size() < 2) return;
  EXPECT_NE(map.rows[0], map.rows[1]);
  EXPECT_NE(map.rows[map.rows.size() - 2], map.rows.back());
}

TEST(AttentionShape, IsTakenFromTheViews) {
  const float x = 0.0F;
  const AttentionShape shape =
      attention_shape(core::heads_view(&x, 2, 5, kHeads, kDim), core::heads_view(&x, 2, 9, 2, kDim),
                      core::heads_view(&x, 2, 9, 2, kValueDim));
  EXPECT_EQ(shape.heads, kHeads);
  EXPECT_EQ(shape.key_heads, 2);
  EXPECT_EQ(shape.head_dim, kDim);
  EXPECT_EQ(shape.value_dim, kValueDim);
  EXPECT_EQ(shape.query_tokens, 5);
  EXPECT_EQ(shape.key_tokens, 9);
  EXPECT_FALSE(shape.context || shape.largest_position);
}

double plain_scale() { return 1.0 / std::sqrt(static_cast<double>(kDim)); }

TEST(Resolve, NoneIsTheScaleAlone) {
  const ScoreTerms terms = resolve(NoEncoding{}, shape_of(3, 3));
  EXPECT_EQ(terms.scale, plain_scale());
  EXPECT_FALSE(terms.rotation || terms.query_rows || terms.key_rows || terms.bias ||
               terms.value_rows);
  EXPECT_FALSE(terms.content_bias.given() || terms.extra_query.given() || !terms.slopes.empty());
}

TEST(Resolve, RopeIsARotation) {
  RopeSpec spec = testing::spec_of(kDim, 10000.0);
  ScoreTerms terms = resolve(Encoding(spec), shape_of(3, 3));
  ASSERT_TRUE(terms.rotation.has_value());
  EXPECT_TRUE(terms.rotation->frequencies.same_values(resolve_frequencies(spec)));
  EXPECT_EQ(terms.rotation->layout, core::PairLayout::half);
  EXPECT_EQ(terms.scale, plain_scale());
}

TEST(Resolve, RopeThatDependsOnTheContextTakesItOrTheKeys) {
  DynamicScaling dynamic;
  dynamic.factor = 4.0;
  dynamic.original_length = 100;
  const RopeSpec spec = testing::spec_of(kDim, 10000.0, dynamic);
  AttentionShape shape = shape_of(1, 300);
  EXPECT_TRUE(resolve(Encoding(spec), shape)
                  .rotation->frequencies.same_values(resolve_frequencies(spec, 300)));
  shape.context = 800;
  EXPECT_TRUE(resolve(Encoding(spec), shape)
                  .rotation->frequencies.same_values(resolve_frequencies(spec, 800)));
}

TEST(Resolve, ShawClipsTheKeyMinusTheQuery) {
  for (const AttentionShape& shape : kShapes) {
    for (const auto& clip :
         {std::pair<std::int64_t, std::int64_t>{6, 3}, {4, 4}, {0, 0}, {0, 5}, {64, 0}, {90, 80}}) {
      const std::int64_t left = clip.first, right = clip.second;
      const std::int64_t rows = left + 1 + right;
      const ScoreTerms terms = resolve(
          Shaw{table_of(1, rows, kDim), table_of(kHeads, rows, kValueDim), left, right}, shape);
      ASSERT_TRUE(terms.query_rows && terms.value_rows);
      for (const RelativeMap& map : {terms.query_rows->map, terms.value_rows->map}) {
        expect_rows(map, shape, [&](std::int64_t distance) {
          return std::clamp(-distance, -left, right) + left;
        });
        expect_shortest(map, shape);
      }
      EXPECT_EQ(terms.query_rows->table.heads, 1);
      EXPECT_EQ(terms.value_rows->table.heads, kHeads);
      EXPECT_FALSE(terms.key_rows);
      EXPECT_EQ(terms.scale, plain_scale());
      EXPECT_NO_THROW(validate(terms, shape));
    }
  }
  EXPECT_FALSE(resolve(Shaw{table_of(1, 9, kDim), {}, 4, 4}, kShapes[1]).value_rows);
  EXPECT_FALSE(resolve(Shaw{{}, table_of(1, 9, kValueDim), 4, 4}, kShapes[1]).query_rows);
}

TEST(Resolve, BertRelativeReadsTheDistanceAndRefusesLongerOnes) {
  const BertRelative encoding{table_of(1, 31, kDim), 16, BertRelative::Kind::key_query};
  for (const AttentionShape& shape : {shape_of(9, 9), shape_of(3, 12), shape_of(16, 16)}) {
    const ScoreTerms terms = resolve(encoding, shape);
    ASSERT_TRUE(terms.query_rows && terms.key_rows);
    for (const RelativeMap& map : {terms.query_rows->map, terms.key_rows->map}) {
      EXPECT_EQ(map.outside, RelativeMap::Outside::refuse);
      expect_rows(map, shape, [](std::int64_t distance) { return distance + 15; });
      expect_shortest(map, shape);
    }
    EXPECT_EQ(terms.scale, plain_scale());
    EXPECT_NO_THROW(validate(terms, shape));
  }
  const ScoreTerms longer = resolve(encoding, shape_of(20, 20));
  EXPECT_EQ(longer.query_rows->map.first, -15) << "attention refuses distances outside";
  EXPECT_EQ(longer.query_rows->map.last(), 15);
  EXPECT_FALSE(resolve(BertRelative{table_of(1, 31, kDim), 16}, shape_of(9, 9)).key_rows);
}

TEST(Resolve, TransformerXlRowsRunBackwards) {
  const AttentionShape shape = shape_of(6, 11);
  const Table u = table_of(kHeads, 1, kDim), v = table_of(kHeads, 1, kDim);
  const ScoreTerms both = resolve(TransformerXl{table_of(kHeads, 16, kDim), u, v, 10}, shape);
  expect_rows(both.query_rows->map, shape, [](std::int64_t distance) { return 10 - distance; });
  expect_shortest(both.query_rows->map, shape);
  EXPECT_EQ(both.content_bias.data, u.data);
  EXPECT_TRUE(both.position_bias.given());
  EXPECT_EQ(both.scale, plain_scale());
  EXPECT_NO_THROW(validate(both, shape));
  // The causal table of the paper: distances 10 .. 0 only.
  const ScoreTerms causal = resolve(TransformerXl{table_of(kHeads, 11, kDim), {}, {}, 10}, shape);
  EXPECT_EQ(causal.query_rows->map.outside, RelativeMap::Outside::refuse);
  EXPECT_EQ(causal.query_rows->map.first, 0);
  EXPECT_EQ(causal.query_rows->map.last(), 10);
  EXPECT_EQ(causal.query_rows->map.row_of(0), 10);
  EXPECT_EQ(causal.query_rows->map.row_of(10), 0);
  EXPECT_FALSE(causal.content_bias.given());
}

TEST(Resolve, XlnetAddsSegments) {
  const AttentionShape shape = shape_of(5, 9);  // rows of distances 9 .. -4
  const ScoreTerms terms = resolve(
      Xlnet{{table_of(kHeads, 14, kDim), table_of(kHeads, 1, kDim), table_of(kHeads, 1, kDim), 9},
            table_of(kHeads, 2, kDim),
            table_of(kHeads, 1, kDim)},
      shape);
  expect_rows(terms.query_rows->map, shape, [](std::int64_t distance) { return 9 - distance; });
  EXPECT_EQ(terms.query_rows->map.rows.size(), 13U) << "distance 9 is not of this shape";
  EXPECT_TRUE(terms.segment_rows.given() && terms.segment_bias.given());
  EXPECT_NO_THROW(validate(terms, shape));
}

TEST(Resolve, T5ReadsTheBucketOfKeyMinusQuery) {
  for (const AttentionShape& shape : kShapes) {
    for (const BucketRange range : {BucketRange::past_only, BucketRange::bidirectional}) {
      for (const auto& setting :
           {std::pair<std::int64_t, std::int64_t>{32, 128}, {16, 20}, {4, 1000}}) {
        const std::int64_t buckets = setting.first, max_distance = setting.second;
        const T5 encoding{table_of(kHeads, buckets, 1), max_distance, range};
        const ScoreTerms terms = resolve(encoding, shape);
        ASSERT_TRUE(terms.bias.has_value());
        expect_rows(terms.bias->map, shape, [&](std::int64_t distance) {
          return t5_bucket(-distance, buckets, max_distance, range);
        });
        expect_shortest(terms.bias->map, shape);
        EXPECT_EQ(terms.scale, 1.0);
        EXPECT_NO_THROW(validate(terms, shape));
      }
    }
  }
}

TEST(Resolve, DebertaReadsTheClippedBucket) {
  for (const AttentionShape& shape : kShapes) {
    for (const auto& setting :
         {std::pair<std::int64_t, std::int64_t>{16, -1}, {16, 0}, {150, -1}, {32, 8}, {512, 256}}) {
      const std::int64_t reach = setting.first, buckets = setting.second;
      const std::int64_t size = buckets > 0 ? buckets : reach;
      const Table table = table_of(kHeads, 2 * size, kDim);
      const ScoreTerms terms =
          resolve(Deberta{Deberta::Version::v2, table, table, reach, buckets}, shape);
      ASSERT_TRUE(terms.query_rows && terms.key_rows);
      for (const RelativeMap& map : {terms.query_rows->map, terms.key_rows->map}) {
        expect_rows(map, shape, [&](std::int64_t distance) {
          const std::int64_t r =
              buckets > 0 ? deberta_log_bucket(distance, buckets, reach) : distance;
          return std::clamp<std::int64_t>(r + size, 0, 2 * size - 1);
        });
        expect_shortest(map, shape);
      }
      EXPECT_DOUBLE_EQ(terms.scale, 1.0 / std::sqrt(3.0 * kDim));
      EXPECT_NO_THROW(validate(terms, shape));
    }
  }
}

// Version 1 as the reference writes it, with its span around the middle of the table.
TEST(Resolve, DebertaVersion1ReadsTheSpanAroundTheMiddle) {
  for (const AttentionShape& shape : kShapes) {
    for (const std::int64_t reach : {5, 16, 200}) {
      const ScoreTerms terms = resolve(
          Deberta{Deberta::Version::v1, table_of(kHeads, 2 * reach, kDim), {}, reach, 0}, shape);
      const std::int64_t span = std::min(std::max(shape.query_tokens, shape.key_tokens), reach);
      for (std::int64_t d = 1 - shape.query_tokens; d < shape.key_tokens; ++d) {
        ASSERT_EQ(terms.query_rows->map.row_of(d),
                  std::clamp<std::int64_t>(d + span, 0, 2 * span - 1) + reach - span)
            << d;
      }
      EXPECT_DOUBLE_EQ(terms.scale, 1.0 / std::sqrt(2.0 * kDim)) << "one term added to q.k";
      EXPECT_FALSE(terms.key_rows);
    }
  }
}

TEST(Resolve, DebertaEqualsTheGoldenIndices) {
  const auto v1 = golden_array<std::int64_t>("encodings/deberta_v1_c2p_p2c/relative_index.npy");
  const auto v2 = golden_array<std::int64_t>("encodings/deberta_v2_buckets/relative_bucket.npy");
  const Deberta first{Deberta::Version::v1, table_of(kHeads, 32, kDim), {}, 16, 0};
  const Deberta second{Deberta::Version::v2, table_of(kHeads, 16, kDim), {}, 32, 8};
  const RelativeMap map1 = resolve(first, shape_of(9, 9)).query_rows->map;
  const RelativeMap map2 = resolve(second, shape_of(21, 21)).query_rows->map;
  ASSERT_EQ(v1.size(), 81U);
  ASSERT_EQ(v2.size(), 441U);
  for (std::int64_t m = 0; m < 21; ++m) {
    for (std::int64_t n = 0; n < 21; ++n) {
      const std::int64_t bucket = v2[static_cast<std::size_t>(m * 21 + n)];
      EXPECT_EQ(map2.row_of(m - n), std::clamp<std::int64_t>(bucket + 8, 0, 15)) << m << " " << n;
      if (m < 9 && n < 9) {
        EXPECT_EQ(map1.row_of(m - n), v1[static_cast<std::size_t>(m * 9 + n)]) << m << " " << n;
      }
    }
  }
}

TEST(Resolve, TupeIsExtraFeaturesAndABias) {
  const AttentionShape shape = shape_of(5, 9);
  Tupe encoding{table_of(kHeads, 5, 3), table_of(1, 9, 3)};
  const ScoreTerms plain = resolve(encoding, shape);
  EXPECT_EQ(plain.extra_query.rows, 5);
  EXPECT_EQ(plain.extra_key.rows, 9);
  EXPECT_FALSE(plain.bias || plain.first_row.given());
  EXPECT_DOUBLE_EQ(plain.scale, 1.0 / std::sqrt(2.0 * kDim));
  EXPECT_NO_THROW(validate(plain, shape));
  encoding.bias = T5{table_of(kHeads, 16, 1), 32};
  encoding.first_row = table_of(kHeads, 1, 1);
  encoding.first_column = table_of(kHeads, 1, 1);
  const ScoreTerms whole = resolve(encoding, shape);
  expect_rows(whole.bias->map, shape, [](std::int64_t distance) {
    return t5_bucket(-distance, 16, 32, BucketRange::bidirectional);
  });
  EXPECT_TRUE(whole.first_row.given() && whole.first_column.given());
  EXPECT_EQ(whole.scale, plain.scale);
  EXPECT_NO_THROW(validate(whole, shape));
}

TEST(Resolve, AlibiIsASlopePerHead) {
  const ScoreTerms terms = resolve(Alibi{}, shape_of(3, 3));
  EXPECT_EQ(terms.slopes, (std::vector<double>{0.25, 0.0625, 0.015625, 0.00390625}));
  EXPECT_EQ(terms.scale, plain_scale());
}

TEST(Alibi, SlopesEqualTheGoldenOnesInBothOrders) {
  for (const std::int64_t heads : {8, 12}) {
    for (const auto& [name, order] :
         {std::pair{"bloom", SlopeOrder::bloom}, std::pair{"mpt", SlopeOrder::mpt}}) {
      const auto want = golden_array<double>("encodings/alibi_" + std::string(name) + "_h" +
                                             std::to_string(heads) + "/slopes_f64.npy");
      const std::vector<double> got = alibi_slopes(heads, 8.0, order);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_DOUBLE_EQ(got[i], want[i]) << name << " " << heads << " " << i;
      }
    }
  }
}

// mlx #343: wrong slopes when the number of heads is no power of two.
TEST(Alibi, Mlx343_EveryHeadCountHasItsOwnSlopes) {
  for (std::int64_t heads = 1; heads <= 130; ++heads) {
    for (const SlopeOrder order : {SlopeOrder::bloom, SlopeOrder::mpt}) {
      std::vector<double> slopes = alibi_slopes(heads, 8.0, order);
      ASSERT_EQ(static_cast<std::int64_t>(slopes.size()), heads);
      std::sort(slopes.begin(), slopes.end());
      EXPECT_EQ(std::adjacent_find(slopes.begin(), slopes.end()), slopes.end()) << heads;
      EXPECT_GE(slopes.front(), std::exp2(-8.0));
      EXPECT_LT(slopes.back(), 1.0);
    }
  }
}

TEST(Resolve, CombinationsFillTermsSideBySide) {
  const AttentionShape shape = shape_of(7, 7);
  const std::vector<Encoding> three = {testing::spec_of(kDim, 10000.0), Alibi{},
                                       Shaw{table_of(1, 9, kDim), {}, 4, 4}};
  const ScoreTerms terms = resolve(three, shape);
  EXPECT_TRUE(terms.rotation && terms.query_rows);
  EXPECT_EQ(terms.slopes.size(), 4U);
  EXPECT_EQ(terms.scale, plain_scale());
  const std::vector<Encoding> unscaled = {Alibi{}, NoEncoding{}, T5{table_of(kHeads, 32, 1)}};
  EXPECT_EQ(resolve(unscaled, shape).scale, 1.0) << "ALiBi takes the scale of its companion";
  EXPECT_EQ(resolve(std::span<const Encoding>{}, shape).scale, plain_scale());
}

// Attention in float64 finds the float64 numbers of every table, each its own.
TEST(Resolve, WideNumbersComeAlong) {
  static const double kWide[12] = {};
  int used = 0;
  const auto wide = [&](std::int64_t heads, std::int64_t rows, std::int64_t dim) {
    Table table = table_of(heads, rows, dim);
    table.wide = kWide + used++;
    return table;
  };
  const AttentionShape shape = shape_of(7, 7);
  const auto expect = [&](const Table& got, const Table& given) {
    EXPECT_EQ(got.wide, given.wide);
  };
  const Shaw shaw{wide(1, 9, kDim), wide(1, 9, kValueDim), 4, 4};
  ScoreTerms terms = resolve(Encoding(shaw), shape);
  expect(terms.query_rows->table, shaw.keys);
  expect(terms.value_rows->table, shaw.values);

  const Xlnet xlnet{{wide(kHeads, 14, kDim), wide(kHeads, 1, kDim), wide(kHeads, 1, kDim), 7},
                    wide(kHeads, 2, kDim),
                    wide(kHeads, 1, kDim)};
  terms = resolve(Encoding(xlnet), shape);
  expect(terms.query_rows->table, xlnet.relative.rows);
  expect(terms.content_bias, xlnet.relative.u);
  expect(terms.position_bias, xlnet.relative.v);
  expect(terms.segment_rows, xlnet.segment_rows);
  expect(terms.segment_bias, xlnet.segment_bias);

  used = 0;
  const Tupe tupe{wide(kHeads, 7, 3), wide(kHeads, 7, 3), T5{wide(kHeads, 32, 1)},
                  wide(kHeads, 1, 1), wide(kHeads, 1, 1)};
  const std::vector<Encoding> together = {tupe, Alibi{}};
  terms = resolve(together, shape);
  expect(terms.extra_query, tupe.query_positions);
  expect(terms.extra_key, tupe.key_positions);
  expect(terms.bias->table, tupe.bias->bias);
  expect(terms.first_row, tupe.first_row);
  expect(terms.first_column, tupe.first_column);

  for (const auto version : {Deberta::Version::v1, Deberta::Version::v2}) {
    used = 0;
    Deberta deberta;
    deberta.version = version;
    deberta.keys = wide(kHeads, 8, kDim);
    deberta.queries = wide(kHeads, 8, kDim);
    deberta.max_relative_positions = 4;
    terms = resolve(Encoding(deberta), shape);
    expect(terms.query_rows->table, deberta.keys);
    expect(terms.key_rows->table, deberta.queries);
  }
}

TEST(Resolve, HasNames) {
  const std::vector<Encoding> all = {NoEncoding{},    RopeSpec{}, Shaw{},  BertRelative{},
                                     TransformerXl{}, Xlnet{},    T5{},    Tupe{},
                                     Deberta{},       Alibi{},    Kerple{}};
  const std::vector<std::string_view> names = {"none",           "rope",  "shaw",  "bert_relative",
                                               "transformer_xl", "xlnet", "t5",    "tupe",
                                               "deberta",        "alibi", "kerple"};
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(name_of(all[i]), names[i]);
}

}  // namespace
}  // namespace phasor::encodings
