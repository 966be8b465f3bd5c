#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "attention/softmax/attend_support.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/core/error.hpp"

namespace phasor::attention::tests {
namespace {

// A valid call, for a test to modify.
struct Request {
  explicit Request(const Case& c = {.terms = Terms::everything,
                                    .batch = 2,
                                    .heads = 4,
                                    .key_heads = 2,
                                    .queries = 3,
                                    .keys = 5,
                                    .head_dim = 8,
                                    .value_dim = 6})
      : problem(c),
        terms(problem.terms),
        options(problem.options),
        q(problem.q_view()),
        k(problem.k_view()),
        v(problem.v_view()),
        written(static_cast<std::size_t>(c.batch * c.queries * c.heads * c.value_dim) + 64, 7.0F),
        out(core::heads_view(written.data(), c.batch, c.queries, c.heads, c.value_dim)) {}

  void attend() const { attention::attend(terms, q, k, v, out, options); }
  void attend_backward() {
    const std::size_t rows = static_cast<std::size_t>(q.batch * q.heads * q.tokens);
    const std::vector<float> log_sum_exp(rows, 0.0F);
    const auto like = [&](const core::ConstHeadsView& view) {
      gradients.emplace_back(
          static_cast<std::size_t>(view.batch * view.tokens * view.heads * view.head_dim), 7.0F);
      return core::heads_view(gradients.back().data(), view.batch, view.tokens, view.heads,
                              view.head_dim);
    };
    const core::HeadsView d_q = like(q), d_k = like(k), d_v = like(v);
    attention::attend_backward(terms, q, k, v, {out, log_sum_exp.data(), out}, {d_q, d_k, d_v, {}},
                               options);
  }

  [[nodiscard]] bool untouched() const {
    const auto is_seven = [](const std::vector<float>& values) {
      return std::all_of(values.begin(), values.end(), [](float x) { return x == 7.0F; });
    };
    return is_seven(written) && std::all_of(gradients.begin(), gradients.end(), is_seven);
  }

  Problem problem;
  ScoreTerms terms;
  AttentionOptions options;
  core::ConstHeadsView q, k, v;
  std::vector<float> written;
  core::HeadsView out;
  std::deque<std::vector<float>> gradients;
};

// Both passes throw with every text of `said` in the message, and write nothing.
void expect_refused(Request& request, ErrorCode code, const std::vector<std::string>& said) {
  const auto expect = [&](const char* what, const std::function<void()>& act) {
    try {
      act();
      ADD_FAILURE() << what << " took it";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << what << ": " << error.what();
      const std::string text = error.what();
      for (const std::string& part : said) {
        EXPECT_NE(text.find(part), std::string::npos)
            << what << ": no '" << part << "' in " << text;
      }
      EXPECT_NE(text.find(": "), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
    EXPECT_TRUE(request.untouched()) << what << " wrote before it refused";
  };
  expect("attend", [&] { request.attend(); });
  expect("attend_backward", [&] { request.attend_backward(); });
}

TEST(AttendRefuses, NothingThatIsFine) {
  Request request;
  EXPECT_NO_THROW(request.attend());
  EXPECT_FALSE(request.untouched());
  EXPECT_NO_THROW(request.attend_backward());
}

TEST(AttendRefuses, ShapesThatDisagree) {
  {
    Request r;
    r.k.batch = 1;
    expect_refused(r, ErrorCode::shape_mismatch, {"batch", "2", "1"});
  }
  {
    Request r;
    r.v.tokens = 4;
    expect_refused(r, ErrorCode::shape_mismatch, {"tokens", "5", "4"});
  }
  {
    Request r;
    r.k.head_dim = 7;
    expect_refused(r, ErrorCode::shape_mismatch, {"head_dim", "8", "7"});
  }
  {
    Request r;
    r.v.heads = 1;
    expect_refused(r, ErrorCode::shape_mismatch, {"heads", "2", "1"});
  }
}

TEST(AttendRefuses, HeadsThatKeyHeadsDoNotDivide) {
  Request r;
  r.q.heads = 3;
  r.out.heads = 3;
  expect_refused(r, ErrorCode::shape_mismatch, {"heads", "3", "2"});
}

TEST(AttendRefuses, AnOutputOfAnotherShape) {
  for (const auto member : {&core::HeadsView::batch, &core::HeadsView::tokens,
                            &core::HeadsView::heads, &core::HeadsView::head_dim}) {
    Request r;
    r.out.*member += 1;
    EXPECT_THROW(r.attend(), Error);
    EXPECT_TRUE(r.untouched());
  }
}

TEST(AttendRefuses, Float64MixedWithFloat32) {
  Request r;
  r.q.dtype = DType::f64;
  expect_refused(r, ErrorCode::unsupported, {"k", "f64", "f32"});
  Request keys;
  keys.k.dtype = DType::f64;
  expect_refused(keys, ErrorCode::unsupported, {"k", "f32", "f64"});
}

TEST(AttendRefuses, NullData) {
  Request r;
  r.v.data = nullptr;
  expect_refused(r, ErrorCode::invalid_argument, {"v", "null"});
}

TEST(AttendRefuses, AnOutputThatOverlapsAnInput) {
  // q and out have one shape here, so that they could be one view.
  Request r({.queries = 3, .keys = 5, .head_dim = 6, .value_dim = 6, .strides = Strides::dense});
  r.q.data = r.written.data();
  EXPECT_THROW(r.attend(), Error);
  r.q.data = r.problem.q_view().data;
  r.v = core::heads_view<const float>(r.written.data() + 10, 1, 5, 2, 6);
  EXPECT_THROW(r.attend(), Error);
  EXPECT_TRUE(r.untouched());
}

TEST(AttendRefuses, AWindowThatSeesNothing) {
  for (const std::int64_t window : {std::int64_t{0}, std::int64_t{-3}}) {
    Request r;
    r.options.window = window;
    expect_refused(r, ErrorCode::invalid_argument, {"window", std::to_string(window)});
  }
}

TEST(AttendRefuses, NumbersThatAreNone) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  {
    Request r;
    r.options.scale = nan;
    expect_refused(r, ErrorCode::invalid_argument, {"scale", "nan"});
  }
  {
    Request r;
    r.options.scale = std::numeric_limits<double>::infinity();
    expect_refused(r, ErrorCode::invalid_argument, {"scale", "inf"});
  }
  {
    Request r;
    r.terms.scale = nan;
    expect_refused(r, ErrorCode::invalid_argument, {"scale", "nan"});
  }
  for (const double cap : {nan, -1.0}) {
    Request r;
    r.options.soft_cap = cap;
    expect_refused(r, ErrorCode::invalid_argument, {"soft_cap"});
  }
  {
    Request r;
    r.terms.slopes[1] = nan;
    expect_refused(r, ErrorCode::invalid_argument, {"slope", "nan"});
  }
}

TEST(AttendRefuses, TablesThatDoNotFit) {
  const auto spoil = [](const std::function<void(ScoreTerms&)>& act,
                        const std::vector<std::string>& said) {
    Request r;
    act(r.terms);
    expect_refused(r, ErrorCode::shape_mismatch, said);
  };
  spoil([](ScoreTerms& t) { t.content_bias.dim = 7; }, {"content_bias", "8", "7"});
  spoil([](ScoreTerms& t) { t.position_bias.heads = 3; }, {"position_bias", "4", "3"});
  spoil([](ScoreTerms& t) { t.query_rows->table.dim = 9; }, {"query_rows", "8", "9"});
  spoil([](ScoreTerms& t) { t.value_rows->table.dim = 8; }, {"value_rows", "6", "8"});
  spoil([](ScoreTerms& t) { t.bias->table.dim = 2; }, {"bias", "1", "2"});
  spoil([](ScoreTerms& t) { t.extra_query.rows = 2; }, {"extra_query", "3", "2"});
  spoil([](ScoreTerms& t) { t.extra_key.rows = 4; }, {"extra_key", "5", "4"});
  spoil([](ScoreTerms& t) { t.extra_key.dim = 2; }, {"extra_key", "3", "2"});
  spoil([](ScoreTerms& t) { t.segment_rows.rows = 1; }, {"segment_rows", "2", "1"});
  spoil([](ScoreTerms& t) { t.slopes.pop_back(); }, {"slopes", "4", "3"});
  spoil([](ScoreTerms& t) { t.rotation->head_dim = 16; }, {"head_dim", "8", "16"});
}

TEST(AttendRefuses, MapsToRowsThatATableDoesNotHave) {
  Request r;
  r.terms.query_rows->map.rows[3] = 5;
  expect_refused(r, ErrorCode::out_of_range, {"query_rows", "5"});
  Request negative;
  negative.terms.bias->map.rows[0] = -1;
  expect_refused(negative, ErrorCode::out_of_range, {"bias", "-1"});
  Request empty;
  empty.terms.key_rows->map.rows.clear();
  expect_refused(empty, ErrorCode::invalid_argument, {"key_rows"});
}

TEST(AttendRefuses, DistancesThatATableIsTooShortFor) {
  const auto shorter = [](std::int64_t first, std::int64_t last) {
    Request r;
    RelativeMap& map = r.terms.bias->map;
    map.first = first;
    map.rows.assign(static_cast<std::size_t>(last - first + 1), 0);
    map.outside = RelativeMap::Outside::refuse;
    return r.terms.bias->map;
  };
  // 3 queries at the end of 5 keys: distances from -2 to 4.
  for (const auto& [first, last] : {std::pair(-1, 4), std::pair(-2, 3)}) {
    Request r;
    r.terms.bias->map = shorter(first, last);
    expect_refused(r, ErrorCode::out_of_range,
                   {"bias", std::to_string(first), std::to_string(last)});
  }
  Request whole;
  whole.terms.bias->map = shorter(-2, 4);
  EXPECT_NO_THROW(whole.attend());
  Request past;
  past.terms.bias->map = shorter(0, 4);
  past.options.causality = Causality::bottom_right;
  EXPECT_NO_THROW(past.attend());
  Request near;
  near.terms.bias->map = shorter(-1, 1);
  near.options.window = 2;
  EXPECT_NO_THROW(near.attend());
}

TEST(AttendRefuses, MasksOfTheWrongShape) {
  const std::vector<std::uint8_t> values(1000, 1);
  const std::vector<float> numbers(1000, 0.0F);
  const auto refused = [&](const std::vector<std::int64_t>& shape,
                           const std::vector<std::string>& said) {
    const auto expect = [&](const std::function<void()>& act) {
      try {
        act();
        ADD_FAILURE() << "took a mask of rank " << shape.size();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::shape_mismatch);
        for (const std::string& part : said) {
          EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
        }
      }
    };
    expect([&] { static_cast<void>(boolean_mask(values.data(), shape, 2, 4, 3, 5)); });
    expect([&] { static_cast<void>(additive_mask(numbers.data(), shape, 2, 4, 3, 5)); });
  };
  refused({}, {"rank", "0"});
  refused({5}, {"rank", "1", "[5]"});
  refused({1, 2, 4, 3, 5}, {"rank", "5", "[1, 2, 4, 3, 5]"});
  refused({3, 6}, {"keys", "5", "6", "[3, 6]"});
  refused({2, 5}, {"queries", "3", "2"});
  refused({2, 3, 5}, {"heads", "4", "2"});
  refused({3, 4, 3, 5}, {"batch", "2", "3"});
  refused({3, -1}, {"keys", "-1"});
  EXPECT_THROW(
      static_cast<void>(boolean_mask(nullptr, std::vector<std::int64_t>{3, 5}, 2, 4, 3, 5)), Error);
}

TEST(Masks, BroadcastWhereAnAxisIsOne) {
  const std::vector<float> numbers(1000, 0.0F);
  const auto strides = [&](const std::vector<std::int64_t>& shape) {
    const Mask m = additive_mask(numbers.data(), shape, 2, 4, 3, 5);
    return std::vector<std::int64_t>{m.batch_stride, m.head_stride, m.query_stride, m.key_stride,
                                     m.keys};
  };
  EXPECT_EQ(strides({3, 5}), (std::vector<std::int64_t>{0, 0, 5, 1, 5}));
  EXPECT_EQ(strides({4, 3, 5}), (std::vector<std::int64_t>{0, 15, 5, 1, 5}));
  EXPECT_EQ(strides({2, 4, 3, 5}), (std::vector<std::int64_t>{60, 15, 5, 1, 5}));
  EXPECT_EQ(strides({2, 1, 1, 5}), (std::vector<std::int64_t>{5, 0, 0, 1, 5}));
  EXPECT_EQ(strides({2, 1, 3, 4}), (std::vector<std::int64_t>{12, 0, 4, 1, 4}));
  EXPECT_EQ(strides({3, 1}), (std::vector<std::int64_t>{0, 0, 1, 0, 5}));
  EXPECT_EQ(strides({3, 0}), (std::vector<std::int64_t>{0, 0, 0, 1, 0}));
}

TEST(AttendRefuses, OptionsOfTheWrongLength) {
  const std::vector<std::int64_t> lengths = {5};
  Request short_lengths;
  short_lengths.options.key_lengths = lengths;
  expect_refused(short_lengths, ErrorCode::shape_mismatch, {"key_lengths", "2", "1"});

  for (const std::int64_t length : {6, -1}) {
    const std::vector<std::int64_t> outside = {5, length};
    Request r;
    r.options.key_lengths = outside;
    expect_refused(r, ErrorCode::out_of_range, {"key_lengths", "5", std::to_string(length)});
  }

  const std::vector<std::uint8_t> padding(9, 1);
  Request short_padding;
  short_padding.options.key_padding = padding;
  expect_refused(short_padding, ErrorCode::shape_mismatch, {"key_padding", "10", "9"});

  const std::vector<std::int64_t> ids = {0, 1};
  Request short_ids;
  short_ids.options.query_positions = core::positions_per_token(ids);
  EXPECT_THROW(short_ids.attend(), Error);
  EXPECT_TRUE(short_ids.untouched());
}

TEST(AttendRefuses, SegmentsThatAreMissingOrTooFew) {
  Request missing;
  missing.options.query_segments = {};
  expect_refused(missing, ErrorCode::invalid_argument, {"segment"});
  Request few;
  few.options.key_segments = few.options.key_segments.first(9);
  expect_refused(few, ErrorCode::shape_mismatch, {"key_segments", "10", "9"});
}

TEST(AttendRefuses, BoundariesThatDoNotFit) {
  const Case one{.queries = 3, .keys = 5};
  const auto refused = [&](const std::vector<std::int64_t>& queries,
                           const std::vector<std::int64_t>& keys,
                           const std::vector<std::string>& said) {
    Request r(one);
    r.options.query_boundaries = queries;
    r.options.key_boundaries = keys;
    try {
      r.attend();
      ADD_FAILURE() << "took boundaries that do not fit: " << said.back();
    } catch (const Error& error) {
      for (const std::string& part : said) {
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
    }
    EXPECT_TRUE(r.untouched());
  };
  refused({0, 2}, {0, 5}, {"query_boundaries", "3", "2"});
  refused({0, 3}, {0, 6}, {"key_boundaries", "5", "6"});
  refused({1, 3}, {0, 5}, {"query_boundaries"});
  refused({0, 2, 1, 3}, {0, 2, 3, 5}, {"query_boundaries"});
  refused({0, 1, 3}, {0, 5}, {"3", "2"});
  refused({0, 3}, {}, {"key_boundaries"});

  const std::vector<std::int64_t> queries = {0, 3}, keys = {0, 5};
  Request two({.batch = 2, .queries = 3, .keys = 5});
  two.options.query_boundaries = queries;
  two.options.key_boundaries = keys;
  EXPECT_THROW(two.attend(), Error);
  EXPECT_TRUE(two.untouched());
}

TEST(AttendRefuses, AnOffsetWithSequencesOfOtherAlignments) {
  const std::vector<std::int64_t> lengths = {5, 5}, queries = {0, 3}, keys = {0, 5};
  Request padded;
  padded.options.query_offset = 7;
  padded.options.key_lengths = lengths;
  expect_refused(padded, ErrorCode::unsupported, {"query_offset 7", "key_lengths"});
  Request packed;
  packed.options.query_offset = 7;
  packed.options.query_boundaries = queries;
  packed.options.key_boundaries = keys;
  expect_refused(packed, ErrorCode::unsupported, {"query_offset 7", "packed sequences"});
  Request far;
  far.options.query_offset = std::int64_t{1} << 60;
  expect_refused(far, ErrorCode::out_of_range, {"1152921504606846976"});
}

TEST(AttendRefuses, LevelsThatTheMachineDoesNotHave) {
  for (const core::InstructionSet isa :
       {core::InstructionSet::generic, core::InstructionSet::x86_64_v2,
        core::InstructionSet::x86_64_v3, core::InstructionSet::x86_64_v4}) {
    const auto& have = core::available_instruction_sets();
    Request r;
    r.options.isa = isa;
    if (std::find(have.begin(), have.end(), isa) != have.end()) {
      EXPECT_NO_THROW(r.attend());
    } else {
      expect_refused(r, ErrorCode::unsupported, {});
    }
  }
}

TEST(AttendNothing, NoQueriesWriteNothing) {
  Request r({.terms = Terms::everything, .heads = 4, .key_heads = 2, .queries = 0, .keys = 5});
  EXPECT_NO_THROW(r.attend());
  EXPECT_TRUE(r.untouched());
  EXPECT_NO_THROW(r.attend_backward());
  for (std::size_t i = 1; i < 3; ++i) {  // d_k, d_v
    for (const float x : r.gradients[i]) ASSERT_EQ(x, 0.0F);
  }
}

TEST(AttendNothing, NoKeysGiveZeros) {
  for (const Terms kind : {Terms::none, Terms::rope, Terms::everything}) {
    Request r({.terms = kind, .batch = 2, .heads = 4, .key_heads = 2, .queries = 3, .keys = 0});
    std::vector<float> log_sum_exp(2 * 4 * 3, 7.0F);
    attend(r.terms, r.q, r.k, r.v, r.out, r.options, {.log_sum_exp = log_sum_exp.data()});
    for (std::size_t i = 0; i + 64 < r.written.size(); ++i) ASSERT_EQ(r.written[i], 0.0F) << i;
    for (std::size_t i = r.written.size() - 64; i < r.written.size(); ++i) {
      ASSERT_EQ(r.written[i], 7.0F) << i;
    }
    for (const float x : log_sum_exp) ASSERT_EQ(x, -std::numeric_limits<float>::infinity());
    EXPECT_NO_THROW(r.attend_backward());
    for (const float x : r.gradients[0]) ASSERT_EQ(x, 0.0F);
  }
}

TEST(AttendNothing, NoBatchWritesNothing) {
  Request r({.batch = 0, .queries = 3, .keys = 5});
  EXPECT_NO_THROW(r.attend());
  EXPECT_TRUE(r.untouched());
}

}  // namespace
}  // namespace phasor::attention::tests
