// phasor attend: what the library gives, whatever the encoding, and one line for what is wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "phasor/attention/linear.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/config/encoding.hpp"
#include "phasor/io/internal/json.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

namespace fs = std::filesystem;
using io::NpyType;

std::vector<float> wave(std::size_t count, float step) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = std::sin(step * static_cast<float>(i + 1)) * 1.5F;
  return values;
}

class Attend : public Phasor {
 protected:
  static constexpr std::int64_t kBatch = 2, kTokens = 3, kHeads = 2, kDim = 4;

  Attend()
      : none_(put_text("none.json", R"({"encoding": "none"})")),
        rope_(put_text("rope.json", R"({"head_dim": 4, "base": 100, "layout": "half"})")) {
    put_heads({kBatch, kTokens, kHeads, kDim});
  }

  void put_heads(const std::vector<std::int64_t>& shape) {
    std::size_t count = 1;
    for (const std::int64_t length : shape) count *= static_cast<std::size_t>(length);
    q_ = wave(count, 0.7F);
    k_ = wave(count, 1.1F);
    v_ = wave(count, 0.3F);
    (void)put_array("Q.npy", NpyType::f32, shape, q_);
    (void)put_array("K.npy", NpyType::f32, shape, k_);
    (void)put_array("V.npy", NpyType::f32, shape, v_);
  }

  [[nodiscard]] Outcome attend(const std::string& encoding,
                               const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"attend",      "--encoding", encoding,      "-q",
                                      file("Q.npy"), "-k",         file("K.npy"), "-v",
                                      file("V.npy"), "-o",         file("Y.npy")};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }

  void expect_done(const Outcome& outcome) const {
    EXPECT_EQ(outcome.exit, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
  }

  [[nodiscard]] std::vector<float> output(std::string_view name = "Y.npy") const {
    const io::NpyArray array = read(name);
    EXPECT_EQ(array.type, NpyType::f32);
    return {array.as<float>(), array.as<float>() + array.size()};
  }

  [[nodiscard]] static encodings::AttentionShape shape() {
    encodings::AttentionShape shape;
    shape.heads = shape.key_heads = kHeads;
    shape.head_dim = shape.value_dim = kDim;
    shape.query_tokens = shape.key_tokens = kTokens;
    return shape;
  }
  [[nodiscard]] static auto view(const std::vector<float>& values) {
    return core::heads_view(values.data(), kBatch, kTokens, kHeads, kDim);
  }

  // What the library itself gives.
  [[nodiscard]] std::vector<float> expected(const std::string& encoding,
                                            const attention::AttentionOptions& options = {}) const {
    config::EncodingRequest request;
    request.shape = attention::attention_shape(view(q_), view(k_), view(v_), options);
    const config::LoadedEncoding loaded = config::read_encoding(encoding, request).value_or_throw();
    std::vector<float> out(q_.size());
    attention::attend(config::resolve(loaded, *request.shape), view(q_), view(k_), view(v_),
                      core::heads_view(out.data(), kBatch, kTokens, kHeads, kDim), options);
    return out;
  }

  std::string none_, rope_;
  std::vector<float> q_, k_, v_;
};

TEST_F(Attend, every_example_gives_what_the_library_gives) {
  const std::string segments =
      put_array<std::int32_t>("S.npy", NpyType::i32, {kBatch, kTokens}, {0, 0, 1, 1, 0, 0});
  const std::vector<std::int32_t> ids = {0, 0, 1, 1, 0, 0};
  for (const auto& entry : fs::directory_iterator(PHASOR_EXAMPLES_DIR "/encodings")) {
    if (entry.path().extension() != ".json") continue;
    const std::string name = entry.path().stem().string();
    SCOPED_TRACE(name);
    attention::AttentionOptions options;
    std::vector<std::string> flags;
    if (name == "transformer_xl") {  // rows for the past only
      options.causality = attention::Causality::bottom_right;
      flags = {"--causal"};
    }
    if (name == "xlnet_segments") {
      options.query_segments = options.key_segments = ids;
      flags = {"--segments", segments};
    }
    expect_done(attend(entry.path().string(), flags));
    EXPECT_EQ(output(), expected(entry.path().string(), options));
    EXPECT_EQ(output() == expected(none_, options), name == "none");
  }
}

TEST_F(Attend, flags_reach_the_library) {
  attention::AttentionOptions options;
  options.causality = attention::Causality::bottom_right;
  expect_done(attend(rope_, {"--causal"}));
  EXPECT_EQ(output(), expected(rope_, options));
  options.window = 2;
  expect_done(attend(rope_, {"--causal", "--window", "2"}));
  EXPECT_EQ(output(), expected(rope_, options));
  options = {};
  options.scale = 0.75;
  options.soft_cap = 0.5;
  expect_done(attend(rope_, {"--scale", "0.75", "--soft-cap", "0.5", "--threads", "1"}));
  EXPECT_EQ(output(), expected(rope_, options));

  options = {};
  const std::vector<std::uint8_t> padding = {0, 1, 1, 1, 1, 0};
  options.key_padding = padding;
  expect_done(attend(rope_, {"--key-padding", put_array("P.npy", NpyType::u8, {2, 3}, padding)}));
  EXPECT_EQ(output(), expected(rope_, options));

  options = {};
  const std::vector<std::int64_t> lengths = {3, 2};
  options.key_lengths = lengths;
  expect_done(attend(rope_, {"--key-lengths", put_array("L.npy", NpyType::i64, {2}, lengths)}));
  EXPECT_EQ(output(), expected(rope_, options));
}

TEST_F(Attend, masks_of_every_rank_and_type) {
  const std::vector<std::uint8_t> seen = {1, 0, 1, 1, 1, 0, 0, 1, 1};
  std::vector<float> added, half_seen;
  for (const std::uint8_t flag : seen) added.push_back(flag != 0 ? 0.25F : -INFINITY);
  const std::vector<std::vector<std::int64_t>> shapes = {{3, 3}, {1, 3, 3}, {1, 1, 3, 3}};
  for (const std::vector<std::int64_t>& mask_shape : shapes) {
    attention::AttentionOptions options;
    options.mask =
        attention::boolean_mask(seen.data(), mask_shape, kBatch, kHeads, kTokens, kTokens);
    for (const NpyType type : {NpyType::boolean, NpyType::u8}) {
      expect_done(attend(rope_, {"--mask", put_array("M.npy", type, mask_shape, seen)}));
      EXPECT_EQ(output(), expected(rope_, options));
    }
    options.mask =
        attention::additive_mask(added.data(), mask_shape, kBatch, kHeads, kTokens, kTokens);
    expect_done(attend(rope_, {"--mask", put_array("M.npy", NpyType::f32, mask_shape, added)}));
    EXPECT_EQ(output(), expected(rope_, options));
  }
}

TEST_F(Attend, positions_of_a_rope) {
  attention::AttentionOptions options;
  const std::vector<std::int64_t> ids = {4, 9, 11};
  options.query_positions = options.key_positions = core::positions_per_token(ids);
  expect_done(attend(rope_, {"--positions", put_array("P.npy", NpyType::i64, {3}, ids)}));
  EXPECT_EQ(output(), expected(rope_, options));

  options.query_positions = options.key_positions = core::positions_from(7);
  expect_done(attend(rope_, {"--offset", "7"}));
  EXPECT_EQ(output(), expected(rope_, options));

  const std::vector<std::int64_t> queries = {0, 0, 0};
  options.query_positions = core::positions_per_token(queries);
  expect_done(attend(rope_, {"--offset", "7", "--query-positions",
                             put_array("QP.npy", NpyType::i64, {3}, queries)}));
  EXPECT_EQ(output(), expected(rope_, options));
}

// Every encoding reads them, or the tables of the example have no rows for them.
TEST_F(Attend, positions_of_distances) {
  const std::vector<std::int64_t> ids = {0, 2, 1, 1, 0, 2};
  const std::string positions = put_array("P.npy", NpyType::i64, {kBatch, kTokens}, ids);
  attention::AttentionOptions options;
  options.query_positions = options.key_positions =
      core::positions_per_row(ids.data(), 1, kBatch, kTokens);
  int done = 0;
  for (const auto& entry : fs::directory_iterator(PHASOR_EXAMPLES_DIR "/encodings")) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() != ".json" || name == "none" || name == "xlnet_segments") continue;
    SCOPED_TRACE(name);
    std::vector<float> want;
    try {
      want = expected(entry.path().string(), options);
    } catch (const Error& error) {
      fs::remove(file("Y.npy"));
      expect_refusal(attend(entry.path().string(), {"--positions", positions}), "attend", {});
      EXPECT_EQ(error.code(), ErrorCode::out_of_range) << error.what();
      continue;
    }
    expect_done(attend(entry.path().string(), {"--positions", positions}));
    EXPECT_EQ(output(), want);
    EXPECT_NE(output(), expected(entry.path().string()));
    ++done;
  }
  EXPECT_GT(done, 8);
}

TEST_F(Attend, queries_are_at_the_last_keys) {
  expect_done(attend(rope_, {"--causal"}));
  const std::vector<float> all = output();
  // The last query of each batch row alone.
  std::vector<float> last;
  const std::size_t row = kTokens * kHeads * kDim, token = kHeads * kDim;
  for (std::size_t batch = 0; batch < kBatch; ++batch) {
    const auto first = q_.begin() + static_cast<std::ptrdiff_t>((batch + 1) * row - token);
    last.insert(last.end(), first, first + token);
  }
  (void)put_array("Q.npy", NpyType::f32, {kBatch, 1, kHeads, kDim}, last);
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--causal"}, {"--positions", "0:3"}}) {
    expect_done(attend(rope_, flags));
    const std::vector<float> alone = output();
    ASSERT_EQ(alone.size(), kBatch * token);
    for (std::size_t i = 0; i < alone.size(); ++i)
      EXPECT_NEAR(alone[i], all[(i / token + 1) * row - token + i % token], 1e-6);
  }
}

TEST_F(Attend, arrays_without_batch_and_other_widths) {
  put_heads({kTokens, kHeads, kDim});
  const std::vector<float> values = wave(kTokens * 1 * 6, 0.9F);
  const std::vector<float> keys = wave(kTokens * 1 * kDim, 0.8F);
  (void)put_array("K.npy", NpyType::f32, {kTokens, 1, kDim}, keys);
  (void)put_array("V.npy", NpyType::f32, {kTokens, 1, 6}, values);
  expect_done(attend(none_, {"--probabilities", file("P.npy"), "--log-sum-exp", file("L.npy")}));
  EXPECT_EQ(read("Y.npy").shape, (std::vector<std::int64_t>{kTokens, kHeads, 6}));
  const io::NpyArray probabilities = read("P.npy");
  EXPECT_EQ(probabilities.shape, (std::vector<std::int64_t>{kHeads, kTokens, kTokens}));
  EXPECT_EQ(read("L.npy").shape, (std::vector<std::int64_t>{kHeads, kTokens}));
  for (std::int64_t at = 0; at < kHeads * kTokens; ++at) {
    double sum = 0.0;
    for (std::int64_t key = 0; key < kTokens; ++key)
      sum += probabilities.as<float>()[at * kTokens + key];
    EXPECT_NEAR(sum, 1.0, 1e-6);
  }
}

TEST_F(Attend, the_output_has_the_type_of_the_queries) {
  expect_done(attend(rope_));
  const std::vector<float> exact = output();
  std::vector<core::Half> halves;
  for (const float value : q_) halves.push_back(core::to_half(value));
  (void)put_array("Q.npy", NpyType::f16, {kBatch, kTokens, kHeads, kDim}, halves);
  expect_done(attend(rope_));
  const io::NpyArray half = read("Y.npy");
  ASSERT_EQ(half.type, NpyType::f16);
  for (std::size_t i = 0; i < exact.size(); ++i)
    EXPECT_NEAR(core::to_float(half.as<core::Half>()[i]), exact[i], 4e-3);
}

TEST_F(Attend, float64_is_computed_in_float64) {
  const std::vector<std::int64_t> shape = {kBatch, kTokens, kHeads, kDim};
  std::vector<double> wide[3];
  const std::vector<float>* const narrow[3] = {&q_, &k_, &v_};
  const char* const names[3] = {"Q.npy", "K.npy", "V.npy"};
  core::ConstHeadsView views[3];
  for (int i = 0; i < 3; ++i) {
    wide[i].assign(narrow[i]->begin(), narrow[i]->end());
    for (double& x : wide[i]) x /= 3.0;  // float32 holds none of them
    (void)put_array(names[i], NpyType::f64, shape, wide[i]);
    views[i] = core::heads_view(wide[i].data(), kBatch, kTokens, kHeads, kDim);
  }
  config::EncodingRequest request;
  request.shape = this->shape();
  const encodings::ScoreTerms terms =
      config::resolve(config::read_encoding(rope_, request).value_or_throw(), this->shape());
  std::vector<double> out(wide[0].size()), log_sum_exp(kBatch * kHeads * kTokens);
  const core::HeadsView out_view = core::heads_view(out.data(), kBatch, kTokens, kHeads, kDim);
  const auto written = [&](const char* name) {
    const io::NpyArray array = read(name);
    EXPECT_EQ(array.type, NpyType::f64);
    return std::vector<double>(array.as<double>(),
                               array.as<double>() + array.bytes.size() / sizeof(double));
  };
  expect_done(attend(rope_, {"--log-sum-exp", file("L.npy")}));
  attention::attend(terms, views[0], views[1], views[2], out_view, {},
                    {.wide_log_sum_exp = log_sum_exp.data()});
  EXPECT_EQ(written("Y.npy"), out);
  EXPECT_EQ(written("L.npy"), log_sum_exp);
  expect_done(attend(rope_, {"--kind", "linear"}));
  attention::linear_attend(terms.rotation, views[0], views[1], views[2], out_view);
  EXPECT_EQ(written("Y.npy"), out);
}

TEST_F(Attend, linear) {
  config::EncodingRequest request;
  request.shape = shape();
  const core::Rotary rotary =
      *config::resolve(config::read_encoding(rope_, request).value_or_throw(), shape()).rotation;
  std::vector<float> out(q_.size());
  const auto compare = [&](const std::optional<core::Rotary>& rotation,
                           const attention::LinearOptions& options) {
    attention::linear_attend(rotation, view(q_), view(k_), view(v_),
                             core::heads_view(out.data(), kBatch, kTokens, kHeads, kDim), options);
    EXPECT_EQ(output(), out);
  };
  attention::LinearOptions options;
  expect_done(attend(rope_, {"--kind", "linear"}));
  compare(rotary, options);
  options.causality = attention::Causality::bottom_right;
  options.features = attention::FeatureMap::softmax_exp;
  expect_done(attend(none_, {"--kind", "linear", "--causal", "--feature-map", "softmax_exp"}));
  compare(std::nullopt, options);
}

TEST_F(Attend, random_features) {
  std::vector<float> out(q_.size());
  attention::LinearOptions options;
  options.features = attention::FeatureMap::favor;
  options.feature_count = 6;
  options.seed = 3;
  const auto compare = [&](std::int64_t width) {
    const core::Rotary rotary{core::make_frequencies({width}), core::PairLayout::half, width};
    attention::linear_attend(rotary, view(q_), view(k_), view(v_),
                             core::heads_view(out.data(), kBatch, kTokens, kHeads, kDim), options);
    EXPECT_EQ(output(), out);
  };
  const std::string rope = R"({"encoding": "rope", "layout": "half"})";
  const std::vector<std::string> favor = {"--kind",          "linear", "--feature-map", "favor",
                                          "--feature-count", "6",      "--seed",        "3"};
  std::vector<std::string> flags = favor;
  flags.push_back("--json");
  const Outcome outcome = attend(rope, flags);
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  compare(6);
  const io::Json summary = io::Json::parse(outcome.out);
  EXPECT_EQ(summary["feature_map"], "favor");
  EXPECT_EQ(summary["feature_count"], 6);
  EXPECT_EQ(summary["seed"], 3);
  EXPECT_EQ(summary["rotates"], "features");
  flags = favor;
  flags.insert(flags.end(), {"--rotates", "inputs"});
  expect_done(attend(rope, flags));
  options.rotates = attention::Rotates::inputs;
  compare(kDim);
}

TEST_F(Attend, json_says_what_was_done) {
  const Outcome outcome = attend(rope_, {"--json", "--causal", "--window", "2"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const io::Json summary = io::Json::parse(outcome.out);
  EXPECT_EQ(summary["shape"], (std::vector<int>{2, 3, 2, 4}));
  EXPECT_EQ(summary["dtype"], "float32");
  EXPECT_EQ(summary["encoding"], (std::vector<std::string>{"rope"}));
  EXPECT_EQ(summary["kind"], "softmax");
  EXPECT_EQ(summary["causal"], true);
  EXPECT_EQ(summary["window"], 2);
  EXPECT_EQ(summary["scale"], 0.5);
}

TEST_F(Attend, a_context_taken_from_the_keys_is_printed) {
  const std::string dynamic =
      put_text("dynamic.json",
               R"({"head_dim": 4, "base": 100, "layout": "half", "max_position_embeddings": 2,
          "scaling": {"type": "dynamic", "factor": 2.0}})");
  const Outcome outcome = attend(dynamic);
  EXPECT_EQ(outcome.exit, 0);
  EXPECT_NE(outcome.err.find("context 3 "), std::string::npos) << outcome.err;
  expect_done(attend(dynamic, {"--context", "3"}));
}

TEST_F(Attend, refuses_arrays_that_do_not_fit) {
  const auto refuses = [&](const Values& values) {
    expect_refusal(attend(none_), "attend", values);
  };
  (void)put_array("K.npy", NpyType::f32, {2, 3, 2, 2}, wave(24, 1.1F));
  refuses("head_dim");
  put_heads({kBatch, kTokens, kHeads, kDim});
  (void)put_array("Q.npy", NpyType::f32, {2, 3, 3, 4}, wave(72, 1.0F));
  refuses({"heads", "3", "2"});
  (void)put_array("Q.npy", NpyType::f32, {12, 4}, q_);
  refuses({"[batch, tokens, heads, head_dim]", "[12, 4]"});
  (void)put_array("Q.npy", NpyType::f32, {6, 2, 4}, q_);
  refuses({"batch", "[6, 2, 4]"});
  (void)put_array("Q.npy", NpyType::f64, {2, 3, 2, 4}, std::vector<double>(48, 1.0));
  refuses({"f64", "f32"});
  (void)put_array("Q.npy", NpyType::i32, {2, 3, 2, 4}, std::vector<std::int32_t>(48, 1));
  refuses("int32");
  fs::remove(at("Q.npy"));
  refuses("Q.npy");
}

TEST_F(Attend, refuses_flags_that_do_not_fit) {
  const auto refuses = [&](const std::vector<std::string>& flags, const Values& values) {
    expect_refusal(attend(rope_, flags), "attend", values);
  };
  refuses({"--window", "0"}, {"--window", "0"});
  refuses({"--window", "-3"}, {"--window", "-3"});
  refuses({"--threads", "-1"}, "--threads");
  refuses({"--context", "0"}, "--context");
  refuses({"--scale", "nan"}, "--scale");
  refuses({"--soft-cap", "0"}, "--soft-cap");
  refuses({"--kind", "quadratic"}, "--kind");
  refuses({"--feature-map", "elu+1"}, "--kind linear");
  refuses({"--rotates", "inputs"}, {"--rotates", "--kind linear"});
  refuses({"--kind", "linear", "--feature-map", "favor"}, "--feature-count");
  refuses({"--kind", "linear", "--feature-count", "8"}, {"--feature-count", "favor"});
  refuses({"--kind", "linear", "--seed", "8"}, {"--seed", "favor"});
  refuses({"--kind", "linear", "--feature-map", "favor", "--feature-count", "6"},
          {"--feature-count", "6", "4", "--rotates"});
  refuses({"--kind", "linear", "--feature-map", "favor", "--feature-count", "65537", "--rotates",
           "inputs"},
          {"feature_count", "65537"});
  refuses({"--kind", "linear", "--window", "2"}, {"--window", "--kind"});
  refuses({"--kind", "linear", "--scale", "2"}, {"--scale", "--kind"});
  refuses({"--kind", "linear", "--probabilities", file("P.npy")}, "--probabilities");
  refuses({"--offset", "1", "--positions", "0:3"}, "--offset");
  refuses({"--positions", "0:4"}, {"positions", "[4]"});
  expect_refusal(attend(none_, {"--offset", "1"}), "attend", {"--offset", "none"});
  const std::vector<float> ones(27, 1.0F);
  const auto mask = [&](const std::vector<std::int64_t>& mask_shape, std::size_t count) {
    return std::vector<std::string>{
        "--mask", put_array("M.npy", NpyType::f32, mask_shape,
                            std::vector<float>(ones.begin(), ones.begin() + count))};
  };
  refuses(mask({3}, 3), {"mask", "[3]"});
  refuses(mask({1, 1, 1, 3, 3}, 9), {"mask", "[1, 1, 1, 3, 3]"});
  refuses(mask({3, 4}, 12), "[3, 4]");
  refuses(mask({3, 3, 3}, 27), "heads");
  refuses({"--mask", put_array<std::int64_t>("M.npy", NpyType::i64, {1, 3}, {1, 1, 1})},
          {"mask", "int64"});
  refuses({"--mask", file("none.npy")}, "none.npy");
  refuses({"--key-padding", put_array<std::uint8_t>("P.npy", NpyType::u8, {3}, {1, 1, 1})},
          {"--key-padding", "[2, 3]", "[3]"});
  refuses({"--key-lengths", put_array<float>("L.npy", NpyType::f32, {2}, {1.0F, 2.0F})},
          "--key-lengths");
  refuses({"--key-lengths", put_array<std::int64_t>("L.npy", NpyType::i64, {2}, {1, 4})}, "4");
  refuses({"--segments", put_array<std::int32_t>("S.npy", NpyType::i32, {2, 2}, {1, 1, 1, 1})},
          "--segments");
}

TEST_F(Attend, refuses_encodings_that_do_not_fit) {
  const auto refuses = [&](const std::string& text, const Values& values,
                           const std::vector<std::string>& flags = {}) {
    expect_refusal(attend(put_text("bad.json", text), flags), "attend", values);
  };
  refuses(R"({"encoding": "weave"})", "weave");
  refuses(R"({"encoding": "alibi", "maxbias": 8})", "maxbias");
  refuses(R"({"encoding": "learned"})", "learned");
  refuses(R"({"encoding": "shaw", "clip": 4, "rel_k": [[1, 2, 3, 4]]})", {"9", "1"});
  refuses(R"({"encoding": "shaw", "clip": 0, "rel_k": [[1, 2, 3]]})", {"4", "3"});
  refuses(R"({"encoding": "shaw", "clip": 1, "rel_k": "rows.npy"})", "rows.npy");
  refuses(R"({"encoding": "t5", "relative_attention_bias": [[1,2,3],[1,2,3],[1,2,3],[1,2,3]]})",
          "3");
  refuses(R"({"encoding": "bert_relative", "distance_embedding": [[1, 2, 3, 4]]})", {"-2", "2"});
  refuses(R"({"encoding": "transformer_xl", "r_head": [[1,2,3,4],[1,2,3,4],[1,2,3,4]]})", "-2");
  refuses(R"({"head_dim": 8, "base": 100, "layout": "half"})", "8");
  refuses(R"({"head_dim": 4, "base": 100})", "layout");
  refuses(R"({"encoding": [{"encoding": "rope", "layout": "half"},
                           {"encoding": "rope", "layout": "half"}]})",
          "rope");
  refuses(R"({"encoding": "alibi"})", {"--kind linear", "alibi"}, {"--kind", "linear"});
  expect_refusal(attend(PHASOR_EXAMPLES_DIR "/encodings/xlnet_segments.json"), "attend",
                 "--segments");
  expect_refusal(attend(file("none/E.json")), "attend", "E.json");
}

TEST_F(Attend, an_error_leaves_the_old_output_as_it_was) {
  (void)put_text("Y.npy", "old");
  EXPECT_EQ(attend(none_, {"--mask", put_text("M.npy", "broken")}).exit, 2);
  EXPECT_EQ(attend(none_, {"--probabilities", file("no/such/P.npy")}).exit, 2);
  EXPECT_EQ(io::testing::get(at("Y.npy")), "old");
}

}  // namespace
}  // namespace phasor::tools::testing
