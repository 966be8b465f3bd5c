// Attention in phasor.h compared with the C++ API, and its errors.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "capi/c_only.h"
#include "capi/support.hpp"
#include "phasor/attention/linear.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/config/encoding.hpp"
#include "phasor/io/npy.hpp"
#include "phasor/phasor.h"
#include "support/temporary_folder.hpp"

namespace phasor {
namespace {

constexpr std::int64_t kQueries = 5, kKeys = 9;

using capi::testing::Encoding;
using capi::testing::expect_status;
using capi::testing::kDim;
using capi::testing::kHeads;
using capi::testing::kKeyHeads;
using capi::testing::Tensor;
using capi::testing::Values;

Encoding parsed(const std::string& json, const char* folder = nullptr) {
  return capi::testing::parse_encoding(json, folder);
}

// A table [rows, columns] written inline.
std::string table(int rows, int columns, double phase = 0.0) {
  std::string text;
  for (int r = 0; r < rows; ++r) {
    std::string row;
    for (int c = 0; c < columns; ++c)
      row += (c == 0 ? "" : ",") + std::to_string(std::sin(3.0 * r + c + phase));
    text += (r == 0 ? "[" : ",[") + row + "]";
  }
  return "[" + text + "]";
}

const std::vector<std::string>& encodings_to_try() {
  static const std::vector<std::string> kAll = {
      R"({"encoding": "none"})",
      R"({"encoding": "rope", "head_dim": 8, "layout": "half"})",
      R"({"encoding": "alibi"})",
      R"({"encoding": "t5", "num_buckets": 8, "max_distance": 16, "bidirectional": true,
          "relative_attention_bias": )" +
          table(8, kHeads) + "}",
      R"({"encoding": "shaw", "clip": 2, "rel_k": )" + table(5, kDim) + R"(, "rel_v": )" +
          table(5, kDim) + "}",
  };
  return kAll;
}

class CapiAttention : public io::testing::TemporaryFolder {
 protected:
  CapiAttention() {
    options_.struct_size = sizeof(options_);
    options_.threads = 1;
  }

  void expect_attend(phasor_status expected, const Values& values,
                     const phasor_encoding* encoding = nullptr) {
    const std::vector<float> before = out_.values;
    expect_status(phasor_attend(encoding, &q_.c, &k_.c, &v_.c, &out_.c, &options_), expected,
                  values);
    EXPECT_EQ(before, out_.values);
  }
  static void expect_parse(const char* json, phasor_status expected, const Values& values) {
    auto* encoding = capi::testing::untouched<phasor_encoding>();
    expect_status(phasor_encoding_parse(json, nullptr, &encoding), expected, values);
    EXPECT_EQ(encoding, capi::testing::untouched<phasor_encoding>());
  }
  [[nodiscard]] static encodings::AttentionShape shape() {
    return {.heads = kHeads,
            .key_heads = kKeyHeads,
            .head_dim = kDim,
            .value_dim = kDim,
            .query_tokens = kQueries,
            .key_tokens = kKeys};
  }
  // What the C options below mean.
  [[nodiscard]] static attention::AttentionOptions same_options() {
    attention::AttentionOptions options;
    options.causality = attention::Causality::bottom_right;
    options.window = 4;
    options.scale = 0.3;
    options.soft_cap = 2.0;
    options.threads = 1;
    return options;
  }
  void set_options() {
    options_.causality = PHASOR_CAUSAL;
    options_.window = 4;
    options_.scale = 0.3;
    options_.soft_cap = 2.0;
    options_.log_sum_exp = log_sum_exp_.data();
    options_.log_sum_exp_count = log_sum_exp_.size();
  }

  Tensor q_{kQueries, kHeads, 0.1F}, k_{kKeys, kKeyHeads, 0.2F}, v_{kKeys, kKeyHeads, 0.3F};
  Tensor out_{kQueries, kHeads, 0.4F};
  std::vector<float> log_sum_exp_ = std::vector<float>(kHeads * kQueries);
  phasor_attend_options options_{};
};

TEST_F(CapiAttention, ACProgramWalksThrough) { EXPECT_STREQ(phasor_c_attention_walk(), nullptr); }

TEST_F(CapiAttention, GivesTheRoomsOwnBits) {
  set_options();
  for (const std::string& json : encodings_to_try()) {
    const Encoding encoding = parsed(json);
    ASSERT_EQ(phasor_attend(encoding.get(), &q_.c, &k_.c, &v_.c, &out_.c, &options_), PHASOR_OK)
        << phasor_last_error();
    const config::LoadedEncoding loaded = config::parse_encoding(json, ".").value_or_throw();
    const encodings::ScoreTerms terms = config::resolve(loaded, shape());
    Tensor expected(kQueries, kHeads, 0.0F);
    std::vector<float> sums(log_sum_exp_.size());
    attention::attend(terms, q_.cpp, k_.cpp, v_.cpp, expected.cpp, same_options(),
                      {.log_sum_exp = sums.data()});
    EXPECT_EQ(out_.values, expected.values) << json;
    EXPECT_EQ(log_sum_exp_, sums) << json;

    const Tensor d_out(kQueries, kHeads, 0.5F);
    const Tensor d_q(kQueries, kHeads, 0.0F), d_k(kKeys, kKeyHeads, 0.0F),
        d_v(kKeys, kKeyHeads, 0.0F);
    ASSERT_EQ(phasor_attend_backward(encoding.get(), &q_.c, &k_.c, &v_.c, &out_.c, &d_out.c, &d_q.c,
                                     &d_k.c, &d_v.c, &options_),
              PHASOR_OK)
        << phasor_last_error();
    const Tensor e_q(kQueries, kHeads, 1.0F), e_k(kKeys, kKeyHeads, 1.0F),
        e_v(kKeys, kKeyHeads, 1.0F);
    attention::attend_backward(terms, q_.cpp, k_.cpp, v_.cpp,
                               {expected.cpp, sums.data(), d_out.cpp},
                               {e_q.cpp, e_k.cpp, e_v.cpp, {}}, same_options());
    EXPECT_EQ(d_q.values, e_q.values) << json;
    EXPECT_EQ(d_k.values, e_k.values) << json;
    EXPECT_EQ(d_v.values, e_v.values) << json;
  }
}

// A Tensor's numbers in float64.
struct WideTensor {
  explicit WideTensor(const Tensor& from)
      : values(from.values.begin(), from.values.end()),
        c(from.c),
        cpp(core::heads_view(values.data(), from.c.batch, from.c.tokens, from.c.heads,
                             from.c.head_dim)) {
    c.data = values.data();
    c.dtype = PHASOR_F64;
  }
  WideTensor(const WideTensor&) = delete;
  WideTensor& operator=(const WideTensor&) = delete;

  std::vector<double> values;
  phasor_heads c;
  core::HeadsView cpp;
};

TEST_F(CapiAttention, Float64GivesTheRoomsOwnBits) {
  set_options();
  std::vector<double> wide_sums(log_sum_exp_.size()), sums(log_sum_exp_.size());
  options_.wide_log_sum_exp = wide_sums.data();
  options_.wide_log_sum_exp_count = wide_sums.size();
  const WideTensor q(q_), k(k_), v(v_), out(out_), expected(out_), d_out(out_);
  const std::string& json = encodings_to_try().back();
  const Encoding encoding = parsed(json);
  ASSERT_EQ(phasor_attend(encoding.get(), &q.c, &k.c, &v.c, &out.c, &options_), PHASOR_OK)
      << phasor_last_error();
  const config::LoadedEncoding loaded = config::parse_encoding(json, ".").value_or_throw();
  const encodings::ScoreTerms terms = config::resolve(loaded, shape());
  attention::attend(terms, q.cpp, k.cpp, v.cpp, expected.cpp, same_options(),
                    {.wide_log_sum_exp = sums.data()});
  EXPECT_EQ(out.values, expected.values);
  EXPECT_EQ(wide_sums, sums);
  EXPECT_EQ(log_sum_exp_.back(), static_cast<float>(sums.back()));

  const WideTensor d_q(q_), d_k(k_), d_v(v_), e_q(q_), e_k(k_), e_v(v_);
  const auto backward = [&] {
    return phasor_attend_backward(encoding.get(), &q.c, &k.c, &v.c, &out.c, &d_out.c, &d_q.c,
                                  &d_k.c, &d_v.c, &options_);
  };
  ASSERT_EQ(backward(), PHASOR_OK) << phasor_last_error();
  attention::attend_backward(terms, q.cpp, k.cpp, v.cpp,
                             {expected.cpp, nullptr, d_out.cpp, sums.data()},
                             {e_q.cpp, e_k.cpp, e_v.cpp, {}}, same_options());
  EXPECT_EQ(d_q.values, e_q.values);
  EXPECT_EQ(d_k.values, e_k.values);
  EXPECT_EQ(d_v.values, e_v.values);

  options_.wide_log_sum_exp_count = 7;
  expect_status(backward(), PHASOR_SHAPE_MISMATCH, {"wide_log_sum_exp_count", "20", "7"});
  options_.wide_log_sum_exp = nullptr;
  expect_status(backward(), PHASOR_INVALID_ARGUMENT, {"wide_log_sum_exp", "NULL"});
  expect_status(phasor_attend(nullptr, &q.c, &k_.c, &v.c, &out.c, nullptr), PHASOR_UNSUPPORTED,
                {"k", "f64", "f32"});
}

// A program that was built before wide_log_sum_exp passes a smaller struct_size, and nothing after
// it is read.
TEST_F(CapiAttention, TakesTheOptionsOfOlderPrograms) {
  std::vector<double> after(log_sum_exp_.size(), 7.0);
  options_.wide_log_sum_exp = after.data();
  options_.struct_size = offsetof(phasor_attend_options, wide_log_sum_exp);
  EXPECT_EQ(phasor_attend(nullptr, &q_.c, &k_.c, &v_.c, &out_.c, &options_), PHASOR_OK)
      << phasor_last_error();
  EXPECT_EQ(after, std::vector<double>(after.size(), 7.0));
}

TEST_F(CapiAttention, NoEncodingAndNoOptionsAreTheDefaults) {
  const Encoding none = parsed(R"({"encoding": "none"})");
  ASSERT_EQ(phasor_attend(none.get(), &q_.c, &k_.c, &v_.c, &out_.c, &options_), PHASOR_OK);
  const std::vector<float> named = out_.values;
  std::fill(out_.values.begin(), out_.values.end(), 0.0F);
  ASSERT_EQ(phasor_attend(nullptr, &q_.c, &k_.c, &v_.c, &out_.c, nullptr), PHASOR_OK);
  EXPECT_EQ(named, out_.values);
}

TEST_F(CapiAttention, ReadsTablesFromTheFolder) {
  io::NpyArray array = io::make_npy(io::NpyType::f32, {8, kHeads});
  for (std::size_t i = 0; i < 8 * kHeads; ++i) {
    const float value = std::cos(static_cast<float>(i));
    std::memcpy(array.bytes.data() + i * sizeof(float), &value, sizeof(float));
  }
  ASSERT_TRUE(io::write_npy(at("bias.npy"), array).ok());
  const std::string json =
      R"({"encoding": "t5", "num_buckets": 8, "max_distance": 16, "bidirectional": true,
          "relative_attention_bias": "bias.npy"})";
  const Encoding encoding = parsed(json, at("").c_str());
  ASSERT_EQ(phasor_attend(encoding.get(), &q_.c, &k_.c, &v_.c, &out_.c, &options_), PHASOR_OK);
  const config::LoadedEncoding loaded = config::parse_encoding(json, at("")).value_or_throw();
  Tensor expected(kQueries, kHeads, 0.0F);
  attention::attend(config::resolve(loaded, shape()), q_.cpp, k_.cpp, v_.cpp, expected.cpp);
  EXPECT_EQ(out_.values, expected.values);
  phasor_encoding* missing = nullptr;
  expect_status(phasor_encoding_parse(json.c_str(), at("nowhere").c_str(), &missing), PHASOR_IO,
                "bias.npy");
  EXPECT_EQ(missing, nullptr);
}

TEST_F(CapiAttention, XlnetGetsItsSegments) {
  std::string rows;
  for (int r = 0; r < 2 * kKeys; ++r) rows += (r == 0 ? "" : ",") + table(kHeads, kDim, 0.1 * r);
  const std::string per_head = table(kHeads, kDim);
  const std::string json = R"({"encoding": "xlnet", "first_distance": 9, "k_head_r": [)" + rows +
                           R"(], "r_w_bias": )" + per_head + R"(, "r_r_bias": )" + per_head +
                           R"(, "r_s_bias": )" + per_head + R"(, "seg_embed": [)" + per_head + "," +
                           table(kHeads, kDim, 2.0) + "]}";
  const Encoding encoding = parsed(json);
  ASSERT_NE(encoding, nullptr);
  std::vector<std::int32_t> queries(kQueries, 1), keys(kKeys, 0);
  keys.back() = 1;
  options_.query_segments = queries.data();
  options_.query_segment_count = queries.size();
  options_.key_segments = keys.data();
  options_.key_segment_count = keys.size();
  ASSERT_EQ(phasor_attend(encoding.get(), &q_.c, &k_.c, &v_.c, &out_.c, &options_), PHASOR_OK)
      << phasor_last_error();
  const config::LoadedEncoding loaded = config::parse_encoding(json, ".").value_or_throw();
  attention::AttentionOptions options;
  options.query_segments = queries;
  options.key_segments = keys;
  Tensor expected(kQueries, kHeads, 0.0F);
  attention::attend(config::resolve(loaded, shape()), q_.cpp, k_.cpp, v_.cpp, expected.cpp,
                    options);
  EXPECT_EQ(out_.values, expected.values);
  keys.assign(kKeys, 0);
  ASSERT_EQ(phasor_attend(encoding.get(), &q_.c, &k_.c, &v_.c, &out_.c, &options_), PHASOR_OK);
  EXPECT_NE(out_.values, expected.values);
  options_.key_segment_count = 0;
  expect_attend(PHASOR_INVALID_ARGUMENT, {"5", "9", "0"}, encoding.get());
}

TEST_F(CapiAttention, LinearGivesTheRoomsOwnBits) {
  phasor_rope_spec spec;
  phasor_rope* rope = nullptr;
  ASSERT_EQ(phasor_rope_spec_init(&spec, sizeof(spec)), PHASOR_OK);
  spec.head_dim = kDim;
  spec.layout = PHASOR_HALF;
  ASSERT_EQ(phasor_rope_create(&spec, 0, &rope), PHASOR_OK);
  const core::Rotary rotary{core::make_frequencies({kDim}), core::PairLayout::half, kDim};
  for (const auto features :
       {attention::FeatureMap::elu_plus_one, attention::FeatureMap::softmax_exp}) {
    phasor_linear_options options{};
    options.struct_size = sizeof(options);
    options.causality = PHASOR_CAUSAL;
    options.features = static_cast<phasor_feature_map>(features);
    options.threads = 1;
    ASSERT_EQ(phasor_linear_attend(rope, &q_.c, &k_.c, &v_.c, &out_.c, &options), PHASOR_OK)
        << phasor_last_error();
    Tensor expected(kQueries, kHeads, 0.0F);
    attention::linear_attend(
        rotary, q_.cpp, k_.cpp, v_.cpp, expected.cpp,
        {.causality = attention::Causality::bottom_right, .features = features, .threads = 1});
    EXPECT_EQ(out_.values, expected.values);
  }
  phasor_rope_destroy(rope);
}

TEST_F(CapiAttention, RefusesNull) {
  phasor_encoding* encoding = nullptr;
  const phasor_heads *q = &q_.c, *k = &k_.c, *v = &v_.c, *out = &out_.c;
  set_options();
  const phasor_status all[] = {
      phasor_encoding_parse(nullptr, nullptr, &encoding),
      phasor_encoding_parse("{}", nullptr, nullptr),
      phasor_attend(nullptr, nullptr, k, v, out, nullptr),
      phasor_attend(nullptr, q, nullptr, v, out, nullptr),
      phasor_attend(nullptr, q, k, nullptr, out, nullptr),
      phasor_attend(nullptr, q, k, v, nullptr, nullptr),
      phasor_attend_backward(nullptr, nullptr, k, v, out, out, q, k, v, &options_),
      phasor_attend_backward(nullptr, q, nullptr, v, out, out, q, k, v, &options_),
      phasor_attend_backward(nullptr, q, k, nullptr, out, out, q, k, v, &options_),
      phasor_attend_backward(nullptr, q, k, v, nullptr, out, q, k, v, &options_),
      phasor_attend_backward(nullptr, q, k, v, out, nullptr, q, k, v, &options_),
      phasor_attend_backward(nullptr, q, k, v, out, out, nullptr, k, v, &options_),
      phasor_attend_backward(nullptr, q, k, v, out, out, q, nullptr, v, &options_),
      phasor_attend_backward(nullptr, q, k, v, out, out, q, k, nullptr, &options_),
      phasor_attend_backward(nullptr, q, k, v, out, out, q, k, v, nullptr),
      phasor_linear_attend(nullptr, nullptr, k, v, out, nullptr),
      phasor_linear_attend(nullptr, q, nullptr, v, out, nullptr),
      phasor_linear_attend(nullptr, q, k, nullptr, out, nullptr),
      phasor_linear_attend(nullptr, q, k, v, nullptr, nullptr),
  };
  for (std::size_t i = 0; i < std::size(all); ++i) EXPECT_EQ(all[i], PHASOR_INVALID_ARGUMENT) << i;
  EXPECT_EQ(encoding, nullptr);
  // Backward without the forward's sums.
  options_.log_sum_exp = nullptr;
  expect_status(phasor_attend_backward(nullptr, q, k, v, out, out, q, k, v, &options_),
                PHASOR_INVALID_ARGUMENT, {"log_sum_exp", "NULL"});
}

TEST_F(CapiAttention, RefusesWrongChoices) {
  options_.causality = 2;
  expect_attend(PHASOR_INVALID_ARGUMENT, {"causality", "1", "2"});
  options_.causality = 0;
  options_.window = -3;
  expect_attend(PHASOR_INVALID_ARGUMENT, "-3");
  options_.window = 0;
  options_.threads = -1;
  expect_attend(PHASOR_INVALID_ARGUMENT, {"threads", "-1"});
  options_.threads = 1;
  options_.isa = 99;
  expect_attend(PHASOR_INVALID_ARGUMENT, {"isa", "4", "99"});
  options_.isa = 0;
  options_.query_segment_count = 5;
  expect_attend(PHASOR_INVALID_ARGUMENT, {"query_segments", "NULL"});
  options_.query_segment_count = 0;
  options_.log_sum_exp = log_sum_exp_.data();
  options_.log_sum_exp_count = 7;
  expect_attend(PHASOR_SHAPE_MISMATCH, {"log_sum_exp_count", "20", "7"});
  options_.log_sum_exp = nullptr;
  options_.struct_size = 8;
  expect_attend(PHASOR_INVALID_ARGUMENT, {"struct_size", "options"});
  phasor_linear_options linear{};
  linear.struct_size = sizeof(linear);
  linear.features = 5;
  expect_status(phasor_linear_attend(nullptr, &q_.c, &k_.c, &v_.c, &out_.c, &linear),
                PHASOR_INVALID_ARGUMENT, {"features", "2", "5"});
}

TEST_F(CapiAttention, RefusesWhatTheRoomsRefuse) {
  expect_parse(R"({"encoding": "t6"})", PHASOR_INVALID_ARGUMENT, "t6");
  expect_parse(R"({"encoding": )", PHASOR_INVALID_ARGUMENT, "encoding");
  k_.c.heads = 3;
  expect_attend(PHASOR_INVALID_ARGUMENT, {"heads", "4", "3"});
  k_.c.heads = kKeyHeads;
  out_.c = q_.c;
  expect_status(phasor_attend(nullptr, &q_.c, &k_.c, &v_.c, &out_.c, &options_),
                PHASOR_INVALID_ARGUMENT, "overlap");
}

}  // namespace
}  // namespace phasor
