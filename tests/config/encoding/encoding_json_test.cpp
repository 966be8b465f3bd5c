// Encodings written as JSON: what each name becomes, and what is refused in which words.
#include "phasor/config/encoding.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include "phasor/io/npy.hpp"
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
  EXPECT_EQ(encoding_refusal(xlnet + "}"),
            "e.json: first_distance: expected the distance of the first row, got nothing");
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

TEST_F(EncodingFiles, TablesLieBesideTheJson) {
  io::NpyArray array = io::make_npy(io::NpyType::f16, {3, 1});
  array.as<core::Half>()[2] = core::to_half(0.5F);
  ASSERT_TRUE(io::write_npy(at("rows.npy"), array).ok());
  io::testing::put(at("e.json"), R"({"encoding": "shaw", "clip": 1, "rel_k": "rows.npy"})");
  const LoadedEncoding loaded = read_encoding(at("e.json")).value_or_throw();
  EXPECT_EQ(only_part<encodings::Shaw>(loaded).keys.row(0, 2)[0], 0.5F);
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
    std::string text, message;
  };
  const std::string shaw = R"({"encoding": "shaw", "clip": 1, "rel_k": )";
  const std::vector<Refusal> refusals = {
      {R"({"encoding": "weave"})",
       "e.json: encoding: expected one of alibi, bert_relative, conformer_relative, deberta_v1, "
       "deberta_v2, none, rope, shaw, t5, transformer_xl, tupe, xlnet, xpos, got \"weave\""},
      {R"({"encoding": "sinusoidal"})",
       "e.json: encoding: expected an encoding inside attention, got sinusoidal, which is added to "
       "the input before the projections"},
      {R"({"encoding": 7})", "e.json: encoding: expected a string, got 7"},
      {R"({"encoding": null})", "e.json: encoding: expected a name, got nothing"},
      {R"({"encoding": []})",
       "e.json: encoding: expected at least one encoding, got an empty list"},
      {R"({"encoding": ["rope"]})", "e.json: encoding[0]: expected an object, got \"rope\""},
      {R"({"encoding": [{"encoding": "none", "scale": 1}]})",
       "e.json: encoding[0].scale: expected it beside the list, got it inside"},
      {R"({"encoding": "none", "base": 1})",
       "e.json: base: expected one of encoding, scale, got an unknown key"},
      {R"({"encoding": "alibi", "maxbias": 8})",
       "e.json: maxbias: expected one of encoding, max_bias, order, slopes, scale, got an unknown "
       "key"},
      {R"({"encoding": "alibi", "slopes": [1], "max_bias": 8})",
       "e.json: slopes: expected slopes alone, got max_bias or order beside them"},
      {R"({"encoding": "alibi", "order": "random"})",
       "e.json: order: expected bloom or mpt, got \"random\""},
      {R"({"encoding": "t5", "relative_attention_bias": [[1], [2]], "num_buckets": 3})",
       "e.json: num_buckets: expected the 2 of relative_attention_bias, got 3"},
      {R"({"encoding": "t5"})",
       "e.json: relative_attention_bias: expected a table [bucket, head], got nothing"},
      {shaw + "[1, 2]}",
       "e.json: rel_k: expected a table [relative, dim] or [head, relative, dim], got the shape "
       "[2]"},
      {shaw + "[[1, 2], [3]]}", "e.json: rel_k: expected lists of one length, got 2 and 1 numbers"},
      {shaw + "[[1, 2], 3]}",
       "e.json: rel_k: expected lists of one depth, got the number 3 beside a list"},
      {shaw + "[[1], [\"2\"]]}",
       "e.json: rel_k: expected nested lists of numbers, got \"2\" in them"},
      {shaw + "[[1], [1e39]]}",
       "e.json: rel_k: expected numbers in the range of float32, got 9.9999999999999994e+38"},
      {shaw + "[]}",
       "e.json: rel_k: expected a table [relative, dim] or [head, relative, dim], got the shape "
       "[0]"},
      {shaw + "[[]]}", "e.json: rel_k: expected at least one number, got the shape [1, 0]"},
      {shaw + "7}", "e.json: rel_k: expected a .npy file or nested lists of numbers, got 7"},
      {shaw + R"({"sinusoidal": {}}})",
       "e.json: rel_k.sinusoidal.dim: expected the width of a head, got nothing"},
      {shaw + R"({"sinusoidal": {"dim": 4, "variant": "round"}}})",
       "e.json: rel_k.sinusoidal.variant: expected interleaved, concat or fairseq, got \"round\""},
      {shaw + R"({"sinusoidal": {"dim": 1000000000}}})",
       "e.json: sinusoidal: expected at most 16777216 numbers, got 3 rows of 1000000000"},
      {shaw + R"({"learned": {}}})", "e.json: rel_k.sinusoidal: expected an object, got nothing"},
      {R"({"encoding": "shaw", "rel_k": [[1]]})",
       "e.json: clip: expected clip, or left and right, got another choice"},
      {R"({"encoding": "shaw", "clip": -1, "rel_k": [[1]]})",
       "e.json: clip: expected distances from 0 to 16777216, got -1"},
      {R"({"encoding": "shaw", "clip": 1})", "e.json: rel_k: expected rel_k or rel_v, got neither"},
      {R"({"encoding": "bert_relative", "distance_embedding": [[1], [2]]})",
       "e.json: distance_embedding: expected 2 max_position_embeddings - 1 rows, got 2"},
      {R"({"encoding": "bert_relative", "distance_embedding": [[1], [2], [3]],
           "max_position_embeddings": 3})",
       "e.json: max_position_embeddings: expected the 2 of distance_embedding, got 3"},
      {R"({"encoding": "bert_relative", "distance_embedding": [[1]],
           "position_embedding_type": "absolute"})",
       "e.json: position_embedding_type: expected relative_key or relative_key_query, got "
       "\"absolute\""},
      {R"({"encoding": "deberta_v2", "max_relative_positions": 1, "pos_att_type": ["p2p"]})",
       "e.json: pos_att_type: expected c2p and p2c, got \"p2p\""},
      {R"({"encoding": "deberta_v2", "max_relative_positions": 1, "pos_att_type": ["c2p"]})",
       "e.json: pos_k: expected a table with c2p and none without, got none"},
      {R"({"encoding": "deberta_v1", "max_relative_positions": 1, "pos_k": [[1], [2]],
           "position_buckets": 4})",
       "e.json: position_buckets: expected one of encoding, pos_k, pos_q, pos_att_type, "
       "max_relative_positions, scale, got an unknown key"},
      {R"({"encoding": "tupe", "pos_q": [[[1]]], "pos_k": [[[1]]], "reset_cls": true})",
       "e.json: reset_cls: expected false without theta1 and theta2, got true"},
      {R"({"encoding": "tupe", "pos_q": [[[1]]], "pos_k": [[[1]]], "theta1": [1]})",
       "e.json: theta1: expected theta1 and theta2, got one of them"},
      {R"({"encoding": "xlnet", "k_head_r": [[1]], "first_distance": 0, "r_s_bias": [[1]]})",
       "e.json: seg_embed: expected a table beside r_s_bias, got nothing"},
      {R"({"encoding": "conformer_relative", "pos_proj": [[1], [2]]})",
       "e.json: first_distance: expected the distance of the first row, got nothing"},
      {R"({"encoding": "rope", "config": 7})",
       "e.json: config: expected an object or a file's name, got 7"},
      {R"({"encoding": "rope", "layout": "half",
           "config": {"head_dim": 4, "layout": "interleaved"}})",
       "e.json: layout: expected the config's interleaved, got half"},
      {R"({"encoding": "rope", "head_dim": 4, "layout": "half", "basis": 3})",
       "e.json: rope: basis: expected one of head_dim, rotary_dim, rotary_offset, base, layout, "
       "max_position_embeddings, scaling, mrope, axial, xpos, got an unknown key"},
      {R"({"head_dim": 4, "basis": 3})",
       "e.json: basis: expected one of head_dim, rotary_dim, rotary_offset, base, layout, "
       "max_position_embeddings, scaling, mrope, axial, xpos, got an unknown key"},
      {R"({"encoding": "none", "encoding": "rope"})",
       "e.json: encoding: a key must appear once in an object, got it twice"},
      {"{", "e.json: expected JSON, got something else at line 1, column 2"},
  };
  for (const Refusal& refusal : refusals)
    EXPECT_EQ(encoding_refusal(refusal.text), refusal.message) << refusal.text;
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
  EXPECT_GE(examples, 13u);  // one for each name at least
}

}  // namespace
}  // namespace phasor::config
