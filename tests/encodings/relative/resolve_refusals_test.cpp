// Tables that do not fit, and encodings that do not go together: refused with the sizes.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "encodings/refusal.hpp"
#include "encodings/rope/rope_specs.hpp"
#include "encodings/table_shapes.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::encodings {
namespace {

using testing::Refusal;
using testing::refusal;
using testing::table_of;

constexpr AttentionShape kShape{4, 2, 8, 6, 5, 9};

std::string text_of(const Encoding& encoding, const AttentionShape& shape = kShape) {
  return refusal([&] { static_cast<void>(resolve(encoding, shape)); }).text;
}
Refusal together(const std::vector<Encoding>& encodings) {
  return refusal([&] { static_cast<void>(resolve(encodings, kShape)); });
}

TEST(ResolveRefusals, Shapes) {
  const auto shape = [](auto spoil) {
    AttentionShape spoilt = kShape;
    spoil(spoilt);
    return text_of(NoEncoding{}, spoilt);
  };
  EXPECT_EQ(shape([](auto& s) { s.heads = 0; }), "attention: heads must be at least 1, got 0");
  EXPECT_EQ(shape([](auto& s) { s.key_heads = 3; }),
            "attention: heads must be a multiple of key_heads, got 4 and 3");
  EXPECT_EQ(shape([](auto& s) { s.head_dim = 0; }),
            "attention: head_dim must be at least 1, got 0");
  EXPECT_EQ(shape([](auto& s) { s.value_dim = -1; }),
            "attention: value_dim must be at least 1, got -1");
  EXPECT_EQ(shape([](auto& s) { s.query_tokens = -1; }),
            "attention: query_tokens must be at least 0, got -1");
  EXPECT_EQ(shape([](auto& s) { s.key_tokens = -7; }),
            "attention: key_tokens must be at least 0, got -7");
}

TEST(ResolveRefusals, Rope) {
  EXPECT_EQ(text_of(testing::spec_of(16, 10000.0)), "rope: head_dim must be that of q, 8, got 16");
  RopeSpec unknown = testing::spec_of(8, 10000.0);
  unknown.layout.reset();
  EXPECT_EQ(text_of(unknown),
            "rope: layout must be given (interleaved, half or interleaved_to_half), got none");
}

TEST(ResolveRefusals, Shaw) {
  EXPECT_EQ(text_of(Shaw{table_of(1, 10, 8), {}, 4, 4}), "shaw: keys must have 9 rows, got 10");
  EXPECT_EQ(text_of(Shaw{table_of(1, 8, 8), {}, 4, 4}), "shaw: keys must have 9 rows, got 8");
  EXPECT_EQ(text_of(Shaw{table_of(1, 9, 6), {}, 4, 4}), "shaw: keys must have dim 8, got 6");
  EXPECT_EQ(text_of(Shaw{table_of(2, 9, 8), {}, 4, 4}), "shaw: keys must have heads 1 or 4, got 2");
  EXPECT_EQ(text_of(Shaw{table_of(1, 9, 8), table_of(1, 9, 8), 4, 4}),
            "shaw: values must have dim 6, got 8");
  EXPECT_EQ(text_of(Shaw{table_of(1, 9, 8), table_of(1, 7, 6), 4, 4}),
            "shaw: values must have 9 rows, got 7");
  EXPECT_EQ(text_of(Shaw{{}, {}, 4, 4}), "shaw: keys must be given, got none");
  EXPECT_EQ(text_of(Shaw{table_of(1, 4, 8), {}, -1, 4}),
            "shaw: left must be from 0 to 2^40, got -1");
  EXPECT_EQ(text_of(Shaw{table_of(1, 4, 8), {}, 4, std::numeric_limits<std::int64_t>::max()}),
            "shaw: right must be from 0 to 2^40, got 9223372036854775807");
}

TEST(ResolveRefusals, BertRelative) {
  EXPECT_EQ(text_of(BertRelative{table_of(1, 31, 8), 15}),
            "bert_relative: rows must have 29 rows, got 31");
  EXPECT_EQ(text_of(BertRelative{table_of(1, 31, 8), 0}),
            "bert_relative: max_positions must be from 1 to 2^40, got 0");
  EXPECT_EQ(text_of(BertRelative{table_of(3, 31, 8), 16}),
            "bert_relative: rows must have heads 1 or 4, got 3");
}

TEST(ResolveRefusals, TransformerXlAndXlnet) {
  EXPECT_EQ(text_of(TransformerXl{table_of(4, 8, 8), {}, {}, 8}),
            "transformer_xl: rows must have at least 9 rows, got 8");
  EXPECT_EQ(text_of(TransformerXl{table_of(4, 9, 8), {}, {}, -1}),
            "transformer_xl: first_distance must be from 0 to 2^40, got -1");
  EXPECT_EQ(text_of(TransformerXl{table_of(4, 9, 8), table_of(4, 2, 8), {}, 8}),
            "transformer_xl: u must have 1 row, got 2");
  EXPECT_EQ(text_of(TransformerXl{table_of(4, 9, 8), {}, table_of(3, 1, 8), 8}),
            "transformer_xl: v must have heads 1 or 4, got 3");
  EXPECT_EQ(text_of(Xlnet{{table_of(4, 9, 4), {}, {}, 8}, {}, {}}),
            "xlnet: rows must have dim 8, got 4");
  EXPECT_EQ(text_of(Xlnet{{table_of(4, 9, 8), {}, {}, 8}, table_of(4, 3, 8), {}}),
            "xlnet: segment_rows must have 2 rows, got 3");
  EXPECT_EQ(text_of(Xlnet{{table_of(4, 9, 8), {}, {}, 8}, {}, table_of(4, 1, 8)}),
            "xlnet: segment_bias must come with segment_rows, got it alone");
}

TEST(ResolveRefusals, T5AndTupe) {
  EXPECT_EQ(text_of(T5{}), "t5: bias must be given, got none");
  EXPECT_EQ(text_of(T5{table_of(5, 32, 1)}), "t5: bias must have heads 1 or 4, got 5");
  EXPECT_EQ(text_of(T5{table_of(4, 32, 2)}), "t5: bias must have dim 1, got 2");
  EXPECT_EQ(text_of(T5{table_of(4, 32, 1), 8}),
            "t5: max_distance must be above the 8 exact buckets, got 8");
  EXPECT_EQ(text_of(T5{table_of(4, 3, 1)}),
            "t5: buckets must be at least 4 in two directions, got 3");
  EXPECT_EQ(text_of(T5{table_of(4, 32, 1), 0}), "t5: max_distance must be from 1 to 2^40, got 0");
  EXPECT_EQ(text_of(Tupe{table_of(4, 4, 3), table_of(4, 9, 3)}),
            "tupe: query_positions must have at least 5 rows, got 4");
  EXPECT_EQ(text_of(Tupe{table_of(4, 5, 3), table_of(4, 8, 3)}),
            "tupe: key_positions must have at least 9 rows, got 8");
  EXPECT_EQ(text_of(Tupe{table_of(4, 5, 3), table_of(4, 9, 2)}),
            "tupe: key_positions must have dim 3, got 2");
  EXPECT_EQ(text_of(Tupe{table_of(4, 5, 0), table_of(4, 9, 0)}),
            "tupe: query_positions must have dim 1 or more, got 0");
  EXPECT_EQ(text_of(Tupe{table_of(4, 5, 3), {}}), "tupe: key_positions must be given, got none");
  EXPECT_EQ(text_of(Tupe{table_of(4, 5, 3), table_of(4, 9, 3), T5{table_of(4, 1, 1)}}),
            "tupe: buckets must be at least 4 in two directions, got 1");
  EXPECT_EQ(text_of(Tupe{table_of(4, 5, 3), table_of(4, 9, 3), {}, table_of(2, 1, 1)}),
            "tupe: first_row must have heads 1 or 4, got 2");
}

TEST(ResolveRefusals, Deberta) {
  const auto text = [](Deberta::Version version, std::int64_t rows, std::int64_t reach,
                       std::int64_t buckets) {
    return text_of(Deberta{version, table_of(4, rows, 8), {}, reach, buckets});
  };
  EXPECT_EQ(text(Deberta::Version::v2, 31, 16, 0), "deberta: keys must have 32 rows, got 31");
  EXPECT_EQ(text(Deberta::Version::v2, 32, 16, 8), "deberta: keys must have 16 rows, got 32");
  EXPECT_EQ(text(Deberta::Version::v2, 14, 16, 7),
            "deberta: buckets must be even and at least 4, got 7");
  EXPECT_EQ(text(Deberta::Version::v2, 32, 9, 16),
            "deberta: max_position must be above buckets / 2 + 1 = 9, got 9");
  EXPECT_EQ(text(Deberta::Version::v2, 32, 0, 0),
            "deberta: max_relative_positions must be from 1 to 2^40, got 0");
  EXPECT_EQ(text(Deberta::Version::v1, 16, 16, 8),
            "deberta: version 1 must have no position_buckets, got 8");
  EXPECT_EQ(text_of(Deberta{Deberta::Version::v2, {}, {}, 16, 0}),
            "deberta: keys or queries must be given, got none of the two");
  EXPECT_EQ(text_of(Deberta{Deberta::Version::v2, {}, table_of(4, 32, 6), 16, 0}),
            "deberta: queries must have dim 8, got 6");
}

TEST(ResolveRefusals, Alibi) {
  EXPECT_EQ(text_of(Alibi{0.0}), "alibi: max_bias must be positive and finite, got 0");
  EXPECT_EQ(text_of(Alibi{std::numeric_limits<double>::infinity()}),
            "alibi: max_bias must be positive and finite, got inf");
  EXPECT_EQ(refusal([] { static_cast<void>(alibi_slopes(0)); }).text,
            "alibi: heads must be positive, got 0");
}

TEST(ResolveRefusals, TwoThatFillOneTerm) {
  const Encoding rope = testing::spec_of(8, 10000.0);
  const Encoding shaw = Shaw{table_of(1, 9, 8), {}, 4, 4};
  const Encoding xl = TransformerXl{table_of(4, 9, 8), {}, {}, 8};
  const Refusal twice = together({rope, rope});
  EXPECT_EQ(twice.code, ErrorCode::unsupported);
  EXPECT_EQ(twice.text,
            "encoding: one encoding at most may fill turn, got rope after another that fills it");
  EXPECT_EQ(together({shaw, Alibi{}, xl}).text,
            "encoding: one encoding at most may fill query_rows, got transformer_xl after another "
            "that fills it");
  EXPECT_EQ(
      together({Alibi{}, Alibi{}}).text,
      "encoding: one encoding at most may fill slopes, got alibi after another that fills it");
}

TEST(ResolveRefusals, TwoScales) {
  const Refusal got = together({T5{table_of(4, 32, 1)}, testing::spec_of(8, 10000.0)});
  EXPECT_EQ(got.code, ErrorCode::unsupported);
  EXPECT_EQ(got.text,
            "encoding: encodings used together must have one scale, got 1 of t5 and "
            "0.35355339059327373 of rope");
}

TEST(ValidateTerms, NamesTheTermThatDoesNotFit) {
  const auto text = [](auto spoil) {
    ScoreTerms terms;
    spoil(terms);
    return refusal([&] { validate(terms, kShape); }).text;
  };
  const RelativeMap map{0, {0, 1, 2}, RelativeMap::Outside::clamp};
  EXPECT_EQ(text([](ScoreTerms&) {}), "nothing was refused");
  EXPECT_EQ(text([](auto& t) { t.rotation = resolve(testing::spec_of(16, 10000.0)); }),
            "attention: turn must have head_dim 8, got 16");
  EXPECT_EQ(text([](auto& t) { t.content_bias = table_of(4, 1, 7); }),
            "attention: content_bias must have dim 8, got 7");
  EXPECT_EQ(text([](auto& t) { t.position_bias = table_of(4, 1, 8); }),
            "attention: position_bias must come with query_rows, got it alone");
  EXPECT_EQ(text([&](auto& t) {
              t.query_rows = RelativeRows{table_of(1, 2, 8), map};
            }),
            "attention: query_rows must map distances to rows 0 to 1, got row 2");
  EXPECT_EQ(text([&](auto& t) {
              t.key_rows = RelativeRows{table_of(1, 2, 8), {0, {0, -1}, {}}};
            }),
            "attention: key_rows must map distances to rows 0 to 1, got row -1");
  EXPECT_EQ(text([&](auto& t) {
              t.bias = RelativeRows{table_of(1, 3, 8), map};
            }),
            "attention: bias must have dim 1, got 8");
  EXPECT_EQ(text([](auto& t) {
              t.value_rows = RelativeRows{table_of(1, 3, 6), {}};
            }),
            "attention: value_rows must map at least one distance to a row, got none");
  EXPECT_EQ(text([](auto& t) {
              t.slopes = {0.5, 0.25};
            }),
            "attention: slopes must be one per head, 4, got 2");
  EXPECT_EQ(text([](auto& t) { t.extra_query = table_of(4, 5, 3); }),
            "attention: extra_key must be given, got none");
  EXPECT_EQ(text([](auto& t) {
              t.extra_query = table_of(4, 5, 3);
              t.extra_key = table_of(4, 8, 3);
            }),
            "attention: extra_key must have at least 9 rows, got 8");
  EXPECT_EQ(text([](auto& t) { t.first_row = table_of(4, 1, 2); }),
            "attention: first_row must have dim 1, got 2");
  EXPECT_EQ(text([](auto& t) { t.segment_rows = table_of(4, 1, 8); }),
            "attention: segment_rows must have 2 rows, got 1");
  EXPECT_EQ(text([](auto& t) { t.segment_bias = table_of(4, 1, 8); }),
            "attention: segment_bias must come with segment_rows, got it alone");
  EXPECT_EQ(text([](auto& t) { t.scale = std::numeric_limits<double>::quiet_NaN(); }),
            "attention: scale must be finite, got nan");
}

}  // namespace
}  // namespace phasor::encodings
