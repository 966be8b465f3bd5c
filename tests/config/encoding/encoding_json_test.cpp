// Encodings written as JSON: what each name becomes, and what is refused.
#include "phasor/config/encoding.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include "phasor/io/npy.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::config {
namespace {

using encodings::AttentionShape;
using encodings::Encoding;
using encodings::ScoreTerms;
using encodings::Table;

constexpr std::int64_t kHeads = 2, kDim = 4, kTokens = 3;

AttentionShape three_tokens() {
  AttentionShape shape;
  shape.heads = shape.key_heads = kHeads;
  shape.head_dim = shape.value_dim = kDim;
  shape.query_tokens = shape.key_tokens = kTokens;
  return shape;
}

EncodingRequest for_three_tokens() {
  EncodingRequest request;
  request.shape = three_tokens();
  return request;
}

LoadedEncoding loaded_of(const std::string& text, const EncodingRequest& request = {}) {
  return parse_encoding(text, ".", "e.json", request).value_or_throw();
}

template <class T>
T only_part(const LoadedEncoding& loaded) {
  EXPECT_EQ(loaded.parts.size(), 1u);
  return std::get<T>(loaded.parts.at(0));
}

std::string encoding_refusal(const std::string& text, const EncodingRequest& request = {}) {
  const Result<LoadedEncoding> loaded = parse_encoding(text, ".", "e.json", request);
  return loaded.ok() ? "" : loaded.error().what();
}

// A table of zeros written inline.
std::string zeros(const std::vector<int>& shape, std::size_t axis = 0) {
  if (axis == shape.size()) return "0";
  std::string text = "[";
  for (int i = 0; i < shape[axis]; ++i) {
    if (i > 0) text += ',';
    text += zeros(shape, axis + 1);
  }
  text += ']';
  return text;
}

TEST(EncodingJson, NoneAndScale) {
  const LoadedEncoding loaded = loaded_of(R"({"encoding": "none", "scale": 0.25})");
  EXPECT_TRUE(std::holds_alternative<encodings::NoEncoding>(loaded.parts.at(0)));
  EXPECT_EQ(resolve(loaded, three_tokens()).scale, 0.25);
  EXPECT_EQ(resolve(loaded_of(R"({"encoding": "none"})"), three_tokens()).scale, 0.5);
}

TEST(EncodingJson, RopeFromEveryForm) {
  const std::vector<std::string> forms = {
      R"({"head_dim": 4, "base": 500, "layout": "half"})",
      R"({"encoding": "rope", "head_dim": 4, "base": 500, "layout": "half"})",
      R"({"encoding": "rope", "base": 500, "layout": "half"})",
      R"({"encoding": "rope", "layout": "half", "config": {"head_dim": 4, "base": 500}})",
      R"({"encoding": "rope", "layout": "half", "config": {"head_dim": 4,
          "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}})",
      R"({"encoding": "rope", "config": {"model_type": "llama", "hidden_size": 8,
          "num_attention_heads": 2, "max_position_embeddings": 64, "rope_theta": 500.0}})",
      R"({"encoding": [{"encoding": "rope", "base": 500, "layout": "half"}]})",
  };
  for (const std::string& form : forms) {
    const auto spec = only_part<encodings::RopeSpec>(loaded_of(form, for_three_tokens()));
    EXPECT_EQ(spec.head_dim, 4) << form;
    EXPECT_EQ(spec.base, 500.0) << form;
    EXPECT_EQ(spec.layout, core::PairLayout::half) << form;
  }
}

TEST(EncodingJson, RopeOfALayer) {
  const std::string config =
      R"({"model_type": "gemma3_text", "hidden_size": 16, "num_attention_heads": 2, "head_dim": 8,
          "num_key_value_heads": 1, "max_position_embeddings": 64, "num_hidden_layers": 2,
          "layer_types": ["sliding_attention", "full_attention"],
          "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1000.0},
                              "sliding_attention": null}})";
  EncodingRequest request;
  request.layer = "1";
  EXPECT_EQ(only_part<encodings::RopeSpec>(loaded_of(config, request)).base, 1000.0);
  // A layer without rotation has no encoding.
  request.layer = "sliding_attention";
  (void)only_part<encodings::NoEncoding>(loaded_of(config, request));
  const std::string named =
      R"({"encoding": "rope", "layer": "full_attention", "config": )" + config + "}";
  EXPECT_EQ(only_part<encodings::RopeSpec>(loaded_of(named)).base, 1000.0);
}

TEST(EncodingJson, TheScaleOfAModelIsKept) {
  // YaRN as DeepSeek has it: the scores' factor grows with mscale_all_dim.
  const LoadedEncoding loaded = loaded_of(
      R"({"model_type": "deepseek_v3", "hidden_size": 64, "num_attention_heads": 2,
          "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
          "max_position_embeddings": 4096, "rope_theta": 10000.0,
          "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1,
                           "mscale": 1.0, "mscale_all_dim": 1.0,
                           "original_max_position_embeddings": 64}})");
  const double gain = 0.1 * std::log(40.0) + 1.0;
  ASSERT_TRUE(loaded.scale.has_value());
  EXPECT_NEAR(*loaded.scale, gain * gain / 4.0, 1e-12);
}

TEST(EncodingJson, Xpos) {
  const auto spec = only_part<encodings::RopeSpec>(loaded_of(
      R"({"encoding": "xpos", "head_dim": 4, "layout": "interleaved", "scale_base": 256,
          "gamma": 0.3, "centre": 7})"));
  ASSERT_TRUE(spec.xpos.has_value());
  EXPECT_EQ(spec.xpos->scale_base, 256.0);
  EXPECT_EQ(spec.xpos->gamma, 0.3);
  EXPECT_EQ(spec.xpos->centre, 7.0);
  const auto middle = only_part<encodings::RopeSpec>(loaded_of(
      R"({"encoding": "xpos", "layout": "half", "centre": "middle_ceil"})", for_three_tokens()));
  EXPECT_EQ(middle.xpos->policy, encodings::Xpos::Centre::middle_ceil);
  EXPECT_EQ(middle.head_dim, kDim);
}

TEST(EncodingJson, KerpleParameters) {
  const LoadedEncoding loaded =
      loaded_of(R"({"encoding": "kerple", "r1": [1.2, 0.4], "r2": [0.1], "scale": 2})");
  const auto kerple = only_part<encodings::Kerple>(loaded);
  EXPECT_EQ(kerple.r1.heads, 2);
  EXPECT_EQ(kerple.r2.heads, 1);
  EXPECT_EQ(*kerple.r1.row(1, 0), 0.4F);
  EXPECT_EQ(kerple.r2.wide[0], 0.1) << "all digits of the file";
  AttentionShape shape = three_tokens();
  shape.heads = shape.key_heads = 2;
  const encodings::ScoreTerms terms = resolve(loaded, shape);
  EXPECT_EQ(terms.scale, 2.0);
  EXPECT_DOUBLE_EQ(terms.bias->table.wide[terms.bias->table.offset(1, 2)], -0.4 * std::log(1.2));
  tests::expect_error(ErrorCode::invalid_argument, {"r1", "got -1", "head 0"}, [&] {
    return resolve(loaded_of(R"({"encoding": "kerple", "r1": [-1], "r2": [1]})"), shape);
  });
}

TEST(EncodingJson, AlibiSlopes) {
  AttentionShape shape = three_tokens();
  shape.heads = shape.key_heads = 3;
  const auto slopes = [&](const std::string& text) {
    return resolve(loaded_of(text), shape).slopes;
  };
  EXPECT_EQ(slopes(R"({"encoding": "alibi"})"), encodings::alibi_slopes(3));
  EXPECT_EQ(slopes(R"({"encoding": "alibi", "max_bias": 4})"), encodings::alibi_slopes(3, 4.0));
  EXPECT_EQ(slopes(R"({"encoding": "alibi", "order": "mpt"})"),
            encodings::alibi_slopes(3, 8.0, encodings::SlopeOrder::mpt));
  EXPECT_EQ(slopes(R"({"encoding": "alibi", "slopes": [1, 0.5, 0.25]})"),
            (std::vector<double>{1.0, 0.5, 0.25}));
  EXPECT_THROW((void)slopes(R"({"encoding": "alibi", "slopes": [1, 0.5]})"), Error);
}

TEST(EncodingJson, TablesKeepTheirAxes) {
  const LoadedEncoding with_t5 = loaded_of(
      R"({"encoding": "t5", "relative_attention_bias": [[1, 2, 3], [4, 5, 6]], "num_buckets": 2,
          "max_distance": 9, "bidirectional": false})");
  const auto t5 = only_part<encodings::T5>(with_t5);
  EXPECT_EQ(t5.bias.heads, 3);
  EXPECT_EQ(t5.bias.rows, 2);
  EXPECT_EQ(t5.bias.dim, 1);
  EXPECT_EQ(*t5.bias.row(2, 0), 3.0F);
  EXPECT_EQ(*t5.bias.row(0, 1), 4.0F);
  EXPECT_EQ(t5.max_distance, 9);
  EXPECT_EQ(t5.range, encodings::BucketRange::past_only);

  const LoadedEncoding with_shaw = loaded_of(
      R"({"encoding": "shaw", "left": 0, "right": 1, "rel_k": [[1, 2], [3, 4]],
          "rel_v": [[[1], [2]], [[3], [4]]]})");
  const auto shaw = only_part<encodings::Shaw>(with_shaw);
  EXPECT_EQ(shaw.keys.heads, 1);
  EXPECT_EQ(shaw.keys.row(5, 1)[1], 4.0F);
  EXPECT_EQ(shaw.values.heads, 2);
  EXPECT_EQ(shaw.values.row(1, 0)[0], 3.0F);

  const LoadedEncoding with_xl = loaded_of(
      R"({"encoding": "transformer_xl", "u_bias": [[1, 2], [3, 4]],
          "r_head": [[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10], [11, 12]]]})");
  const auto xl = only_part<encodings::TransformerXl>(with_xl);
  EXPECT_EQ(xl.u.row(1, 0)[0], 3.0F);
  EXPECT_FALSE(xl.v.given());
  EXPECT_EQ(xl.rows.rows, 3);
  EXPECT_EQ(xl.rows.row(1, 2)[0], 11.0F);
  EXPECT_EQ(xl.first_distance, 2);
}

TEST(EncodingJson, FirstDistances) {
  const auto conformer = only_part<encodings::TransformerXl>(loaded_of(
      R"({"encoding": "conformer_relative", "pos_proj": )" + zeros({5, kHeads, kDim}) + "}"));
  EXPECT_EQ(conformer.first_distance, 2);
  const std::string xlnet = R"({"encoding": "xlnet", "k_head_r": )" + zeros({6, kHeads, kDim});
  EXPECT_EQ(only_part<encodings::Xlnet>(loaded_of(xlnet + "}", for_three_tokens()))
                .relative.first_distance,
            kTokens);
  EXPECT_EQ(only_part<encodings::Xlnet>(loaded_of(xlnet + R"(, "first_distance": 4})"))
                .relative.first_distance,
            4);
  EXPECT_NE(encoding_refusal(xlnet + "}").find("first_distance"), std::string::npos);
}

TEST(EncodingJson, SinusoidalRows) {
  const LoadedEncoding loaded = loaded_of(
      R"({"encoding": "shaw", "left": 2, "right": 1,
          "rel_k": {"sinusoidal": {"variant": "concat", "dim": 4}}})");
  const auto shaw = only_part<encodings::Shaw>(loaded);
  ASSERT_EQ(shaw.keys.rows, 4);
  // Row r is the distance r - left; [sin | cos].
  EXPECT_FLOAT_EQ(shaw.keys.row(0, 0)[0], std::sin(-2.0F));
  EXPECT_FLOAT_EQ(shaw.keys.row(0, 3)[2], std::cos(1.0F));

  const LoadedEncoding with_xl = loaded_of(
      R"({"encoding": "transformer_xl", "r_head": {"sinusoidal": {"variant": "concat"}}})",
      for_three_tokens());
  const auto xl = only_part<encodings::TransformerXl>(with_xl);
  EXPECT_EQ(xl.first_distance, kTokens - 1);
  EXPECT_EQ(xl.rows.rows, 2 * kTokens - 1);
  EXPECT_FLOAT_EQ(xl.rows.row(0, 0)[0], std::sin(2.0F));
  EXPECT_FLOAT_EQ(xl.rows.row(0, 4)[0], std::sin(-2.0F));
}

TEST(EncodingJson, SeveralAtOnce) {
  const LoadedEncoding loaded = loaded_of(
      R"({"encoding": [{"encoding": "rope", "layout": "half"}, {"encoding": "alibi"}],
          "scale": 0.125})",
      for_three_tokens());
  ASSERT_EQ(loaded.parts.size(), 2u);
  const ScoreTerms terms = resolve(loaded, three_tokens());
  EXPECT_TRUE(terms.rotation.has_value());
  EXPECT_EQ(terms.slopes.size(), 2u);
  EXPECT_EQ(terms.scale, 0.125);
}

// RoPE divides by sqrt(head_dim) and T5 does not: the file says which.
TEST(EncodingJson, AGivenScaleIsThatOfAllParts) {
  const std::string parts = R"("encoding": [{"encoding": "rope", "layout": "half"},
      {"encoding": "t5", "relative_attention_bias": [[1, 2], [3, 4], [5, 6], [7, 8]], "num_buckets": 4}])";
  const LoadedEncoding given = loaded_of("{" + parts + R"(, "scale": 0.125})", for_three_tokens());
  EXPECT_EQ(resolve(given, three_tokens()).scale, 0.125);
  const LoadedEncoding own = loaded_of("{" + parts + "}", for_three_tokens());
  tests::expect_error(ErrorCode::unsupported, {"0.5", "rope", "1", "t5"},
                      [&] { return resolve(own, three_tokens()); });
}

TEST(EncodingJson, AMoveKeepsTheTables) {
  LoadedEncoding first = loaded_of(
      R"({"encoding": "shaw", "clip": 0, "rel_k": [[1, 2, 3, 4]], "rel_v": [[5, 6, 7, 8]]})");
  const LoadedEncoding second = std::move(first);
  EXPECT_EQ(only_part<encodings::Shaw>(second).keys.row(0, 0)[3], 4.0F);
  EXPECT_EQ(only_part<encodings::Shaw>(second).values.row(0, 0)[0], 5.0F);
}

class EncodingFiles : public io::testing::TemporaryFolder {
 protected:
  void put_table(std::string_view name, io::NpyType type) const {
    const io::NpyArray array = io::make_npy(type, {3, 2});
    ASSERT_TRUE(io::write_npy(at(name), array).ok());
  }
};

TEST_F(EncodingFiles, TablesAreFilesNextToTheJson) {
  io::NpyArray array = io::make_npy(io::NpyType::f16, {3, 1});
  array.as<core::Half>()[2] = core::to_half(0.5F);
  ASSERT_TRUE(io::write_npy(at("rows.npy"), array).ok());
  io::testing::put(at("e.json"), R"({"encoding": "shaw", "clip": 1, "rel_k": "rows.npy"})");
  const LoadedEncoding loaded = read_encoding(at("e.json")).value_or_throw();
  EXPECT_EQ(only_part<encodings::Shaw>(loaded).keys.row(0, 2)[0], 0.5F);
}

// A document may come from anywhere: it names files of its own folder alone.
TEST_F(EncodingFiles, FilesOutsideTheFolderAreRefused) {
  std::filesystem::create_directories(at("inner/tables"));
  put_table("rows.npy", io::NpyType::f32);
  put_table("inner/tables/rows.npy", io::NpyType::f32);
  io::testing::put(at("config.json"), R"({"head_dim": 2, "layout": "half"})");
  std::filesystem::create_symlink(at("rows.npy"), at("inner/link.npy"));
  const auto read = [&](const std::string& json) {
    io::testing::put(at("inner/e.json"), json);
    return read_encoding(at("inner/e.json"));
  };
  const auto shaw = [&](const std::string& name) {
    return read(R"({"encoding": "shaw", "clip": 1, "rel_k": ")" + name + R"("})");
  };
  for (const std::string& name : {std::string("../rows.npy"), std::string("tables/../../rows.npy"),
                                  at("rows.npy").string(), std::string()}) {
    tests::expect_error(ErrorCode::invalid_argument, {"rel_k", "folder"}, shaw(name));
  }
  for (const std::string& name : {std::string("../config.json"), at("config.json").string()}) {
    tests::expect_error(ErrorCode::invalid_argument, {"config", "folder"},
                        read(R"({"encoding": "rope", "config": ")" + name + R"("})"));
  }
  EXPECT_TRUE(shaw("tables/rows.npy").ok());
  EXPECT_TRUE(shaw("link.npy").ok());  // whoever makes a link could copy the file
}

TEST_F(EncodingFiles, BadFilesAreNamed) {
  put_table("f64.npy", io::NpyType::f64);
  put_table("i32.npy", io::NpyType::i32);
  io::testing::put(at("broken.npy"), "not an array");
  for (const std::string name : {"f64.npy", "i32.npy", "broken.npy", "missing.npy"}) {
    io::testing::put(at("e.json"),
                     R"({"encoding": "shaw", "clip": 1, "rel_k": ")" + name + R"("})");
    const Result<LoadedEncoding> loaded = read_encoding(at("e.json"));
    ASSERT_FALSE(loaded.ok()) << name;
    const std::string line = loaded.error().what();
    EXPECT_NE(line.find("rel_k: "), std::string::npos) << line;
    EXPECT_NE(line.find(name), std::string::npos) << line;
  }
  EXPECT_FALSE(read_encoding(at("none.json")).ok());
}

TEST(EncodingJson, Refusals) {
  struct Refusal {
    std::string text;
    std::vector<std::string> values;  // that the message shows
  };
  const std::string shaw = R"({"encoding": "shaw", "clip": 1, "rel_k": )";
  const std::vector<Refusal> refusals = {
      {R"({"encoding": "weave"})", {"encoding", "weave"}},
      {R"({"encoding": "sinusoidal"})", {"encoding", "sinusoidal"}},
      {R"({"encoding": 7})", {"encoding", "7"}},
      {R"({"encoding": null})", {"encoding"}},
      {R"({"encoding": []})", {"encoding"}},
      {R"({"encoding": ["rope"]})", {"encoding[0]", "rope"}},
      {R"({"encoding": [{"encoding": "none", "scale": 1}]})", {"encoding[0].scale"}},
      {R"({"encoding": "none", "base": 1})", {"base"}},
      {R"({"encoding": "alibi", "maxbias": 8})", {"maxbias"}},
      {R"({"encoding": "alibi", "slopes": [1], "max_bias": 8})", {"slopes"}},
      {R"({"encoding": "alibi", "order": "random"})", {"order", "random"}},
      {R"({"encoding": "t5", "relative_attention_bias": [[1], [2]], "num_buckets": 3})",
       {"num_buckets", "2", "3"}},
      {R"({"encoding": "kerple", "r1": [1, 2]})", {"r2"}},
      {R"({"encoding": "kerple", "r1": [1], "r2": [[1]]})", {"r2", "[head]", "[1, 1]"}},
      {R"({"encoding": "kerple", "r1": [1], "r2": [1], "r3": [1]})", {"r3"}},
      {R"({"encoding": "t5"})", {"relative_attention_bias"}},
      {shaw + "[1, 2]}", {"rel_k", "[2]"}},
      {shaw + "[[1, 2], [3]]}", {"rel_k", "2", "1"}},
      {shaw + "[[1, 2], 3]}", {"rel_k", "3"}},
      {shaw + "[[1], [\"2\"]]}", {"rel_k", "2"}},
      {shaw + "[[1], [1e39]]}", {"rel_k", "9.9999999999999994e+38"}},
      {shaw + "[]}", {"rel_k", "[0]"}},
      {shaw + "[[]]}", {"rel_k", "[1, 0]"}},
      {shaw + "7}", {"rel_k", "7"}},
      {shaw + R"({"sinusoidal": {}}})", {"rel_k.sinusoidal.dim"}},
      {shaw + R"({"sinusoidal": {"dim": 4, "variant": "round"}}})",
       {"rel_k.sinusoidal.variant", "round"}},
      {shaw + R"({"sinusoidal": {"dim": 1000000000}}})",
       {"sinusoidal", "16777216", "3", "1000000000"}},
      {shaw + R"({"learned": {}}})", {"rel_k.sinusoidal"}},
      {R"({"encoding": "shaw", "rel_k": [[1]]})", {"clip"}},
      {R"({"encoding": "shaw", "clip": -1, "rel_k": [[1]]})", {"clip", "0", "16777216", "-1"}},
      {R"({"encoding": "shaw", "clip": 1})", {"rel_k"}},
      {R"({"encoding": "bert_relative", "distance_embedding": [[1], [2]]})",
       {"distance_embedding", "2", "1"}},
      {R"({"encoding": "bert_relative", "distance_embedding": [[1], [2], [3]],
           "max_position_embeddings": 3})",
       {"max_position_embeddings", "2", "3"}},
      {R"({"encoding": "bert_relative", "distance_embedding": [[1]],
           "position_embedding_type": "absolute"})",
       {"position_embedding_type", "absolute"}},
      {R"({"encoding": "deberta_v2", "max_relative_positions": 1, "pos_att_type": ["p2p"]})",
       {"pos_att_type", "p2p"}},
      {R"({"encoding": "deberta_v2", "max_relative_positions": 1, "pos_att_type": ["c2p"]})",
       {"pos_k"}},
      {R"({"encoding": "deberta_v1", "max_relative_positions": 1, "pos_k": [[1], [2]],
           "position_buckets": 4})",
       {"position_buckets"}},
      {R"({"encoding": "tupe", "pos_q": [[[1]]], "pos_k": [[[1]]], "reset_cls": true})",
       {"reset_cls"}},
      {R"({"encoding": "tupe", "pos_q": [[[1]]], "pos_k": [[[1]]], "theta1": [1]})", {"theta1"}},
      {R"({"encoding": "xlnet", "k_head_r": [[1]], "first_distance": 0, "r_s_bias": [[1]]})",
       {"seg_embed"}},
      {R"({"encoding": "conformer_relative", "pos_proj": [[1], [2]]})", {"first_distance"}},
      {R"({"encoding": "rope", "config": 7})", {"config", "7"}},
      {R"({"encoding": "rope", "layout": "half",
           "config": {"head_dim": 4, "layout": "interleaved"}})",
       {"layout"}},
      {R"({"encoding": "rope", "head_dim": 4, "layout": "half", "basis": 3})", {"basis"}},
      {R"({"head_dim": 4, "basis": 3})", {"basis"}},
      {R"({"encoding": "none", "encoding": "rope"})", {"encoding"}},
      {"{", {"1", "2"}},
  };
  for (const Refusal& refusal : refusals) {
    const std::string line = encoding_refusal(refusal.text);
    EXPECT_TRUE(line.starts_with("e.json: ")) << line << refusal.text;
    for (const std::string& value : refusal.values)
      EXPECT_NE(line.find(value), std::string::npos) << line << "\n" << value;
  }
}

TEST(EncodingJson, FormsHaveTheNamesThatAreRead) {
  const Result<LoadedEncoding> unknown = parse_encoding(R"({"encoding": "?"})", ".");
  ASSERT_FALSE(unknown);
  const std::string names = unknown.error().what();
  EXPECT_EQ(static_cast<std::size_t>(std::count(names.begin(), names.end(), ',')),
            encoding_forms().size() - 1);
  for (const EncodingForm& form : encoding_forms())
    EXPECT_NE(names.find(form.name), std::string::npos) << form.name << " in " << names;
}

TEST(EncodingJson, EveryExampleFitsThreeTokens) {
  std::size_t examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(PHASOR_EXAMPLES_DIR "/encodings")) {
    if (entry.path().extension() != ".json") continue;
    ++examples;
    Result<LoadedEncoding> loaded = read_encoding(entry.path(), for_three_tokens());
    ASSERT_TRUE(loaded.ok()) << loaded.error().what();
    EXPECT_NO_THROW((void)resolve(*loaded, three_tokens())) << entry.path();
  }
  EXPECT_GE(examples, 14u);  // one for each name at least
}

}  // namespace
}  // namespace phasor::config
