// Models that do not rotate, or only in some layers: the encoding of each layer and its numbers, of
// configs as they are published.
#include "phasor/config/config.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "config/parsed.hpp"
#include "phasor/encodings/encoding.hpp"
#include "support/errors.hpp"

namespace phasor::config {
namespace {

using testing::parsed;

// A parameter as text: integers, numbers and words compare alike.
std::string text_of(const PositionParameter& parameter) {
  if (const auto* flag = std::get_if<bool>(&parameter.value)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<std::int64_t>(&parameter.value))
    return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&parameter.value)) return message(*number);
  if (const auto* text = std::get_if<std::string>(&parameter.value)) return *text;
  return message("list of ", std::get<std::vector<double>>(parameter.value).size());
}

using Numbers = std::map<std::string, std::string>;

Numbers numbers_of(const PositionEncoding& encoding) {
  Numbers numbers;
  for (const PositionParameter& parameter : encoding.parameters) {
    EXPECT_FALSE(parameter.key.empty()) << parameter.name;
    numbers[parameter.name] = text_of(parameter);
  }
  return numbers;
}

void expect_numbers(const PositionEncoding& encoding, const std::string& name,
                    const Numbers& expected) {
  EXPECT_EQ(encoding.name, name);
  const Numbers numbers = numbers_of(encoding);
  for (const auto& [key, value] : expected) {
    ASSERT_TRUE(numbers.contains(key)) << name << " " << key;
    EXPECT_EQ(numbers.at(key), value) << name << " " << key;
  }
}

struct PositionCase {
  std::string text;
  std::string name;
  Numbers numbers;
  std::size_t layers = 0;
};

TEST(ConfigPositions, OneEncodingForAllLayers) {
  const std::vector<PositionCase> cases = {
      {R"({"model_type": "bert", "hidden_size": 768, "num_attention_heads": 12,
           "num_hidden_layers": 12, "max_position_embeddings": 512,
           "position_embedding_type": "absolute"})",
       "learned_absolute",
       {{"rows", "512"}, {"first_row", "0"}, {"positions", "512"}, {"dim", "768"}},
       12},
      {R"({"model_type": "bert", "hidden_size": 768, "num_attention_heads": 12,
           "num_hidden_layers": 12, "max_position_embeddings": 512,
           "position_embedding_type": "relative_key_query"})",
       "bert_relative",
       {{"kind", "key_query"}, {"max_positions", "512"}, {"rows", "1023"}},
       12},
      {R"({"model_type": "bert", "hidden_size": 768, "num_attention_heads": 12,
           "num_hidden_layers": 12, "position_embedding_type": "alibi"})",
       "alibi",
       {{"heads", "12"}, {"slopes", "list of 12"}, {"range", "bidirectional"}},
       12},
      {R"({"model_type": "roberta", "hidden_size": 768, "num_attention_heads": 12,
           "num_hidden_layers": 12, "max_position_embeddings": 514, "pad_token_id": 1})",
       "learned_absolute",
       {{"rows", "514"}, {"first_row", "2"}, {"positions", "512"}},
       12},
      {R"({"model_type": "albert", "hidden_size": 768, "embedding_size": 128,
           "num_attention_heads": 12, "num_hidden_layers": 12, "max_position_embeddings": 512})",
       "learned_absolute",
       {{"rows", "512"}, {"dim", "128"}},
       12},
      {R"({"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024})",
       "learned_absolute",
       {{"rows", "1024"}, {"first_row", "0"}, {"dim", "768"}},
       12},
      {R"({"model_type": "opt", "hidden_size": 768, "num_attention_heads": 12,
           "num_hidden_layers": 12, "max_position_embeddings": 2048})",
       "learned_absolute",
       {{"rows", "2050"}, {"first_row", "2"}, {"positions", "2048"}},
       12},
      {R"({"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16})",
       "alibi",
       {{"max_bias", "8"}, {"heads", "16"}, {"slopes", "list of 16"}},
       24},
      {R"({"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32,
           "max_seq_len": 2048, "attn_config": {"alibi": true, "alibi_bias_max": 16}})",
       "alibi",
       {{"max_bias", "16"}, {"heads", "32"}, {"trained_length", "2048"}},
       32},
      {R"({"model_type": "mpt", "d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 128,
           "attn_config": {"alibi": false}})",
       "learned_absolute",
       {{"rows", "128"}},
       2},
      {R"({"model_type": "falcon", "alibi": true, "hidden_size": 2048, "num_attention_heads": 32,
           "num_hidden_layers": 24, "multi_query": false})",
       "alibi",
       {{"heads", "32"}, {"scaled_with_qk", "true"}},
       24},
      {R"({"model_type": "baichuan", "hidden_size": 5120, "num_attention_heads": 40,
           "num_hidden_layers": 40, "model_max_length": 4096})",
       "alibi",
       {{"heads", "40"}, {"slopes", "list of 40"}},
       40},
      {R"({"model_type": "deberta", "hidden_size": 768, "num_attention_heads": 12,
           "num_hidden_layers": 12, "max_position_embeddings": 512, "max_relative_positions": -1,
           "relative_attention": true, "position_biased_input": false, "pos_att_type": "c2p|p2c"})",
       "deberta",
       {{"version", "v1"},
        {"max_relative_positions", "512"},
        {"rows", "1024"},
        {"pos_att_type", "c2p|p2c"},
        {"position_biased_input", "false"}},
       12},
      {R"({"model_type": "deberta-v2", "hidden_size": 768, "num_attention_heads": 12,
           "num_hidden_layers": 12, "max_position_embeddings": 512, "max_relative_positions": -1,
           "relative_attention": true, "position_biased_input": false, "position_buckets": 256,
           "share_att_key": true, "pos_att_type": ["p2c", "c2p"]})",
       "deberta",
       {{"version", "v2"}, {"position_buckets", "256"}, {"rows", "512"}, {"share_att_key", "true"}},
       12},
      {R"({"model_type": "deberta-v2", "hidden_size": 64, "num_attention_heads": 4,
           "num_hidden_layers": 2})",
       "learned_absolute",
       {{"rows", "512"}},
       2},
      {R"({"model_type": "xlnet", "d_model": 768, "n_head": 12, "n_layer": 12, "d_head": 64,
           "attn_type": "bi", "clamp_len": -1})",
       "xlnet",
       {{"dim", "768"}, {"range", "bidirectional"}, {"segment_rows", "2"}},
       12},
      {R"({"model_type": "transfo-xl", "d_model": 1024, "n_head": 16, "n_layer": 18, "d_head": 64,
           "clamp_len": 1000, "mem_len": 1600})",
       "transformer_xl",
       {{"max_distance", "1000"}, {"mem_len", "1600"}, {"range", "past_only"}},
       18},
      {R"({"model_type": "vit", "hidden_size": 768, "num_attention_heads": 12,
           "num_hidden_layers": 12, "image_size": 224, "patch_size": 16})",
       "learned_absolute",
       {{"rows", "197"}, {"grid_height", "14"}, {"grid_width", "14"}, {"class_rows", "1"}},
       12},
      {R"({"model_type": "siglip_vision_model", "hidden_size": 1152, "num_attention_heads": 16,
           "num_hidden_layers": 27, "image_size": 384, "patch_size": 14})",
       "learned_absolute",
       {{"rows", "729"}, {"class_rows", "0"}},
       27},
      {R"({"model_type": "beit", "hidden_size": 768, "num_attention_heads": 12,
           "num_hidden_layers": 12, "image_size": 224, "patch_size": 16,
           "use_relative_position_bias": true})",
       "relative_bias_2d",
       {{"rows", "732"}, {"table", "one per layer"}},
       12},
      {R"({"model_type": "swin", "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24],
           "window_size": 7})",
       "relative_bias_2d",
       {{"window_height", "7"}, {"rows", "169"}, {"shift", "3"}, {"heads", "list of 4"}},
       12},
      {R"({"model_type": "wav2vec2", "hidden_size": 768, "num_attention_heads": 12,
           "num_hidden_layers": 12, "num_conv_pos_embeddings": 128,
           "num_conv_pos_embedding_groups": 16})",
       "convolution",
       {{"kernel", "128"}, {"groups", "16"}},
       12},
      {R"({"model_type": "wav2vec2-bert", "hidden_size": 1024, "num_attention_heads": 16,
           "num_hidden_layers": 24, "position_embeddings_type": "relative_key",
           "left_max_position_embeddings": 64, "right_max_position_embeddings": 8})",
       "shaw",
       {{"left", "64"}, {"right", "8"}, {"rows", "73"}},
       24},
      {R"({"model_type": "ctrl", "n_embd": 1280, "n_head": 16, "n_layer": 48,
           "n_positions": 50000})",
       "sinusoidal",
       {{"dim", "1280"}, {"base", "10000"}, {"variant", "concat"}, {"positions", "50000"}},
       48},
      {R"({"model_type": "reformer", "hidden_size": 256, "num_attention_heads": 2,
           "num_hidden_layers": 6, "max_position_embeddings": 524288,
           "axial_pos_shape": [512, 1024], "axial_pos_embds_dim": [64, 192]})",
       "learned_axial",
       {{"shape", "list of 2"}, {"positions", "524288"}},
       6},
  };
  for (const PositionCase& test : cases) {
    SCOPED_TRACE(test.text);
    const ModelConfig config = parsed(test.text);
    ASSERT_EQ(config.groups.size(), 1U);
    EXPECT_FALSE(config.groups[0].rope.has_value());
    EXPECT_EQ(config.groups[0].layers.size(), test.layers);
    EXPECT_FALSE(config.other_positions.empty());
    ASSERT_FALSE(config.groups[0].positions.empty());
    expect_numbers(config.groups[0].positions[0], test.name, test.numbers);
  }
}

TEST(ConfigPositions, SlopesAreThoseOfTheEncoding) {
  const ModelConfig bloom =
      parsed(R"({"model_type": "bloom", "hidden_size": 224, "n_layer": 1, "n_head": 112})");
  for (const PositionParameter& parameter : bloom.groups[0].positions[0].parameters) {
    if (parameter.name != "slopes") continue;
    EXPECT_EQ(std::get<std::vector<double>>(parameter.value), encodings::alibi_slopes(112));
  }
}

TEST(ConfigPositions, EncodersAndDecodersDiffer) {
  const ModelConfig t5 = parsed(R"({"model_type": "t5", "d_model": 512, "d_kv": 64, "num_heads": 8,
                                    "num_layers": 6, "relative_attention_num_buckets": 32})");
  ASSERT_EQ(t5.groups.size(), 2U);
  EXPECT_EQ(t5.groups[0].layer_type, "encoder");
  EXPECT_EQ(t5.groups[1].layer_type, "decoder");
  expect_numbers(t5.groups[0].positions.at(0), "t5",
                 {{"buckets", "32"},
                  {"max_distance", "128"},
                  {"range", "bidirectional"},
                  {"table", "one for all layers"}});
  expect_numbers(t5.groups[1].positions.at(0), "t5", {{"range", "past_only"}});
  EXPECT_EQ(t5.groups[1].layers.size(), 6U);
  EXPECT_EQ(t5.groups[0].softmax_scale, 1.0);
  EXPECT_EQ(t5.head_dim, 64);
  expect_numbers(parsed(R"({"model_type": "umt5", "num_heads": 6, "num_layers": 8})")
                     .groups[0]
                     .positions.at(0),
                 "t5", {{"table", "one per layer"}});

  const ModelConfig whisper =
      parsed(R"({"model_type": "whisper", "d_model": 384, "encoder_layers": 4, "decoder_layers": 2,
                 "encoder_attention_heads": 6, "decoder_attention_heads": 6,
                 "max_source_positions": 1500, "max_target_positions": 448})");
  expect_numbers(whisper.groups.at(0).positions.at(0), "sinusoidal",
                 {{"positions", "1500"}, {"variant", "fairseq"}});
  expect_numbers(whisper.groups.at(1).positions.at(0), "learned_absolute", {{"rows", "448"}});
  EXPECT_EQ(whisper.groups[1].layers.size(), 2U);

  const ModelConfig bart = parsed(R"({"model_type": "bart", "d_model": 768, "encoder_layers": 6,
                                      "decoder_layers": 6, "max_position_embeddings": 1024})");
  expect_numbers(bart.groups.at(1).positions.at(0), "learned_absolute",
                 {{"rows", "1026"}, {"first_row", "2"}});
}

TEST(ConfigPositions, SeveralEncodings) {
  const ModelConfig mpnet =
      parsed(R"({"model_type": "mpnet", "hidden_size": 768, "num_attention_heads": 12,
                 "num_hidden_layers": 12, "max_position_embeddings": 514, "pad_token_id": 1})");
  ASSERT_EQ(mpnet.groups[0].positions.size(), 2U);
  expect_numbers(mpnet.groups[0].positions[0], "learned_absolute", {{"first_row", "2"}});
  expect_numbers(mpnet.groups[0].positions[1], "t5", {{"buckets", "32"}});
  const ModelConfig wavlm = parsed(R"({"model_type": "wavlm", "num_attention_heads": 12,
                                       "num_buckets": 320, "max_bucket_distance": 800})");
  ASSERT_EQ(wavlm.groups[0].positions.size(), 2U);
  EXPECT_EQ(wavlm.groups[0].positions[0].name, "convolution");
  expect_numbers(wavlm.groups[0].positions[1], "t5", {{"buckets", "320"}, {"max_distance", "800"}});
}

// The number of layers of each type.
std::map<std::string, std::size_t> types_of(const ModelConfig& config) {
  std::map<std::string, std::size_t> types;
  for (const LayerGroup& group : config.groups) types[group.layer_type] += group.layers.size();
  return types;
}
using Types = std::map<std::string, std::size_t>;

TEST(ConfigPositions, LayersOfHybridsAreToldApart) {
  const std::string heads = R"("hidden_size": 64, "num_attention_heads": 4, )";
  EXPECT_EQ(types_of(parsed(R"({"model_type": "jamba", )" + heads +
                            R"("num_hidden_layers": 32, "attn_layer_offset": 4,
                                "attn_layer_period": 8})")),
            (Types{{"attention", 4}, {"mamba", 28}}));
  EXPECT_EQ(types_of(parsed(R"({"model_type": "nemotron_h", )" + heads +
                            R"("hybrid_override_pattern": "M-M*E"})")),
            (Types{{"attention", 1}, {"mamba", 2}, {"mlp", 1}, {"moe", 1}}));
  const ModelConfig qwen = parsed(R"({"model_type": "qwen3_next", "head_dim": 256,
      "num_hidden_layers": 48, "full_attention_interval": 4, "rope_theta": 10000000,
      "partial_rotary_factor": 0.25})");
  EXPECT_EQ(types_of(qwen), (Types{{"full_attention", 12}, {"linear_attention", 36}}));
  EXPECT_EQ(qwen.groups[0].layers[0], 3);
  EXPECT_EQ(types_of(parsed(R"({"model_type": "lfm2", "rope_theta": 1000000, )" + heads +
                            R"("num_hidden_layers": 4, "full_attn_idxs": [2]})")),
            (Types{{"full_attention", 1}, {"conv", 3}}));
  EXPECT_EQ(types_of(parsed(R"({"model_type": "minimax_text_01", "rope_theta": 10000, )" + heads +
                            R"("num_hidden_layers": 3, "attn_type_list": [0, 0, 1]})")),
            (Types{{"full_attention", 1}, {"linear_attention", 2}}));
  EXPECT_EQ(types_of(parsed(R"({"model_type": "kimi_linear", "rope_theta": 10000,
                                "mla_use_nope": true, "num_hidden_layers": 4,
                                "linear_attn_config": {"full_attn_layers": [4]}})")),
            (Types{{"full_attention", 1}, {"linear_attention", 3}}));
  // Without a list, no layer of Bamba attends.
  const ModelConfig bamba = parsed(R"({"model_type": "bamba", "num_hidden_layers": 8, )" + heads +
                                   R"("attn_layer_indices": null})");
  EXPECT_EQ(types_of(bamba), (Types{{"mamba", 8}}));
  EXPECT_FALSE(bamba.groups[0].rope.has_value());
  EXPECT_EQ(types_of(parsed(R"({"model_type": "granitemoehybrid", )" + heads +
                            R"("position_embedding_type": "nope",
                                "layer_types": ["mamba", "attention"]})")),
            (Types{{"attention", 1}, {"mamba", 1}}));
  const ModelConfig neo = parsed(R"({"model_type": "gpt_neo", "hidden_size": 64, "num_heads": 4,
      "num_layers": 4, "window_size": 256,
      "attention_layers": ["global", "local", "global", "local"]})");
  EXPECT_EQ(types_of(neo), (Types{{"global", 2}, {"local", 2}}));
  EXPECT_EQ(neo.groups[1].window, 256);
}

TEST(ConfigPositions, ChunksWindowsAndLengths) {
  const ModelConfig llama4 = parsed(R"({"model_type": "llama4_text", "head_dim": 128,
      "num_hidden_layers": 8, "rope_theta": 500000, "attention_chunk_size": 8192,
      "attn_temperature_tuning": true})");
  EXPECT_EQ(llama4.groups[0].chunk, 8192);
  EXPECT_FALSE(llama4.groups[1].chunk.has_value());
  EXPECT_TRUE(llama4.groups[1].query_scale.has_value());
  const ModelConfig nomic = parsed(R"({"model_type": "nomic_bert", "n_embd": 768, "n_head": 12,
      "n_positions": 8192, "max_trained_positions": 2048, "rotary_emb_base": 1000})");
  EXPECT_EQ(nomic.max_position, 8192);
  EXPECT_EQ(nomic.trained_length, 2048);
  const ModelConfig recurrent = parsed(R"({"model_type": "recurrent_gemma", "hidden_size": 64,
      "num_attention_heads": 4, "num_hidden_layers": 3, "attention_window_size": 2048,
      "block_types": ["recurrent", "recurrent", "attention"]})");
  for (const LayerGroup& group : recurrent.groups)
    EXPECT_EQ(group.window.has_value(), group.rope.has_value());
}

TEST(ConfigPositions, KeyHeadsOfFalcon) {
  const auto key_heads = [](const std::string& more) {
    return parsed(R"({"model_type": "falcon", "hidden_size": 512, "num_attention_heads": 8, )" +
                  more + "}")
        .key_heads;
  };
  EXPECT_EQ(key_heads(R"("multi_query": true)"), 1);
  EXPECT_EQ(key_heads(R"("multi_query": false)"), 8);
  EXPECT_EQ(key_heads(R"("new_decoder_architecture": true, "num_kv_heads": 2)"), 2);
  EXPECT_EQ(parsed(R"({"model_type": "RefinedWeb", "hidden_size": 512, "n_head": 8,
                       "n_head_kv": 2})")
                .key_heads,
            2);
}

// Parts leave out what the config class has as a default.
TEST(ConfigPositions, PartsHaveTheSizesOfTheirClass) {
  const ModelConfig gemma = parsed(R"({"model_type": "gemma3", "text_config": {
      "model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}})");
  EXPECT_EQ(gemma.heads, 8);
  EXPECT_EQ(gemma.key_heads, 4);
  EXPECT_EQ(gemma.max_position, 131072);
  const ModelConfig llava = parsed(R"({"model_type": "llava", "text_config": {
      "model_type": "llama", "max_position_embeddings": 4096}})");
  EXPECT_EQ(llava.groups[0].rope->head_dim, 128);
  EXPECT_EQ(llava.groups[0].layers.size(), 32U);
  // A whole config must say it.
  tests::expect_error(ErrorCode::invalid_argument, {"head_dim"},
                      parse_config(R"({"model_type": "llama", "max_position_embeddings": 4096})"));
}

TEST(ConfigPositions, FourRowsOfPositions) {
  const ModelConfig hunyuan = parsed(R"({"model_type": "hunyuan_vl", "head_dim": 128,
      "num_attention_heads": 16, "num_hidden_layers": 24, "max_position_embeddings": 32768,
      "rope_theta": 10000.0, "rope_scaling": {"alpha": 1000.0, "type": "xdrope", "factor": 1.0,
      "xdrope_section": [16, 16, 16, 16]}})");
  const encodings::RopeSpec& rope = *hunyuan.groups[0].rope;
  EXPECT_EQ(encodings::axis_count(rope.axes), 4);
  EXPECT_EQ(std::get<encodings::DynamicScaling>(rope.scaling).alpha, 1000.0);
  tests::expect_error(
      ErrorCode::invalid_argument, {"xdrope_section"},
      parse_config(R"({"model_type": "hunyuan_vl", "head_dim": 128, "rope_scaling": {
          "type": "xdrope", "alpha": 2, "factor": 1.0, "mrope_section": [16, 16, 16, 16],
          "xdrope_section": [32, 16, 8, 8]}})"));
}

TEST(ConfigPositions, KeysThatAreNotKnown) {
  const std::string base = R"({"model_type": "bert", "num_attention_heads": 4, "vocab_size": 100)";
  EXPECT_TRUE(parsed(base + "}").unknown_keys.empty());
  EXPECT_EQ(parsed(base + R"(, "max_distance_bias": 3})").unknown_keys,
            std::vector<std::string>{"max_distance_bias"});
}

TEST(ConfigPositions, Refusals) {
  const auto refused = [](ErrorCode code, const std::string& text, const std::string& value) {
    SCOPED_TRACE(text);
    tests::expect_error(code, {value}, parse_config(text));
  };
  refused(ErrorCode::unsupported, R"({"model_type": "bert", "position_embedding_type": "sliding"})",
          "sliding");
  refused(ErrorCode::unsupported,
          R"({"model_type": "deberta", "relative_attention": true, "pos_att_type": "c2q"})", "c2q");
  refused(ErrorCode::invalid_argument, R"({"model_type": "gpt2", "n_positions": 0})",
          "n_positions");
  refused(ErrorCode::invalid_argument,
          R"({"model_type": "roberta", "max_position_embeddings": 2, "pad_token_id": 1})", "2");
  refused(ErrorCode::invalid_argument,
          R"({"model_type": "mpt", "n_heads": 4, "attn_config": {"alibi_bias_max": -1}})", "-1");
  refused(ErrorCode::invalid_argument, R"({"model_type": "bloom", "n_head": 1000000})", "1000000");
  refused(ErrorCode::invalid_argument,
          R"({"model_type": "nemotron_h", "hybrid_override_pattern": "MX"})", "MX");
  refused(ErrorCode::invalid_argument,
          R"({"model_type": "vit", "image_size": [224, 224, 3], "patch_size": 16})", "image_size");
}

}  // namespace
}  // namespace phasor::config
