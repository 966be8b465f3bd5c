// Tables of the wrong size and encodings that cannot be combined.
#include <gtest/gtest.h>

#include <initializer_list>
#include <limits>
#include <string_view>
#include <vector>

#include "encodings/rope/rope_specs.hpp"
#include "encodings/table_shapes.hpp"
#include "phasor/encodings/encoding.hpp"
#include "support/errors.hpp"

namespace phasor::encodings {
namespace {

using testing::table_of;

constexpr AttentionShape kShape{4, 2, 8, 6, 5, 9};

using Values = std::initializer_list<std::string_view>;

void expect_refused(ErrorCode code, Values values, const Encoding& encoding,
                    const AttentionShape& shape = kShape) {
  tests::expect_error(code, values, [&] { return resolve(encoding, shape); });
}
void expect_refused_together(Values values, const std::vector<Encoding>& encodings) {
  tests::expect_error(ErrorCode::unsupported, values, [&] { return resolve(encodings, kShape); });
}

TEST(ResolveRefusals, Shapes) {
  const auto expect_shape = [](Values values, auto spoil) {
    AttentionShape spoilt = kShape;
    spoil(spoilt);
    expect_refused(ErrorCode::invalid_argument, values, NoEncoding{}, spoilt);
  };
  expect_shape({"heads", "1", "0"}, [](auto& s) { s.heads = 0; });
  expect_shape({"key_heads", "4", "3"}, [](auto& s) { s.key_heads = 3; });
  expect_shape({"head_dim", "1", "0"}, [](auto& s) { s.head_dim = 0; });
  expect_shape({"value_dim", "1", "-1"}, [](auto& s) { s.value_dim = -1; });
  expect_shape({"query_tokens", "0", "-1"}, [](auto& s) { s.query_tokens = -1; });
  expect_shape({"key_tokens", "0", "-7"}, [](auto& s) { s.key_tokens = -7; });
}

TEST(ResolveRefusals, Rope) {
  expect_refused(ErrorCode::shape_mismatch, {"head_dim", "8", "16"}, testing::spec_of(16, 10000.0));
  RopeSpec unknown = testing::spec_of(8, 10000.0);
  unknown.layout.reset();
  expect_refused(ErrorCode::invalid_argument, {"layout", "interleaved_to_half"}, unknown);
}

TEST(ResolveRefusals, Shaw) {
  expect_refused(ErrorCode::shape_mismatch, {"keys", "9", "10"},
                 Shaw{table_of(1, 10, 8), {}, 4, 4});
  expect_refused(ErrorCode::shape_mismatch, {"keys", "9", "8"}, Shaw{table_of(1, 8, 8), {}, 4, 4});
  expect_refused(ErrorCode::shape_mismatch, {"keys", "8", "6"}, Shaw{table_of(1, 9, 6), {}, 4, 4});
  expect_refused(ErrorCode::shape_mismatch, {"keys", "1", "4", "2"},
                 Shaw{table_of(2, 9, 8), {}, 4, 4});
  expect_refused(ErrorCode::shape_mismatch, {"values", "6", "8"},
                 Shaw{table_of(1, 9, 8), table_of(1, 9, 8), 4, 4});
  expect_refused(ErrorCode::shape_mismatch, {"values", "9", "7"},
                 Shaw{table_of(1, 9, 8), table_of(1, 7, 6), 4, 4});
  expect_refused(ErrorCode::shape_mismatch, {"keys"}, Shaw{{}, {}, 4, 4});
  expect_refused(ErrorCode::invalid_argument, {"left", "0", "2^40", "-1"},
                 Shaw{table_of(1, 4, 8), {}, -1, 4});
  expect_refused(ErrorCode::invalid_argument, {"right", "0", "2^40", "9223372036854775807"},
                 Shaw{table_of(1, 4, 8), {}, 4, std::numeric_limits<std::int64_t>::max()});
}

TEST(ResolveRefusals, BertRelative) {
  expect_refused(ErrorCode::shape_mismatch, {"rows", "29", "31"},
                 BertRelative{table_of(1, 31, 8), 15});
  expect_refused(ErrorCode::invalid_argument, {"max_positions", "1", "2^40", "0"},
                 BertRelative{table_of(1, 31, 8), 0});
  expect_refused(ErrorCode::shape_mismatch, {"rows", "1", "4", "3"},
                 BertRelative{table_of(3, 31, 8), 16});
}

TEST(ResolveRefusals, TransformerXlAndXlnet) {
  expect_refused(ErrorCode::shape_mismatch, {"rows", "9", "8"},
                 TransformerXl{table_of(4, 8, 8), {}, {}, 8});
  expect_refused(ErrorCode::invalid_argument, {"first_distance", "0", "2^40", "-1"},
                 TransformerXl{table_of(4, 9, 8), {}, {}, -1});
  expect_refused(ErrorCode::shape_mismatch, {"u", "1", "2"},
                 TransformerXl{table_of(4, 9, 8), table_of(4, 2, 8), {}, 8});
  expect_refused(ErrorCode::shape_mismatch, {"v", "1", "4", "3"},
                 TransformerXl{table_of(4, 9, 8), {}, table_of(3, 1, 8), 8});
  expect_refused(ErrorCode::shape_mismatch, {"rows", "8", "4"},
                 Xlnet{{table_of(4, 9, 4), {}, {}, 8}, {}, {}});
  expect_refused(ErrorCode::shape_mismatch, {"segment_rows", "2", "3"},
                 Xlnet{{table_of(4, 9, 8), {}, {}, 8}, table_of(4, 3, 8), {}});
  expect_refused(ErrorCode::invalid_argument, {"segment_bias", "segment_rows"},
                 Xlnet{{table_of(4, 9, 8), {}, {}, 8}, {}, table_of(4, 1, 8)});
}

TEST(ResolveRefusals, T5AndTupe) {
  expect_refused(ErrorCode::shape_mismatch, {"bias"}, T5{});
  expect_refused(ErrorCode::shape_mismatch, {"bias", "1", "4", "5"}, T5{table_of(5, 32, 1)});
  expect_refused(ErrorCode::shape_mismatch, {"bias", "1", "2"}, T5{table_of(4, 32, 2)});
  expect_refused(ErrorCode::invalid_argument, {"max_distance", "8"}, T5{table_of(4, 32, 1), 8});
  expect_refused(ErrorCode::invalid_argument, {"buckets", "4", "3"}, T5{table_of(4, 3, 1)});
  expect_refused(ErrorCode::invalid_argument, {"max_distance", "1", "2^40", "0"},
                 T5{table_of(4, 32, 1), 0});
  expect_refused(ErrorCode::shape_mismatch, {"query_positions", "5", "4"},
                 Tupe{table_of(4, 4, 3), table_of(4, 9, 3)});
  expect_refused(ErrorCode::shape_mismatch, {"key_positions", "9", "8"},
                 Tupe{table_of(4, 5, 3), table_of(4, 8, 3)});
  expect_refused(ErrorCode::shape_mismatch, {"key_positions", "3", "2"},
                 Tupe{table_of(4, 5, 3), table_of(4, 9, 2)});
  expect_refused(ErrorCode::shape_mismatch, {"query_positions", "1", "0"},
                 Tupe{table_of(4, 5, 0), table_of(4, 9, 0)});
  expect_refused(ErrorCode::shape_mismatch, {"key_positions"}, Tupe{table_of(4, 5, 3), {}});
  expect_refused(ErrorCode::invalid_argument, {"buckets", "4", "1"},
                 Tupe{table_of(4, 5, 3), table_of(4, 9, 3), T5{table_of(4, 1, 1)}});
  expect_refused(ErrorCode::shape_mismatch, {"first_row", "1", "4", "2"},
                 Tupe{table_of(4, 5, 3), table_of(4, 9, 3), {}, table_of(2, 1, 1)});
}

TEST(ResolveRefusals, Deberta) {
  const auto expect_deberta = [](ErrorCode code, Values values, Deberta::Version version,
                                 std::int64_t rows, std::int64_t reach, std::int64_t buckets) {
    expect_refused(code, values, Deberta{version, table_of(4, rows, 8), {}, reach, buckets});
  };
  expect_deberta(ErrorCode::shape_mismatch, {"keys", "32", "31"}, Deberta::Version::v2, 31, 16, 0);
  expect_deberta(ErrorCode::shape_mismatch, {"keys", "16", "32"}, Deberta::Version::v2, 32, 16, 8);
  expect_deberta(ErrorCode::invalid_argument, {"buckets", "4", "7"}, Deberta::Version::v2, 14, 16,
                 7);
  expect_deberta(ErrorCode::invalid_argument, {"max_position", "2", "1", "9"}, Deberta::Version::v2,
                 32, 9, 16);
  expect_deberta(ErrorCode::invalid_argument, {"max_relative_positions", "1", "2^40", "0"},
                 Deberta::Version::v2, 32, 0, 0);
  expect_deberta(ErrorCode::unsupported, {"1", "position_buckets", "8"}, Deberta::Version::v1, 16,
                 16, 8);
  expect_refused(ErrorCode::shape_mismatch, {"keys", "queries"},
                 Deberta{Deberta::Version::v2, {}, {}, 16, 0});
  expect_refused(ErrorCode::shape_mismatch, {"queries", "8", "6"},
                 Deberta{Deberta::Version::v2, {}, table_of(4, 32, 6), 16, 0});
}

TEST(ResolveRefusals, Alibi) {
  expect_refused(ErrorCode::invalid_argument, {"max_bias", "0"}, Alibi{0.0});
  expect_refused(ErrorCode::invalid_argument, {"max_bias", "inf"},
                 Alibi{std::numeric_limits<double>::infinity()});
  tests::expect_error(ErrorCode::invalid_argument, {"heads", "0"}, [] { return alibi_slopes(0); });
}

TEST(ResolveRefusals, TwoThatFillOneTerm) {
  const Encoding rope = testing::spec_of(8, 10000.0);
  const Encoding shaw = Shaw{table_of(1, 9, 8), {}, 4, 4};
  const Encoding xl = TransformerXl{table_of(4, 9, 8), {}, {}, 8};
  expect_refused_together({"rope", "rotation"}, {rope, rope});
  expect_refused_together({"transformer_xl", "query_rows"}, {shaw, Alibi{}, xl});
  expect_refused_together({"alibi", "slopes"}, {Alibi{}, Alibi{}});
}

TEST(ResolveRefusals, TwoScales) {
  expect_refused_together({"1 of t5", "0.35355339059327373 of rope"},
                          {T5{table_of(4, 32, 1)}, testing::spec_of(8, 10000.0)});
}

TEST(ValidateTerms, NamesTheTermThatDoesNotFit) {
  const auto expect_term = [](ErrorCode code, Values values, auto spoil) {
    ScoreTerms terms;
    spoil(terms);
    tests::expect_error(code, values, [&] { validate(terms, kShape); });
  };
  const RelativeMap map{0, {0, 1, 2}, RelativeMap::Outside::clamp};
  EXPECT_NO_THROW(validate(ScoreTerms{}, kShape));
  expect_term(ErrorCode::shape_mismatch, {"rotation", "head_dim", "8", "16"},
              [](auto& t) { t.rotation = resolve(testing::spec_of(16, 10000.0)); });
  expect_term(ErrorCode::shape_mismatch, {"content_bias", "8", "7"},
              [](auto& t) { t.content_bias = table_of(4, 1, 7); });
  expect_term(ErrorCode::invalid_argument, {"position_bias", "query_rows"},
              [](auto& t) { t.position_bias = table_of(4, 1, 8); });
  expect_term(ErrorCode::out_of_range, {"query_rows", "0", "1", "2"}, [&](auto& t) {
    t.query_rows = RelativeRows{table_of(1, 2, 8), map};
  });
  expect_term(ErrorCode::out_of_range, {"key_rows", "0", "1", "-1"}, [&](auto& t) {
    t.key_rows = RelativeRows{table_of(1, 2, 8), {0, {0, -1}, {}}};
  });
  expect_term(ErrorCode::shape_mismatch, {"bias", "1", "8"}, [&](auto& t) {
    t.bias = RelativeRows{table_of(1, 3, 8), map};
  });
  expect_term(ErrorCode::invalid_argument, {"value_rows"}, [](auto& t) {
    t.value_rows = RelativeRows{table_of(1, 3, 6), {}};
  });
  expect_term(ErrorCode::shape_mismatch, {"slopes", "4", "2"}, [](auto& t) {
    t.slopes = {0.5, 0.25};
  });
  expect_term(ErrorCode::shape_mismatch, {"extra_key"},
              [](auto& t) { t.extra_query = table_of(4, 5, 3); });
  expect_term(ErrorCode::shape_mismatch, {"extra_key", "9", "8"}, [](auto& t) {
    t.extra_query = table_of(4, 5, 3);
    t.extra_key = table_of(4, 8, 3);
  });
  expect_term(ErrorCode::shape_mismatch, {"first_row", "1", "2"},
              [](auto& t) { t.first_row = table_of(4, 1, 2); });
  expect_term(ErrorCode::shape_mismatch, {"segment_rows", "2", "1"},
              [](auto& t) { t.segment_rows = table_of(4, 1, 8); });
  expect_term(ErrorCode::invalid_argument, {"segment_bias", "segment_rows"},
              [](auto& t) { t.segment_bias = table_of(4, 1, 8); });
  expect_term(ErrorCode::invalid_argument, {"scale", "nan"},
              [](auto& t) { t.scale = std::numeric_limits<double>::quiet_NaN(); });
}

}  // namespace
}  // namespace phasor::encodings
